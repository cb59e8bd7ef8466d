"""Contexts and the caches of Transformers.

    cache = kvfork.transformers.to_cache(context)
    ids = torch.tensor([context.encode("What do I need?")])
    hf_model.generate(ids, past_key_values=cache, do_sample=False)       # goes on from the context
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._inputs import Ids, token_ids
from .context import Context
from .errors import InvalidArgumentError, UnsupportedError
from .model import Model


def to_cache(context: Context) -> Any:
    """A DynamicCache with the context's keys and values: equal numbers, in torch.float32 or torch.bfloat16 as the model's mode is.

    It is a copy: what Transformers adds to it does not touch the context. Raises UnsupportedError for models whose layers keep
    something other than rows of keys and values.
    """
    import torch
    from transformers import DynamicCache

    dtype = torch.bfloat16 if context.model.dtype == "bfloat16" else torch.float32
    if context.model.info["state_bytes"]:
        raise UnsupportedError(f"{context.model.architecture}: expected layers that keep keys and values alone, found some with a state; "
                               "Transformers has no common cache for them")
    cache = DynamicCache()
    for layer in range(context.model.info["num_layers"]):
        rows = context.keys_values(layer)
        if rows is None:
            raise UnsupportedError(f"layer {layer}: expected one that keeps keys and values, found one that keeps none")
        keys, values = (torch.from_numpy(part).unsqueeze(0).to(dtype) for part in rows)
        cache.update(keys, values, layer)
    return cache


def from_cache(model: Model, cache: Any, input_ids: Ids, *, tolerance: float = 1e-2) -> Context:
    """A context with these ids, whose keys and values agree with those of a Transformers cache.

    A context's bits are a function of weights and ids, which is what makes cached and uncached answers equal, so the ids are run, and
    the cache is compared with the result: InvalidArgumentError says which layer differs by more than `tolerance`, relative to its largest
    value. For a cache that to_cache made tolerance=0 holds.
    """
    ids = token_ids(input_ids)
    context = model.prefill(input_ids=ids)
    for layer in range(model.info["num_layers"]):
        rows = context.keys_values(layer)
        if rows is None:
            continue
        found = [part.float().cpu().numpy()[0] for part in _layer(cache, layer)]
        for name, mine, other in zip(("keys", "values"), rows, found):
            if other.shape != mine.shape:
                raise InvalidArgumentError(f"layer {layer}: {name}: expected the shape {mine.shape}, found {other.shape}")
            difference = float(np.abs(mine - other).max())
            if not difference <= tolerance * float(np.abs(mine).max()):
                raise InvalidArgumentError(f"layer {layer}: {name}: expected those of these ids, found a difference of {difference:.3g}; "
                                           "were other ids, weights or another dtype used?")
    return context


def _layer(cache: Any, layer: int) -> tuple[Any, Any]:
    if hasattr(cache, "layers"):
        return cache.layers[layer].keys, cache.layers[layer].values
    return cache[layer][0], cache[layer][1]
