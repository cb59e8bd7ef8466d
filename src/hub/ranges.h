// One file over several connections at once.
//
// Pieces are asked for by Range and written in order, so that the unfinished file stays a prefix of the blob; a few
// pieces per connection wait in memory at most. This is for servers that limit what one connection gets. Anything
// unexpected ends it: the caller goes on with one connection from what is in place, with all the care taken there.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "hub/blob_writer.h"
#include "hub/client.h"

namespace kvfork::hub {

struct ContentRange {
  uint64_t first = 0;
  uint64_t last = 0;
  std::optional<uint64_t> total;
};

/// "bytes FIRST-LAST/TOTAL" or ".../*". Empty for anything else.
std::optional<ContentRange> parse_content_range(const std::string& text);

/// Whether the Hub itself answered (a store behind a redirect names its objects otherwise) and names another
/// version of the file than `etag`.
bool has_changed(const Reply& reply, const std::string& etag);

/// Appends to `writer` up to `size`, the file's size, over `n_connections`. Returns the bytes received; whether the
/// file is complete shows in the writer. Throws Error{Io} from writing. `on_progress` runs one call at a time.
uint64_t fetch_ranges(Session& session, const FileMetadata& file, uint64_t size, BlobWriter& writer,
                      unsigned n_connections, const std::function<void()>& on_progress);

}  // namespace kvfork::hub
