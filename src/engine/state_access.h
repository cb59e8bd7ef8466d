// The way from a public object to what it holds, for the library's own code.
#pragma once

#include <memory>

#include "kvfork/context.h"
#include "kvfork/fork.h"
#include "kvfork/model.h"

namespace kvfork::engine {

struct StateAccess {
  template <class Object>
  static auto& of(Object& object) noexcept {
    return *object.state_;
  }
  static std::shared_ptr<const Context> make_context(std::unique_ptr<ContextState> state);
  static Fork make_fork(std::unique_ptr<ForkState> state) noexcept;
};

inline const ModelState& state_of(const Model& model) noexcept {
  return StateAccess::of(model);
}
inline const ContextState& state_of(const Context& context) noexcept {
  return StateAccess::of(context);
}
inline const ForkState& state_of(const Fork& fork) noexcept {
  return StateAccess::of(fork);
}
inline ForkState& state_of(Fork& fork) noexcept {
  return StateAccess::of(fork);
}

}  // namespace kvfork::engine
