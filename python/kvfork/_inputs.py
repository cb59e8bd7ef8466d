"""What callers give, in the forms that users of Transformers know, as what the extension module takes."""

from __future__ import annotations

import json
from typing import Any, Callable, Iterator, Optional, Sequence, Union

from .errors import InvalidArgumentError

Messages = Sequence[dict[str, Any]]
Ids = Any  # a list of int, a NumPy array or a tensor: [n] or [1, n]


def token_ids(given: Ids) -> list[int]:
    """The ids of a list, a NumPy array, a tensor or a tokenizer's output, [n] or [1, n]. Raises InvalidArgumentError."""
    if hasattr(given, "input_ids"):  # what a Hugging Face tokenizer returns
        given = given.input_ids
    elif isinstance(given, dict) and "input_ids" in given:
        given = given["input_ids"]
    values = given.tolist() if hasattr(given, "tolist") else given
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise InvalidArgumentError(f"input_ids: expected a list, an array or a tensor of ids, found {type(given).__name__}")
    values = list(values)
    if values and isinstance(values[0], (list, tuple)):
        if len(values) != 1:
            raise InvalidArgumentError(f"input_ids: expected one sequence, found {len(values)}; call once per sequence")
        values = list(values[0])
    for index, value in enumerate(values):
        if isinstance(value, bool) or not hasattr(value, "__index__") or not 0 <= int(value) < 2**31:
            raise InvalidArgumentError(f"input_ids: expected whole numbers of at least 0, found {value!r} at index {index}")
    return [int(value) for value in values]


def to_json(value: Any, name: str) -> str:
    """JSON text of messages, tools, documents or variables."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{name}: expected what JSON can say, found something else: {error}") from None


def tools_json(tools: Optional[Sequence[Any]]) -> str:
    """JSON text of tools: descriptions as dicts, or functions, which Transformers describes."""
    if tools is None:
        return ""
    described = []
    for tool in tools:
        if callable(tool):
            from transformers.utils import get_json_schema
            tool = get_json_schema(tool)
        described.append(tool)
    return to_json(described, "tools")


def dtype_name(dtype: Any) -> str:
    """"float32" or "bfloat16" from a name, a torch.dtype or a NumPy dtype."""
    name = getattr(dtype, "__name__", None) or str(dtype)
    name = name.removeprefix("torch.")
    if name in ("float32", "bfloat16"):
        return name
    hint = "; kvfork keeps weights as they are stored, and dtype says how activations and the cache are held"
    raise InvalidArgumentError(f"dtype: expected 'float32' or 'bfloat16', found {dtype!r}{hint}")


class Progress:
    """A bar of tqdm, where it is installed and asked for. `update(done)` takes the total so far."""

    def __init__(self, show: bool, total: int, what: str, unit: str) -> None:
        self._bar: Any = None
        if not show:
            return
        try:
            from tqdm.auto import tqdm
        except ImportError:
            return
        self._bar = tqdm(total=total or None, desc=what, unit=unit)

    def update(self, done: int, total: Optional[int] = None) -> None:
        if total:
            self._bar.total = total
        self._bar.update(done - self._bar.n)

    @property
    def callback(self) -> Optional[Callable[..., None]]:
        return self.update if self._bar is not None else None

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: Any) -> None:
        if self._bar is not None:
            self._bar.close()


def strings(value: Union[None, str, Sequence[str]]) -> list[str]:
    """A list of the strings given: none, one or many."""
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)


def one_of(**given: Any) -> tuple[str, Any]:
    """The one argument that is not None, with its name. Raises InvalidArgumentError."""
    named: Iterator[tuple[str, Any]] = ((name, value) for name, value in given.items() if value is not None)
    found = list(named)
    if len(found) != 1:
        names = ", ".join(given)
        shown = ", ".join(name for name, _ in found) or "none"
        raise InvalidArgumentError(f"arguments: expected one of {names}; found {shown}")
    return found[0]
