"""Checks that the objects of the kernel sets define no weak function: the linker may take any one of several weak
definitions for the whole program, and one compiled for a wide instruction set would crash other machines. And that
each set exports exactly one symbol, the getter of its table.

    weak_symbols_test.py BUILD_DIR                 the check
    weak_symbols_test.py --self-test COMPILER      proves that a weak function is found
"""

import pathlib
import subprocess
import sys
import tempfile


def symbols(file, types):
    """Names of the symbols of these nm types that an object file defines."""
    listing = subprocess.run(["nm", "--demangle", str(file)], check=True, capture_output=True, text=True)
    lines = [line.split(maxsplit=2) for line in listing.stdout.splitlines()]
    return [fields[2] for fields in lines if len(fields) == 3 and fields[1] in types]


def weak_symbols(file):
    """Weak and unique symbols (nm's W, V and u; w and v are undefined)."""
    return symbols(file, "WVu")


def check(build):
    objects = sorted(build.glob("CMakeFiles/kvfork_kernels_*.dir/**/*.o"))
    errors = [f"{file.name}: weak: {symbol}" for file in objects for symbol in weak_symbols(file)]
    exports = {}
    for file in objects:
        exports.setdefault(str(file.relative_to(build)).split("/")[1], []).extend(symbols(file, "TDBRS"))
    for folder, names in exports.items():
        kernel_set = folder.removeprefix("kvfork_kernels_").removesuffix(".dir")
        if names != [f"kvfork::kernels::{kernel_set}::kernel_table()"]:
            errors.append(f"{kernel_set}: expected to export kernel_table() alone, found {names}")
    return len(objects), errors


def self_test(compiler):
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "x.cc")
        source.write_text("inline int f(int x) { return x + 1; }\nint (*taken)(int) = f;\nint strong() { return 1; }\n")
        subprocess.run([compiler, "-c", source, "-o", source.with_suffix(".o")], check=True)
        found = weak_symbols(source.with_suffix(".o"))
    return 1, [] if found == ["f(int)"] else [f"expected the weak function f(int), found {found}"]


def main():
    objects, errors = self_test(sys.argv[2]) if sys.argv[1] == "--self-test" else check(pathlib.Path(sys.argv[1]))
    print("\n".join(errors) or f"{objects} objects, no weak symbol")
    sys.exit(1 if errors or objects == 0 else 0)


if __name__ == "__main__":
    main()
