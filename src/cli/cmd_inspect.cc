// kvfork inspect: what a checkpoint or a saved context holds, and whether kvfork can run it.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/help.h"
#include "cli/hub_model.h"
#include "cli/json_object.h"
#include "cli/json_parts.h"
#include "cli/output.h"
#include "kvfork/error.h"
#include "kvfork/inspect.h"

namespace kvfork::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Args {
  std::string path;
  std::string parent;
  bool json = false;
  bool check = false;
};

// A saved context; ancestors only where --check looked for them.
struct Saved {
  ContextFacts facts;
  std::optional<std::vector<AncestorFacts>> ancestors;
};

double mib(uint64_t n_bytes) {
  return static_cast<double>(n_bytes) / (1 << 20);
}

// A JSON text as JSON where it is that, else as a string.
Json embedded(const std::string& text) {
  if (text.empty()) return nullptr;
  Json value = parse_value(text);
  return value.is_discarded() ? Json(text) : value;
}

Json origin_json(const ContextOrigin& origin) {
  Json vars = Json::object();
  for (const auto& [name, value] : origin.fixed.vars) vars[name] = embedded(value);
  return {{"boundary", boundary_mode_name(origin.boundary)},
          {"messages", origin.fixed.raw_text ? Json(nullptr) : embedded(origin.fixed.messages_json)},
          {"tools", embedded(origin.fixed.tools_json)},
          {"documents", embedded(origin.fixed.documents_json)},
          {"vars", vars},
          {"now", origin.fixed.now ? Json(*origin.fixed.now) : Json(nullptr)},
          {"raw", origin.fixed.raw_text.has_value()},
          {"own_template", origin.template_source.has_value()},
          {"text", origin.text}};
}

Json ancestors_json(const std::vector<AncestorFacts>& ancestors) {
  Json list = Json::array();
  for (const AncestorFacts& ancestor : ancestors) {
    const bool sound = !ancestor.problem;
    list.push_back({{"id", ancestor.id},
                    {"file", or_null(ancestor.file)},
                    {"bytes", sound ? Json(ancestor.file_bytes) : Json(nullptr)},
                    {"tokens", sound ? Json(ancestor.n_tokens) : Json(nullptr)},
                    {"problem", sound ? Json(nullptr) : Json(ancestor.problem->what())}});
  }
  return list;
}

Json context_json(const std::string& path, const Saved& saved) {
  const ContextFacts& facts = saved.facts;
  return {{"kind", "context"},
          {"file", path},
          {"bytes", facts.file_bytes},
          {"checked", saved.ancestors.has_value()},
          {"id", facts.id},
          {"kvfork_version", facts.kvfork_version},
          {"tokens", facts.n_tokens},
          {"parent", facts.parent_id.empty() ? Json(nullptr)
                                             : Json{{"id", facts.parent_id},
                                                    {"file", or_null(facts.parent_file)},
                                                    {"tokens", facts.n_parent_tokens}}},
          {"ancestors", saved.ancestors ? ancestors_json(*saved.ancestors) : Json(nullptr)},
          {"layers", facts.n_layers},
          {"kv_heads", facts.n_kv_heads},
          {"head_dim", facts.head_dim},
          {"vocab_size", facts.vocab_size},
          {"kv_bytes_per_token", facts.kv_bytes_per_token},
          {"identity", identity_json(facts.identity)},
          {"origin", facts.origin == nullptr ? Json(nullptr) : origin_json(*facts.origin)}};
}

void print_ancestor(const AncestorFacts& ancestor) {
  if (ancestor.problem) {
    print_line("ancestor       {}: cannot be used", ancestor.file.empty() ? ancestor.id : ancestor.file);
    return;
  }
  print_line("ancestor       {}: every byte has its checksum; {} tokens, {:.1f} MiB", ancestor.file,
             ancestor.n_tokens, mib(ancestor.file_bytes));
}

void print_context(const std::string& path, const Saved& saved) {
  const ContextFacts& facts = saved.facts;
  const Identity& identity = facts.identity;
  print_line("saved context  {}", path);
  print_line("state          {}", saved.ancestors
                                      ? "every byte has its checksum"
                                      : "header, ids, logits and text are sound; --check checks the rest");
  print_line("holds          {} tokens, {:.1f} MiB; written by kvfork {}", facts.n_tokens, mib(facts.file_bytes),
             facts.kvfork_version);
  print_line("id             {}", facts.id);
  if (!facts.parent_id.empty())
    print_line("continues      {}{}: its first {} tokens", facts.parent_id,
               facts.parent_file.empty() ? "" : " (" + facts.parent_file + ")", facts.n_parent_tokens);
  if (saved.ancestors) std::for_each(saved.ancestors->begin(), saved.ancestors->end(), print_ancestor);
  print_line("model          {}, {} layers, {} KV heads of {}", identity.architecture, facts.n_layers,
             facts.n_kv_heads, facts.head_dim);
  for (const auto& [name, value] : {std::pair("config", &identity.config),
                                    {"weights", &identity.weights},
                                    {"tokenizer", &identity.tokenizer},
                                    {"template", &identity.chat_template},
                                    {"revision", &identity.revision}}) {
    if (!value->empty()) print_line("{:<14} {}", name, *value);
  }
  print_line("mode           {}, kernel set {} ({:.12})", identity.dtype, identity.kernel_set,
             identity.kernel_bits);
  if (facts.origin == nullptr) {
    print_line("text           none: made from token ids alone");
    return;
  }
  print_line("boundary       {}", boundary_mode_name(facts.origin->boundary));
  print_line("text           {} bytes{}", facts.origin->text.size(), facts.origin->fixed.raw_text ? ", plain" : "");
}

Json template_json(const TemplateFacts& facts) {
  return {{"names", facts.names},
          {"system_role", facts.takes_system_message},
          {"default_system_text", or_null(facts.default_system_text)},
          {"uses_clock", facts.reads_clock},
          {"boundary", facts.boundary ? Json(boundary_mode_name(*facts.boundary)) : Json(nullptr)},
          {"safe_for_any_request", facts.safe_for_any_request},
          {"problem", or_null(facts.problem)}};
}

// Weights, and what a full context remembers.
uint64_t memory_of(const ModelFacts& facts, size_t kv_bytes_per_token) {
  return facts.weight_bytes + facts.state_bytes + uint64_t{kv_bytes_per_token} * facts.max_position_embeddings;
}

Json model_json(const std::string& path, const ModelFacts& facts) {
  return {
      {"kind", "model"},
      {"model", path},
      {"format", facts.format},
      {"runs", facts.problem.empty()},
      {"problem", or_null(facts.problem)},
      {"architecture", or_null(facts.architecture)},
      {"family", or_null(facts.model_type)},
      {"revision", or_null(facts.revision)},
      {"parameters", facts.n_parameters},
      {"weights",
       {{"present", facts.has_weights}, {"bytes", facts.weight_bytes}, {"bytes_by_dtype", facts.bytes_by_type}}},
      {"context_limit", facts.max_position_embeddings},
      {"layers", facts.n_layers},
      {"heads", facts.n_heads},
      {"kv_heads", facts.n_kv_heads},
      {"head_dim", facts.head_dim},
      {"hidden_size", facts.hidden_size},
      {"vocab_size", facts.vocab_size},
      {"kv_bytes_per_token",
       {{"float32", facts.kv_bytes_per_token_float32}, {"bfloat16", facts.kv_bytes_per_token_bfloat16}}},
      {"state_bytes", facts.state_bytes},
      {"memory_bytes",
       {{"float32", memory_of(facts, facts.kv_bytes_per_token_float32)},
        {"bfloat16", memory_of(facts, facts.kv_bytes_per_token_bfloat16)}}},
      {"tokenizer", {{"present", facts.has_tokenizer}, {"problem", or_null(facts.tokenizer_problem)}}},
      {"template", facts.chat_template ? template_json(*facts.chat_template) : Json(nullptr)}};
}

void print_template(const TemplateFacts& facts) {
  if (!facts.problem.empty()) {
    print_line("template       cannot be rendered: {}", facts.problem);
    return;
  }
  print_line("template       {}; {} the clock",
             facts.takes_system_message ? "takes a system message" : "takes no system message",
             facts.reads_clock ? "reads" : "does not read");
  if (!facts.default_system_text.empty())
    print_line("               says by itself: {}", facts.default_system_text);
  if (!facts.takes_system_message) return;
  print_line("boundary       {}{}",
             facts.boundary ? boundary_mode_name(*facts.boundary) : "no mode keeps a system message a prefix",
             facts.safe_for_any_request ? ", safe for any request" : "");
}

void print_model(const std::string& path, const ModelFacts& facts) {
  print_line("model          {} ({}, {})", path,
             facts.architecture.empty() ? "architecture unknown" : facts.architecture, facts.format);
  print_line("runs           {}", facts.problem.empty() ? "yes" : "no: " + facts.problem);
  if (!facts.revision.empty()) print_line("revision       {}", facts.revision);
  std::string types;
  for (const auto& [type, n_bytes] : facts.bytes_by_type)
    types += fmt::format("{}{} {:.1f} MiB", types.empty() ? ": " : ", ", type, mib(n_bytes));
  print_line("weights        {:.1f} MiB{}{}, {:.1f} million parameters", mib(facts.weight_bytes),
             facts.has_weights ? "" : " (not here)", types, static_cast<double>(facts.n_parameters) / 1e6);
  print_line("shape          {} layers, {} heads, {} KV heads of {}, hidden {}, vocabulary {}", facts.n_layers,
             facts.n_heads, facts.n_kv_heads, facts.head_dim, facts.hidden_size, facts.vocab_size);
  print_line("context limit  {} tokens", facts.max_position_embeddings);
  for (const auto& [mode, per_token] :
       {std::pair("float32", facts.kv_bytes_per_token_float32), {"bfloat16", facts.kv_bytes_per_token_bfloat16}})
    print_line("{:<14} {} bytes of keys and values per token; {:.1f} MiB of memory with a full context", mode,
               per_token, mib(memory_of(facts, per_token)));
  if (facts.state_bytes > 0)
    print_line("state          {:.1f} MiB at each place where forks may start", mib(facts.state_bytes));
  if (!facts.tokenizer_problem.empty()) print_line("tokenizer      {}", facts.tokenizer_problem);
  if (facts.chat_template)
    print_template(*facts.chat_template);
  else if (facts.tokenizer_problem.empty())
    print_line("template       none: a base model, for --raw");
}

int inspect_saved(const Args& args) {
  Saved saved{.facts = inspect_context(args.path, args.check ? ContextCheck::All : ContextCheck::Quick),
              .ancestors = {}};
  if (args.check) saved.ancestors = inspect_ancestors(args.path, args.parent);
  args.json ? write_json(context_json(args.path, saved)) : print_context(args.path, saved);
  if (!saved.ancestors || saved.ancestors->empty() || !saved.ancestors->back().problem) return 0;
  print_error(saved.ancestors->back().problem->what());
  return 1;
}

int inspect(const Args& args) {
  if (is_saved_context(args.path)) return inspect_saved(args);
  PullOptions pull;
  pull.files = PullFiles::Small;
  const LocatedModel located = locate_model(args.path, args.json ? Progress::Show::Never : Progress::Show::Auto,
                                            std::move(pull), Unsupported::Take);
  ModelFacts facts = inspect_model(located.path);
  if (facts.problem.empty()) facts.problem = located.weights_problem;
  args.json ? write_json(model_json(args.path, facts)) : print_model(args.path, facts);
  return 0;
}

}  // namespace

Command add_inspect(CLI::App& app) {
  auto args = std::make_shared<Args>();
  app.add_option("path", args->path,
                 "A directory in Hugging Face layout, a GGUF file, a Hub id, or a saved context")
      ->group(kRequestGroup)
      ->type_name("PATH")
      ->required();
  CLI::Option* check =
      app.add_flag("--check", args->check,
                   "Of a saved context: compare every byte of it and of its ancestors with its checksum")
          ->group(kRequestGroup);
  app.add_option("--parent", args->parent, "With --check: the file of its parent (default: looked for beside it)")
      ->group(kRequestGroup)
      ->type_name("FILE")
      ->needs(check);
  app.add_flag("--json", args->json, "One JSON document on standard output")->group(kOutputGroup);
  return [args] { return inspect(*args); };
}

}  // namespace kvfork::cli
