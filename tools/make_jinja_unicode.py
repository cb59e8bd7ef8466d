#!/usr/bin/env python3
"""Writes src/jinja/values/unicode_tables.cc: the Unicode facts behind Python's str methods that utf8proc does not carry.

Facts come from the running Python's unicodedata (Unicode version in the output). Usage: make_jinja_unicode.py > FILE
"""
import sys
import unicodedata

ALL = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def ranges(predicate):
    out = []
    for ch in ALL:
        c = ord(ch)
        if predicate(ch):
            if out and out[-1][1] == c - 1:
                out[-1][1] = c
            else:
                out.append([c, c])
    return out


def print_ranges(name, predicate):
    print(f"const CharRange {name}[] = {{")
    row = "   "
    found = ranges(predicate)
    for lo, hi in found:
        item = f" {{0x{lo:X}, 0x{hi:X}}},"
        if len(row) + len(item) > 110:
            print(row)
            row = "   "
        row += item
    print(row)
    print("};")
    print(f"const size_t {name}_size = {len(found)};\n")


def print_specials(name, method):
    found = [(ord(c), getattr(c, method)()) for c in ALL
             if len(getattr(c, method)()) > 1 or (method == "casefold" and c.casefold() != c.lower())]
    print(f"const SpecialCase {name}[] = {{")
    for c, text in found:
        points = [f"0x{ord(x):X}" for x in text] + ["0"] * (3 - len(text))
        print(f"    {{0x{c:X}, {{{', '.join(points)}}}}},")
    print("};")
    print(f"const size_t {name}_size = {len(found)};\n")


print("// Written by tools/make_jinja_unicode.py from Python "
      f"{sys.version.split()[0]}'s unicodedata {unicodedata.unidata_version}; do not edit.")
print('#include "jinja/values/unicode_tables.h"\n')
print("namespace kvfork::jinja {\n")
print_ranges("kOtherLower", lambda c: c.islower() and unicodedata.category(c) != "Ll")
print_ranges("kOtherUpper", lambda c: c.isupper() and unicodedata.category(c) != "Lu")
print_ranges("kOtherDigit", lambda c: c.isdigit() and unicodedata.category(c) != "Nd")
print_ranges("kOtherNumeric", lambda c: c.isnumeric() and unicodedata.category(c) not in ("Nd", "Nl", "No"))
print_ranges("kNumberWithoutValue", lambda c: not c.isnumeric() and unicodedata.category(c) in ("Nd", "Nl", "No"))
print_specials("kSpecialUpper", "upper")
print_specials("kSpecialTitle", "title")
print_specials("kSpecialLower", "lower")
print_specials("kSpecialFold", "casefold")
print("}  // namespace kvfork::jinja")
