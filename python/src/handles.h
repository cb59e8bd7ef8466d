// What the Python module holds of kvfork's objects, and what every file of it shares.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvfork/context.h"
#include "kvfork/error.h"
#include "kvfork/model.h"
#include "kvfork/prompt.h"
#include "kvfork/request.h"

namespace kvfork::python {

namespace nb = nanobind;

/// A refused boundary with its place, for the attributes of kvfork.BoundaryError.
class BoundaryRefusal : public Error {
 public:
  BoundaryRefusal(const Error& error, size_t position, std::optional<int32_t> context_id,
                  std::optional<int32_t> request_id)
      : Error(error), position(position), context_id(context_id), request_id(request_id) {}
  size_t position;
  std::optional<int32_t> context_id, request_id;  // absent where the ids end
};

/// The threads of a model do not live on in a process that fork() made, so a handle belongs to one process.
struct ModelHandle {
  std::shared_ptr<const Model> model;
  int64_t process;

  explicit ModelHandle(std::shared_ptr<const Model> opened);
  /// Throws Error{InvalidArgument} in another process.
  const std::shared_ptr<const Model>& get() const;
};

struct ContextHandle {
  ModelHandle owner;
  std::shared_ptr<const Context> context;

  const Context& get() const {
    owner.get();
    return *context;
  }
  /// The boundary that requests are compared under.
  BoundaryMode mode() const;
  /// Throws BoundaryRefusal.
  Request make_request(std::vector<int32_t> ids) const;
};

/// Called with the GIL released: throws what a signal handler of Python raises, and calls `function` unless it is
/// None.
template <class... Arguments>
void notify(const nb::object& function, Arguments... arguments) {
  const nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
  if (!function.is_none()) function(arguments...);
}

/// The Python exception for an Error.
nb::object make_exception(const Error& error);

void bind_models(nb::module_& module);
void bind_contexts(nb::module_& module);
void bind_answers(nb::module_& module);
void bind_scores(nb::module_& module);

}  // namespace kvfork::python
