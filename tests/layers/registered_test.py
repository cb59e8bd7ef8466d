"""Checks that every test on disk is one that CTest runs: each *_test.cc is compiled and each TEST in it is known to
CTest, and each *_test.py is a command of CTest.

    registered_test.py SOURCE_DIR BUILD_DIR CTEST      the check
    registered_test.py --self-test                     proves that lost tests are found
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

TEST = re.compile(r"^\s*(TYPED_TEST_P|TYPED_TEST|TEST_F|TEST_P|TEST)\s*\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.MULTILINE)


def lost_in_file(path, text, names):
    """Tests of one file that CTest does not know. A name in CTest is FOLDER.[INSTANCE/]SUITE[/TYPE].TEST[/PARAMETER]."""
    tests = TEST.findall(text)
    if not tests:
        return [f"{path}: holds no test"]
    lost = []
    for _, suite, test in tests:
        if "DISABLED_" in suite + test:
            lost.append(f"{path}: {suite}.{test} is disabled, so it never runs")
            continue
        pattern = re.compile(rf"{path.parts[1]}\.(\w+/)?{suite}(/.+)?\.{test}(/.*)?")
        if not any(pattern.fullmatch(name) for name in names):
            lost.append(f"{path}: {suite}.{test} is not a test of CTest")
    return lost


def lost_tests(root, compiled, ctest_tests):
    """(number of test files, tests that are not run), given the compiled files and CTest's own list."""
    names = [test["name"] for test in ctest_tests]
    arguments = {argument for test in ctest_tests for argument in test.get("command", [])}
    files, errors = 0, []
    for file in sorted((root / "tests").rglob("*_test.*")):
        path = file.relative_to(root)
        if file.suffix not in (".cc", ".py") or "__pycache__" in path.parts:
            continue
        files += 1
        if file.suffix == ".py":
            if str(file) not in arguments:
                errors.append(f"{path}: no test of CTest runs it")
        elif file not in compiled:
            errors.append(f"{path}: not compiled into any test binary")
        else:
            errors += lost_in_file(path, file.read_text(), names)
    return files, errors


def check(root, build, ctest):
    commands = json.loads((build / "compile_commands.json").read_text())
    compiled = {pathlib.Path(command["directory"], command["file"]).resolve() for command in commands}
    listing = subprocess.run([ctest, "--show-only=json-v1"], cwd=build, check=True, capture_output=True, text=True)
    return lost_tests(root, compiled, json.loads(listing.stdout)["tests"])


def self_test():
    """A tree with three sound tests and one of each kind of loss."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder).resolve()
        contents = {
            "a/sound_test.cc": "TEST(Sound, Runs) {}\n  TEST_P(Sound, Parameter) {}\nTYPED_TEST(Sound, Type) {}",
            "a/lost_test.cc": "TEST(Lost, NotInBinary) {}",
            "a/deep/nested_test.cc": "TEST(Nested, NotCompiled) {}",
            "a/off_test.cc": "TEST(Off, DISABLED_Never) {}",
            "a/empty_test.cc": "// TEST(Gone, Gone)",
            "b/script_test.py": "",
            "b/orphan_test.py": "",
        }
        for name, text in contents.items():
            (root / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
            (root / "tests" / name).write_text(text)
        compiled = {root / "tests" / name for name in contents if name.endswith(".cc") and "nested" not in name}
        names = ["a.Sound.Runs", "a.All/Sound.Parameter/0", "a.Sound/float.Type", "c.Lost.NotInBinary", "a.Off.Never"]
        ctest_tests = [{"name": name} for name in names]
        ctest_tests.append({"name": "b", "command": ["python3", str(root / "tests/b/script_test.py")]})
        files, errors = lost_tests(root, compiled, ctest_tests)
    found = {error.partition(":")[0].removeprefix("tests/") for error in errors}
    expected = {name for name in contents if not re.search("sound|script", name)}
    return files, [f"expected losses in {sorted(expected)}, found {errors}"] if found != expected or len(errors) != 5 else []


def main():
    if sys.argv[1] == "--self-test":
        files, errors = self_test()
    else:
        files, errors = check(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]), sys.argv[3])
    print("\n".join(errors) or f"{files} test files, all registered")
    sys.exit(1 if errors or files == 0 else 0)


if __name__ == "__main__":
    main()
