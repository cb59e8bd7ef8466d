"""Scores: of a context's continuations and of many requests, equal to the command's to the last digit."""

import json
import math
import subprocess

import numpy as np
import pytest

import kvfork
from conftest import MODEL, POLICY, command


def test_scores_are_the_logits(model):
    shared = model.encode("Once upon a time there was")
    pairs = [(shared, [3, 4]), (shared + [3], [4]), (shared, [3]), (shared[:2], [5, 6, 7]), (shared, [3, 4])]
    scores = model.score(pairs)
    for (given, more), score in zip(pairs, scores):
        expected, greedy = [], True
        for i, token in enumerate(more):
            logits = model.prefill(input_ids=given + more[:i]).logits.astype(np.float64)
            expected.append(logits[token] - logits.max() - math.log(np.exp(logits - logits.max()).sum()))
            greedy = greedy and int(logits.argmax()) == token
        assert np.allclose(score.logprobs, expected, atol=1e-9)
        assert (score.token_ids, score.is_greedy, score.logprob) == (more, greedy, sum(score.logprobs))
    assert model.score(pairs, share=False) == scores
    assert model.score(pairs[::-1])[::-1] == scores
    assert model.score([]) == []


def test_scores_equal_the_commands(model, tmp_path):
    pairs = [([5, 6, 7, i], [8, i]) for i in range(5)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"context": a, "continuation": b}) + "\n" for a, b in pairs))
    done = subprocess.run([command(), "score", "--model", MODEL, "--dtype", model.dtype, "--in", tmp_path / "in.jsonl"],
                          capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    scores = model.score(pairs)
    assert [line["logprobs"] for line in lines] == [score.logprobs for score in scores]
    assert [line["is_greedy"] for line in lines] == [score.is_greedy for score in scores]


def test_continuations_of_a_context(context):
    texts = context.score([" yes", " no"], prompt="Is it refundable?")
    whole = context.encode("Is it refundable?")
    for text, score in zip([" yes", " no"], texts):
        assert score == context.score([score.token_ids], input_ids=whole)[0]
        assert context.model.decode(score.token_ids) == text
    assert context.score([[1], [2]]) == context.model.score([(context.input_ids, [1]), (context.input_ids, [2])])
    with pytest.raises(kvfork.BoundaryError):
        context.score([[1]], input_ids=[1, 2, 3])
    with pytest.raises(kvfork.InvalidArgumentError, match="token ids"):
        context.score(["yes"])
    raw = context.model.prefill(text=POLICY)
    assert raw.score([" yes"], prompt=" Really?")[0].token_ids
