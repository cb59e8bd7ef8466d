#!/usr/bin/env python3
"""Compares kvfork's tokenizer with the `tokenizers` package, live, on generated strings.

For each model directory, COUNT strings are made from SEED: words of many scripts, code, whitespace of every kind, emoji
with joiners, combining marks in any order, control tokens and near misses, random code points, long runs, lone surrogate
escapes (which both sides must refuse). Ids, pieces and the decoded text (special tokens kept, and skipped) must be those
of the package.

Usage: tools/oracle_tokenizer.py [--seed N] [--count N] [--kvfork PATH | --tool PATH] DIR [DIR...]
--kvfork drives `kvfork tokenize --model DIR --jsonl`; --tool drives tests/tools/tokenizer_tool, which also
reports pieces and skipped text. Prints one line per difference (the first few) and ends with 'N passed, N failed'.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import unicodedata

from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))



def scripts():
    """Letters, marks and digits by the first word of their names: every script of Unicode, and some symbols."""
    found = {}
    for code in range(0x80, 0x110000):
        if unicodedata.category(chr(code))[0] in "LMN":
            found.setdefault(unicodedata.name(chr(code), "UNNAMED").split("-")[0].split()[0], []).append(chr(code))
    return [characters for _, characters in sorted(found.items())]


SCRIPTS = scripts()

# First and last code points of blocks to draw letters from; the names do not matter.
BLOCKS = [
    (0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x17F), (0x180, 0x24F), (0x250, 0x2FF), (0x370, 0x3FF), (0x400, 0x52F),
    (0x531, 0x586), (0x5D0, 0x5EA), (0x620, 0x64A), (0x710, 0x72F), (0x780, 0x7A5), (0x7CA, 0x7EA), (0x905, 0x939),
    (0x985, 0x9B9), (0xA05, 0xA39), (0xA85, 0xAB9), (0xB05, 0xB39), (0xB85, 0xBB9), (0xC05, 0xC39), (0xC85, 0xCB9),
    (0xD05, 0xD3A), (0xD85, 0xDC6), (0xE01, 0xE30), (0xE81, 0xEB0), (0xF40, 0xF6C), (0x1000, 0x102A),
    (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x135A), (0x13A0, 0x13F4), (0x1401, 0x166C), (0x1780, 0x17B3),
    (0x1820, 0x1878), (0x1E00, 0x1EFF), (0x1F00, 0x1FFE), (0x2C00, 0x2C5F), (0x3041, 0x3096), (0x30A1, 0x30FA),
    (0x3105, 0x312F), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA000, 0xA48C), (0xA640, 0xA66E), (0xA722, 0xA7CA),
    (0xAC00, 0xD7A3), (0xF900, 0xFAD9), (0xFB00, 0xFB06), (0xFF21, 0xFF5A), (0x10330, 0x1034A), (0x10400, 0x1044F),
    (0x12000, 0x12399), (0x13000, 0x1342E), (0x1D400, 0x1D7CB), (0x1E900, 0x1E943), (0x20000, 0x2A6DF),
    (0x2F800, 0x2FA1D), (0x30000, 0x3134A),
]
SPACES = ["\t", "\n", "\v", "\f", "\r", "\r\n", " ", "  ", "   ", "\x85", "\xa0", "\u1680", "\u2000", "\u2003", "\u2009",
          "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\u200b", "\u180e", "\ufeff", "\u200d", "\n\n\n", "\t\t",
          " " * 17, "\n" * 9, " \n ", "\u2581", "\u2581\u2581"]
DIGITS = ["0", "12", "345", "6789", "1234567890", "3.14159", "1,000,000", "½", "²", "Ⅷ", "٣٤٥", "०१२", "１２", "𝟘𝟙", "①", "〇", "10e-5"]
PUNCTUATION = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + ["...", "—", "–", "…", "«", "»", "“", "”", "‘", "’", "、", "。", "！",
              "？", "¿", "¡", "·", "•", "§", "™", "£", "€", "₹", "±", "×", "∑", "→", "♥", "...\n", "!?\r\n", "//", "/*", "*/", "/\n", "|||"]
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'Ve", "'M", "'LL", "'D", "'ſ", "’s", "I'm", "we'LL",
                "n't", " 's", " .", " ?", " !", " ,", " ' ", " 'm", " 've", " 're", "don't", "''", "'"]
EMOJI = ["😀", "👍🏽", "👨\u200d👩\u200d👧\u200d👦", "🏳️\u200d🌈", "🇩🇪🇫🇷", "❤️", "☺", "✌🏿", "🧑\u200d💻", "1️⃣", "🫠", "🪿", "\U0001F9D1\U0001F3FC\u200d🦰"]
CODE = ["def f(x):\n    return x**2\n", "#include <stdio.h>\nint main(void) { return 0; }\n", "SELECT * FROM t WHERE a != 'b';",
        "for (let i = 0; i < n; ++i) { a[i] += `${i}`; }", "fn main() -> Result<(), Box<dyn Error>> {\n\tOk(())\n}",
        "<div class=\"x\">&nbsp;</div>", "{\"a\": [1, 2.5, null, true]}", "\\frac{a}{b} \\alpha_{i}^{2}", "camelCaseHTTPServer", "snake_case_name",
        "https://example.com/a?b=c&d=%20#e", "x=y;z|=0xFF>>2", "    if x:\n\n\n        pass", "\t\tgoto end;", "λx.x", "a<-b", "::std", "@property\r\n",
        "#!/bin/bash\nset -euo pipefail\nfor f in *.txt; do echo \"${f%.txt}\" >>out 2>&1; done\n", "class A<T> : B where T : new() { get; set; }",
        "public static void main(String[] args) throws IOException {\n\t\treturn;\n\t}", "func (s *T) F(ctx context.Context) (<-chan int, error) {\n\tdefer s.mu.Unlock()\n}",
        "const f = async ({a, ...b}) => await (a?.c ?? b[0]);\r\n", "defmodule A.B do\n  def f(%{x: x}), do: x |> Enum.map(&(&1 * 2))\nend",
        "main = do { xs <- getLine; print $ foldr (\\x acc -> x : acc) [] xs }", "let rec f = function [] -> 0 | x :: t -> 1 + f t;;",
        "<?php echo $a['b'] . \"\\n\"; ?>", "SELECT COUNT(*), a.\"b\" FROM a LEFT JOIN c USING (id) GROUP BY 1 HAVING n >= 2; -- x",
        "- name: x\n  on: [push]\n  run: |\n    make -j$(nproc)\n", ".a > b::after{content:\"\\201C\";margin:-1px 0 .5em}", "%d\t%-8.3f\\x1b[31m%s\\0",
        "\\begin{align*}\n  \\int_0^\\infty e^{-x^2}\\,dx &= \\tfrac{\\sqrt\\pi}{2}\n\\end{align*}", "mov eax, [ebp+8]\n\tjne .L3\n", "(defn f [& xs] (->> xs (map inc) #(%1 %2)))",
        "x <- c(1, NA); df$y[df$z %in% x] <- NULL", "| a | b |\n|---|:-:|\n| **x** | `y` |\n", "diff --git a/x b/x\n@@ -1,2 +1,2 @@\n-a\n+b\n", "0x1F 1e-9f 077 0b1010_1010 1_000L"]
MARKS = ["\u0300", "\u0301", "\u0308", "\u0323", "\u0327", "\u0328", "\u0334", "\u0338", "\u0345", "\u05b0", "\u05bc", "\u064b", "\u0651", "\u093c", "\u09bc",
         "\u0e38", "\u0f71", "\u1ab0", "\u20d0", "\u302a", "\u3099", "\u309a", "\ufe0f", "\u200d", "\u200c", "\U0001d165", "\U0001d16f", "\U0001e8d0", "\u0344", "\u0340"]
ODD = ["\0", "\x01", "\x1b", "\x7f", "\x80", "\xad", "\ufffd", "\ufffe", "\uffff", "\U0010ffff", "\ue000", "\U000e0041", "\u061c", "\u2066",
       "ﬀ", "ﷺ", "Å", "Ω", "ſ", "K", "ẛ̣", "İ", "ß", "ẞ", "ǅ", "ΐ", "〱", "㍿", "e\u0301", "가", "가", "\u1100\u1161\u11a8", "각"]


def alphabetic_word(rng):
    if rng.random() < 0.4:
        characters = rng.choice(SCRIPTS)
        return "".join(rng.choice(characters) for _ in range(rng.randint(1, 9)))
    first, last = rng.choice(BLOCKS)
    return "".join(chr(rng.randint(first, last)) for _ in range(rng.randint(1, 9)))


def english(rng):
    words = ("the quick brown fox jumps over lazy dog request refund policy customer order damaged arrived need help please "
             "Tokenization internationalization antidisestablishmentarianism Hello World IMPORTANT iPhone OpenAI it is a of and").split()
    return " ".join(rng.choice(words) for _ in range(rng.randint(1, 8)))


def near_miss(rng, token):
    kind = rng.randrange(7)
    if kind == 0 or len(token) < 2:
        return token
    at = rng.randrange(len(token))
    return [token[:at], token[at:], token[:at] + " " + token[at:], token.upper(), token[:at] + token[at + 1:], token * 2][kind - 1]


def random_code_point(rng):
    while True:
        c = rng.randrange(0x110000) if rng.random() < 0.5 else rng.randrange(0x3000)
        if not 0xD800 <= c <= 0xDFFF:
            return chr(c)


def fragment(rng, added):
    kind = rng.randrange(16)
    if kind <= 2:
        return english(rng)
    if kind <= 5:
        return alphabetic_word(rng)
    if kind == 6:
        return rng.choice(SPACES) * rng.choice([1, 1, 1, 2, 5])
    if kind == 7:
        return rng.choice(DIGITS)
    if kind == 8:
        return "".join(rng.choice(PUNCTUATION) for _ in range(rng.randint(1, 4)))
    if kind == 9:
        return rng.choice(CONTRACTIONS)
    if kind == 10:
        return rng.choice(EMOJI)
    if kind == 11:
        return rng.choice(CODE)
    if kind == 12:
        return alphabetic_word(rng)[:2] + "".join(rng.choice(MARKS) for _ in range(rng.randint(1, 5)))
    if kind == 13:
        return near_miss(rng, rng.choice(added)) if added else "<|x|>"
    if kind == 14:
        return "".join(random_code_point(rng) for _ in range(rng.randint(1, 6)))
    return rng.choice(ODD)


def lone_surrogates(rng, text):
    """The text with surrogates strewn in. Some meet as a pair, which in JSON is one character."""
    for _ in range(rng.randint(1, 3)):
        at = rng.randint(0, len(text))
        text = text[:at] + chr(rng.choice([0xD800, 0xDBFF, 0xDC00, 0xDFFF, 0xD83D, 0xDE00])) + text[at:]
    return text


def make_text(rng, added):
    shape = rng.randrange(100)
    if shape == 99:
        return lone_surrogates(rng, english(rng))
    shape %= 40
    if shape == 0:
        return "".join(random_code_point(rng) for _ in range(rng.randint(0, 40)))
    if shape == 1:
        return rng.choice(SPACES + ODD + MARKS) * rng.randint(1, 60)
    if shape == 2:
        return alphabetic_word(rng) * rng.randint(1, 80)
    if shape == 3:
        return "".join(rng.choice(MARKS) for _ in range(rng.randint(1, 12)))
    glue = rng.choice(["", " ", " ", "\n"])
    return glue.join(fragment(rng, added) for _ in range(rng.randint(0, 8)))


def fixed_texts():
    yield from ["", " ", "\n", "a" * 3000, " " * 3000, "\n" * 500, "ab " * 1000, "日本語" * 300, "\u0301" * 50, "A" * 700 + "b"]
    megabyte = "".join(chr(97 + (i * i + i // 7) % 26) for i in range(1_000_000))
    yield megabyte
    yield "é日😀" * 60_000


def load_transformers(directory):
    """AutoTokenizer, seen through the package's interface: special tokens added, decode with its cleanup."""
    from transformers import AutoTokenizer
    auto = AutoTokenizer.from_pretrained(directory)

    class Adapter:
        def encode(self, text, add_special_tokens):
            return auto(text)[0] if text else auto([text])[0]

        def decode(self, ids, skip_special_tokens):
            return auto.decode(ids, skip_special_tokens=skip_special_tokens)

        def get_vocab_size(self):
            return len(auto)

        def get_added_tokens_decoder(self):
            return auto.added_tokens_decoder

    return Adapter()


def load_package(path):
    tokenizer = Tokenizer.from_file(path)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def expected(tokenizer, text):
    try:
        text = json.loads(json.dumps(text))  # escapes that make a pair are one character
        text.encode()
    except UnicodeEncodeError:
        return {"error": True}
    encoding = tokenizer.encode(text, add_special_tokens=False)
    return {"ids": encoding.ids, "pieces": encoding.tokens, "text": tokenizer.decode(encoding.ids, skip_special_tokens=False),
            "skipped": tokenizer.decode(encoding.ids, skip_special_tokens=True)}


def run(command, lines):
    process = subprocess.run(command, input="".join(line + "\n" for line in lines), capture_output=True, text=True, encoding="utf-8")
    answers = [json.loads(line) for line in process.stdout.split("\n") if line]
    if len(answers) != len(lines):
        sys.exit(f"{' '.join(command)}: {len(lines)} lines in, {len(answers)} out; {process.stderr.strip()}")
    return answers


COMPARED = ["text", "skipped"]


def dumps(text, rng):
    lone = any(0xD800 <= ord(c) < 0xE000 for c in text)
    return json.dumps(text, ensure_ascii=lone or rng.random() < 0.5)


def compare(name, command, tokenizer, texts, rng, limit):
    wanted = [expected(tokenizer, text) for text in texts]
    lines = [dumps(text, rng) if rng.random() < 0.5 else json.dumps({"text": text}) for text in texts]
    passed = failed = 0
    for text, want, got in zip(texts, wanted, run(command, lines)):
        if "error" in want or "error" in got:
            want = {"error": "error" in want}
            got = {**got, "error": "error" in got}
        keys = ["error"] if "error" in want else [k for k in ["ids", "pieces"] + (COMPARED if "skipped" in got else []) if k in got or k == "ids"]
        bad = [k for k in keys if got.get(k) != want[k]]
        passed, failed = passed + (not bad), failed + bool(bad)
        if bad and failed <= limit:
            print(f"{name}: {bad[0]} of {text[:200]!a}: expected {str(want[bad[0]])[:300]!a}, found {str(got.get(bad[0], got))[:300]!a}")
    return passed, failed


def compare_decode(name, command, tokenizer, rng, count, limit):
    """Ids in any order, so that characters break and rejoin anywhere."""
    size = tokenizer.get_vocab_size()
    batches = [[rng.randrange(size) for _ in range(rng.randint(0, 12))] for _ in range(count)]
    passed = failed = 0
    for ids, got in zip(batches, run(command, [json.dumps({"ids": ids}) for ids in batches])):
        want = tokenizer.decode(ids, skip_special_tokens=False)
        same = got.get("text") == want
        passed, failed = passed + same, failed + (not same)
        if not same and failed <= limit:
            print(f"{name}: decode of {ids}: expected {want!a}, found {got.get('text', got)!a}")
    return passed, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directories", nargs="+")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--limit", type=int, default=10, help="differences to print per model")
    parser.add_argument("--kvfork", default=os.path.join(HERE, "..", "build", "release", "kvfork"))
    parser.add_argument("--tool")
    parser.add_argument("--transformers", action="store_true",
                        help="compare with AutoTokenizer instead: special tokens added, decode as it is configured (needs --tool)")
    parser.add_argument("--tokenizer-json", help="the package's side, when it is not DIR/tokenizer.json")
    parser.add_argument("--keep-only", action="store_true",
                        help="do not compare text with special tokens skipped (a GGUF flags more tokens as special)")
    args = parser.parse_args()
    if args.keep_only:
        COMPARED.remove("skipped")
    total_passed = total_failed = 0
    for directory in args.directories:
        oracle = args.tokenizer_json or os.path.join(directory, "tokenizer.json")
        tokenizer = load_transformers(directory) if args.transformers else load_package(oracle)
        added = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
        rng = random.Random(f"{args.seed} {os.path.basename(os.path.normpath(directory))}")
        texts = list(fixed_texts()) + [make_text(rng, added) for _ in range(args.count)]
        options = ["--add-special-tokens"] if args.transformers else ["--raw-decode"]
        command = [args.tool, directory] + options if args.tool else [args.kvfork, "tokenize", "--model", directory, "--jsonl"]
        passed, failed = compare(directory, command, tokenizer, texts, rng, args.limit)
        decoded = compare_decode(directory, command, tokenizer, rng, args.count // 4, args.limit)
        passed, failed = passed + decoded[0], failed + decoded[1]
        print(f"{directory}: {passed} passed, {failed} failed")
        total_passed, total_failed = total_passed + passed, total_failed + failed
    print(f"{total_passed} passed, {total_failed} failed")
    return 1 if total_failed else 0


if __name__ == "__main__":
    sys.exit(main())
