"""Checks every #include of the project, and what each layer and its unit tests link in CMake, against the layer table
of docs/architecture.md.

    includes_test.py SOURCE_DIR              the check
    includes_test.py SOURCE_DIR --self-test  proves that each kind of breach is found, on broken copies
"""

import pathlib
import re
import sys
import tempfile

# Public headers by the layer that implements them.
PROMPT_HEADERS = [f"kvfork/{name}.h" for name in ("error", "version", "tokenizer", "chat", "text", "prompt", "boundary", "request", "answer_stream")]
ENGINE_HEADERS = PROMPT_HEADERS + [f"kvfork/{name}.h" for name in ("model", "context", "fork", "generate", "batch", "identity", "score", "rows")]
SAVED_HEADERS = ENGINE_HEADERS + ["kvfork/inspect.h", "kvfork/compatibility.h"]
# What a folder may include besides the standard library: prefixes of include paths.
ALLOWED = {
    "include/kvfork": ["kvfork/"],
    "src/base": ["kvfork/error.h", "base/"],
    "src/kernels": ["kernels/"],
    "src/checkpoint": ["kvfork/error.h", "base/", "checkpoint/"],
    "src/tokenizer": ["kvfork/error.h", "kvfork/tokenizer.h", "base/", "tokenizer/"],
    "src/jinja": ["kvfork/error.h", "base/", "jinja/"],
    "src/hub": ["kvfork/error.h", "kvfork/hub.h", "base/", "hub/"],
    "src/model": ["kvfork/error.h", "base/", "kernels/", "checkpoint/", "model/"],
    "src/prompt": [*PROMPT_HEADERS, "base/", "checkpoint/", "tokenizer/", "jinja/", "prompt/"],
    "src/engine": [*ENGINE_HEADERS, "base/", "kernels/", "checkpoint/", "tokenizer/", "jinja/", "model/", "prompt/", "engine/"],
    "src/saved": [*SAVED_HEADERS, "base/", "kernels/", "checkpoint/", "tokenizer/", "jinja/", "model/", "prompt/", "engine/", "saved/"],
    "src/verify": [*SAVED_HEADERS, "kvfork/verify.h", "base/", "kernels/", "checkpoint/", "tokenizer/", "jinja/", "model/", "prompt/",
                   "engine/", "saved/", "verify/"],
    "src/cli": ["kvfork/", "base/", "cli/"],
}
# Libraries by the start of their include path; public headers and kernels see none.
LIBRARIES = ["fmt/", "simdjson.h", "nlohmann/", "pcre2.h", "utf8proc.h", "curl/", "openssl/", "CLI/"]
NO_LIBRARIES = {"include/kvfork", "src/kernels"}
# C++ headers define inline functions, which the linker could then take, compiled for a wide instruction set, for the
# whole program. So a kernel set sees only these and the headers of its own folder.
KERNEL_SET_HEADERS = re.compile(r"^(kernels/(kernels|scalar|generic/[a-z_]+)\.h|[a-z0-9]*intrin\.h|std(def|int|bool)\.h|string\.h|math\.h|float\.h)$")
BUILT_ON = {("amx", "kernels/avx512/vec.h"), ("avx512_bf16", "kernels/avx512/vec.h")}  # a set that extends another sees its lanes
SYSTEM = re.compile(r"^[a-z0-9_/]+\.h$")  # C and POSIX headers, in angle brackets
STANDARD = re.compile(r"^[a-z_0-9]+$")
INCLUDE = re.compile(r'^\s*#\s*(?:include|include_next|import)\s*(["<])([^">]+)[">]')
INCLUDE_LIKE = re.compile(r"^\s*#\s*(include|include_next|import)\b")


def layer_of(path):
    """The table's row for a file, or None when no row covers it."""
    parts = path.parts
    row = "/".join(parts[:2])
    return row if len(parts) > 2 and row in ALLOWED else None


def kernel_set_of(path):
    return path.parts[2] if path.parts[:2] == ("src", "kernels") and len(path.parts) > 3 else None


def breach(path, row, quote, name):
    """Why this include is forbidden, or None."""
    kernel_set = kernel_set_of(path)
    if kernel_set:
        own = name.startswith(f"kernels/{kernel_set}/") or (kernel_set, name) in BUILT_ON
        return None if own or KERNEL_SET_HEADERS.match(name) else "a kernel set sees kernels.h, scalar.h and intrinsics"
    if any(name == allowed or (allowed.endswith("/") and name.startswith(allowed)) for allowed in ALLOWED[row]):
        if row == "src/kernels" and name.count("/") > 1:
            return "the sets are reached through their table alone"
        return None if quote == '"' else "project headers are included with quotes"
    if any(name == library or (library.endswith("/") and name.startswith(library)) for library in LIBRARIES):
        return f"{row} uses no library" if row in NO_LIBRARIES else None
    if STANDARD.match(name):
        return None
    if quote == "<" and SYSTEM.match(name):
        return "public headers are standard C++ alone" if row == "include/kvfork" else None
    return f"{row} may not include it"


def check(root):
    """(number of includes seen, breaches as text)."""
    seen, errors = 0, []
    files = [path for top in ("include", "src") for path in sorted((root / top).rglob("*")) if path.is_file()]
    for file in files:
        path = file.relative_to(root)
        if path.suffix not in (".h", ".cc"):
            errors.append(f"{path}: expected only .h and .cc files here")
            continue
        row = layer_of(path)
        if row is None:
            errors.append(f"{path}: no row of the layer table covers this folder")
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                if INCLUDE_LIKE.match(line):
                    errors.append(f"{path}:{number}: an include that this check cannot read: {line.strip()}")
                continue
            seen += 1
            reason = breach(path, row, *match.groups())
            if reason:
                errors.append(f"{path}:{number}: {line.strip()}: {reason}")
    return seen, errors


def layers_of(row):
    """The folders of src that a row of the table names, itself left out."""
    return {allowed[:-1] for allowed in ALLOWED[row] if allowed.endswith("/")} - {"kvfork", row.removeprefix("src/")}


def check_links(layers_cmake, tests_cmake):
    """Breaches in what CMake links: a layer uses what it may include, and its unit tests link that and nothing else."""
    errors = []
    for command, text in (("kvfork_layer", layers_cmake), ("kvfork_tests", tests_cmake)):
        calls = re.findall(rf"^{command}\((\w+)\s*([^)]*)\)", text, re.MULTILINE)
        for name, words in calls:
            linked = set(re.sub(r"\bLINK\b.*", "", words, flags=re.DOTALL).replace("USES", "").split())
            layer = "saved" if name == "faults" else name  # faults tests everything below the command line that touches files
            expected = layers_of(f"src/{layer}") | ({layer} if command == "kvfork_tests" else set())
            if linked != expected:
                errors.append(f"{command}({name}): expected {sorted(expected)}, found {sorted(linked)}")
        named = {name for name, _ in calls} | {"kernels"}
        for row in ALLOWED:
            if row.startswith("src/") and row not in ("src/cli", *(f"src/{name}" for name in named)):
                errors.append(f"{command}: expected a call for {row}")
    return errors


BREACHES = {
    "include/kvfork/x.h": ['#include "base/error.h"', "#include <nlohmann/json.hpp>", "#include <unistd.h>"],
    "src/base/x.cc": ['#include "checkpoint/config.h"', '#include "kvfork/model.h"'],
    "src/kernels/x.cc": ['#include "base/error.h"', '#include "kernels/avx2/gemm.h"', "#include <fmt/format.h>"],
    "src/kernels/avx2/x.cc": ["#include <vector>", '#include "kernels/avx512/x.h"', '#include "kernels/select.h"'],
    "src/kernels/generic/x.h": ["#include <cmath>", '#include "kernels/avx2/vec.h"', '#include "kernels/sets.h"'],
    "src/checkpoint/x.cc": ['#include "tokenizer/bpe.h"', '#include "engine/model.h"'],
    "src/tokenizer/x.cc": ['#include "jinja/eval.h"'],
    "src/jinja/x.cc": ['#include "tokenizer/bpe.h"'],
    "src/hub/x.cc": ['#include "engine/model.h"'],
    "src/model/x.cc": ['#include "engine/fork.h"', '#include "tokenizer/bpe.h"', '#include "kvfork/model.h"'],
    "src/prompt/x.cc": ['#include "model/forward.h"', '#include "engine/fork_impl.h"', '#include "kvfork/fork.h"'],
    "src/engine/x.cc": ['#include "hub/download.h"', '#include "cli/args.h"', '#include "../model/forward.h"', '#include "saved/identity.h"',
                        '#include "kvfork/verify.h"', '#include "kvfork/inspect.h"'],
    "src/saved/x.cc": ['#include "verify/checks.h"', '#include "hub/cache.h"', '#include "kvfork/verify.h"'],
    "src/verify/x.cc": ['#include "hub/cache.h"', '#include "kvfork/hub.h"'],
    "src/cli/x.cc": ['#include "engine/model.h"', '#  include "checkpoint/gguf.h"', "#include HEADER"],
    "src/newroom/x.cc": ["#include <vector>"],
    "src/model/x.inl": [""],
}
SOUND = {
    "include/kvfork/x.h": ["#include <span>", '#include "kvfork/error.h"'],
    "src/kernels/generic/x.h": ["#include <stddef.h>", '#include "kernels/scalar.h"', '#include "kernels/generic/y.h"'],
    "src/kernels/avx2/x.cc": ["#include <immintrin.h>", '#include "kernels/generic/x.h"', '#include "kernels/kernels.h"', '#include "kernels/avx2/x.h"'],
    "src/engine/x.cc": ['#include "model/forward.h"', "#include <openssl/evp.h>", "#include <sys/mman.h>"],
    "src/saved/x.cc": ['#include "engine/context_impl.h"', '#include "kvfork/inspect.h"', "#include <openssl/evp.h>"],
    "src/cli/x.cc": ['#include "kvfork/model.h"', '#include "base/error.h"', '#include "cli/args.h"', "#include <CLI/CLI.hpp>"],
}


def errors_for(name, line):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / name
        file.parent.mkdir(parents=True)
        file.write_text(line + "\n")
        return check(pathlib.Path(folder))[1]


def self_test():
    missed = [f"missed: {name}: {line}" for name, lines in BREACHES.items() for line in lines if not errors_for(name, line)]
    false_alarms = [f"false alarm: {error}" for name, lines in SOUND.items() for line in lines for error in errors_for(name, line)]
    root = pathlib.Path(__file__).parents[2]
    layers, tests = (root / "CMakeLists.txt").read_text(), (root / "tests/CMakeLists.txt").read_text()
    broken = [(layers.replace("kvfork_layer(saved USES", "kvfork_layer(saved USES verify"), tests), (layers.replace("kvfork_layer(verify", "#"), tests),
              (layers, re.sub(r"(kvfork_tests\(engine .*)\)", r"\1 saved)", tests)), (layers, tests.replace("kvfork_tests(prompt", "#"))]
    missed += [f"missed: links, case {case}" for case, texts in enumerate(broken) if not check_links(*texts)]
    return sum(map(len, BREACHES.values())) + sum(map(len, SOUND.values())) + len(broken), missed + false_alarms


def main():
    root = pathlib.Path(sys.argv[1])
    if "--self-test" in sys.argv[2:]:
        seen, errors = self_test()
    else:
        seen, errors = check(root)
        errors += check_links((root / "CMakeLists.txt").read_text(), (root / "tests/CMakeLists.txt").read_text())
    print("\n".join(errors) or f"{seen} includes checked")
    sys.exit(1 if errors or seen == 0 else 0)


if __name__ == "__main__":
    main()
