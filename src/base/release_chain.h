// How a chain of objects that own their parents ends.
#pragma once

#include <memory>
#include <utility>

namespace kvfork::base {

/// Lets go of `next`, of its parent and so on, one after the other and not one inside of the other: a long chain
/// would overflow the stack. Stops at an object that somebody else holds. `parent_of` gives the place of an
/// object's parent.
template <class Object, class ParentOf>
void release_chain(std::shared_ptr<const Object> next, const ParentOf& parent_of) noexcept {
  while (next != nullptr && next.use_count() == 1) {
    // Nobody else can see the object, so that it may be changed.
    auto parent = std::move(parent_of(const_cast<Object&>(*next)));
    next = std::move(parent);
  }
}

}  // namespace kvfork::base
