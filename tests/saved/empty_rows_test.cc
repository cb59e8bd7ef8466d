// A context file whose header names more rows than there are bytes costs nothing: it is refused before anything is
// made for them.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/json_text.h"
#include "kvfork/context.h"
#include "kvfork/error.h"
#include "kvfork/inspect.h"
#include "kvfork/model.h"
#include "saved/context_file.h"
#include "saved/context_format.h"
#include "tests/support/temp_dir.h"

namespace kvfork {
namespace {

const std::string kCheckpoint = std::string(KVFORK_SOURCE_DIR) + "/tests/golden/checkpoints/qwen2-bf16-tied";

class EmptyRows : public testing::Test {
 protected:
  EmptyRows() {
    const std::vector<int32_t> ids(70, 5);
    model_->prefill(ids)->save((dir_.path() / "whole").string());
  }

  // A file with the metadata of a true one, `n_rows` rows of no bytes, and a table of one checksum.
  std::string write_file(const std::string& shape) const {
    const auto whole = saved::ContextFile::open(dir_.path() / "whole");
    base::JsonText metadata = {{"format", saved::kContextFormat}};
    for (const auto& [key, value] : saved::encode_header(whole->header())) {
      if (key != "format") metadata.add(key, value);
    }
    std::string header = "{\"__metadata__\":" + metadata.text() +
                         ",\"layers.0.k\":{\"dtype\":\"F32\",\"shape\":" + shape +
                         ",\"data_offsets\":[0,0]},\"checksums\":{\"dtype\":\"U64\",\"shape\":[1],"
                         "\"data_offsets\":[0,8]}}";
    header.resize((header.size() + 63) / 64 * 64, ' ');
    const uint64_t n = header.size();
    std::string bytes(reinterpret_cast<const char*>(&n), sizeof n);
    bytes += header + std::string(8, '\0');
    const std::string path = (dir_.path() / "hostile").string();
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  test::TempDir dir_;
  std::shared_ptr<const Model> model_ = Model::open(kCheckpoint, {.n_threads = 1});
};

TEST_F(EmptyRows, AreRefusedBeforeTheyCost) {
  for (const char* shape : {"[4294967296,0,4,10,16]", "[68719476736,0]", "[1,0]", "[3,0,4,10,16]", "[18446744073709551615,0]"}) {
    const std::string path = write_file(shape);
    const auto start = std::chrono::steady_clock::now();
    try {
      model_->open_context(path);
      ADD_FAILURE() << shape << ": no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::Corrupt) << error.what();
      EXPECT_NE(std::string(error.what()).find("malformed shape"), std::string::npos) << error.what();
    }
    EXPECT_THROW(inspect_context(path, ContextCheck::Quick), Error);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  }
}

}  // namespace
}  // namespace kvfork
