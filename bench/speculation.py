"""Lookup speculation against plain decoding, interleaved, where there is nothing to gain: random weights, random text.

    speculation.py WORKER [ROUNDS]    (WORKER: peer_worker of a build with KVFORK_BUILD_BENCH)

Per kind of text: the median of the rounds' ratios, time per token with lookup over time without, and tokens per pass.
"""

import pathlib
import statistics
import sys

import peers_process
import peers_rows
import speed

NEW = 64
KINDS = {  # of how many distinct ids the context is, how answers are picked
    "random ids, greedy": (150000, {}),
    "random ids, sampled": (150000, {"temperature": 1.0}),
    "64 distinct ids, greedy": (64, {}),
    "64 distinct ids, sampled": (64, {"temperature": 1.0}),
}


def main():
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    worker = peers_process.Worker([sys.argv[1], speed.make_checkpoint(), "float32", "2"], pathlib.Path("/dev/null"))
    for kind, (n_distinct, picking) in KINDS.items():
        ratios, tokens, passes = [], 0, 0
        worker.ask("context", context=kind, ids=[1000 + token % n_distinct for token in peers_rows.context_ids(512)])
        for number in range(rounds):
            asked = {"context": kind, "ids": [1000 + token % n_distinct for token in peers_rows.token_ids(number, 32)], "new": NEW,
                     "seed": number, **picking}
            found = {}
            for speculate in ("off", "lookup") if number % 2 else ("lookup", "off"):
                found[speculate] = worker.ask("decode", speculate=speculate, **asked)
            assert found["off"]["ids"] == found["lookup"]["ids"]
            ratios.append(found["lookup"]["mean_ms"] / found["off"]["mean_ms"])
            tokens += NEW
            passes += found["lookup"]["passes"]
        print(f"{kind:26} lookup / off {statistics.median(ratios):.3f} ({min(ratios):.3f} .. {max(ratios):.3f}); "
              f"{tokens / passes:.2f} tokens per pass")
    worker.close()


if __name__ == "__main__":
    main()
