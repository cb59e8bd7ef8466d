"""Inputs, errors, lifetimes, pickling, threads, interrupts and processes."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import kvfork
from conftest import CHECKPOINTS, MODEL, POLICY, QUESTIONS


def test_ids_come_in_every_form(model, context):
    ids = context.encode(QUESTIONS[0])
    expected = context.fork(ids).logits
    for form in (tuple(ids), [ids], np.array(ids), np.array([ids], dtype=np.int32), {"input_ids": [ids]}):
        assert np.array_equal(context.fork(form).logits, expected)
    torch = pytest.importorskip("torch") if "torch" in sys.modules else None
    if torch:
        assert np.array_equal(context.fork(torch.tensor([ids])).logits, expected)
    for wrong in ("text", 5, [ids, ids], [1.5], [-1], [True], [2**40]):
        with pytest.raises(kvfork.InvalidArgumentError, match="input_ids: expected"):
            context.fork(wrong)


def test_arrays_are_views_that_live_on(model):
    context = model.prefill(text="Once upon a time")
    logits, ids = context.logits, context.input_ids
    assert logits.dtype == np.float32 and logits.shape == (model.info["vocab_size"],)
    assert ids.dtype == np.int32 and ids.shape == (len(context),)
    assert np.shares_memory(logits, context.logits)
    for array in (logits, ids):
        with pytest.raises(ValueError):
            array[0] = 1
    copy = logits.copy()
    del context
    gc.collect()
    assert np.array_equal(logits, copy)


def test_a_context_keeps_its_model_alive():
    context = kvfork.Model.from_pretrained(MODEL).prefill(system=POLICY)
    gc.collect()
    assert context.generate("When?", max_new_tokens=2).token_ids


def test_a_refused_boundary_says_where(context):
    ids = context.encode("When?")
    ids[3] += 1
    with pytest.raises(kvfork.BoundaryError) as refused:
        context.generate(input_ids=ids)
    assert (refused.value.position, refused.value.context_id, refused.value.request_id) == (3, ids[3] - 1, ids[3])
    with pytest.raises(kvfork.BoundaryError) as refused:
        context.fork(ids[:3])
    assert (refused.value.position, refused.value.request_id) == (3, None)


def test_each_kind_of_error_is_a_class_of_its_own(model, context, tmp_path):
    with pytest.raises(kvfork.NotFoundError) as error:
        kvfork.Model.from_pretrained(tmp_path / "none")
    assert isinstance(error.value, FileNotFoundError) and isinstance(error.value, kvfork.Error)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(kvfork.CorruptError):
        kvfork.Model.from_pretrained(tmp_path)
    with pytest.raises(kvfork.InvalidArgumentError, match="dtype"):
        kvfork.Model.from_pretrained(MODEL, dtype="float16")
    with pytest.raises(kvfork.LimitError, match="context limit"):
        context.generate("When?", max_new_tokens=10**6)
    with pytest.raises(kvfork.InvalidArgumentError, match="max_tokens"):
        context.generate("When?", max_tokens=3)
    with pytest.raises(kvfork.InvalidArgumentError, match="temperature"):
        context.generate("When?", temperature=-1)
    with pytest.raises(kvfork.InvalidArgumentError, match="one of"):
        context.generate()
    with pytest.raises(kvfork.InvalidArgumentError):
        model.prefill(input_ids=[1, 2, 3]).generate("a context without an origin")
    with pytest.raises(kvfork.TemplateError):
        model.prefill(messages=[{"role": "user"}], chat_template=str(_template(tmp_path, "{{ 1 / 0 }}")))


def _template(folder, source):
    (folder / "wrong.jinja").write_text(source)
    return folder / "wrong.jinja"


def test_one_bad_request_of_a_batch_touches_no_other(context):
    prompts = ["When?", {"prompt": "How?", "temperature": -1}, {"input_ids": [1, 2]}, "Why?"]
    results = context.generate_batch(prompts, max_new_tokens=3, return_exceptions=True)
    assert results[0] == context.generate("When?", max_new_tokens=3)
    assert isinstance(results[1], kvfork.InvalidArgumentError)
    assert isinstance(results[2], kvfork.BoundaryError)
    assert results[3] == context.generate("Why?", max_new_tokens=3)
    with pytest.raises(kvfork.InvalidArgumentError):
        context.generate_batch(prompts, max_new_tokens=3)
    assert context.generate_batch([]) == []


def test_pickling_goes_by_the_file(model, context, tmp_path):
    with pytest.raises(kvfork.InvalidArgumentError, match="save"):
        pickle.dumps(model.prefill(text="Once"))
    own = model.prefill(system=POLICY)
    own.save(tmp_path / "policy.kv")
    copies = [pickle.loads(pickle.dumps(own)) for _ in range(2)]
    assert copies[0].model is copies[1].model
    assert copies[0].id == own.id and copies[0].generate("When?") == own.generate("When?")
    data = pickle.dumps(own)
    model.prefill(text="something else").save(tmp_path / "policy.kv")
    with pytest.raises(kvfork.InvalidArgumentError, match="was pickled"):
        pickle.loads(data)


def test_threads_get_what_each_gets_alone(context):
    expected = [context.generate(question, max_new_tokens=6) for question in QUESTIONS]
    wrong, end = [], time.monotonic() + float(os.environ.get("KVFORK_THREADS_SECONDS", "3"))

    def work(number):
        while time.monotonic() < end:
            if context.generate(QUESTIONS[number % 4], max_new_tokens=6) != expected[number % 4]:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


INTERRUPTED = """
import os, signal, sys, threading, kvfork
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is started with the signal ignored
model = kvfork.Model.from_pretrained(sys.argv[1], num_threads=1)
context = model.prefill(text="Once upon a time")
expected = context.generate(" there", max_new_tokens=4)
text = "a b c " * 100000
ids = (model.encode("a b c ") * 5000)[:model.info["max_position_embeddings"] - 1]
work = {"generate": lambda: [context.generate(" there", max_new_tokens=200, eos_token_id=[]) for _ in range(10**6)],
        "batch": lambda: [context.generate_batch([" there"] * 8, max_new_tokens=200, eos_token_id=[]) for _ in range(10**6)],
        "stream": lambda: [list(context.stream(" there", max_new_tokens=200, eos_token_id=[])) for _ in range(10**6)],
        "prefill": lambda: [model.prefill(input_ids=ids) for _ in range(10**6)],
        "save": lambda: [context.save(sys.argv[3]) for _ in range(10**6)]}
context.save(sys.argv[3])
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    work[sys.argv[2]]()
except KeyboardInterrupt:
    assert context.generate(" there", max_new_tokens=4) == expected
    assert model.open_context(sys.argv[3]).generate(" there", max_new_tokens=4) == expected
    print("interrupted")
"""


@pytest.mark.parametrize("what", ["generate", "batch", "stream", "prefill", "save"])
def test_an_interrupt_ends_work_and_leaves_everything_usable(what, tmp_path):
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, str(MODEL), what, str(tmp_path / "a.kv")], capture_output=True,
                          text=True, timeout=60)
    assert done.stdout == "interrupted\n", done.stderr


def test_an_interrupt_comes_between_tokens():
    """A signal that arrives while one generation computes ends that generation, not the one after it."""
    model = kvfork.Model.from_pretrained(MODEL)
    context = model.prefill(text="Once upon a time")
    before = signal.getsignal(signal.SIGALRM)

    def handler(*_):
        raise TimeoutError

    signal.signal(signal.SIGALRM, handler)
    try:
        limit = model.info["max_position_embeddings"] - len(context) - 8
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(TimeoutError):
            while True:
                context.generate(" there", max_new_tokens=limit, eos_token_id=[])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_forked_process_is_refused_and_may_open_its_own(context):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            context.generate("When?")
        except kvfork.InvalidArgumentError as error:
            own = kvfork.Model.from_pretrained(MODEL, num_threads=1).prefill(text="Once").generate(" upon", max_new_tokens=1)
            os.write(writing, f"{error} {len(own.token_ids)}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert "os.fork()" in (text := pipe.read()) and text.endswith(" 1")


def test_the_import_is_fast_and_needs_only_numpy():
    program = ("import time; t = time.perf_counter(); import numpy; n = time.perf_counter(); import kvfork, sys; "
               "print(time.perf_counter() - n); assert not {'torch', 'transformers', 'tqdm', 'ray', 'lm_eval'} & set(sys.modules)")
    took = min(float(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
               for _ in range(5))
    assert took < 0.2


def test_other_golden_checkpoints_open():
    for path in sorted(CHECKPOINTS.iterdir()):
        if (path / "config.json").exists():
            model = kvfork.Model.from_pretrained(path, num_threads=1)
            assert repr(path.name)[1:-1] in repr(model)
            assert len(model.prefill(input_ids=[1, 2, 3]).generate(input_ids=[1, 2, 3, 4], max_new_tokens=2).token_ids) <= 2
