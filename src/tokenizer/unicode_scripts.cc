#include "base/error.h"
#include "tokenizer/pre_tokenizer.h"

namespace kvfork::tokenizer {

std::unique_ptr<PreTokenizer> make_unicode_scripts() {
  base::fail(ErrorCode::Unsupported, "the pre-tokenizer \"UnicodeScripts\" is not supported");
}

}  // namespace kvfork::tokenizer
