// The config that a GGUF file's metadata stands for, by Transformers 4.57.3's mapping (integrations/ggml.py).
#pragma once

#include "checkpoint/config.h"
#include "checkpoint/gguf.h"

namespace kvfork::checkpoint {

/// Throws Error{Corrupt} for missing or malformed metadata and Error{Unsupported} for an architecture or a field
/// that kvfork does not run, by name. Beyond Transformers' mapping, rotary scaling is read too: rope.scaling.* and
/// the rope_freqs.weight tensor, in which converters store llama3 scaling.
ModelConfig make_gguf_config(const GgufFile& file);

}  // namespace kvfork::checkpoint
