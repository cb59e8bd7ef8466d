"""Random-weight checkpoints in Hugging Face layout, made with Transformers' own classes, for tools/oracle_model.py.

Every parameter is drawn with a scale that keeps activations and logits spread (Transformers' own initialisation leaves
biases at zero and norms at one, which would hide mistakes in both). Each directory has weights, config, generation
config, a byte-level BPE tokenizer trained on a little text, and a chat template with a system role.
"""

import dataclasses
import json
import pathlib

import torch
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = [
    "Refunds are accepted within 30 days of delivery. Please include the order number and a photograph of the damage.",
    "Hello! How can I help you today? The quick brown fox jumps over the lazy dog, 1234567890 times.",
    "def main():\n    for i in range(10):\n        print(f\"{i}: {i * i}\")\n",
    "Die Lieferung dauert üblicherweise drei bis fünf Werktage. Où est ma commande ? ¿Cuándo llega mi paquete?",
    "注文番号を教えてください。配送には三日かかります。 Заказ будет доставлен завтра. 배송이 늦어지고 있습니다.",
    "system user assistant\n\n You are a helpful assistant. What do I need to request a refund? It's what we'd expect.",
]
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")
QWEN_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
LLAMA_TEMPLATE = (
    "{{- bos_token }}\n{%- for message in messages %}\n    {{- '<|head|>' + message['role'] + '<|end_head|>\n\n' }}\n"
    "    {{- message['content'] | trim + '<|eot|>' }}\n{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n    {{- '<|head|>assistant<|end_head|>\n\n' }}\n{%- endif %}\n")


@dataclasses.dataclass(frozen=True)
class Spec:
    """One random checkpoint: a family, config fields, and how it is stored."""

    name: str
    family: str  # "qwen2" or "llama"
    config: dict
    dtype: str = "float32"
    shard: str = "5GB"
    generation: dict = dataclasses.field(default_factory=dict)
    tokenizer_vocab: int = 560  # before special tokens; 256 is the byte alphabet alone


LLAMA3_ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 64}


def shape(hidden, heads, kv_heads, layers, intermediate, vocab, tied, **more):
    return {"hidden_size": hidden, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
            "num_hidden_layers": layers, "intermediate_size": intermediate, "vocab_size": vocab,
            "tie_word_embeddings": tied, "max_position_embeddings": 2048, **more}


SPECS = [
    Spec("qwen2-gqa-tied-bf16-penalty", "qwen2", shape(64, 4, 2, 3, 176, 1003, True, rope_theta=1e6), "bfloat16",
         generation={"repetition_penalty": 1.1, "do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.8,
                     "eos_token_id": ["<|im_end|>", "<|endoftext|>", *range(17, 1003, 40)]}),
    Spec("qwen2-mha-untied-f32", "qwen2", shape(96, 6, 6, 2, 200, 800, False, rope_theta=1e4, rms_norm_eps=1e-5)),
    Spec("qwen2-mqa-odd-f16", "qwen2", shape(60, 6, 1, 2, 101, 777, False, rope_theta=1e5), "float16"),
    Spec("qwen2-wide-gqa-tied-bf16", "qwen2", shape(896, 14, 2, 2, 4864, 2048, True, rope_theta=1e6), "bfloat16"),
    Spec("llama-gqa-untied-bf16-llama3-sharded", "llama",
         shape(128, 8, 2, 3, 344, 900, False, rope_theta=5e5, rms_norm_eps=1e-5, rope_scaling=LLAMA3_ROPE), "bfloat16",
         shard="100KB"),
    Spec("llama-mha-tied-head_dim-f32", "llama", shape(48, 4, 4, 2, 130, 711, True, head_dim=20, rms_norm_eps=1e-6)),
    Spec("llama-mqa-untied-f16-sharded", "llama", shape(80, 5, 1, 2, 212, 1024, False), "float16", shard="64KB"),
    Spec("llama-gqa-tied-head_dim-bf16", "llama", shape(72, 6, 3, 2, 96, 640, True, head_dim=32), "bfloat16"),
    Spec("llama-gqa-f32-one-layer", "llama", shape(64, 4, 2, 1, 33, 611, False, rope_theta=1e4)),
]


def make_tokenizer(family, vocab_size=560):
    """A fast tokenizer with the parts that Qwen2.5's (NFC, Split, ByteLevel) or Llama 3's (BOS by template) have."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=family == "llama"))
    if family == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
        specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    else:
        specials = ["<|begin|>", "<|end|>", "<|head|>", "<|end_head|>", "<|eot|>"]
    split = pre_tokenizers.Split(Regex(SPLIT), "isolated", invert=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, trim_offsets=True, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(CORPUS * 4, trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False, special_tokens=[]))
    tokenizer.add_special_tokens([AddedToken(special, special=True, normalized=False) for special in specials])
    if family == "llama":
        begin = tokenizer.token_to_id("<|begin|>")
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", begin)])])
        names = {"bos_token": "<|begin|>", "eos_token": "<|eot|>", "pad_token": "<|end|>"}
    else:
        names = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    template = QWEN_TEMPLATE if family == "qwen2" else LLAMA_TEMPLATE
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template, **names)


def fill(model, generator):
    """Draws every parameter; scales keep each layer's output near one. A tied embedding is small against the layers'
    output, or every token would predict itself."""
    embedding_scale = 0.15 if model.config.tie_word_embeddings else 0.7
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.randn(parameter.shape, generator=generator)
            if name.endswith("norm.weight"):
                values = 1.0 + 0.3 * values
            elif name.endswith("bias"):
                values = 0.5 * values
            elif "embed_tokens" in name:
                values = embedding_scale * values
            else:
                values = values * 1.5 / parameter.shape[1] ** 0.5
            parameter.copy_(values)


def make_checkpoint(spec, folder, seed):
    """Writes spec's checkpoint to folder."""
    tokenizer = make_tokenizer(spec.family, spec.tokenizer_vocab)
    classes = {"qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
               "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM)}
    config_class, model_class = classes[spec.family]
    config = config_class(**spec.config, bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id)
    model = model_class(config)
    fill(model, torch.Generator().manual_seed(seed))
    model = model.to(getattr(torch, spec.dtype))
    generation = dict(spec.generation)
    if "eos_token_id" in generation:
        generation["eos_token_id"] = [tokenizer.convert_tokens_to_ids(token) if isinstance(token, str) else token
                                      for token in generation["eos_token_id"]]
    model.generation_config = transformers.GenerationConfig(
        **{"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, **generation})
    model.save_pretrained(folder, max_shard_size=spec.shard)
    tokenizer.save_pretrained(folder)
    return pathlib.Path(folder)


def describe(folder):
    """The facts of a checkpoint that its name might only claim: dtype, shards, tied."""
    index = folder / "model.safetensors.index.json"
    shards = len(set(json.loads(index.read_text())["weight_map"].values())) if index.exists() else 1
    config = json.loads((folder / "config.json").read_text())
    return f"{config.get('dtype', config.get('torch_dtype'))}, {shards} file(s), tied {config.get('tie_word_embeddings', False)}"
