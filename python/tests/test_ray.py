"""Ray: rows answered by actors, one of which is lost, equal those of `kvfork batch`."""

import json
import os
import re

import numpy as np
import pytest

import kvfork
from conftest import MODEL, POLICY, QUESTIONS, run_command

pytest.importorskip("ray")

from kvfork.ray import Answerer  # noqa: E402

ROWS = int(os.environ.get("KVFORK_RAY_ROWS", "200"))
KEYS = ("ids", "text", "stop", "cached_tokens", "request_tokens")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fleet")
    kvfork.Model.from_pretrained(MODEL).prefill(system=POLICY).save(folder / "policy.kv")
    rows = [{"id": i, "prompt": f"{QUESTIONS[i % 4]} {i}", "max_new_tokens": 1 + i % 5, "temperature": (i % 3) / 2, "seed": i}
            for i in range(ROWS)]
    (folder / "requests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run_command("batch", "--model", MODEL, "--load", folder / "policy.kv", "--in", folder / "requests.jsonl", "--out",
                folder / "expected.jsonl", "--json")
    return folder


def expected(folder):
    return {line["id"]: line for line in map(json.loads, (folder / "expected.jsonl").read_text().splitlines())}


def test_columns_are_answered_without_ray(folder):
    answerer = Answerer(str(MODEL), str(folder / "policy.kv"))
    rows = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()][:20]
    batch = {name: np.array([row[name] for row in rows], dtype=object) for name in rows[0]}
    batch["prompt"][3] = None
    found = answerer(batch)
    wanted = expected(folder)
    for i in range(20):
        if i == 3:
            assert "expected one of" in found["error"][i]
            continue
        assert found["error"][i] == ""
        assert {key: list(found[key][i]) if key == "ids" else found[key][i] for key in KEYS} == {key: wanted[i][key] for key in KEYS}
    with pytest.raises(kvfork.InvalidArgumentError, match="column id"):
        answerer({"prompt": ["a"]})


class Mortal(Answerer):
    """The first actor that sees row 90 is lost with it."""

    def __init__(self, *arguments, marker, **options):
        super().__init__(*arguments, **options)
        self.marker = marker

    def __call__(self, batch):
        if 90 in batch["id"].tolist():
            try:
                os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
                os._exit(1)
            except FileExistsError:
                pass
        return super().__call__(batch)


def pss_of(path):
    """Proportional and resident bytes of a file's pages in this process."""
    found = {"Pss": 0, "Rss": 0}
    inside = False
    for line in open("/proc/self/smaps"):
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            inside = line.rstrip().endswith(str(path))
        elif inside and line.split(":")[0] in found:
            found[line.split(":")[0]] += int(line.split()[1]) * 1024
    return found


def test_an_actor_is_lost_and_no_row_is(folder):
    import ray
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(
        [os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])}})
    try:
        context = ray.data.DataContext.get_current()
        context.max_errored_blocks = 0
        rows = ray.data.read_json(str(folder / "requests.jsonl"))
        answered = rows.repartition(10).map_batches(
            Mortal, batch_size=20, concurrency=2, num_cpus=1, fn_constructor_args=(str(MODEL), str(folder / "policy.kv")),
            fn_constructor_kwargs={"num_threads": 1, "marker": str(folder / "lost")})
        found = sorted(answered.take_all(), key=lambda row: row["id"])
    finally:
        ray.shutdown()
    assert (folder / "lost").exists()
    assert [row["id"] for row in found] == list(range(ROWS))
    wanted = expected(folder)
    for row in found:
        assert row["error"] == ""
        assert {key: list(row[key]) if key == "ids" else row[key] for key in KEYS} == {key: wanted[row["id"]][key] for key in KEYS}


def test_processes_share_the_pages_of_a_context(folder):
    import multiprocessing
    context = kvfork.Model.from_pretrained(MODEL, num_threads=1).open_context(folder / "policy.kv")
    context.hash()  # touches every page
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for found in pool.map(_touch, [context] * 2):
            assert found["Rss"] > 0
            assert found["Pss"] < found["Rss"]


def _touch(context):
    context.hash()
    return pss_of(context.file)
