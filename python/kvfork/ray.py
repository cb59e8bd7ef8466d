"""Answers from one saved context on many machines, with Ray Data.

    import ray, kvfork.ray
    rows = ray.data.read_json("requests.jsonl")
    answers = rows.map_batches(kvfork.ray.Answerer, fn_constructor_kwargs={"model": "/shared/model", "context": "/shared/policy.kv"},
                               concurrency=4)

Each actor opens the same saved context, whose pages are mapped: one copy per machine. Rows have the form of `kvfork batch` (docs/batch.md),
and an answer depends on its row alone, so the bytes are the same however the rows are spread, and a row that is answered again after an actor
was lost gets the same answer.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

import numpy as np

from .errors import InvalidArgumentError
from .model import Model, _unpickle_model

_REQUEST = ("prompt", "messages", "max_new_tokens", "temperature", "top_k", "top_p", "min_p", "seed", "repetition_penalty", "stop")


class Answerer:
    """A class for ray.data.Dataset.map_batches. It needs nothing of Ray, and can be called with columns of any origin.

    model: the model's directory or GGUF file. context: what Context.save wrote. kernel_set: by default the set that the context was made
    with must be the one that this machine chooses, else opening it is refused; naming a set that all machines have (such as "avx2")
    for the context and for the actors makes their bits equal. The other arguments are the defaults for rows.
    """

    def __init__(self, model: str, context: str, *, dtype: str = "float32", num_threads: Optional[int] = None,
                 kernel_set: Optional[str] = None, width: int = 32, **options: Any) -> None:
        opened: Model = _unpickle_model(Model._key_of(model, dtype, num_threads, kernel_set))
        self.context = opened.open_context(context)
        self.width = width
        self.options = options

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Columns of requests to columns of answers: id, ids, text, stop, cached_tokens, request_tokens and error.

        Every row comes back, in its order. `error` is "" where there is an answer.
        """
        if "id" not in batch:
            raise InvalidArgumentError(f"rows: expected a column id, found {', '.join(batch) or 'none'}")
        n = len(batch["id"])
        rows = [{name: _plain(batch[name][i]) for name in _REQUEST if name in batch} for i in range(n)]
        rows = [{name: value for name, value in row.items() if value is not None} for row in rows]
        found = self.context.generate_batch(rows, width=self.width, return_exceptions=True, **self.options)
        answered = [None if isinstance(item, Exception) else item for item in found]
        errors = [str(item) if isinstance(item, Exception) else "" for item in found]
        ids = np.empty(n, dtype=object)
        for i, answer in enumerate(answered):
            ids[i] = np.array(answer.token_ids if answer else [], dtype=np.int64)
        return {"id": batch["id"], "ids": ids,
                "text": np.array([answer.text if answer else "" for answer in answered], dtype=object),
                "stop": np.array([answer.finish_reason if answer else "" for answer in answered], dtype=object),
                "cached_tokens": np.array([answer.cached_tokens if answer else 0 for answer in answered]),
                "request_tokens": np.array([answer.request_tokens if answer else 0 for answer in answered]),
                "error": np.array(errors, dtype=object)}


def _plain(value: Any) -> Any:
    """A value as Python has it: Arrow and NumPy bring scalars and arrays of their own, and NaN for an absent number."""
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value != value:
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items() if item is not None}
    return value
