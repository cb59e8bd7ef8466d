// The header and the rows of a logits file.
#include "cli/safetensors_writer.h"

#include <fmt/format.h>

#include <vector>

#include "kvfork/error.h"

namespace kvfork::cli {
namespace {

const std::string& expect_path(const std::string& path) {
  if (path.empty())
    throw Error(ErrorCode::InvalidArgument, "--logits: expected the path of a file, found an empty one");
  return path;
}

}  // namespace

LogitsFile::LogitsFile(const std::string& path, std::span<const int32_t> ids, size_t vocab_size)
    : file_(base::NewFile::create(expect_path(path), 0, base::NewFile::Devices::WriteInto)) {
  const size_t ids_bytes = ids.size() * sizeof(int64_t);
  const size_t logits_bytes = ids.size() * vocab_size * sizeof(float);
  std::string header = fmt::format(R"({{"ids":{{"dtype":"I64","shape":[{0}],"data_offsets":[0,{1}]}},)"
                                   R"("logits":{{"dtype":"F32","shape":[{0},{2}],"data_offsets":[{1},{3}]}}}})",
                                   ids.size(), ids_bytes, vocab_size, ids_bytes + logits_bytes);
  header.append((8 - header.size() % 8) % 8, ' ');
  const uint64_t header_bytes = header.size();
  file_.write(std::as_bytes(std::span(&header_bytes, 1)));
  file_.write(header);
  const std::vector<int64_t> wide(ids.begin(), ids.end());
  file_.write(std::as_bytes(std::span(wide)));
}

}  // namespace kvfork::cli
