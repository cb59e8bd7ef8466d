#!/usr/bin/env python3
"""Divides sources into units that can be compiled as one file each: no two of a unit define a local name twice.

    units.py SOURCE...

Prints one line of sources, separated by commas, for each unit. Local names are what stands at the start of a line in an unnamed
namespace, as .clang-format lays it out. A name too many costs one more unit, a name too few an error of the compiler.
"""

import pathlib
import re
import sys

LARGEST = 12  # sources in a unit: two cores share the work, and the compiler stays below a gigabyte
DECLARATION = re.compile(r"(?:struct|class|enum class|enum) (\w+)|"
                         r"(?!namespace|template|using namespace|//|#|\})[A-Za-z_:\[].*?(\w+)\s*(?:[(={;\[]|$)")


def local_names(text):
    """Names that the unnamed namespaces of a source declare, and the file's own macros."""
    names = set(re.findall(r"^#define (\w+)", text, re.M))
    inside = False
    for line in text.splitlines():
        if line.startswith("namespace {"):
            inside = True
        elif line.startswith("}  // namespace"):
            inside = False
        elif inside and (found := DECLARATION.match(line)):
            names.add(found.group(1) or found.group(2))
    return names


def divide(sources):
    """Lists of sources, each put into the first unit that has none of its names."""
    units = []
    for source in sources:
        names = local_names(pathlib.Path(source).read_text(encoding="utf-8"))
        unit = next((unit for unit in units if not unit[0] & names and len(unit[1]) < LARGEST), None)
        if unit is None:
            units.append(unit := (set(), []))
        unit[0].update(names)
        unit[1].append(source)
    return [unit[1] for unit in units]


if __name__ == "__main__":
    for sources in divide(sys.argv[1:]):
        print(",".join(sources))
