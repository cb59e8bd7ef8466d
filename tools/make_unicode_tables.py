#!/usr/bin/env python3
"""Writes src/tokenizer/unicode_tables.cc: the Unicode facts that the `tokenizers` package works with.

The package mixes several Unicode versions (its regex engine, its normalizer and its standard library each have their
own), and ids must agree with it on every code point. So each table is measured: the package is run over every code
point and what it does is written down. Only the values of canonical combining classes come from Python's unicodedata
(they never change once assigned); which characters have one is measured too.

Needs: tokenizers==0.22.2. Usage: tools/make_unicode_tables.py > src/tokenizer/unicode_tables.cc
"""
import struct
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
EVERYTHING = "".join(map(chr, CODE_POINTS))
CATEGORIES = "Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
HANGUL = range(0xAC00, 0xAC00 + 11172)


def ranges(points):
    out = []
    for c in sorted(points):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def kept_by(normalizer):
    return set(map(ord, normalizer.normalize_str(EVERYTHING)))


def categories():
    category = {}
    for index, name in enumerate(CATEGORIES):
        for c in kept_by(normalizers.Replace(Regex(r"[^\p{%s}]" % name), "")):
            category[c] = index
    runs, previous = [], None
    for c in range(0x110000):
        value = category.get(c, 0)
        if value != previous:
            runs.append((c, value))
            previous = value
    return runs


def split_alone(pre_tokenizer, filler):
    """Code points that `pre_tokenizer` isolates or separates from `filler` on both sides."""
    found = set()
    for c in CODE_POINTS:
        pieces = pre_tokenizer.pre_tokenize_str(filler + chr(c) + filler)
        if len(pieces) == 3:
            found.add(c)
    return found


def words():
    """\\w of the regular expressions behind the Whitespace pre-tokenizer: joins with a letter on its left."""
    whitespace = pre_tokenizers.Whitespace()
    return {c for c in CODE_POINTS if whitespace.pre_tokenize_str("a" + chr(c))[0][0] != "a"}


def decompositions(form):
    normalizer = getattr(normalizers, form)()
    out = {}
    for c in CODE_POINTS:
        if c in HANGUL or c < 0x80:
            continue
        text = normalizer.normalize_str(chr(c))
        if text != chr(c):
            out[c] = list(map(ord, text))
    return out


def combining_classes():
    nfd = normalizers.NFD()
    out = {}
    for c in CODE_POINTS:
        if c < 0x300 or c in HANGUL:
            continue
        mark = chr(c)
        if nfd.normalize_str(mark) != mark:
            continue
        moves = nfd.normalize_str(mark + "\u0334") == "\u0334" + mark  # 0334 has class 1
        moves = moves or nfd.normalize_str("\u0345" + mark) == mark + "\u0345"  # 0345 has class 240
        if c in (0x345,) or moves:
            value = unicodedata.combining(mark)
            if value == 0:
                sys.exit(f"U+{c:04X} has a combining class that this Python does not know")
            out[c] = value
    return out


def compositions(canonical):
    nfc = normalizers.NFC()
    out = {}
    for c, parts in canonical.items():
        if len(parts) < 2 or nfc.normalize_str(chr(c)) != chr(c):
            continue
        first = nfc.normalize_str("".join(map(chr, parts[:-1])))
        if len(first) != 1:
            sys.exit(f"U+{c:04X}: no primary composite for its first part")
        out[(ord(first), parts[-1])] = c
    return out


def lowercase():
    lower = normalizers.Lowercase()
    out = {}
    for c in CODE_POINTS:
        text = lower.normalize_str(chr(c))
        if text != chr(c):
            out[c] = list(map(ord, text))
    return out


def script_runs():
    """Runs of one script as the UnicodeScripts pre-tokenizer sees it; 0 is the script that goes with any other."""
    scripts = pre_tokenizers.UnicodeScripts()

    def joined(a, b):
        return len(scripts.pre_tokenize_str(a + b)) == 1

    any_script = {c for c in CODE_POINTS if joined("a", chr(c)) and joined("\u0431", chr(c))}
    representatives, runs, previous, previous_value = [], [], None, None
    for c in CODE_POINTS:
        if c in any_script:
            value = 0
        elif previous_value and previous not in any_script and joined(previous, chr(c)):
            value = previous_value
        else:
            value = next((i + 1 for i, r in enumerate(representatives) if joined(r, chr(c))), 0)
            if value == 0:
                representatives.append(chr(c))
                value = len(representatives)
        if value != previous_value:
            runs.append((c, value))
        previous, previous_value = chr(c), value
    return runs


def extending():
    """What joins the cluster of a letter before it: seen by a Precompiled map that replaces "a" and what joins it."""
    units = [0] * 512
    units[97] = 97 | 1 << 8 | 128 << 10
    units[225] = 1 << 31
    charsmap = struct.pack("<I", 4 * len(units)) + struct.pack(f"<{len(units)}I", *units) + b"X\0"
    normalizer = normalizers.Precompiled(charsmap)
    return {c for c in CODE_POINTS if normalizer.normalize_str("a" + chr(c)) == "X"}


def emit(name, type_name, rows, per_line=6):
    print(f"const {type_name} {name}[] = {{")
    for i in range(0, len(rows), per_line):
        print("    " + " ".join(rows[i:i + per_line]))
    print("};")
    print(f"const size_t {name}_count = {len(rows)};\n")


def emit_ranges(name, points):
    emit(name, "CodePointRange", [f"{{0x{a:X}, 0x{b:X}}}," for a, b in ranges(points)])


def emit_mappings(name, mapping):
    """Mappings as (code point, offset, length) into one pool."""
    pool, rows = [], []
    for c, parts in sorted(mapping.items()):
        rows.append(f"{{0x{c:X}, {len(pool)}, {len(parts)}}},")
        pool += parts
    emit(name, "Mapping", rows)
    emit(f"{name}_pool", "char32_t", [f"0x{p:X}," for p in pool], 12)


def main():
    print(f"// Made by tools/make_unicode_tables.py from tokenizers {tokenizers.__version__}. Do not edit.")
    print('#include "tokenizer/unicode_tables.h"\n\nnamespace kvfork::tokenizer {\n\n// clang-format off')
    emit("kCategoryRuns", "CategoryRun", [f"{{0x{c:X}, {v}}}," for c, v in categories()])
    emit_ranges("kWordRanges", words())
    emit_ranges("kNumericRanges", split_alone(pre_tokenizers.Digits(individual_digits=True), "a"))
    emit_ranges("kPunctuationRanges", split_alone(pre_tokenizers.Punctuation(), "a"))
    emit_ranges("kCombiningMarkRanges", set(CODE_POINTS) - kept_by(normalizers.StripAccents()))
    emit_ranges("kExtendingRanges", extending())
    for name in ("Alpha", "Upper", "Lower"):
        emit_ranges(f"k{name}Ranges", kept_by(normalizers.Replace(Regex(f"[^[:{name.lower()}:]]"), "")))
    emit("kScriptRuns", "ScriptRun", [f"{{0x{c:X}, {v}}}," for c, v in script_runs()])
    canonical = decompositions("NFD")
    compatible = decompositions("NFKD")
    emit_mappings("kCanonical", canonical)
    emit_mappings("kCompatible", {c: p for c, p in compatible.items() if canonical.get(c) != p})
    emit_mappings("kLowercase", lowercase())
    emit("kCombiningClasses", "CombiningClass",
         [f"{{0x{c:X}, {v}}}," for c, v in sorted(combining_classes().items())])
    emit("kCompositions", "Composition",
         [f"{{0x{a:X}, 0x{b:X}, 0x{c:X}}}," for (a, b), c in sorted(compositions(canonical).items())])
    print("// clang-format on\n\n}  // namespace kvfork::tokenizer")


if __name__ == "__main__":
    main()
