// The names of a template's frames and activations while scopes are analyzed.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "jinja/syntax/ast.h"

namespace kvfork::jinja {

using NameId = uint32_t;

// A variable of the generated function in jinja2's terms: l_LEVEL_NAME.
struct Ident {
  int level = 0;
  NameId name = 0;
  bool operator==(const Ident&) const = default;
};

struct IdentHash {
  size_t operator()(const Ident& ident) const {
    return std::hash<uint64_t>()((static_cast<uint64_t>(static_cast<uint32_t>(ident.level)) << 32) | ident.name);
  }
};

struct LoadSpec {
  Load::Action action = Load::Action::Undefine;
  Ident source;
};

// The names of one frame. A branch of an `if` is analyzed in an overlay on its frame's symbols, then merged.
struct Symbols {
  int level = 0;
  const Symbols* parent = nullptr;
  const Symbols* base = nullptr;
  std::unordered_map<NameId, Ident> refs;
  std::vector<std::pair<Ident, LoadSpec>> loads;
  std::unordered_map<Ident, size_t, IdentHash> load_index;
  std::set<NameId> stores;

  const Ident* find_own(NameId name) const {
    for (const Symbols* at = this; at != nullptr; at = at->base) {
      if (auto found = at->refs.find(name); found != at->refs.end()) return &found->second;
    }
    return nullptr;
  }
  const Ident* find(NameId name) const {
    for (const Symbols* at = this; at != nullptr; at = at->parent) {
      if (const Ident* found = at->find_own(name)) return found;
    }
    return nullptr;
  }
  const Ident* find_outer(NameId name) const { return parent == nullptr ? nullptr : parent->find(name); }
  bool has_store(NameId name) const {
    for (const Symbols* at = this; at != nullptr; at = at->base) {
      if (at->stores.count(name) != 0) return true;
    }
    return false;
  }
  void set_load(Ident target, LoadSpec spec) {
    auto [found, added] = load_index.try_emplace(target, loads.size());
    if (added) {
      loads.emplace_back(target, spec);
    } else {
      loads[found->second].second = spec;
    }
  }
  Ident define(NameId name, LoadSpec spec) {
    Ident ident{level, name};
    refs[name] = ident;
    set_load(ident, spec);
    return ident;
  }
  void store(NameId name) {
    stores.insert(name);
    if (find_own(name) != nullptr) return;
    if (const Ident* outer = find_outer(name)) {
      define(name, {Load::Action::Alias, *outer});
    } else {
      define(name, {Load::Action::Undefine, {}});
    }
  }
  Ident declare_parameter(NameId name) {
    stores.insert(name);
    return define(name, {Load::Action::Parameter, {}});
  }
  void load(NameId name) {
    if (find(name) == nullptr) define(name, {Load::Action::Resolve, {}});
  }
  Symbols branch() const {
    Symbols overlay;
    overlay.level = level;
    overlay.parent = parent;
    overlay.base = this;
    return overlay;
  }
  void merge(const std::vector<const Symbols*>& branches) {
    std::set<NameId> stored;
    for (const Symbols* one : branches) {
      for (NameId name : one->stores) {
        if (!has_store(name)) stored.insert(name);
      }
    }
    for (const Symbols* one : branches) {
      refs.insert(one->refs.begin(), one->refs.end());
      for (const auto& [target, spec] : one->loads) set_load(target, spec);
      stores.insert(one->stores.begin(), one->stores.end());
    }
    for (NameId name : stored) {
      const Ident* target = find(name);
      if (const Ident* outer = find_outer(name)) {
        set_load(*target, {Load::Action::Alias, *outer});
      } else {
        set_load(*target, {Load::Action::Resolve, {}});
      }
    }
  }
};

// An activation: variables of levels from base_level up are its own.
struct FunctionScope {
  FunctionScope* outer = nullptr;
  int base_level = 0;
  std::unordered_map<Ident, uint16_t, IdentHash> slots;
};

struct FrameScope {
  Symbols symbols;
  FunctionScope* function = nullptr;
  bool toplevel = false;
  bool soft = false;     // under an `if`: unknown filters fail only when reached
  bool in_loop = false;  // break and continue are possible
};

}  // namespace kvfork::jinja
