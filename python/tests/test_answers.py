"""Answers equal the command's in every bit, alone, streamed and in a batch."""

import json

import numpy as np
import pytest

import kvfork
from conftest import MODEL, POLICY, QUESTIONS, run_command


@pytest.fixture(scope="module")
def policy_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("policy") / "policy.txt"
    path.write_text(POLICY)
    return path


@pytest.mark.parametrize("options", [{}, {"temperature": 0.8, "top_p": 0.9, "top_k": 20, "min_p": 0.01, "seed": 7},
                                     {"repetition_penalty": 1.3, "stop": ["e"]}])
def test_answers_equal_the_commands(model, context, policy_file, options):
    flags = []
    for name, value in options.items():
        for one in value if isinstance(value, list) else [value]:
            flags += ["--" + name.replace("_", "-"), str(one)]
    prompts = [part for question in QUESTIONS for part in ("--prompt", question)]
    found = run_command("run", "--model", MODEL, "--dtype", model.dtype, "--context-file", policy_file, *prompts,
                        "--max-new-tokens", 12, "--logprobs", "--json", *flags)
    alone = [context.generate(question, max_new_tokens=12, logprobs=True, **options) for question in QUESTIONS]
    together = context.generate_batch(QUESTIONS, max_new_tokens=12, logprobs=True, **options)
    for expected, answer, batched in zip(found["answers"], alone, together, strict=True):
        assert answer.token_ids == expected["ids"]
        assert answer.text == expected["text"]
        assert answer.finish_reason == expected["stop"]
        assert answer.logprobs == expected["logprobs"]  # they read back to the same bits
        assert answer.cached_tokens == expected["cached_tokens"] == len(context)
        assert answer.request_tokens == expected["request_tokens"]
        assert batched == answer


def test_batch_rows_equal_the_commands(model, context, policy_file, tmp_path):
    rows = [{"id": i, "prompt": question, "max_new_tokens": 4 + i, "temperature": i / 3, "seed": i}
            for i, question in enumerate(QUESTIONS * 3)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run_command("batch", "--model", MODEL, "--dtype", model.dtype, "--context-file", policy_file, "--in", tmp_path / "in.jsonl",
                "--out", tmp_path / "out.jsonl", "--json")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    answers = context.generate_batch([{name: row[name] for name in row if name != "id"} for row in rows], width=5)
    assert [(a.token_ids, a.text, a.finish_reason) for a in answers] == [(r["ids"], r["text"], r["stop"]) for r in lines]


def test_the_cache_changes_no_bit(model, context):
    ids = context.encode(QUESTIONS[1])
    uncached = model.prefill(input_ids=ids)
    assert np.array_equal(context.fork(ids).logits, uncached.logits)
    assert context.fork(ids).hash() == uncached.hash()
    from_ids = uncached.generate(input_ids=ids, max_new_tokens=8, logprobs=True, fingerprints=True)
    cached = context.generate(QUESTIONS[1], max_new_tokens=8, logprobs=True, fingerprints=True)
    assert cached.token_ids == from_ids.token_ids
    assert cached.logit_fingerprints == from_ids.logit_fingerprints
    assert len(cached.logit_fingerprints) == len(cached.token_ids)


def test_streams_are_the_answers(context):
    for question in QUESTIONS:
        for stop in (None, "e"):
            text = context.generate(question, max_new_tokens=20, temperature=1.5, seed=3, stop=stop).text
            pieces = list(context.stream(question, max_new_tokens=20, temperature=1.5, seed=3, stop=stop))
            assert "".join(pieces) == text
            assert all(pieces)


def test_a_stream_may_be_left(context):
    for piece in context.stream(QUESTIONS[0], max_new_tokens=200, eos_token_id=[]):
        assert piece
        break
    assert context.generate(QUESTIONS[0], max_new_tokens=2).token_ids


def test_messages_tools_and_documents_are_those_of_the_command(model, tmp_path):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
    context = model.prefill(messages=messages)
    ids = context.encode(messages=[{"role": "user", "content": "When?"}])
    assert ids == model.apply_chat_template([*messages, {"role": "user", "content": "When?"}], add_generation_prompt=True)
    assert ids[:len(context)] == context.input_ids.tolist()
    (tmp_path / "all.json").write_text(json.dumps([*messages, {"role": "user", "content": "When?"}]))
    assert run_command("tokenize", "--model", MODEL, "--messages", tmp_path / "all.json", "--json")["ids"] == ids


def test_contexts_on_contexts(model, tmp_path):
    policy = model.prefill(system=POLICY)
    record = policy.extend(messages=[{"role": "user", "content": "I am Ada."}, {"role": "assistant", "content": "Hello Ada."}])
    whole = model.prefill(messages=[{"role": "system", "content": POLICY}, {"role": "user", "content": "I am Ada."},
                                    {"role": "assistant", "content": "Hello Ada."}])
    assert record.hash() == whole.hash()
    assert record.id == whole.id
    policy.save(tmp_path / "policy.kv")
    small, large = record.save(tmp_path / "record.kv"), record.save(tmp_path / "whole.kv", flatten=True)
    assert small < large
    opened = model.open_context(tmp_path / "record.kv")
    assert opened.generate("When?") == whole.generate("When?")
    text = model.prefill(text="Once upon").extend(text=" a time")
    assert text.generate(" there", max_new_tokens=3) == model.prefill(text="Once upon a time").generate(" there", max_new_tokens=3)
    with pytest.raises(kvfork.InvalidArgumentError, match="expected messages"):
        policy.extend(text="more")
