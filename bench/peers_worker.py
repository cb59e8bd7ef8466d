"""What an engine's worker of bench/peers is: one process that holds one model and answers one JSON line with one JSON line.

The first line it prints is {"ms": open to ready, ...}. Then:

    {"op": "prefill", "ids"}                    {"ms"}: runs fresh ids to the logits of the last; nothing is kept
    {"op": "context", "context", "ids"}         {}: runs ids and keeps the state under a name
    {"op": "decode", "context", "ids", "new"}   {"ms", "ids"}: median greedy step after a copy of a context (or, without a name,
                                                nothing) and ids
    {"op": "hit", "context", "ids"}             {"ms", "id"}: from a request's ids to its first token, the fork or copy included
    {"op": "fork", "context"}                   {"ms"}: the fork or copy alone
    {"op": "together", "context", "ids", "new"} {"per_s"}: one copy per id, decoded together; tokens per second
    {"op": "compare", "context", "ids", "new"}  {"max_difference", "bits_differ", "hit_ids", "miss_ids"}: a hit against a run of
                                                everything from the start
An engine that cannot do one answers {"reason"}.
"""

import json
import statistics
import sys
import time


class Unable(Exception):
    """An engine has no such operation; the text says why."""


def milliseconds_since(started):
    return (time.perf_counter() - started) * 1e3


def timed_steps(step, n):
    """Calls step() n times: (its results, median milliseconds)."""
    found, times = [], []
    for _ in range(n):
        started = time.perf_counter()
        found.append(step())
        times.append(milliseconds_since(started))
    return found, statistics.median(times)


def serve(open_engine):
    """Opens the engine and answers until standard input ends. Operations are the engine's methods."""
    started = time.perf_counter()
    engine = open_engine()
    print(json.dumps({"ms": milliseconds_since(started), **engine.about()}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = getattr(engine, asked.pop("op"))(**asked)
        except Unable as reason:
            answer = {"reason": str(reason)}
        print(json.dumps(answer), flush=True)
