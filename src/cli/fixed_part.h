// Options that name the fixed part of every request.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "cli/options.h"
#include "kvfork/context.h"
#include "kvfork/model.h"
#include "kvfork/prompt.h"

namespace kvfork::cli {

/// "message", "probe" or "longest"; anything else was refused while parsing.
BoundaryMode parse_boundary_mode(const std::string& name);

/// --context, --context-file, --messages, --raw, --boundary and the template's options; --load FILE in their place.
/// With
/// --load, template options say what the file must have been made with.
struct FixedPartFlags {
  TemplateFlags template_flags;
  std::string load;    // a saved context
  std::string parent;  // the file of its parent
  std::string context;
  std::string context_file;
  std::string messages_file;
  std::string boundary = "message";
  bool raw = false;
  bool add_special_tokens = false;
  CLI::Option* context_option = nullptr;
  CLI::Option* context_file_option = nullptr;
  CLI::Option* messages_option = nullptr;
  CLI::Option* raw_option = nullptr;
  CLI::Option* boundary_option = nullptr;
  CLI::Option* load_option = nullptr;

  /// Whether --load stands for the fixed part or, in `save`, for what it continues.
  enum class Load { Replaces, Continues };
  void add_to(CLI::App& app, Load meaning = Load::Replaces);

  /// Whether any option names a fixed part; without one the built-in policy is used.
  bool is_given() const { return *context_option || *context_file_option || *messages_option; }
  BoundaryMode mode() const { return parse_boundary_mode(boundary); }
  /// The text of --context or --context-file, else the built-in policy. Throws Error{NotFound, Io}.
  std::string read_context_text() const;
  /// Reads the files. Throws Error{NotFound, Io, InvalidArgument}.
  FixedPart read() const;
  Prompter make_prompter(std::shared_ptr<const Text> text) const;

  bool loads() const { return !load_option->empty(); }
  /// The saved context, whole and made with the template options given. Throws as Model::open_context and
  /// Context::check; Error{InvalidArgument} naming the option that is not the file's.
  std::shared_ptr<const Context> open_saved(const Model& model) const;
};

/// The same fixed part with the messages or the text of `more` at its end.
FixedPart continue_fixed_part(const FixedPart& fixed, const FixedPart& more);

}  // namespace kvfork::cli
