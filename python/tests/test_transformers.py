"""Transformers: logits agree, caches hold equal numbers, and generation goes on from one."""

import numpy as np
import pytest

import kvfork
from conftest import CHECKPOINTS, MODEL

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from kvfork.transformers import from_cache, to_cache  # noqa: E402

PATHS = sorted(path for path in CHECKPOINTS.iterdir() if (path / "config.json").exists())


def reference(path):
    return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_a_cache_holds_the_numbers_and_generation_goes_on(path):
    model, other = kvfork.Model.from_pretrained(path), reference(path)
    ids = [(7 * i + i * i) % 200 + 1 for i in range(150)]
    context = model.prefill(input_ids=ids[:130])
    cache = to_cache(context)
    for layer in range(model.info["num_layers"]):
        for mine, theirs in zip(context.keys_values(layer), (cache.layers[layer].keys, cache.layers[layer].values)):
            assert np.array_equal(mine, theirs[0].numpy())
    assert from_cache(model, cache, ids[:130], tolerance=0).hash() == context.hash()

    with torch.no_grad():
        plain = other(torch.tensor([ids]), use_cache=True)
        theirs = other(torch.tensor([ids[:130]]), use_cache=True).past_key_values
        continued = other(torch.tensor([ids[130:]]), past_key_values=to_cache(context)).logits[0, -1]
        alone = other.generate(torch.tensor([ids]), max_new_tokens=8, do_sample=False)[0].tolist()
        from_context = other.generate(torch.tensor([ids]), past_key_values=to_cache(context), max_new_tokens=8, do_sample=False)[0].tolist()
    logits = context.fork(ids).logits
    assert np.allclose(logits, plain.logits[0, -1].numpy(), atol=2e-3)
    assert np.allclose(continued.numpy(), plain.logits[0, -1].numpy(), atol=2e-3)
    assert from_context == alone
    assert context.generate(input_ids=torch.tensor([ids]), max_new_tokens=8).token_ids == alone[len(ids):]
    assert from_cache(model, theirs, ids[:130]).hash() == context.hash()
    with pytest.raises(kvfork.InvalidArgumentError, match="layer 0"):
        from_cache(model, theirs, ids[:129] + [ids[129] + 1])
    with pytest.raises(kvfork.InvalidArgumentError, match="shape"):
        from_cache(model, theirs, ids[:129])


def test_the_tokenizers_output_is_taken_as_it_is():
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    context = kvfork.Model.from_pretrained(MODEL).prefill(text="Once upon a time")
    for given in (tokenizer("Once upon a time there", return_tensors="pt"), tokenizer("Once upon a time there")):
        assert context.generate(input_ids=given, max_new_tokens=4) == context.generate(" there", max_new_tokens=4)
