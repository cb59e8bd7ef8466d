"""Speed for now: kvfork against Transformers in one interleaved run; start it through bench/speed.

Random bf16 weights in Qwen2-0.5B's shape, made on the fly under .cache. Each round runs every engine once, so that a slow
moment of the machine falls on all; a figure is the median of the rounds with its spread, and a peer's figure is judged as
a ratio from the same run. Prefill is 512 tokens of context; decode follows it, with a request between.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import oracle_checkpoints  # noqa: E402
from peers_process import Worker  # noqa: E402

CONTEXT_TOKENS = 512
NEW_TOKENS = 48
PROMPT = "7" * 24
SHAPE = {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
         "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True, "rope_theta": 1e6,
         "max_position_embeddings": 32768, "rms_norm_eps": 1e-6}


def make_checkpoint():
    """The random checkpoint's directory, made once. Its tokenizer reads each digit as one token."""
    folder = ROOT / ".cache" / "bench" / "qwen2-0.5b-random-bf16"
    if (folder / "tokenizer.json").exists():
        return folder
    print("making the checkpoint", file=sys.stderr)
    tokenizer = oracle_checkpoints.make_tokenizer("qwen2")
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("meta"):
        model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**SHAPE, eos_token_id=tokenizer.eos_token_id))
    torch.set_default_dtype(torch.float32)
    model.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter.fill_(1.0)
            else:
                parameter.normal_(0, 0.02, generator=generator)
    model.tie_weights()
    model.generation_config = transformers.GenerationConfig(eos_token_id=tokenizer.eos_token_id)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def context_of(tokenizer, tokens):
    """A system text whose rendered message is exactly so many tokens."""
    def rendered(text):
        return tokenizer.apply_chat_template([{"role": "system", "content": text}], add_generation_prompt=False)
    text = "7" * (tokens - len(rendered("")))
    assert len(rendered(text)) == tokens
    return text


def middle(value):
    return value["median"] if isinstance(value, dict) else value


def run_kvfork(args, folder, context_file, dtype):
    """(figures, output, peak resident bytes) of one run in a process of its own."""
    command = [args.kvfork, "run", "--model", str(folder), "--context-file", str(context_file), "--prompt", PROMPT, "--max-new-tokens",
               str(NEW_TOKENS), "--benchmark-repeats", "1", "--dtype", dtype, "--threads", str(args.threads), "--speculate", "off", "--json"]
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"kvfork exited {process.returncode}")
        out.seek(0)
        output = json.loads(out.read())
    (answer,) = output["answers"]
    assert answer["cached_tokens"] == CONTEXT_TOKENS and len(answer["ids"]) == NEW_TOKENS, answer
    figures = {"open": middle(output["timings"]["open_ms"]), "prefill": middle(output["timings"]["prefill_ms"]),
               "decode": middle(answer["timings"]["decode_ms_per_token"])}
    return figures, output, usage.ru_maxrss * 1024


class Figures:
    """Times by (engine, row), one per round."""

    def __init__(self):
        self.times = {}

    def add(self, engine, row, ms):
        self.times.setdefault((engine, row), []).append(ms)

    def median(self, engine, row):
        return statistics.median(self.times[engine, row])

    def show(self, engine, row):
        times = self.times[engine, row]
        return f"{statistics.median(times):9.2f} ms ({min(times):.2f} .. {max(times):.2f})"


def measure(args, folder, context_file, ids):
    """All rounds: (figures, the last kvfork output, peaks in bytes)."""
    figures, peaks = Figures(), {}
    peers = {dtype: Worker([sys.executable, str(ROOT / "bench" / "peers_transformers.py"), str(folder), dtype, str(args.threads)],
                           pathlib.Path(os.devnull)) for dtype in args.dtype}
    for peer in peers.values():  # the first calls of each warm up
        peer.ask("context", context="context", ids=ids)
        peer.ask("decode", context="context", ids=[0], new=4)
    run_kvfork(args, folder, context_file, args.dtype[0])
    for _ in range(args.rounds):
        for dtype, peer in peers.items():
            found, output, peaks[f"kvfork {dtype}"] = run_kvfork(args, folder, context_file, dtype)
            for row, ms in found.items():
                figures.add(f"kvfork {dtype}", row, ms)
            figures.add(f"transformers {dtype}", "prefill", peer.ask("prefill", ids=ids)["ms"])
            figures.add(f"transformers {dtype}", "decode", peer.ask("decode", context="context", ids=[0], new=NEW_TOKENS)["ms"])
    for dtype, peer in peers.items():
        figures.add(f"transformers {dtype}", "open", peer.about["ms"])
        peaks[f"transformers {dtype}"] = peer.peak_bytes()
        peer.close()
    return figures, output, peaks


def measure_busy(args, folder, context_file, figures):
    """Decode with one other process that keeps a core busy, interleaved with decode alone."""
    for _ in range(args.rounds):
        figures.add("kvfork alone", "decode", run_kvfork(args, folder, context_file, "float32")[0]["decode"])
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            time.sleep(0.3)
            figures.add("kvfork beside a busy process", "decode", run_kvfork(args, folder, context_file, "float32")[0]["decode"])
        finally:
            busy.kill()
            busy.wait()


def commit():
    found = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True)
    return found.stdout.strip() or "unknown"


def machine():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return f"{line.split(':', 1)[1].strip()}, {os.cpu_count()} cores, Linux {platform.release()}"
    return platform.machine()


def judge(figures, peaks, file_bytes, dtypes):
    """Lines of (what, found, limit): found must not exceed the limit."""
    rows = []
    for dtype in dtypes:
        ours, peer = f"kvfork {dtype}", f"transformers {dtype}"
        rows.append((f"decode, kvfork {dtype} / transformers {dtype}", figures.median(ours, "decode") / figures.median(peer, "decode"), 1.0))
    if "float32" in dtypes:
        ratio = figures.median("kvfork float32", "prefill") / figures.median("transformers float32", "prefill")
        rows.append(("prefill 512, kvfork float32 / transformers float32", ratio, 1 / 0.8))
        busy = figures.median("kvfork beside a busy process", "decode") / figures.median("kvfork alone", "decode")
        rows.append(("decode beside one busy process / alone", busy, 3.0))
    rows.append(("open, warm, in seconds", figures.median(f"kvfork {dtypes[0]}", "open") / 1e3, 0.3))
    rows.append((f"peak resident memory / file size, {dtypes[0]}", peaks[f"kvfork {dtypes[0]}"] / file_bytes, 1.25))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvfork", default=str(ROOT / "build" / "release" / "kvfork"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", action="append", choices=["float32", "bfloat16"], help="only this mode (repeatable)")
    parser.add_argument("--json", type=pathlib.Path, help="also write every figure here")
    args = parser.parse_args()
    args.dtype = args.dtype or ["float32", "bfloat16"]
    folder = make_checkpoint()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    file_bytes = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    with tempfile.TemporaryDirectory() as temporary:
        context_file = pathlib.Path(temporary, "context.txt")
        context_file.write_text(context_of(tokenizer, CONTEXT_TOKENS))
        ids = tokenizer.apply_chat_template([{"role": "system", "content": context_file.read_text()}])
        figures, output, peaks = measure(args, folder, context_file, ids)
        if "float32" in args.dtype:
            measure_busy(args, folder, context_file, figures)
    print(f"{machine()}; kernel set {output['kernel_set']}, {args.threads} threads, commit {commit()}")
    print(f"Transformers {transformers.__version__} (sdpa), torch {torch.__version__}; Qwen2-0.5B shape, random bf16 weights, "
          f"{file_bytes / 1e6:.0f} MB; medians of {args.rounds} rounds (min .. max)")
    for engine, row in figures.times:
        print(f"  {engine:30} {row:8} {figures.show(engine, row)}")
    for engine, peak in peaks.items():
        print(f"  {engine:30} peak     {peak / 1e6:9.0f} MB")
    rows = judge(figures, peaks, file_bytes, args.dtype)
    for what, found, limit in rows:
        print(f"{'meets ' if found <= limit else 'MISSES'} {what}: {found:.2f} (at most {limit:.2f})")
    if args.json:
        times = {f"{engine}: {row}": values for (engine, row), values in figures.times.items()}
        args.json.write_text(json.dumps({"machine": machine(), "commit": commit(), "ms": times, "peak_bytes": peaks,
                                         "ratios": {what: found for what, found, _ in rows}}, indent=1))
    sys.exit(0 if all(found <= limit for _, found, limit in rows) else 1)


if __name__ == "__main__":
    main()
