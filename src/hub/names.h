// Names that come from outside and become paths: repository ids, revisions, file names, ETags.
//
// Pure functions; thread rule: none needed.
#pragma once

#include <string>
#include <string_view>

namespace kvfork::hub {

/// The rules of huggingface_hub's validate_repo_id: NAME or ORG/NAME of letters, digits, "-", "_", ".", no "--" or
/// "..", not ending in ".git".
bool is_valid_repo_id(std::string_view repo_id);

/// A commit as the Hub writes it: 40 lower-case hex digits.
bool is_commit(std::string_view revision);

/// Whether `text` is non-empty and holds lower-case hex digits only, `n_digits` of them.
bool is_hex(std::string_view text, size_t n_digits);

/// Whether a path of '/'-separated parts stays below the folder it is joined to: no empty, "." or ".." part, no
/// backslash, no control byte, no part longer than a file system takes.
bool stays_inside(std::string_view relative_path);

/// Whether a part of the path is longer than a file system takes.
bool is_too_long(std::string_view relative_path);

/// The ETag header as the file name of a blob: without the weak mark and quotes (huggingface_hub's
/// _normalize_etag). Throws Error{Corrupt} naming `subject` when that is no plain file name.
std::string normalize_etag(std::string_view header, std::string_view subject);

/// Percent-encodes everything but unreserved characters, and "/" where `keep_slashes`.
enum class Slashes { Keep, Encode };
std::string percent_encode(std::string_view text, Slashes slashes);

}  // namespace kvfork::hub
