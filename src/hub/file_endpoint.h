// A Hub in a folder, for an HF_ENDPOINT of file://: answers requests as a server would.
//
// FOLDER/ORG/NAME holds a repository's files as they are, as its revision "main"; or it mirrors the Hub's
// addresses, FOLDER/ORG/NAME/resolve/REVISION/FILE. Where a revision's folder is not named by its commit, a commit
// is made up from the names, sizes and times of the files, so that any change gives another one. Thread rule: safe
// from any thread.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

#include "hub/http.h"

namespace kvfork::hub {

/// The reply to `request`, whose URL lies below `endpoint` ("file:///FOLDER"). Bytes go to `on_body` as from a
/// connection.
Reply ask_file_endpoint(const std::string& endpoint, const Request& request, const BodyFunction& on_body,
                        const std::atomic<bool>& stop);

}  // namespace kvfork::hub
