// The files that a child's file needs: its parent's, the parent's parent's, and so on, found and opened.
//
// Thread rule: any thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvfork/error.h"
#include "saved/context_file.h"

namespace kvfork::saved {

struct ContextChain {
  std::vector<std::shared_ptr<ContextFile>> files;  ///< the one asked for, its parent, the parent's parent, ...
  std::optional<Error> problem;  ///< why the last of them has no parent that can be used; nothing: it needs none
  std::string problem_file;      ///< the file that would be that parent and cannot be used; empty: there is none
};

/// Throws Error where a file with the right id cannot be used all the same.
using AcceptAncestor = std::function<void(const ContextFile&)>;

/// The file and its ancestors. `parent` is the parent's path; empty: a file beside the child with the id that the
/// child names, the one with the name that it names first. A file that is damaged, refused by `accept`, or without
/// a usable parent of its own is passed over while another fits; of a chain that cannot be whole, `problem` is
/// about the file that came first.
ContextChain find_ancestors(std::shared_ptr<ContextFile> file, const std::string& parent,
                            const AcceptAncestor& accept);

}  // namespace kvfork::saved
