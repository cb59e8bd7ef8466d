"""What bench/peers needs under .cache/peers, made when it is not there: environments, llama.cpp, and the model in each format."""

import os
import pathlib
import subprocess
import sys

import peers_process
import speed

ROOT = pathlib.Path(__file__).resolve().parent.parent
BENCH = ROOT / "bench"
CACHE = ROOT / ".cache" / "peers"

OPENVINO = ["openvino-genai==2026.4.1.0", "numpy"]
EXPORT = ["torch==2.13.0", "optimum-intel[openvino]==2.2.0"]
TRANSFORMERS = ["torch==2.13.0", "transformers==5.24.0"]
LLAMA = "llama-cpp-python==0.3.36"
LLAMA_COMMON = "-DLLAVA_BUILD=OFF -DMTMD_BUILD=OFF -DLLAMA_CURL=OFF"
LLAMA_BUILDS = {
    "native": "-DGGML_NATIVE=ON",
    "avx2": "-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON -DGGML_AVX512=OFF",
}


def run(command, log, **environment):
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / log).open("ab") as out:
        found = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **environment})
    if found.returncode:
        raise peers_process.Failed(f"setup: {' '.join(map(str, command[:6]))} ... failed: {peers_process.last_line(CACHE / log)}")


def succeeds(command):
    return subprocess.run(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL).returncode == 0


def environment(name, wants, packages, **variables):
    """The Python of a virtual environment in which `wants` can be imported; `packages` are installed where it cannot."""
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = CACHE / name
    python = folder / "bin" / "python"
    if not (python.exists() and succeeds([python, "-m", "pip", "--version"])):
        run([sys.executable, "-m", "venv", "--clear", folder], f"{name}.log")  # also where making it was interrupted
    if not succeeds([python, "-c", f"import {wants}"]):
        print(f"installing {' '.join(packages)} into {folder}", file=sys.stderr)
        run([python, "-m", "pip", "install", "--verbose", *packages], f"{name}.log", **variables)
    return python


def worker_binary():
    build = ROOT / "build" / "bench"
    binary = build / "bench" / "peer_worker"
    run([ROOT / "scripts" / "setup"], "kvfork.log")
    run(["cmake", "-S", ROOT, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DKVFORK_BUILD_BENCH=ON",
         "-DKVFORK_BUILD_TESTS=OFF", "-DKVFORK_BUILD_EXAMPLES=OFF"], "kvfork.log")
    run(["cmake", "--build", build, "--target", "peer_worker", "--parallel", str(os.cpu_count())], "kvfork.log")
    return binary


def openvino_model():
    folder = CACHE / "openvino-model"
    if not (folder / "openvino_model.xml").exists():
        python = environment("export", "optimum.exporters.openvino", EXPORT)
        # It comes along, a text model has no use for it, and built for another torch it stops every import.
        run([python, "-m", "pip", "uninstall", "--yes", "torchvision"], "export.log")
        print("exporting the model for OpenVINO", file=sys.stderr)
        run([python.parent / "optimum-cli", "export", "openvino", "--model", speed.make_checkpoint(), "--task", "text-generation-with-past",
             folder], "export.log")
    return folder


def openvino_command(precision, threads):
    python = environment("openvino", "openvino_genai, numpy", OPENVINO)
    return [python, BENCH / "peers_openvino.py", openvino_model(), precision, str(threads)]


def transformers_command(dtype, threads):
    python = environment("transformers", "transformers, torch", TRANSFORMERS)
    return [python, BENCH / "peers_transformers.py", speed.make_checkpoint(), dtype, str(threads)]


def llamacpp_command(build, attention, threads):
    # Without pip's cache: a wheel that it built before need not have been built this way.
    python = environment(f"llamacpp-{build}", "llama_cpp, numpy", [LLAMA], CMAKE_ARGS=f"{LLAMA_COMMON} {LLAMA_BUILDS[build]}",
                         PIP_NO_BINARY="llama-cpp-python", PIP_NO_CACHE_DIR="1")
    model = CACHE / "qwen2-0.5b-random-bf16.gguf"
    if not model.exists():
        part = model.with_suffix(".part")
        run([sys.executable, BENCH / "peers_gguf.py", speed.make_checkpoint(), part], "gguf.log")
        part.rename(model)
    return [python, BENCH / "peers_llamacpp.py", model, attention, str(threads)]


def kvfork_command(binary, dtype, threads, isa):
    return [binary or worker_binary(), speed.make_checkpoint(), dtype, str(threads), *([isa] if isa else [])]
