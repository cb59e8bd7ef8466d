#!/usr/bin/env python3
"""Numbers are read and printed, and characters told apart, the same under every locale of the calling program.

So src/ uses none of the C and C++ functions that ask the locale. Usage: locale_test.py SOURCE_DIR | --self-test
"""

import pathlib
import re
import sys

FUNCTIONS = (
    "strtod strtof strtold stod stof stold atof sprintf snprintf vsnprintf strftime strcoll strxfrm wcstod localeconv setlocale "
    "isspace isdigit isalpha isalnum isupper islower ispunct isxdigit isprint iscntrl isgraph isblank tolower toupper mbstowcs wcstombs"
).split()
# A call of one of them, a stream (which prints by the global locale), or a format that asks for the locale. A date in
# figures is the same everywhere.
ASKS_LOCALE = re.compile(r"(?<![\w.>\"])(?:std::|::)?(?:%s)\(|\bstd::(?:[oi]?stringstream|ofstream|locale)\b|\{[^{}\"]*:[^{}\"]*L\}" % "|".join(FUNCTIONS))


def breaches(text):
    """Numbers and text of the lines that ask the locale; comments do not count."""
    lines = ((number, line.split("//")[0]) for number, line in enumerate(text.splitlines(), 1))
    return [(number, line.strip()) for number, line in lines if ASKS_LOCALE.search(line) and '"%Y-%m-%dT%H:%M:%S"' not in line]


def main(argument):
    if argument == "--self-test":
        bad = ["x = strtod(s, nullptr);", "std::isspace(c)", "std::snprintf(b, 8, \"%f\", x);", "std::ostringstream out;", 'fmt::format("{:L}", x)',
               "::strftime(b, 8, f, &t);"]
        good = ["strftime_l(b, 8, f, &t, c);", "is_ascii_space(c)", "// std::strtod(", 'fail("strftime() argument");', "utf8proc_tolower(c)", "rt.isspace(c)", 'std::strftime(b, 32, "%Y-%m-%dT%H:%M:%S", &t);']
        failed = [line for line in bad if not breaches(line)] + [line for line in good if breaches(line)]
        print("\n".join(failed) or "self-test: all found")
        return 1 if failed else 0
    root = pathlib.Path(argument)
    found = [f"{path.relative_to(root)}:{number}: {line}" for folder in ("src", "include") for path in sorted((root / folder).rglob("*"))
             if path.suffix in (".cc", ".h") for number, line in breaches(path.read_text(errors="replace"))]
    print("\n".join(found) or "nothing in src asks the locale")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
