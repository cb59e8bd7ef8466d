// The Python module kvfork._core: errors become exceptions, and the parts are put together.
#include <unistd.h>

#include <algorithm>
#include <string>

#include "handles.h"
#include "kvfork/text.h"
#include "kvfork/version.h"

namespace kvfork::python {
namespace {

const char* class_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::NotFound:
      return "NotFoundError";
    case ErrorCode::Corrupt:
      return "CorruptError";
    case ErrorCode::Unsupported:
      return "UnsupportedError";
    case ErrorCode::InvalidArgument:
      return "InvalidArgumentError";
    case ErrorCode::Io:
      return "IoError";
    case ErrorCode::Network:
      return "NetworkError";
    case ErrorCode::Template:
      return "TemplateError";
    case ErrorCode::Limit:
      return "LimitError";
    case ErrorCode::Boundary:
      return "BoundaryError";
    case ErrorCode::Parity:
      return "ParityError";
    case ErrorCode::Isolation:
      return "IsolationError";
  }
  return "Error";
}

void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    const nb::object exception = make_exception(error);
    PyErr_SetObject(exception.type().ptr(), exception.ptr());
  }
}

}  // namespace

nb::object make_exception(const Error& error) {
  const nb::object exception_class = nb::module_::import_("kvfork.errors").attr(class_name(error.code()));
  const std::string message = error.what();
  // A message may quote bytes of a file.
  const nb::object text =
      nb::steal(PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "backslashreplace"));
  nb::object exception = exception_class(text);
  if (const auto* refusal = dynamic_cast<const BoundaryRefusal*>(&error)) {
    exception.attr("position") = refusal->position;
    exception.attr("context_id") = refusal->context_id;
    exception.attr("request_id") = refusal->request_id;
  }
  return exception;
}

ModelHandle::ModelHandle(std::shared_ptr<const Model> opened) : model(std::move(opened)), process(::getpid()) {}

const std::shared_ptr<const Model>& ModelHandle::get() const {
  if (process != ::getpid())
    throw Error(
        ErrorCode::InvalidArgument,
        "model: expected the process " + std::to_string(process) + " that opened it, found " +
            std::to_string(::getpid()) +
            ", which os.fork() made without the model's threads; open the model there, or start processes "
            "with the method 'spawn' and hand over the model or a saved context (both are pickled by name)");
  return model;
}

BoundaryMode ContextHandle::mode() const {
  return context->origin() == nullptr ? BoundaryMode::Message : context->origin()->boundary;
}

Request ContextHandle::make_request(std::vector<int32_t> ids) const {
  try {
    if (context->origin() != nullptr) return {ids, context->ids(), mode(), get().model()->text().tokenizer()};
    return {ids, context->ids(), mode()};
  } catch (const Error& error) {
    if (error.code() != ErrorCode::Boundary) throw;
    const auto held = context->ids();
    const auto [in_context, in_request] = std::ranges::mismatch(held, ids);
    const auto id_at = [](auto place, auto end) {
      return place == end ? std::optional<int32_t>() : std::optional<int32_t>(*place);
    };
    throw BoundaryRefusal(error, static_cast<size_t>(in_context - held.begin()), id_at(in_context, held.end()),
                          id_at(in_request, ids.end()));
  }
}

}  // namespace kvfork::python

NB_MODULE(_core, module) {
  module.doc() = "kvfork's C++ library; the package kvfork is its interface";
  module.attr("__version__") = kvfork::version();
  nanobind::register_exception_translator(kvfork::python::translate);
  kvfork::python::bind_models(module);
  kvfork::python::bind_contexts(module);
  kvfork::python::bind_answers(module);
  kvfork::python::bind_scores(module);
}
