// Answers: generation of one request and of many.
#include <algorithm>

#include "handles.h"
#include "kvfork/answer_stream.h"
#include "kvfork/batch.h"
#include "kvfork/generate.h"
#include "kvfork/text.h"

namespace kvfork::python {
namespace {

// What a request takes, with its ids.
struct Ask {
  std::vector<int32_t> ids;
  GenerateOptions options;
};

struct Answer {
  std::string text;
  std::vector<int32_t> ids;
  const char* stop = "";
  std::vector<double> logprobs;
  std::vector<uint64_t> fingerprints;
  size_t n_cached = 0;
  size_t n_run = 0;
  size_t n_passes = 0;
};

Answer make_answer(const ContextHandle& handle, const Request& request, const GenerateOptions& options,
                   Generation generation) {
  Answer answer;
  try {
    answer.text = answer_text(handle.context->model()->text().tokenizer(), generation.ids, options.stop);
  } catch (const Error& error) {
    // A model without a tokenizer answers in ids alone.
    if (error.code() != ErrorCode::NotFound) throw;
  }
  answer.stop = stop_reason_name(generation.stop);
  answer.n_cached = handle.context->last_start(request.n_cached());
  answer.n_run = request.size() - answer.n_cached;
  answer.ids = std::move(generation.ids);
  answer.logprobs = std::move(generation.logprobs);
  answer.fingerprints = std::move(generation.logit_fingerprints);
  answer.n_passes = generation.n_passes;
  return answer;
}

// `on_token` sees each id and ends the answer by returning False.
Answer generate_one(const ContextHandle& handle, const Ask& ask, nb::object on_token) {
  const nb::object nothing = nb::none();
  const nb::gil_scoped_release released;
  const Request request = handle.make_request(ask.ids);
  Fork fork = handle.get().fork(request, [&](size_t) { notify(nothing); });
  Generation generation = generate(fork, ask.options, [&](int32_t id) {
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    return on_token.is_none() || nb::cast<bool>(on_token(id));
  });
  return make_answer(handle, request, ask.options, std::move(generation));
}

// The answers in the order of the asks; in place of an answer the exception that says why there is none.
nb::list generate_batch(const ContextHandle& handle, const std::vector<Ask>& asks, size_t max_width,
                        nb::object on_answer) {
  std::vector<std::optional<Answer>> answers(asks.size());
  std::vector<std::optional<Error>> errors(asks.size());
  {
    const nb::gil_scoped_release released;
    std::vector<BatchRequest> requests;
    for (const Ask& ask : asks)
      requests.push_back({.request = handle.make_request(ask.ids), .options = ask.options});
    BatchCallbacks callbacks;
    callbacks.on_answer = [&](size_t index, BatchAnswer answer) {
      const BatchRequest& request = requests[index];
      errors[index] = answer.error;
      if (!answer.error)
        answers[index] = make_answer(handle, request.request, request.options, std::move(answer.generation));
      notify(on_answer, index);
    };
    callbacks.on_token = [](size_t, int32_t) {
      const nb::gil_scoped_acquire gil;
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      return true;
    };
    if (!requests.empty()) answer_all(handle.get(), requests, {.max_width = max_width}, callbacks);
  }
  nb::list result;
  for (size_t i = 0; i < asks.size(); ++i)
    result.append(errors[i] ? make_exception(*errors[i]) : nb::cast(std::move(*answers[i])));
  return result;
}

// The text of an answer as its ids arrive. Keeps the tokenizer alive.
struct TextStream {
  ModelHandle owner;
  AnswerStream stream;
};

void bind_ask(nb::module_& module) {
  nb::class_<Ask>(module, "Ask")
      .def(
          "__init__",
          [](Ask* ask, std::vector<int32_t> ids, size_t max_new_tokens, std::vector<int32_t> eos_token_ids,
             double repetition_penalty, double temperature, size_t top_k, double top_p, double min_p, uint64_t seed,
             std::vector<std::string> stop, bool logprobs, bool fingerprints, bool speculate) {
            GenerateOptions options;
            options.max_new_tokens = max_new_tokens;
            options.eos_token_ids = std::move(eos_token_ids);
            options.repetition_penalty = repetition_penalty;
            options.sampling = {temperature, top_k, top_p, min_p, seed};
            options.stop = std::move(stop);
            options.logprobs = logprobs;
            options.fingerprint_logits = fingerprints;
            options.speculation = speculate ? Speculation::Lookup : Speculation::Off;
            check_options(options);
            new (ask) Ask{std::move(ids), std::move(options)};
          },
          nb::kw_only(), nb::arg("ids"), nb::arg("max_new_tokens"), nb::arg("eos_token_ids"),
          nb::arg("repetition_penalty"), nb::arg("temperature"), nb::arg("top_k"), nb::arg("top_p"),
          nb::arg("min_p"), nb::arg("seed"), nb::arg("stop"), nb::arg("logprobs"), nb::arg("fingerprints"),
          nb::arg("speculate"))
      .def("check", [](const Ask& ask, const ContextHandle& handle) { handle.make_request(ask.ids); });
}

}  // namespace

void bind_answers(nb::module_& module) {
  bind_ask(module);
  nb::class_<Answer>(module, "Answer")
      .def_ro("text", &Answer::text)
      .def_ro("ids", &Answer::ids)
      .def_prop_ro("stop", [](const Answer& answer) { return std::string(answer.stop); })
      .def_ro("logprobs", &Answer::logprobs)
      .def_ro("fingerprints", &Answer::fingerprints)
      .def_ro("n_cached", &Answer::n_cached)
      .def_ro("n_run", &Answer::n_run)
      .def_ro("n_passes", &Answer::n_passes);
  module.def("generate", generate_one, nb::arg("context"), nb::arg("ask"), nb::arg("on_token").none());
  module.def("generate_batch", generate_batch, nb::arg("context"), nb::arg("asks"), nb::arg("max_width"),
             nb::arg("on_answer").none());
  nb::class_<TextStream>(module, "TextStream")
      .def(
          "__init__",
          [](TextStream* stream, const ModelHandle& model, const std::vector<std::string>& stop) {
            new (stream) TextStream{model, AnswerStream(model.model->text().tokenizer(), stop)};
          },
          nb::arg("model"), nb::arg("stop"))
      .def(
          "push", [](TextStream& s, int32_t id) { return s.stream.push(id); }, nb::arg("id"))
      .def("finish", [](TextStream& s) { return s.stream.finish(); });
}

}  // namespace kvfork::python
