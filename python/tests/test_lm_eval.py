"""The model of lm_eval: scores that do not depend on sharing or order, and a task on the command line."""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

import pytest

from conftest import MODEL

pytest.importorskip("lm_eval")

from lm_eval.api.instance import Instance  # noqa: E402

from kvfork.lm_eval import KvforkLM  # noqa: E402

SHOTS = "".join(f"Question: is {i} even?\nAnswer: {'yes' if i % 2 == 0 else 'no'}\n\n" for i in range(5))


def requests(kind, arguments):
    return [Instance(request_type=kind, doc={}, arguments=each, idx=i) for i, each in enumerate(arguments)]


@pytest.fixture(scope="module")
def both():
    return KvforkLM(str(MODEL)), KvforkLM(str(MODEL), share=False)


def test_choices_are_the_same_without_sharing_and_in_any_order(both):
    shared, alone = both
    arguments = [(f"{SHOTS}Question: is {i} even?\nAnswer:", answer) for i in range(40) for answer in (" yes", " no")]
    arguments += [("", "yes"), ("a ", "b")]
    expected = alone.loglikelihood(requests("loglikelihood", arguments), disable_tqdm=True)
    assert shared.loglikelihood(requests("loglikelihood", arguments), disable_tqdm=True) == expected
    order = list(range(len(arguments)))
    random.Random(1).shuffle(order)
    found = shared.loglikelihood(requests("loglikelihood", [arguments[i] for i in order]), disable_tqdm=True)
    assert found == [expected[i] for i in order]
    assert shared.tokens_run * 5 < shared.tokens_requested + alone.tokens_run


def test_generations_and_rolling_are_the_same_without_sharing(both):
    shared, alone = both
    arguments = [(f"{SHOTS}Question: is {i} even?\nAnswer:", {"until": ["\n"], "max_gen_toks": 6}) for i in range(10)]
    arguments.append(("Once", {"until": [], "max_gen_toks": 3, "do_sample": False}))
    expected = alone.generate_until(requests("generate_until", arguments), disable_tqdm=True)
    assert shared.generate_until(requests("generate_until", arguments), disable_tqdm=True) == expected
    assert any(expected) and not any("\n" in text for text in expected[:-1])
    texts = [(SHOTS * 3,), ("Once upon a time",)]
    rolling = shared.loglikelihood_rolling(requests("loglikelihood_rolling", texts), disable_tqdm=True)
    assert rolling == alone.loglikelihood_rolling(requests("loglikelihood_rolling", texts), disable_tqdm=True)
    assert all(total < 0 for total in rolling)


TASK = """
task: evens
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/test.jsonl, train: {folder}/train.jsonl}}}}
output_type: multiple_choice
training_split: train
test_split: test
fewshot_split: train
fewshot_config: {{sampler: first_n}}
num_fewshot: 5
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"
doc_to_target: label
doc_to_choice: [" yes", " no"]
metric_list: [{{metric: acc}}]
"""


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    folder = tmp_path_factory.mktemp("task")
    for name, first, n in (("train", 0, 5), ("test", 100, 200)):
        lines = [json.dumps({"question": f"is {i} even?", "label": i % 2}) for i in range(first, first + n)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "evens.yaml").write_text(TASK.format(folder=folder))
    return folder


def evaluate(task, *arguments):
    output = pathlib.Path(tempfile.mkdtemp(dir=task))
    done = subprocess.run([sys.executable, "-m", *arguments, "--tasks", "evens", "--include_path", str(task), "--output_path", str(output),
                           "--log_samples"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    sample, = output.rglob("samples_*.jsonl")
    return [json.loads(line)["filtered_resps"] for line in sample.read_text().splitlines()]


def test_a_task_on_the_command_line(task):
    found = evaluate(task, "kvfork.lm_eval", "--model", "kvfork", "--model_args", f"pretrained={MODEL}")
    assert len(found) == 200
    assert found == evaluate(task, "kvfork.lm_eval", "--model", "kvfork", "--model_args", f"pretrained={MODEL},share=False")


def test_the_figures_are_those_of_transformers(task):
    pytest.importorskip("transformers")
    ours = evaluate(task, "kvfork.lm_eval", "--model", "kvfork", "--model_args", f"pretrained={MODEL}")
    theirs = evaluate(task, "lm_eval", "--model", "hf", "--model_args", f"pretrained={MODEL},dtype=float32", "--device", "cpu")
    for mine, other in zip(ours, theirs, strict=True):
        for (a, a_greedy), (b, b_greedy) in zip(mine, other, strict=True):
            assert abs(float(a) - float(b)) < 1e-3 and a_greedy == b_greedy
