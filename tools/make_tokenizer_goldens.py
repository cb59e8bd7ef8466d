#!/usr/bin/env python3
"""Writes tests/golden/tokenizer/*.json: small tokenizers for every component, with what the package makes of some texts.

Each golden holds a tokenizer.json ("tokenizer"), texts with their ids, pieces and decoded text, and the versions that made
it. With --live COUNT nothing is written: kvfork's tokenizer (--tool, see tests/tools/tokenizer_tool.cc) is compared with
the package on COUNT generated texts per tokenizer instead, and on every code point.

Needs: tokenizers==0.22.2. Usage: tools/make_tokenizer_goldens.py [--live COUNT --tool PATH [--seed N] [--only NAME]]
"""
import argparse
import base64
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

import oracle_tokenizer as oracle

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "..", "tests", "golden", "tokenizer")

TEXTS = [
    "", " ", "Hello, World! 123", "  leading and trailing  ", "a\tb\nc\r\nd\u00a0e\u3000f\u2028g\u0085h", "don't we'll I'M they'RE",
    "naïve café Å e\u0301 \u1e9b\u0323 ﬁ ½ ２ ①", "日本語のテキスト、カタカナ。 한국어 텍스트", "Привет мир! Ελληνικά",
    "👨\u200d👩\u200d👧 🇩🇪 👍🏽", "x=1;y+=foo(bar)[0] // c++", "<s>text</s> <mask> mask<mask>ed <m>", "\u0301\u0323a\u0323\u0301 q\u0307\u0323",
    "ÀÉÎ İSTANBUL ẞ ǅ ΑΣ", "aaaaabbbbb ababab", "\u2581\u2581x\u2581 y", "tab\t\ttab  double   triple", "1234567 12,345.67 ٣٤٥ ²³",
    "unknown: \u0e01\u0e33 \U0001e030 \U00010ffff \x01\x7f", "ends with space ", "CamelCase snake_case kebab-case", "''quoted'' ``text''",
]


# Cases whose Unicode tables are compared on every code point.
SWEPT = [f"normalizer_{n}" for n in ("nfc", "nfd", "nfkc", "nfkd", "lowercase", "strip", "strip_accents", "nmt", "precompiled")]
SWEPT += [f"pre_tokenizer_{n}" for n in ("digits_individual", "punctuation_isolated", "whitespace", "whitespace_split", "unicode_scripts",
                                         "split_gpt2")]
SWEPT += [f"pattern_{n}" for n in ("cl100k", "o200k", "kimi_han", "word_boundary", "properties", "posix", "ignore_case")]


def byte_tokens():
    return [f"<0x{b:02X}>" for b in range(256)]


def unigram_probe():
    """Every pre-token is one unknown token, whose piece is its text: shows what reaches the model."""
    return Tokenizer(models.Unigram([("<unk>", 0.0)], 0, False))


def small_bpe(**options):
    vocab = list("abcdefghijklmnopqrstuvwxyzH ,!W\u2581") + ["ab", "abab", "he", "ll", "hell", "hello", "er", "\u2581w", "or", "ld", "aa", "aaaa"]
    merges = [("a", "b"), ("ab", "ab"), ("l", "l"), ("h", "e"), ("he", "ll"), ("hell", "o"), ("o", "r"), ("l", "d"), ("e", "r"),
              ("\u2581", "w"), ("a", "a"), ("aa", "aa")]
    extra = options.pop("extra", [])
    tokens = vocab + extra
    return Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges, **options))


def byte_level_bpe():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = alphabet + ["he", "ll", "hell", "hello", "\u0120w", "or", "\u0120wor", "an", "\u00c3\u00a9", "\u0120\u0120"]
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("\u0120", "w"), ("o", "r"), ("\u0120w", "or"), ("a", "n"),
              ("\u00c3", "\u00a9"), ("\u0120", "\u0120")]
    return Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))


def charsmap(rules):
    """A SentencePiece charsmap for single-byte-branching keys: a double-array trie and the replacement strings."""
    root = {}
    blob = b""
    for key, value in rules.items():
        node = root
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[None] = len(blob)
        blob += value.encode() + b"\0"
    units = {0: 0}
    used = set()

    def place(node, position):
        children = [b for b in node if b is not None] + ([0] if None in node else [])
        offset = 0x100
        while any((position ^ offset ^ b) in used or (position ^ offset ^ b) in units for b in children):
            offset += 0x100
        units[position] = units.get(position, 0) | (offset << 10 if offset < 1 << 21 else 0) | ((1 << 8) if None in node else 0)
        base = position ^ offset
        if None in node:
            units[base] = node[None] | 1 << 31
        for byte in node:
            if byte is not None:
                units[base ^ byte] = byte
        for byte in node:
            if byte is not None:
                place(node[byte], base ^ byte)

    place(root, 0)
    array = [units.get(i, 0) for i in range((max(units) | 0xFF) + 1)]
    return base64.b64encode(struct.pack("<I", 4 * len(array)) + struct.pack(f"<{len(array)}I", *array) + blob).decode()


def with_normalizer(normalizer):
    tokenizer = unigram_probe()
    tokenizer.normalizer = normalizer
    return tokenizer


def with_pre_tokenizer(pre_tokenizer):
    tokenizer = unigram_probe()
    tokenizer.pre_tokenizer = pre_tokenizer
    return tokenizer


def normalizer_cases():
    yield "nfc", normalizers.NFC()
    yield "nfd", normalizers.NFD()
    yield "nfkc", normalizers.NFKC()
    yield "nfkd", normalizers.NFKD()
    yield "lowercase", normalizers.Lowercase()
    yield "strip", normalizers.Strip()
    yield "strip_left", normalizers.Strip(left=True, right=False)
    yield "strip_right", normalizers.Strip(left=False, right=True)
    yield "strip_accents", normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])
    yield "replace_string", normalizers.Replace("a", "XY")
    yield "replace_nothing", normalizers.Replace("e", "")
    yield "replace_regex", normalizers.Replace(Regex(r"\s+"), " ")
    yield "replace_regex_empty", normalizers.Replace(Regex("b*"), "-")
    yield "replace_groups", normalizers.Replace(Regex("(l)(e)"), "$1 $2")
    yield "prepend", normalizers.Prepend("\u2581")
    yield "nmt", normalizers.Nmt()
    yield "byte_level", normalizers.ByteLevel()
    yield "sequence", normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " "), normalizers.Lowercase()])


def pre_tokenizer_cases():
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        for invert in (False, True):
            suffix = behavior + ("_inverted" if invert else "")
            yield f"split_regex_{suffix}", pre_tokenizers.Split(Regex(r"\s+|[,.!]"), behavior, invert)
            yield f"split_string_{suffix}", pre_tokenizers.Split("a", behavior, invert)
    yield "split_empty_matches", pre_tokenizers.Split(Regex("b*"), "isolated")
    yield "split_gpt2", pre_tokenizers.ByteLevel(add_prefix_space=False)
    yield "byte_level_prefix", pre_tokenizers.ByteLevel(add_prefix_space=True)
    yield "byte_level_plain", pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    yield "digits", pre_tokenizers.Digits(False)
    yield "digits_individual", pre_tokenizers.Digits(True)
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        yield f"punctuation_{behavior}", pre_tokenizers.Punctuation(behavior)
    yield "whitespace", pre_tokenizers.Whitespace()
    yield "whitespace_split", pre_tokenizers.WhitespaceSplit()
    yield "char_delimiter", pre_tokenizers.CharDelimiterSplit("e")
    for scheme in ("always", "first", "never"):
        yield f"metaspace_{scheme}", pre_tokenizers.Metaspace(prepend_scheme=scheme)
        yield f"metaspace_{scheme}_whole", pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    yield "metaspace_other", pre_tokenizers.Metaspace(replacement="_")
    yield "unicode_scripts", pre_tokenizers.UnicodeScripts()
    yield "fixed_length", pre_tokenizers.FixedLength(3)
    yield "sequence_digits_byte_level", pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(False)])
    yield "sequence_twice", pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(), pre_tokenizers.Digits(True)])
    yield "sequence_metaspace_first", pre_tokenizers.Sequence([pre_tokenizers.Split("l", "merged_with_next"), pre_tokenizers.Metaspace(prepend_scheme="first")])


# Patterns as models on the Hub use them, and syntax where Oniguruma differs from PCRE2.
PATTERNS = {
    "cl100k": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "cl100k_possessive": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "deepseek_letters": r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "deepseek_han": r"[一-龥぀-ゟ゠-ヿ]+",
    "kimi_han": r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+|\p{N}{1,3}|\s+",
    "bloom": r" ?[^(\s|[.,!?…。，、।۔،])]+",
    "falcon_digits": r"[0-9][0-9][0-9]",
    "right_to_left_digits": r"\d{1,3}(?=(?:\d{3})*\b)",
    "word_boundary": r"\b\w+\b|\B",
    "hex": r"\h+|\H",
    "anchors": r"^.|.$",
    "properties": r"\p{Lu}|\p{^Ll}|\P{L}",
    "posix": r"[[:alpha:]]+|[[:space:]]+|[^[:digit:]]",
    "ignore_case": r"(?i)[a-cß]+|ſ|k",
    "lookbehind": r"(?<=[a-z])(?=[A-Z])|(?<!\w)\d+",
    "atomic": r"(?>a+)b|(?<name>x)|\x{65E5}|\u672C|\x41",
}


def added_tokens(tokenizer):
    tokenizer.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True),
                                  AddedToken("<mask>", lstrip=True, rstrip=True, special=True)])
    tokenizer.add_tokens([AddedToken("<m>", single_word=True), AddedToken("mask", single_word=True, normalized=False),
                          AddedToken("Hello", normalized=True), AddedToken("double", lstrip=True, normalized=False),
                          AddedToken("case", rstrip=True), AddedToken("ab"), AddedToken("abab"), AddedToken("日本", normalized=False)])
    return tokenizer


def model_cases():
    yield "bpe_dropped", small_bpe()
    yield "bpe_unk", small_bpe(unk_token="<unk>", extra=["<unk>"])
    yield "bpe_fuse_unk", small_bpe(unk_token="<unk>", fuse_unk=True, extra=["<unk>"])
    yield "bpe_byte_fallback", small_bpe(byte_fallback=True, unk_token="<unk>", fuse_unk=True, extra=["<unk>"] + byte_tokens())
    yield "bpe_partial_fallback", small_bpe(byte_fallback=True, unk_token="<unk>", fuse_unk=True, extra=["<unk>"] + byte_tokens()[:0xE4])
    affixed = Tokenizer(models.BPE(
        vocab={t: i for i, t in enumerate(["a", "b", "##a", "##b", "a</w>", "##b</w>", "##a</w>", "ab</w>", "ab", "<unk>", "##ab"])},
        merges=[("a", "##b"), ("a", "##b</w>"), ("##a", "##b")], continuing_subword_prefix="##", end_of_word_suffix="</w>", unk_token="<unk>"))
    affixed.pre_tokenizer = pre_tokenizers.Whitespace()
    affixed.decoder = decoders.BPEDecoder("</w>")
    yield "bpe_affixes", affixed
    ignoring = small_bpe(ignore_merges=True, extra=["World", "hel", "abc"])
    ignoring.pre_tokenizer = pre_tokenizers.Whitespace()
    yield "bpe_ignore_merges", ignoring
    byte_level = byte_level_bpe()
    byte_level.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    byte_level.decoder = decoders.ByteLevel()
    yield "bpe_byte_level", added_tokens(byte_level)
    metaspace = small_bpe(byte_fallback=True, unk_token="<unk>", fuse_unk=True, extra=["<unk>"] + byte_tokens())
    metaspace.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    metaspace.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    yield "bpe_sentencepiece", added_tokens(metaspace)
    pieces = [("<unk>", 0.0), ("\u2581", -2.0), ("a", -3.0), ("b", -3.5), ("ab", -4.0), ("abab", -6.5), ("Hello", -5.0), ("\u2581W", -4.5),
              ("or", -4.1), ("o", -5.0), ("r", -5.2), ("ld", -4.4), ("l", -5.0), ("日本", -6.0), ("!", -3.0), ("e", -2.9), ("el", -3.1), ("xyz", -9.0)]
    for fallback in (False, True):
        unigram = Tokenizer(models.Unigram(pieces + ([(t, -20.0) for t in byte_tokens()] if fallback else []), 0, fallback))
        unigram.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
        unigram.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always" if fallback else "first")
        unigram.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()]) if fallback else decoders.Metaspace()
        yield "unigram_byte_fallback" if fallback else "unigram", added_tokens(unigram)
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "Hello": 1, "World": 2, "a": 3, "text": 4}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    yield "word_level", words


def processor_cases():
    def with_processor(processor):
        tokenizer = added_tokens(small_bpe())
        tokenizer.post_processor = processor(tokenizer)
        return tokenizer
    yield "template", with_processor(lambda t: processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", t.token_to_id("<s>")), ("</s>", t.token_to_id("</s>"))]))
    yield "byte_level", with_processor(lambda t: processors.ByteLevel(trim_offsets=True, add_prefix_space=True))
    yield "bert", with_processor(lambda t: processors.BertProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>"))))
    yield "template_repeats", with_processor(lambda t: processors.TemplateProcessing(
        single="<s> <two> $A:1 </s>:1 </s>", pair="$A $B", special_tokens=[
            ("<s>", t.token_to_id("<s>")), ("</s>", t.token_to_id("</s>")),
            {"id": "<two>", "ids": [t.token_to_id("<mask>"), t.token_to_id("<m>")], "tokens": ["<mask>", "<m>"]}]))
    yield "roberta", with_processor(lambda t: processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>"))))
    yield "processor_sequence", with_processor(lambda t: processors.Sequence([
        processors.ByteLevel(), processors.TemplateProcessing(single="<s> $A", pair="$A $B", special_tokens=[("<s>", t.token_to_id("<s>"))])]))


def decoder_cases():
    def with_decoder(decoder):
        tokens = ["a", "b", " ", "\u2581", "\u2581a", "b\u2581", "\u0120x", "é", "</w>", "x</w>", "<0xE6>", "<0x97>", "<0xA5>", "<0x0A>", "<0xFF>", "aab", "\u0120", "\u00c3", "\u00a9", "  a "]
        tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[]))
        tokenizer.add_special_tokens(["<s>"])
        if decoder is not None:
            tokenizer.decoder = decoder
        return tokenizer
    yield "none", with_decoder(None)
    yield "byte_level", with_decoder(decoders.ByteLevel())
    yield "replace", with_decoder(decoders.Replace("a", "X "))
    yield "replace_regex", with_decoder(decoders.Replace(Regex("a+"), "$0"))
    yield "byte_fallback", with_decoder(decoders.ByteFallback())
    yield "fuse", with_decoder(decoders.Sequence([decoders.Fuse(), decoders.Replace("aab", "-"), decoders.Strip(" ", 2, 0)]))
    yield "strip", with_decoder(decoders.Strip(" ", 1, 0))
    yield "strip_end", with_decoder(decoders.Strip(" ", 0, 1))
    yield "metaspace", with_decoder(decoders.Metaspace())
    yield "metaspace_never", with_decoder(decoders.Metaspace(prepend_scheme="never"))
    yield "bpe_decoder", with_decoder(decoders.BPEDecoder())
    yield "llama", with_decoder(decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]))
    yield "fused_regex", with_decoder(decoders.Sequence([decoders.Fuse(), decoders.Replace(Regex("a+b?"), "-")]))
    yield "twice_byte_level", with_decoder(decoders.Sequence([decoders.ByteLevel(), decoders.ByteLevel()]))


def precompiled_case():
    tokenizer = unigram_probe()
    rules = {"A": "a", "B": "", "ﬁ": "fi", "é": "e", "e\u0301": "E", "①": "1", "\t": " ", "\r": "", "　": " ", "ｶ": "カ", "ab": "C", "x": "yz"}
    tokenizer.normalizer = normalizers.Precompiled(base64.b64decode(charsmap(rules)))
    return tokenizer


def all_cases():
    for name, normalizer in normalizer_cases():
        yield f"normalizer_{name}", with_normalizer(normalizer)
    yield "normalizer_precompiled", precompiled_case()
    for name, pre_tokenizer in pre_tokenizer_cases():
        yield f"pre_tokenizer_{name}", with_pre_tokenizer(pre_tokenizer)
    for name, pattern in PATTERNS.items():
        yield f"pattern_{name}", with_pre_tokenizer(pre_tokenizers.Split(Regex(pattern), "isolated"))
    for name, normalizer in normalizer_cases():
        tokenizer = added_tokens(with_normalizer(normalizer))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
        yield f"added_{name}", tokenizer
    for name, tokenizer in model_cases():
        yield f"model_{name}", tokenizer
    for name, tokenizer in processor_cases():
        yield f"processor_{name}", tokenizer
    for name, tokenizer in decoder_cases():
        yield f"decoder_{name}", tokenizer


def config_cases():
    """Files of a model directory; what AutoTokenizer makes of them. Tokenizers are small but have the parts that each option acts on."""
    sentencepiece = next(t for n, t in model_cases() if n == "bpe_sentencepiece")
    byte_level = next(t for n, t in model_cases() if n == "bpe_byte_level")
    spm, gpt = json.loads(sentencepiece.to_str()), json.loads(byte_level.to_str())
    flags = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    yield "llama", {"tokenizer": spm, "tokenizer_config": {"tokenizer_class": "LlamaTokenizer", **names}}
    yield "llama_eos", {"tokenizer": spm, "tokenizer_config": {"tokenizer_class": "LlamaTokenizer", "add_bos_token": False, "add_eos_token": True, **names}}
    yield "llama_fast_defaults", {"tokenizer": spm, "tokenizer_config": {"tokenizer_class": "LlamaTokenizerFast", "legacy": False}}
    yield "gemma", {"tokenizer": spm, "tokenizer_config": {"tokenizer_class": "GemmaTokenizer", "bos_token": "<s>", "eos_token": {"__type": "AddedToken", "content": "</s>", **flags}, "pad_token": None}}
    yield "generic", {"tokenizer": gpt, "tokenizer_config": {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "model_max_length": 10**30}}
    yield "new_special", {"tokenizer": gpt, "tokenizer_config": {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<new>", "additional_special_tokens": ["World", "<m>", "</s>"]}}
    yield "added_tokens_decoder", {"tokenizer": gpt, "tokenizer_config": {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "Hello", "added_tokens_decoder": {
        "266": {"content": "<s>", **flags, "lstrip": True}, "300": {"content": "brand new", **flags, "special": False},
        "301": {"content": "case", **flags, "special": False, "rstrip": False, "normalized": True}}}}
    yield "split_special_tokens", {"tokenizer": gpt, "tokenizer_config": {"tokenizer_class": "PreTrainedTokenizerFast", "split_special_tokens": True, "eos_token": "</s>"}}
    yield "clean_up", {"tokenizer": gpt, "tokenizer_config": {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": True}}
    yield "prefix_space", {"tokenizer": gpt, "tokenizer_config": {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True, "bos_token": "<s>", "eos_token": "<s>", "unk_token": "<s>"}}
    yield "prefix_space_null", {"tokenizer": {**gpt, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}},
                                "tokenizer_config": {"tokenizer_class": "PreTrainedTokenizerFast", "add_prefix_space": None}}
    yield "prefix_space_absent", {"tokenizer": {**gpt, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}},
                                  "tokenizer_config": {"tokenizer_class": "PreTrainedTokenizerFast"}}
    yield "qwen2_defaults", {"tokenizer": gpt, "tokenizer_config": {"tokenizer_class": "Qwen2Tokenizer"}}
    yield "special_tokens_map", {"tokenizer": gpt, "tokenizer_config": {"tokenizer_class": "PreTrainedTokenizerFast"},
                                 "special_tokens_map": {"bos_token": {"content": "World", **flags}, "additional_special_tokens": ["<x>", {"content": "don", **flags, "lstrip": True}]},
                                 "added_tokens": {"<x>": 290, "zzz": 291}}
    old = {"vocab": dict(gpt["model"]["vocab"]), "merges": "#version: 0.2\n" + "\n".join(" ".join(m) for m in gpt["model"]["merges"]) + "\n"}
    old["vocab"]["<|endoftext|>"] = max(old["vocab"].values()) + 1
    yield "old_gpt2", {**old, "tokenizer_config": {"tokenizer_class": "GPT2Tokenizer"}}
    yield "old_gpt2_bos", {**old, "tokenizer_config": {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True}}
    yield "old_gpt2_prefix_space", {**old, "tokenizer_config": {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}}
    yield "gpt2_bos_is_not_read", {"tokenizer": gpt, "tokenizer_config": {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True}}
    nested = {**gpt, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": True}, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]}}
    for name in ("Cohere", "Bloom", "PreTrained"):
        for value in (False, True):
            yield f"{name.lower()}_prefix_space_{value}".lower(), {"tokenizer": nested, "tokenizer_config": {
                "tokenizer_class": f"{name}Tokenizer" + ("Fast" if name == "PreTrained" else ""), "add_prefix_space": value, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<s>"}}
    yield "old_qwen2", {**old, "tokenizer_config": {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|endoftext|>", "additional_special_tokens": ["<|im_start|>"]}}


FILES = {"tokenizer": "tokenizer.json", "tokenizer_config": "tokenizer_config.json", "special_tokens_map": "special_tokens_map.json",
         "added_tokens": "added_tokens.json", "vocab": "vocab.json", "merges": "merges.txt"}


class Auto:
    """AutoTokenizer through the package's interface."""

    def __init__(self, files):
        from transformers import AutoTokenizer
        with tempfile.TemporaryDirectory() as directory:
            for key, value in files.items():
                with open(os.path.join(directory, FILES[key]), "w", encoding="utf-8") as file:
                    file.write(value if isinstance(value, str) else json.dumps(value))
            self.auto = AutoTokenizer.from_pretrained(directory)

    def encode(self, text, add_special_tokens):
        return self.auto([text], add_special_tokens=add_special_tokens)[0]

    def decode(self, ids, skip_special_tokens):
        return self.auto.decode(ids, skip_special_tokens=skip_special_tokens)


def write_config_goldens():
    import transformers
    entries = []
    for name, files in config_cases():
        auto = Auto(files)
        texts = TEXTS + ["Hello <s> brand new <new> World</s> case  don't . ok ?", "<x> zzz don t <|endoftext|><|im_start|>"]
        special = {k: v for k, v in auto.auto.special_tokens_map.items() if k != "additional_special_tokens"}
        entries.append({"name": f"config_{name}", "add_special_tokens": True, **files, "special_tokens": special, "vocab_size": len(auto.auto),
                        "encode": [case(auto, text, True) for text in texts]})
    write_group("config", entries, f" and transformers {transformers.__version__}")


MODELS = ("gemma3", "llama2", "llama3_2", "mistral_nemo", "qwen2_5", "qwen3")


def write_model_goldens(shared):
    """Ids of TEXTS under the models' own tokenizers, which the project does not hold: the test reads them from SHARED."""
    entries = []
    for name in MODELS:
        tokenizer = Tokenizer.from_file(os.path.join(shared, "tokenizers", name, "tokenizer.json"))
        texts = [t + " " + t for t in TEXTS] + [m.content + "x " + m.content for m in list(tokenizer.get_added_tokens_decoder().values())[:8]]
        entries.append({"name": name, "encode": [{"text": t, "ids": tokenizer.encode(t, add_special_tokens=False).ids} for t in texts]})
    write_group("../tokenizer_models", entries)


def write_group(group, entries, more=""):
    with open(os.path.join(GOLDEN, f"{group}.json"), "w", encoding="ascii") as file:
        made_by = f"tools/make_tokenizer_goldens.py with tokenizers {tokenizers.__version__}{more}"
        file.write(json.dumps({"made_by": made_by, "cases": []})[:-2] + "\n")
        file.write(",\n".join(json.dumps(entry, ensure_ascii=True) for entry in entries) + "\n]}\n")


def all_code_points():
    """Texts that together hold every code point, each beside a letter, a space and a digit."""
    points = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    for i in range(0, len(points), 256):
        yield "".join(f"a{chr(c)}a {chr(c)} 1{chr(c)}\u0301" for c in points[i:i + 256])
        yield "".join(map(chr, points[i:i + 256]))


def mark_runs(rng, count):
    marks = [c for c in range(0x300, 0x1E950) if __import__("unicodedata").combining(chr(c))]
    bases = "aeioquAÅqκαかハबিक가\u1100\u1161\u11a8\u0915\u09c7\u0dd9\U00011099\u05d0ẛ"
    for _ in range(count):
        yield "".join(rng.choice(bases) + "".join(chr(rng.choice(marks)) for _ in range(rng.randrange(5))) for _ in range(rng.randint(1, 4)))


def case(tokenizer, text, special):
    encoding = tokenizer.encode(text, add_special_tokens=special)
    return {"text": text, "ids": encoding.ids, "pieces": encoding.tokens,
            "decoded": tokenizer.decode(encoding.ids, skip_special_tokens=False),
            "skipped": tokenizer.decode(encoding.ids, skip_special_tokens=True)}


def decode_case(tokenizer, ids):
    return {"ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False),
            "skipped": tokenizer.decode(ids, skip_special_tokens=True)}


def write_goldens():
    os.makedirs(GOLDEN, exist_ok=True)
    groups = {}
    for name, tokenizer in all_cases():
        special = name.startswith("processor_")
        entry = {"name": name, "add_special_tokens": special, "tokenizer": json.loads(tokenizer.to_str())}
        if name.startswith("decoder_"):
            rng = random.Random(name)
            size = tokenizer.get_vocab_size()
            entry["decode"] = [decode_case(tokenizer, [rng.randrange(size) for _ in range(rng.randint(0, 8))]) for _ in range(40)]
        else:
            entry["encode"] = [case(tokenizer, text, special) for text in TEXTS]
        groups.setdefault(name.split("_")[0] if not name.startswith("pre_") else "pre_tokenizer", []).append(entry)
    for group, entries in groups.items():
        write_group(group, entries)
    write_config_goldens()


def live(args):
    rng = random.Random(args.seed)
    passed = failed = 0
    for name, tokenizer in all_cases():
        if args.only and args.only not in name:
            continue
        with tempfile.TemporaryDirectory() as directory:
            tokenizer.save(os.path.join(directory, "tokenizer.json"))
            special = name.startswith("processor_")
            if name.startswith("decoder_"):
                result = oracle.compare_decode(name, [args.tool, directory], tokenizer, rng, args.live, 5)
            else:
                added = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
                texts = TEXTS + [oracle.make_text(rng, added) for _ in range(args.live)]
                if name in SWEPT:
                    texts += list(all_code_points()) + list(mark_runs(rng, args.live))
                command = [args.tool, directory] + (["--add-special-tokens"] if special else [])
                if special:
                    tokenizer = Special(tokenizer)
                result = oracle.compare(name, command, tokenizer, texts, rng, 3)
        print(f"{name}: {result[0]} passed, {result[1]} failed", flush=True)
        passed, failed = passed + result[0], failed + result[1]
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


class Special:
    """A tokenizer that always adds its special tokens."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def encode(self, text, add_special_tokens):
        return self.tokenizer.encode(text, add_special_tokens=True)

    def decode(self, ids, skip_special_tokens):
        return self.tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--live", type=int, metavar="COUNT")
    parser.add_argument("--tool", help="path of tokenizer_tool")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="only cases whose name contains this")
    parser.add_argument("--models", metavar="SHARED", help="write tests/golden/tokenizer_models.json from SHARED/tokenizers")
    args = parser.parse_args()
    if args.models:
        return write_model_goldens(args.models)
    if args.live is not None:
        return live(args)
    write_goldens()
    return 0


if __name__ == "__main__":
    sys.exit(main())
