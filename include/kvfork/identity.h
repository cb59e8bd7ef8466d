// What a context's bits and ids depend on, as fingerprints. A saved context serves a model whose identity is the
// same.
//
// Plain values. Fingerprints are SHA-256 in lower-case hex; docs/cache-file.md says over what.
#pragma once

#include <string>

namespace kvfork {

struct Identity {
  // These decide the bits of keys, values and logits.
  std::string architecture;  ///< "Qwen2ForCausalLM"
  std::string config;        ///< fingerprint of config.json; of a GGUF file, its weights fingerprint
  std::string weights;       ///< fingerprint of every byte of the weight files
  std::string dtype;         ///< "float32" or "bfloat16"
  std::string kernel_set;    ///< "avx2"
  std::string kernel_bits;   ///< fingerprint of what this build's kernels compute

  // These decide the ids of a text; empty for a context that was prefilled from ids alone.
  std::string tokenizer;      ///< fingerprint of the tokenizer's files
  std::string chat_template;  ///< fingerprint of the template's source and special tokens; empty for plain text

  /// The Hub's commit, when the path shows it. Informs, decides nothing: a copied model is the same model.
  std::string revision;
};

}  // namespace kvfork
