// Models: finding, opening, prefilling, and the tokenizer.
#include <filesystem>

#include "handles.h"
#include "kvfork/compatibility.h"
#include "kvfork/hub.h"
#include "kvfork/text.h"

namespace kvfork::python {
namespace {

using OptionalText = std::optional<std::string>;

BoundaryMode boundary_of(const std::string& name) {
  for (const BoundaryMode mode : {BoundaryMode::Message, BoundaryMode::Probe, BoundaryMode::Longest}) {
    if (name == boundary_mode_name(mode)) return mode;
  }
  throw Error(ErrorCode::InvalidArgument,
              "boundary: expected 'message', 'probe' or 'longest', found '" + name + "'");
}

// What a callback raises has nowhere to go: downloads run on threads of their own, which must not throw.
template <class... Arguments>
void tell(const nb::object& function, const Arguments&... arguments) noexcept {
  const nb::gil_scoped_acquire gil;
  if (function.is_none()) return;
  try {
    function(arguments...);
  } catch (nb::python_error& error) {
    error.discard_as_unraisable(function);
  }
}

std::string locate(const std::string& name, const OptionalText& revision, const OptionalText& gguf_file,
                   bool local_files_only, nb::object on_progress, nb::object on_notice) {
  std::error_code ignored;
  if (std::filesystem::exists(name, ignored)) return name;
  std::optional<HubRef> ref = HubRef::parse(name);
  if (!ref || name.ends_with(".gguf") || name.find('/') == std::string::npos)
    throw Error(ErrorCode::NotFound,
                name + ": expected a directory, a GGUF file or a Hub id ORG/NAME, found nothing there");
  if (revision) ref->revision = *revision;
  PullOptions options;
  options.gguf_file = gguf_file;
  options.local_files_only = local_files_only;
  options.check_config = [&](std::string_view text) { check_config(text, name + ": config.json"); };
  options.on_progress = [&](const PullProgress& pulled) {
    tell(on_progress, pulled.file, pulled.done, pulled.total);
  };
  options.on_notice = [&](const std::string& text) { tell(on_notice, text); };
  const nb::gil_scoped_release released;
  const Snapshot snapshot = pull(*ref, options);
  return snapshot.gguf_path.empty() ? snapshot.directory : snapshot.gguf_path;
}

ModelHandle open_model(const std::string& path, const std::string& dtype, size_t n_threads,
                       const std::string& kernel_set) {
  ModelOptions options{.n_threads = n_threads, .kernel_set = kernel_set};
  if (dtype == "bfloat16") {
    options.mode = ComputeMode::BFloat16;
  } else if (dtype != "float32") {
    throw Error(ErrorCode::InvalidArgument, "dtype: expected 'float32' or 'bfloat16', found '" + dtype + "'");
  }
  const nb::gil_scoped_release released;
  return ModelHandle(Model::open(path, options));
}

nb::dict info_of(const ModelHandle& handle) {
  const ModelInfo& info = handle.model->info();
  nb::dict dict;
  dict["path"] = info.path;
  dict["architecture"] = info.architecture;
  dict["kernel_set"] = info.kernel_set;
  dict["dtype"] = compute_mode_name(info.mode);
  dict["num_threads"] = info.n_threads;
  dict["vocab_size"] = info.vocab_size;
  dict["num_layers"] = info.n_layers;
  dict["hidden_size"] = info.hidden_size;
  dict["max_position_embeddings"] = info.max_position_embeddings;
  dict["kv_bytes_per_token"] = info.kv_bytes_per_token;
  dict["state_bytes"] = info.state_bytes;
  dict["weight_bytes"] = info.weight_bytes;
  return dict;
}

ContextHandle prefill_ids(const ModelHandle& handle, const std::vector<int32_t>& ids, nb::object on_progress) {
  const nb::gil_scoped_release released;
  return {handle, handle.get()->prefill(ids, [&](size_t done) { notify(on_progress, done); })};
}

FixedPart make_fixed_part(std::string messages, std::string tools, std::string documents,
                          std::vector<std::tuple<std::string, std::string>> vars, OptionalText now,
                          OptionalText text, bool add_special_tokens, bool is_literal) {
  FixedPart fixed;
  fixed.messages_json = std::move(messages);
  fixed.tools_json = std::move(tools);
  fixed.documents_json = std::move(documents);
  for (auto& [name, value] : vars) fixed.vars.emplace_back(std::move(name), std::move(value));
  fixed.now = std::move(now);
  fixed.raw_text = std::move(text);
  fixed.raw_encoding.add_special_tokens = add_special_tokens;
  fixed.user_text = is_literal ? UserText::Literal : UserText::AsTransformers;
  return fixed;
}

ContextHandle prefill_fixed(const ModelHandle& handle, const FixedPart& fixed, const OptionalText& chat_template,
                            const std::string& boundary, nb::object on_progress) {
  const BoundaryMode mode = boundary_of(boundary);
  const nb::gil_scoped_release released;
  const Model& model = *handle.get();
  const ChatTemplate& own = model.text().chat_template();
  const Prompter prompter(model.shared_text(), chat_template ? own.with_override(*chat_template) : own, fixed);
  const Prompt prompt = prompter.make_context(mode);
  return {handle,
          model.prefill(
              prompt.ids, [&](size_t done) { notify(on_progress, done); }, prompter.make_origin(mode, prompt))};
}

ContextHandle open_context(const ModelHandle& handle, const std::string& path, const std::string& parent) {
  const nb::gil_scoped_release released;
  OpenContextOptions options;
  options.parent = parent;
  return {handle, handle.get()->open_context(path, options)};
}

std::vector<int32_t> encode(const ModelHandle& handle, const std::string& text, bool add_special_tokens) {
  EncodeOptions options;
  options.add_special_tokens = add_special_tokens;
  return handle.model->text().tokenizer().encode(text, options);
}

std::string decode(const ModelHandle& handle, const std::vector<int32_t>& ids, bool skip_special_tokens) {
  return handle.model->text().tokenizer().decode(ids,
                                                 skip_special_tokens ? SpecialTokens::Skip : SpecialTokens::Keep);
}

std::vector<int32_t> encode_messages(const ModelHandle& handle, const FixedPart& fixed, bool add_generation_prompt,
                                     bool continue_final_message) {
  const Text& text = handle.model->text();
  ChatRequest request{.messages_json = fixed.messages_json,
                      .tools_json = fixed.tools_json,
                      .documents_json = fixed.documents_json,
                      .vars = fixed.vars,
                      .add_generation_prompt = add_generation_prompt,
                      .continue_final_message = continue_final_message,
                      .now = fixed.now};
  return encode_chat(text.tokenizer(), text.chat_template(), request, fixed.user_text).ids;
}

std::string render_messages(const ModelHandle& handle, const std::string& messages, bool add_generation_prompt) {
  ChatRequest request{.messages_json = messages,
                      .add_generation_prompt = add_generation_prompt,
                      .continue_final_message = !add_generation_prompt};
  return handle.model->text().chat_template().render(request);
}

}  // namespace

void bind_models(nb::module_& module) {
  module.def("locate", locate, nb::arg("name"), nb::arg("revision").none(), nb::arg("gguf_file").none(),
             nb::arg("local_files_only"), nb::arg("on_progress").none(), nb::arg("on_notice").none());
  module.def("open_model", open_model, nb::arg("path"), nb::arg("dtype"), nb::arg("n_threads"),
             nb::arg("kernel_set"));
  nb::class_<FixedPart>(module, "FixedPart");
  module.def("make_fixed_part", make_fixed_part, nb::arg("messages"), nb::arg("tools"), nb::arg("documents"),
             nb::arg("vars"), nb::arg("now").none(), nb::arg("text").none(), nb::arg("add_special_tokens"),
             nb::arg("is_literal"));
  nb::class_<ModelHandle>(module, "Model")
      .def("info", info_of)
      .def("eos_token_ids", [](const ModelHandle& h) { return h.model->generation_defaults().eos_token_ids; })
      .def("repetition_penalty",
           [](const ModelHandle& h) { return h.model->generation_defaults().repetition_penalty; })
      .def("prefill_ids", prefill_ids, nb::arg("ids"), nb::arg("on_progress").none())
      .def("prefill_fixed", prefill_fixed, nb::arg("fixed"), nb::arg("chat_template").none(), nb::arg("boundary"),
           nb::arg("on_progress").none())
      .def("open_context", open_context, nb::arg("path"), nb::arg("parent"))
      .def(
          "special_token",
          [](const ModelHandle& h, const std::string& name) {
            return h.model->text().tokenizer().special_token(name);
          },
          nb::arg("name"))
      .def("encode", encode, nb::arg("text"), nb::arg("add_special_tokens"))
      .def("encode_messages", encode_messages, nb::arg("fixed"), nb::arg("add_generation_prompt"),
           nb::arg("continue_final_message"))
      .def("render_messages", render_messages, nb::arg("messages"), nb::arg("add_generation_prompt"))
      .def("decode", decode, nb::arg("ids"), nb::arg("skip_special_tokens"));
}

}  // namespace kvfork::python
