"""What mypy --strict checks of the interface. It is not run."""

import pathlib

import numpy as np
from numpy.typing import NDArray

import kvfork


def use(path: pathlib.Path) -> tuple[str, int]:
    model: kvfork.Model = kvfork.Model.from_pretrained(path, dtype="float32", num_threads=2)
    context: kvfork.Context = model.prefill(system="policy")
    answer: kvfork.Answer = context.generate("When?", max_new_tokens=3, temperature=0.5)
    logits: NDArray[np.float32] = context.fork(context.encode("When?")).logits
    for piece in context.stream("When?"):
        print(piece.upper())
    try:
        context.fork([1])
    except kvfork.BoundaryError as error:
        print(error.position)
    return answer.text, context.save("policy.kv") + int(logits.argmax())
