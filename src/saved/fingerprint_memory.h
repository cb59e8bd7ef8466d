// Fingerprints of large files, remembered between processes.
//
// One small file per inode in $XDG_CACHE_HOME/kvfork/fingerprints, or ~/.cache/kvfork/fingerprints. It is a memory,
// not an authority: an entry that is damaged, or of a file in any other state, counts as absent; a directory that
// cannot be written is no error. Thread rule: any thread, any number of processes.
#pragma once

#include <string>

#include "base/file.h"

namespace kvfork::saved {

/// The fingerprint remembered of a file in exactly this state, or "".
std::string recall_fingerprint(const base::FileStamp& stamp);

/// Remembers the fingerprint of the file's bytes as they were read after `stamp` was taken. Not where the file has
/// changed since or is so young that its times could stay the same in a change. Never throws.
void remember_fingerprint(const std::string& path, const base::FileStamp& stamp,
                          const std::string& fingerprint) noexcept;

}  // namespace kvfork::saved
