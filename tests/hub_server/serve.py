"""serve.py: a loopback Hub with org/tiny for tests in other languages. Prints its address; then answers each line of
standard input with the JSON list of "METHOD PATH" requested since the last; ends with standard input."""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import harness  # noqa: E402
import hub_server  # noqa: E402

hub = hub_server.Hub()
hub.repos["org/tiny"] = hub_server.Repo(harness.model_files(shards=2, weights=700_000))
print(hub.url, flush=True)
for _ in sys.stdin:
    with hub.lock:
        print(json.dumps(["%s %s" % (r["method"], r["path"]) for r in hub.log]), flush=True)
        hub.log.clear()
