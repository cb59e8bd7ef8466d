#!/usr/bin/env python3
"""Writes the tokenizer.json and tokenizer_config.json of SmolLM2 from the vocabulary in its GGUF file.

Transformers' own conversion of that file is not the model's tokenizer (it adds a BOS and drops the Digits rule), so
this writes the components that the model was published with, for the `tokenizers` package to run as an oracle.

Needs: gguf, tokenizers. Usage: tools/smollm2_tokenizer.py MODEL.gguf OUTPUT_DIR [--vocabulary OUT.json]
"""
import argparse
import json
import os

import gguf

CONTROL, USER_DEFINED = 3, 4


def read_metadata(path):
    reader = gguf.GGUFReader(path)
    return {name: field.contents() for name, field in reader.fields.items() if name.startswith("tokenizer.")}


def added_token(index, content, special):
    return {"id": index, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": special}


def tokenizer_json(meta):
    tokens, types = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [added_token(i, t, types[i] == CONTROL) for i, t in enumerate(tokens)
                         if types[i] in (CONTROL, USER_DEFINED)],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence",
                          "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {t: i for i, t in enumerate(tokens)}, "merges": meta["tokenizer.ggml.merges"]},
    }


def tokenizer_config(meta):
    tokens, types = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    decoder = {}
    for i, t in enumerate(tokens):
        if types[i] in (CONTROL, USER_DEFINED):
            entry = added_token(i, t, types[i] == CONTROL)
            del entry["id"]
            decoder[str(i)] = entry
    config = {"add_prefix_space": False, "added_tokens_decoder": decoder, "clean_up_tokenization_spaces": False,
              "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 8192}
    for name, key in (("bos_token", "bos"), ("eos_token", "eos"), ("unk_token", "unknown"), ("pad_token", "padding")):
        index = meta.get(f"tokenizer.ggml.{key}_token_id")
        if index is not None:
            config[name] = tokens[index]
    if "tokenizer.chat_template" in meta:
        config["chat_template"] = meta["tokenizer.chat_template"]
    return config


def vocabulary(meta):
    """The metadata as tests read it (kvfork::GgufVocabulary)."""
    def get(key):
        return meta.get("tokenizer.ggml." + key)
    out = {"model": get("model"), "pre": get("pre") or "", "tokens": get("tokens"), "types": get("token_type") or [],
           "scores": get("scores") or [], "merges": get("merges") or [], "add_bos_token": get("add_bos_token"),
           "add_eos_token": get("add_eos_token"), "add_space_prefix": get("add_space_prefix"),
           "bos_id": get("bos_token_id"), "eos_id": get("eos_token_id"), "unk_id": get("unknown_token_id"),
           "pad_id": get("padding_token_id")}
    return out


def write(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gguf")
    parser.add_argument("output", nargs="?")
    parser.add_argument("--vocabulary", help="also write the GGUF's tokenizer metadata as JSON")
    args = parser.parse_args()
    meta = read_metadata(args.gguf)
    if args.vocabulary:
        write(args.vocabulary, vocabulary(meta))
    if args.output:
        os.makedirs(args.output, exist_ok=True)
        write(os.path.join(args.output, "tokenizer.json"), tokenizer_json(meta))
        write(os.path.join(args.output, "tokenizer_config.json"), tokenizer_config(meta))


if __name__ == "__main__":
    main()
