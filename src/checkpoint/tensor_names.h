// The names of the tensors that a checkpoint holds, as its files spell them.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace kvfork::checkpoint {

struct TensorNames {
  enum class Spelling { HuggingFace, Gguf };

  Spelling spelling = Spelling::HuggingFace;
  std::set<std::string, std::less<>> names;  ///< empty: not known, and every choice takes its usual form

  bool has(std::string_view name) const { return names.count(name) != 0; }
  bool is_gguf() const noexcept { return spelling == Spelling::Gguf; }
};

}  // namespace kvfork::checkpoint
