// Options that mean the same in every command.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/hub_model.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "kvfork/chat.h"
#include "kvfork/model.h"
#include "kvfork/prompt.h"

namespace kvfork::cli {

/// A validator: digits alone, and at least `least`. Unsigned options need it, or "-1" would wrap.
CLI::Validator whole_number(uint64_t least = 0);

/// A validator: a number from low to high; not a number is none.
CLI::Validator number_between(double low, double high);

/// A validator: a time as 2031-01-05T06:07:08.
CLI::Validator clock_time();

/// A validator: not the empty text.
CLI::Validator not_empty();

/// --model, --gguf, --dtype, --threads, --quiet, --json.
struct ModelFlags {
  std::string model;
  std::string dtype = "float32";
  size_t threads = 0;
  bool quiet = false;
  bool json = false;

  std::string gguf_file;

  void add_to(CLI::App& app);
  ModelOptions options() const;
  /// Where the model lies; a Hub id is pulled first. Throws as locate_model.
  LocatedModel locate() const;
  /// Locates and opens, with progress. Throws as locate_model and Model::open.
  std::shared_ptr<const Model> open() const;
  Progress::Show progress() const { return quiet ? Progress::Show::Never : Progress::Show::Auto; }
};

/// --tools, --documents, --var, --now, --template, --literal-user-text: what a chat template sees beside the
/// messages.
struct TemplateFlags {
  std::string tools_file;
  std::string documents_file;
  std::vector<std::string> vars;  // NAME=JSON
  std::string now;                // 2031-01-05T06:07:08; empty: the clock at start
  std::string template_name;      // a named template of the checkpoint, or a file
  bool literal_user_text = false;

  void add_to(CLI::App& app);
  /// A request with everything but messages. Files are read; the clock is frozen at the first call.
  ChatRequest request() const;
  UserText user_text() const { return literal_user_text ? UserText::Literal : UserText::AsTransformers; }
  /// The same for a fixed part.
  void fill(FixedPart& fixed) const;
  /// The checkpoint's template, or the one --template names.
  ChatTemplate choose(const ChatTemplate& of_checkpoint) const;
};

/// The whole file, or standard input for "-". Throws Error{NotFound, Io}.
std::string read_text(const std::string& path);

/// All of standard input.
std::string read_standard_input();

/// "1,2 3" as token ids. Throws UsageError naming `option`.
std::vector<int32_t> parse_ids(const std::string& text, const char* option);

/// "5,17,100" as sizes above zero. Throws UsageError naming `option`.
std::vector<size_t> parse_sizes(const std::string& text, const char* option);

}  // namespace kvfork::cli
