// What Transformers checks and changes in messages before it renders them.
#include "jinja/conversation.h"

#include "base/error.h"
#include "jinja/values/operators.h"
#include "jinja/values/printing.h"
#include "jinja/values/runtime.h"

namespace kvfork::jinja {
namespace {

Value with_entry(Runtime& rt, const Dict& dict, std::string_view key, Value value) {
  auto copy = std::make_unique<Dict>();
  for (const auto& [name, old] : dict.entries) copy->set(name, old);
  copy->set(rt.string(key), std::move(value));
  return rt.dict(std::move(copy));
}

Value with_item(Runtime& rt, const List& list, size_t index, Value value) {
  std::vector<Value> items = list.items;
  items[index] = std::move(value);
  return rt.list(std::move(items));
}

std::string text_of(const Value& value) {
  if (!value.is(Kind::String)) {
    base::fail(ErrorCode::InvalidArgument,
               "messages: continue_final_message expected the final message to end in text, found {}",
               type_name(value));
  }
  return std::string(value.text());
}

}  // namespace

void check_messages(const Value& messages) {
  if (!messages.is(Kind::List)) {
    base::fail(ErrorCode::InvalidArgument, "messages: expected a list, found {}", type_name(messages));
  }
  const auto& items = messages.as<List>().items;
  if (items.empty()) base::fail(ErrorCode::InvalidArgument, "messages: expected at least one message, found none");
  if (items[0].is(Kind::List)) {
    base::fail(ErrorCode::InvalidArgument, "messages: expected one conversation, found a list of conversations");
  }
}

void check_objects(const Value& list, std::string_view name) {
  if (list.is(Kind::None) || list.is_missing()) return;
  if (!list.is(Kind::List)) {
    base::fail(ErrorCode::InvalidArgument, "{}: expected a list of objects, found {}", name, type_name(list));
  }
  for (const Value& item : list.as<List>().items) {
    if (!item.is(Kind::Dict)) {
      base::fail(ErrorCode::InvalidArgument, "{}: expected a list of objects, found one with {}", name,
                 type_name(item));
    }
  }
}

Value append_tag(Runtime& rt, const Value& messages, std::string_view tag, std::string& final_message) {
  const auto& list = messages.as<List>();
  const Value& last = list.items.back();
  const Value* content = last.is(Kind::Dict) ? last.as<Dict>().find("content") : nullptr;
  if (content == nullptr) {
    base::fail(ErrorCode::InvalidArgument,
               "messages: continue_final_message expected the final message to have content");
  }
  if (!content->is(Kind::List)) {
    final_message = text_of(*content);
    Value changed = with_entry(rt, last.as<Dict>(), "content", rt.string(final_message + std::string(tag)));
    return with_item(rt, list, list.items.size() - 1, std::move(changed));
  }
  const auto& blocks = content->as<List>();
  for (size_t i = blocks.items.size(); i > 0; --i) {
    const Value& block = blocks.items[i - 1];
    const Value* text = block.is(Kind::Dict) ? block.as<Dict>().find("text") : nullptr;
    if (text == nullptr) continue;
    final_message = text_of(*text);
    Value changed = with_entry(rt, block.as<Dict>(), "text", rt.string(final_message + std::string(tag)));
    changed = with_entry(rt, last.as<Dict>(), "content", with_item(rt, blocks, i - 1, std::move(changed)));
    return with_item(rt, list, list.items.size() - 1, std::move(changed));
  }
  base::fail(ErrorCode::InvalidArgument,
             "continue_final_message is set but we could not find any text to continue in the final message!");
}

}  // namespace kvfork::jinja
