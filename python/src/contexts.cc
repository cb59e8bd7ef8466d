// Contexts: what they tell, requests to them, forks, children, files.
#include <nanobind/ndarray.h>

#include <iterator>

#include "handles.h"
#include "kvfork/identity.h"
#include "kvfork/rows.h"
#include "kvfork/text.h"

namespace kvfork::python {
namespace {

template <class T>
using View = nb::ndarray<nb::numpy, const T, nb::ndim<1>>;

// No copy: the array keeps the context alive, whose memory nobody writes to.
template <class T>
View<T> view_of(const ContextHandle& handle, std::span<const T> values) {
  auto* kept = new std::shared_ptr<const Context>(handle.context);
  const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::shared_ptr<const Context>*>(p); });
  return View<T>(values.data(), {values.size()}, owner);
}

// (keys, values), float32 [n_kv_heads, n, head_dim]; None for a layer without rows.
nb::object copy_rows(const ContextHandle& handle, size_t layer) {
  const LayerShape shape = layer_shape(handle.get(), layer);
  if (shape.n_kv_heads == 0) return nb::none();
  const size_t n = handle.context->size();
  const auto make_array = [&](float*& data) {
    data = new float[shape.n_kv_heads * n * shape.head_dim];
    const nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<float*>(p); });
    return nb::ndarray<nb::numpy, float, nb::ndim<3>>(data, {shape.n_kv_heads, n, shape.head_dim}, owner);
  };
  float* keys = nullptr;
  float* values = nullptr;
  const auto key_array = make_array(keys);
  const auto value_array = make_array(values);
  {
    const nb::gil_scoped_release released;
    const size_t count = shape.n_kv_heads * n * shape.head_dim;
    kvfork::copy_rows(handle.get(), layer, {keys, count}, {values, count});
  }
  return nb::make_tuple(key_array, value_array);
}

nb::dict identity_of(const ContextHandle& handle) {
  Identity identity;
  {
    const nb::gil_scoped_release released;
    identity = handle.get().identity();
  }
  nb::dict dict;
  dict["architecture"] = identity.architecture;
  dict["config"] = identity.config;
  dict["weights"] = identity.weights;
  dict["dtype"] = identity.dtype;
  dict["kernel_set"] = identity.kernel_set;
  dict["kernel_bits"] = identity.kernel_bits;
  dict["tokenizer"] = identity.tokenizer;
  dict["template"] = identity.chat_template;
  dict["revision"] = identity.revision;
  return dict;
}

Prompter prompter_of(const ContextHandle& handle) {
  return Prompter::from_origin(handle.get().model()->shared_text(), handle.context->origin());
}

std::vector<int32_t> encode_prompt(const ContextHandle& handle, const std::string& text) {
  return prompter_of(handle).make_request(text).ids;
}

std::vector<int32_t> encode_messages(const ContextHandle& handle, const std::string& messages) {
  return prompter_of(handle).make_request_from_messages(messages).ids;
}

// The ids of a request with the beginning of its answer, tokenized as one text.
std::vector<int32_t> encode_continuation(const ContextHandle& handle, const std::string& prompt,
                                         const std::string& continuation) {
  const Prompter prompter = prompter_of(handle);
  if (prompter.fixed_part().raw_text) return prompter.make_request(prompt + continuation).ids;
  if (prompter.fixed_part().user_text == UserText::Literal)
    throw Error(ErrorCode::InvalidArgument,
                "continuation: expected token ids where user_text is 'literal', found text");
  return prompter.tokenizer().encode(prompter.make_request(prompt).text + continuation);
}

ContextHandle fork_at(const ContextHandle& handle, const Request& request, const nb::object& on_progress,
                      std::shared_ptr<const ContextOrigin> origin) {
  Fork fork = handle.get().fork(request, [&](size_t done) { notify(on_progress, done); });
  return {handle.owner, std::move(fork).seal(std::move(origin))};
}

ContextHandle fork_ids(const ContextHandle& handle, std::vector<int32_t> ids, nb::object on_progress) {
  const nb::gil_scoped_release released;
  return fork_at(handle, handle.make_request(std::move(ids)), on_progress, nullptr);
}

// `more` goes on in the form of the context's own fixed part: messages, or plain text.
ContextHandle extend(const ContextHandle& handle, const std::string& more, bool is_text, nb::object on_progress) {
  const nb::gil_scoped_release released;
  const auto& origin = handle.get().origin();
  prompter_of(handle);  // refuses a context without an origin, and a text side that is not the origin's
  auto longer = std::make_shared<ContextOrigin>(*origin);
  FixedPart& fixed = longer->fixed;
  if (is_text != fixed.raw_text.has_value())
    throw Error(ErrorCode::InvalidArgument,
                is_text ? "extend: expected messages, since the context was made from messages; found text"
                        : "extend: expected text, since the context was made from text; found messages");
  if (is_text) {
    *fixed.raw_text += more;
  } else {
    fixed.messages_json = append_messages(fixed.messages_json, more);
  }
  const Prompter prompter = Prompter::from_origin(handle.context->model()->shared_text(), longer);
  const Prompt prompt = prompter.make_context(origin->boundary);
  return fork_at(handle, handle.make_request(prompt.ids), on_progress,
                 prompter.make_origin(origin->boundary, prompt));
}

uint64_t save(const ContextHandle& handle, const std::string& path, bool flatten, nb::object on_progress) {
  const nb::gil_scoped_release released;
  SaveOptions options{.flatten = flatten};
  options.on_progress = [&](uint64_t done, uint64_t total) { notify(on_progress, done, total); };
  return handle.get().save(path, options);
}

template <class Call>
auto released(Call call) {
  return [call](const ContextHandle& handle) {
    const nb::gil_scoped_release released;
    return call(handle.get());
  };
}

}  // namespace

void bind_contexts(nb::module_& module) {
  nb::class_<ContextHandle>(module, "Context")
      .def("size", [](const ContextHandle& h) { return h.context->size(); })
      .def("kv_bytes", [](const ContextHandle& h) { return h.context->kv_bytes(); })
      .def(
          "last_start", [](const ContextHandle& h, size_t n) { return h.context->last_start(n); }, nb::arg("n"))
      .def("ids", [](const ContextHandle& h) { return view_of(h, h.context->ids()); })
      .def("logits", [](const ContextHandle& h) { return view_of(h, h.context->logits()); })
      .def("has_origin", [](const ContextHandle& h) { return h.context->origin() != nullptr; })
      .def("boundary", [](const ContextHandle& h) { return boundary_mode_name(h.mode()); })
      .def("is_raw",
           [](const ContextHandle& h) {
             return h.context->origin() != nullptr && h.context->origin()->fixed.raw_text.has_value();
           })
      .def("copy_rows", copy_rows, nb::arg("layer"))
      .def("identity", identity_of)
      .def("hash", released([](const Context& context) { return context.hash(); }))
      .def("id", released([](const Context& context) { return context.id(); }))
      .def("check", released([](const Context& context) { context.check(); }))
      .def("encode_prompt", encode_prompt, nb::arg("text"))
      .def("encode_messages", encode_messages, nb::arg("messages"))
      .def("encode_continuation", encode_continuation, nb::arg("prompt"), nb::arg("continuation"))
      .def("fork", fork_ids, nb::arg("ids"), nb::arg("on_progress").none())
      .def("extend", extend, nb::arg("more"), nb::arg("is_text"), nb::arg("on_progress").none())
      .def("save", save, nb::arg("path"), nb::arg("flatten"), nb::arg("on_progress").none());
}

}  // namespace kvfork::python
