"""Checks what every C++ source keeps to: a first line that says what the file is for, at most 500 lines, and functions of at most
60 lines.

    sources_test.py SOURCE_DIR      the check
    sources_test.py --self-test     proves that each breach is found

A longer function has a comment before it that begins with `// Long:` and gives the reason. LONG_FILES and LONG_FUNCTIONS list the
files that do not keep to this yet; they may only shrink.
"""

import pathlib
import re
import sys

FOLDERS = ["src", "include", "tests", "bench", "fuzz", "examples"]
MOST_LINES = 500
MOST_FUNCTION_LINES = 60
GENERATED = {"src/jinja/unicode_tables.cc", "src/tokenizer/unicode_tables.cc", "src/tokenizer/unicode_scripts.cc"}
LONG_FILES = {"src/tokenizer/regex_syntax.cc", "tests/saved/context_file_test.cc", "tests/verify/verify_test.cc"}
LONG_FUNCTIONS = {"src/hub/http.cc", "src/jinja/evaluation/expressions.cc", "src/jinja/values/printing.cc", "src/tokenizer/pre_tokenizer.cc"}
FIRST_LINE = re.compile(r"// \S.{14,}")
# A definition as .clang-format lays it out: its head ends in `) {`, its last line is `}` at the same indentation.
HEAD = re.compile(r"^( *)(?!(?:if|for|while|switch|else|do|catch|return|namespace|try)\b|\} )\S.*\)(?: const| noexcept| override| &&| &| mutable)*(?: ->.*)? \{$")
CONTINUED = re.compile(r"^ +\S.*\)(?: const| noexcept| override| &&| &| mutable)*(?: ->.*)? \{$")


def functions(lines):
    """(line, number of lines) of each function definition at the start of a line or in a class."""
    found, open_at = [], None
    for i, line in enumerate(lines):
        if open_at is None:
            head = HEAD.match(line)
            if head and len(head.group(1)) <= 2:
                open_at = (i, head.group(1) + "}")
            elif line.endswith(" {") and CONTINUED.match(line):
                start = i
                while start > 0 and lines[start].startswith("    "):
                    start -= 1
                indentation = re.match(" *", lines[start]).group()
                if len(indentation) <= 2 and re.match(r" *[\w~].*\(", lines[start]) and not re.match(r" *(if|for|while|switch|else)\b", lines[start]):
                    open_at = (start, indentation + "}")
        elif line.rstrip(";,)") == open_at[1]:
            found.append((open_at[0], i - open_at[0] + 1))
            open_at = None
    return found


def has_reason(lines, at):
    """Whether the comment before a function gives the reason for its length."""
    while at > 0 and re.match(r" *(//|template|\[\[)", lines[at - 1]):
        at -= 1
        if re.match(r" *///? Long: \S", lines[at]):
            return True
    return False


def breaches(path, text):
    """What one file breaks, as messages."""
    lines = text.splitlines()
    if path.endswith(".cc") and not FIRST_LINE.match(lines[0] if lines else ""):
        yield f"{path}:1: expected a comment that says what the file is for"
    if len(lines) > MOST_LINES and path not in LONG_FILES:
        yield f"{path}: expected at most {MOST_LINES} lines, found {len(lines)}"
    for at, n_lines in functions(lines):
        if n_lines > MOST_FUNCTION_LINES and path not in LONG_FUNCTIONS and not has_reason(lines, at):
            yield f"{path}:{at + 1}: expected a function of at most {MOST_FUNCTION_LINES} lines or a reason (`// Long: ...`), found {n_lines} lines"


def check(root):
    files = [file for folder in FOLDERS for suffix in ("cc", "h") for file in sorted((root / folder).rglob(f"*.{suffix}"))]
    texts = {str(file.relative_to(root)): file.read_text(encoding="utf-8") for file in files}
    errors = [error for path, text in texts.items() if path not in GENERATED for error in breaches(path, text)]
    errors += [f"{path}: is in LONG_FILES and needs it no more" for path in LONG_FILES
               if len(texts.get(path, "").splitlines()) <= MOST_LINES]
    errors += [f"{path}: is in LONG_FUNCTIONS and needs it no more" for path in LONG_FUNCTIONS
               if all(n_lines <= MOST_FUNCTION_LINES for _, n_lines in functions(texts.get(path, "").splitlines()))]
    print("\n".join([*errors, f"{len(files)} sources, {len(errors)} errors"]))
    return 1 if errors or not files else 0


def self_test():
    head = "// What this file is for.\n"
    long_body = "  work();\n" * MOST_FUNCTION_LINES
    for what, text, expected in [
            ("sound", head + "void f() {\n  work();\n}\n", 0), ("no first line", "#include <a>\n", 1), ("empty", "", 1),
            ("long function", head + "void f(int a) noexcept {\n" + long_body + "}\n", 1),
            ("long function over two lines", head + "void f(int a,\n       int b) {\n" + long_body + "}\n", 1),
            ("long method", head + "class A {\n  void f(int a) const {\n" + long_body + "  }\n};\n", 1),
            ("reason", head + "/// Does it.\n// Long: one table.\nvoid f() {\n" + long_body + "}\n", 0),
            ("long class of short functions", head + "class A {\n" + "  void f() {\n    work();\n  }\n" * 30 + "};\n", 0),
            ("long file", head + "int a;\n" * MOST_LINES, 1)]:
        found = list(breaches("src/a.cc", text))
        assert len(found) == expected, f"{what}: expected {expected} breaches, found {found}"
    print("every breach is found")
    return 0


if __name__ == "__main__":
    sys.exit(self_test() if sys.argv[1] == "--self-test" else check(pathlib.Path(sys.argv[1])))
