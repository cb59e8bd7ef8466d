// kvfork tokenize: what the model sees.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/boundary_view.h"
#include "cli/commands.h"
#include "cli/default_policy.h"
#include "cli/fixed_part.h"
#include "cli/help.h"
#include "cli/hub_model.h"
#include "cli/json_object.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/warnings.h"
#include "kvfork/chat.h"
#include "kvfork/error.h"
#include "kvfork/text.h"
#include "kvfork/tokenizer.h"

namespace kvfork::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Args {
  std::string model;
  CLI::Option* text_option = nullptr;
  std::string text;
  std::string messages_file;
  CLI::Option* decode_option = nullptr;
  CLI::Option* boundary_option = nullptr;
  std::string boundary;
  std::string context;
  std::vector<std::string> prompts;
  std::string decode;
  TemplateFlags template_flags;
  bool add_special_tokens = false;
  bool no_generation_prompt = false;
  bool continue_final_message = false;
  bool json = false;
  bool jsonl = false;
  bool render = false;
};

// Of a Hub id the small files are pulled, not the weights.
std::string locate_text(const std::string& model) {
  PullOptions pull;
  pull.files = PullFiles::Small;
  return locate_model(model, Progress::Show::Auto, std::move(pull)).path;
}

class Tokenize {
 public:
  explicit Tokenize(const Args& args)
      : args_(args),
        text_(Text::open(locate_text(args.model))),
        template_(args.template_flags.choose(text_->chat_template())) {}

  int run() {
    if (args_.jsonl) return run_lines();
    if (*args_.boundary_option) return run_boundary();
    if (*args_.decode_option) {
      write_decoded(parse_ids(args_.decode, "--decode"));
      return 0;
    }
    const bool is_plain = args_.messages_file.empty();
    if (args_.render) {
      write_output(is_plain ? plain_text() : render(request_from_flags()));
      return 0;
    }
    const Prompt prompt = is_plain ? encode(plain_text()) : encode(request_from_flags());
    if (args_.json) {
      write_json(Json{{"ids", prompt.ids}, {"pieces", prompt.report.pieces}, {"text", prompt.text}});
      return 0;
    }
    for (size_t i = 0; i < prompt.ids.size(); ++i)
      write_output(fmt::format("{}\t{}\n", prompt.ids[i], to_json_text(prompt.report.pieces[i])));
    return 0;
  }

 private:
  Prompt encode(std::string text) const {
    EncodeOptions options;
    options.add_special_tokens = args_.add_special_tokens;
    Prompt prompt = encode_text(text_->tokenizer(), std::move(text), options, args_.template_flags.user_text());
    warn_about(prompt);
    return prompt;
  }

  Prompt encode(const ChatRequest& request) const {
    Prompt prompt = encode_chat(text_->tokenizer(), template_, request, args_.template_flags.user_text());
    warn_about(prompt);
    return prompt;
  }

  std::string plain_text() const { return *args_.text_option ? args_.text : read_standard_input(); }

  ChatRequest request_from_flags() const {
    ChatRequest request = args_.template_flags.request();
    request.messages_json = read_text(args_.messages_file);
    request.continue_final_message = args_.continue_final_message;
    request.add_generation_prompt = !args_.no_generation_prompt && !args_.continue_final_message;
    return request;
  }

  std::string render(const ChatRequest& request) const {
    RenderedChat rendered = template_.render(request, text_->tokenizer(), args_.template_flags.user_text());
    if (!args_.template_flags.literal_user_text) warn_about_control_tokens(rendered.control_tokens);
    return std::move(rendered.text);
  }

  void write_decoded(const std::vector<int32_t>& ids) const {
    const Tokenizer& tokenizer = text_->tokenizer();
    std::vector<std::string> pieces;
    for (const int32_t id : ids) pieces.emplace_back(tokenizer.piece(id));
    const std::string text = tokenizer.decode(ids, SpecialTokens::Keep, Cleanup::Off);
    if (args_.json) {
      write_json(Json{{"ids", ids}, {"pieces", pieces}, {"text", text}});
    } else {
      write_output(text + "\n");
    }
  }

  // The fixed part is --messages, or --context as a system message.
  int run_boundary() const {
    FixedPart fixed = FixedPart::from_system_message(args_.context);
    if (!args_.messages_file.empty()) fixed.messages_json = read_text(args_.messages_file);
    args_.template_flags.fill(fixed);
    const std::vector<std::string> prompts =
        args_.prompts.empty() ? std::vector<std::string>{"Hello"} : args_.prompts;
    return show_boundary(Prompter(text_, template_, std::move(fixed)), parse_boundary_mode(args_.boundary), prompts,
                         args_.json ? Format::Json : Format::Table);
  }

  int run_lines() const {
    const std::string input = read_standard_input();
    bool all_good = true;
    for (size_t begin = 0; begin < input.size();) {
      const size_t end = std::min(input.find('\n', begin), input.size());
      Json answer;
      try {
        answer = answer_line(std::string_view(input).substr(begin, end - begin));
      } catch (const Error& error) {
        answer = Json{{"error", error.what()}};
        all_good = false;
      }
      write_json(answer);
      begin = end + 1;
    }
    return all_good ? 0 : 1;
  }

  using Members = std::map<std::string, std::string_view>;

  Json answer_line(std::string_view line) const {
    const size_t first = line.find_first_not_of(" \t\r");
    if (first != std::string_view::npos && line[first] == '"')
      return encoded(parse_string(line.substr(first, line.find_last_not_of(" \t\r") + 1 - first)));
    const Members members = split_object(line);
    if (members.contains("text")) return encoded(parse_string(members.at("text")));
    if (members.contains("ids")) return decoded(members.at("ids"));
    if (members.contains("messages")) return encoded(request_of(members));
    throw Error(ErrorCode::InvalidArgument,
                "line: expected a string or an object with \"text\", \"ids\" or \"messages\"");
  }

  Json encoded(std::string text) const {
    if (args_.render) return Json{{"text", text}};
    const Prompt prompt = encode(std::move(text));
    return Json{{"ids", prompt.ids}, {"text", prompt.text}};
  }

  Json encoded(const ChatRequest& request) const {
    if (args_.render) return Json{{"text", render(request)}};
    const Prompt prompt = encode(request);
    return Json{{"ids", prompt.ids}, {"text", prompt.text}};
  }

  Json decoded(std::string_view list) const {
    const std::vector<int32_t> ids = parse_id_list(list);
    for (const int32_t id : ids) text_->tokenizer().piece(id);  // an unknown id is an error
    return Json{{"ids", ids}, {"text", text_->tokenizer().decode(ids, SpecialTokens::Keep, Cleanup::Off)}};
  }

  ChatRequest request_of(const Members& members) const {
    ChatRequest request = args_.template_flags.request();
    const auto find = [&members](const char* name) {
      const auto found = members.find(name);
      return found == members.end() || found->second == "null" ? std::string() : std::string(found->second);
    };
    request.messages_json = members.at("messages");
    if (const std::string tools = find("tools"); !tools.empty()) request.tools_json = tools;
    if (const std::string documents = find("documents"); !documents.empty()) request.documents_json = documents;
    if (const std::string vars = find("vars"); !vars.empty()) {
      for (const auto& [name, value] : split_object(vars)) request.vars.emplace_back(name, value);
    }
    const auto flag = [&](const char* name, bool otherwise) {
      const std::string value = find(name);
      if (value.empty()) return otherwise;
      if (value != "true" && value != "false")
        throw Error(ErrorCode::InvalidArgument, fmt::format("{}: expected true or false", name));
      return value == "true";
    };
    request.continue_final_message = flag("continue_final_message", args_.continue_final_message);
    request.add_generation_prompt =
        flag("add_generation_prompt", !args_.no_generation_prompt && !request.continue_final_message);
    return request;
  }

  const Args& args_;
  std::shared_ptr<const Text> text_;
  ChatTemplate template_;
};

}  // namespace

Command add_tokenize(CLI::App& app) {
  auto args = std::make_shared<Args>();
  app.add_option("--model", args->model,
                 "A directory with tokenizer.json and tokenizer_config.json, a GGUF file, or a Hub id")
      ->group(kModelGroup)
      ->type_name("MODEL")
      ->required()
      ->check(not_empty());
  args->text_option = app.add_option("--text", args->text, "The text (default: standard input)")
                          ->group(kRequestGroup)
                          ->type_name("TEXT");
  CLI::Option* messages = app.add_option("--messages", args->messages_file, "JSON file with a message list")
                              ->group(kRequestGroup)
                              ->type_name("FILE");
  args->decode_option = app.add_option("--decode", args->decode, "Token ids to turn back into text")
                            ->group(kRequestGroup)
                            ->type_name("N,N,...");
  CLI::Option* jsonl =
      app.add_flag("--jsonl", args->jsonl,
                   "One request per line of standard input: a string, or an object with text, ids or messages")
          ->group(kRequestGroup);
  args->text_option->excludes(messages)->excludes(args->decode_option)->excludes(jsonl);
  messages->excludes(args->decode_option)->excludes(jsonl);
  args->decode_option->excludes(jsonl);
  args->boundary_option =
      app.add_option("--boundary", args->boundary,
                     "Show where a context (--context or --messages) ends and requests (--prompt) begin: "
                     "message, probe or longest")
          ->group(kRequestGroup)
          ->expected(0, 1)
          ->default_str("message")
          ->check(CLI::IsMember({"message", "probe", "longest"}));
  args->context = kDefaultPolicy;
  app.add_option("--context", args->context, "With --boundary: the system message (default: a support policy)")
      ->group(kRequestGroup)
      ->type_name("TEXT")
      ->needs(args->boundary_option)
      ->excludes(messages);
  app.add_option("--prompt", args->prompts, "With --boundary: a request; repeatable")
      ->group(kRequestGroup)
      ->type_name("TEXT")
      ->needs(args->boundary_option)
      ->allow_extra_args(false);
  args->boundary_option->excludes(args->text_option)->excludes(args->decode_option)->excludes(jsonl);
  args->template_flags.add_to(app);
  app.add_flag("--add-special-tokens", args->add_special_tokens,
               "Apply the tokenizer's post-processor to plain text")
      ->group(kRequestGroup);
  app.add_flag("--no-generation-prompt", args->no_generation_prompt, "Do not open the assistant's turn")
      ->group(kRequestGroup);
  app.add_flag("--continue-final-message", args->continue_final_message, "Leave the last message open")
      ->group(kRequestGroup);
  app.add_flag("--json", args->json, "{\"ids\", \"pieces\", \"text\"}")->group(kOutputGroup);
  app.add_flag("--render", args->render, "Print the rendered text alone")->group(kOutputGroup);
  return [args] { return Tokenize(*args).run(); };
}

}  // namespace kvfork::cli
