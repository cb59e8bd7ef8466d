"""A Transformers worker: holds one model and times what it is asked, one JSON line in, one out.

    peers_transformers.py MODEL DTYPE THREADS
    {"op": "prefill", "ids": [...]}               -> {"ms": ...}
    {"op": "decode", "ids": [...], "new": 48}     -> {"ms": per token, after a prefill of ids that is not timed}
It uses what Transformers does best on a CPU: sdpa attention, logits of the last position alone, inference mode.
"""

import json
import statistics
import sys
import time

import torch
import transformers


def prefill(model, ids):
    started = time.perf_counter()
    out = model(torch.tensor([ids]), use_cache=True, logits_to_keep=1)
    return (time.perf_counter() - started) * 1e3, out


def decode(model, ids, new):
    """Median milliseconds of a greedy step."""
    _, out = prefill(model, ids)
    steps = []
    for _ in range(new):
        token = out.logits[:, -1].argmax(-1, keepdim=True)
        started = time.perf_counter()
        out = model(token, past_key_values=out.past_key_values, use_cache=True, logits_to_keep=1)
        steps.append((time.perf_counter() - started) * 1e3)
    return statistics.median(steps)


def main():
    path, dtype, threads = sys.argv[1], getattr(torch, sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(threads)
    transformers.utils.logging.disable_progress_bar()
    started = time.perf_counter()
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=dtype, attn_implementation="sdpa").eval()
    print(json.dumps({"ms": (time.perf_counter() - started) * 1e3}), flush=True)
    with torch.inference_mode():
        for line in sys.stdin:
            request = json.loads(line)
            if request["op"] == "prefill":
                found = prefill(model, request["ids"])[0]
            else:
                found = decode(model, request["ids"], request["new"])
            print(json.dumps({"ms": found}), flush=True)


if __name__ == "__main__":
    main()
