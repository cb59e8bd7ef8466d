// Options that name the fixed part of every request.
#pragma once

#include <CLI/CLI.hpp>

#include <memory>
#include <string>
#include <string_view>

#include "cli/options.h"
#include "kvfork/prompt.h"

namespace kvfork::cli {

/// "message", "probe" or "longest"; anything else was refused while parsing.
BoundaryMode parse_boundary_mode(const std::string& name);

/// --context, --context-file, --messages, --raw, --boundary and the template's options.
struct FixedPartFlags {
  TemplateFlags template_flags;
  std::string context;
  std::string context_file;
  std::string messages_file;
  std::string boundary = "message";
  bool raw = false;
  bool add_special_tokens = false;
  CLI::Option* context_option = nullptr;
  CLI::Option* context_file_option = nullptr;
  CLI::Option* messages_option = nullptr;

  void add_to(CLI::App& app);

  /// Whether any option names a fixed part; without one the built-in policy is used.
  bool is_given() const { return *context_option || *context_file_option || *messages_option; }
  BoundaryMode mode() const { return parse_boundary_mode(boundary); }
  /// Reads the files. Throws Error{NotFound, Io, InvalidArgument}.
  FixedPart read() const;
  Prompter make_prompter(std::shared_ptr<const Text> text) const;
};

}  // namespace kvfork::cli
