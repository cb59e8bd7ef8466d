"""Contexts: what every request starts from, and the answers to requests."""

from __future__ import annotations

import logging
import os
import queue
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Optional, Sequence, Union

import numpy as np
from numpy.typing import NDArray

from . import _core
from ._inputs import Ids, Messages, Progress, one_of, strings, to_json, token_ids
from .errors import Error, InvalidArgumentError

if TYPE_CHECKING:
    from .model import Model

log = logging.getLogger("kvfork")


@dataclass(frozen=True)
class Answer:
    """The answer to one request."""

    text: str  #: without special tokens, cut before a stop string; "" for a model without a tokenizer
    token_ids: list[int]  #: the new tokens, an EOS that ended the answer included
    finish_reason: str  #: "eos", "length" or "stop"
    cached_tokens: int  #: tokens of the request that were read from the context
    request_tokens: int  #: tokens of the request that were run
    logprobs: Optional[list[float]] = None  #: with logprobs=True: natural logarithms, one per new token
    logit_fingerprints: Optional[list[int]] = None  #: with fingerprints=True: of the logit bits of each pick
    passes: int = field(default=0, compare=False)  #: over the weights; 0 in a batch, whose requests share them


@dataclass(frozen=True)
class Score:
    """How likely the model finds one continuation."""

    logprob: float  #: the sum of logprobs
    logprobs: list[float]  #: natural logarithms, one per token
    token_ids: list[int]  #: the tokens that were scored
    is_greedy: bool  #: each is the most likely one


_OPTIONS = {"max_new_tokens", "temperature", "top_k", "top_p", "min_p", "seed", "repetition_penalty", "stop", "logprobs",
            "eos_token_id", "speculate", "fingerprints"}


class Context:
    """A prefilled context: token ids, their sealed keys and values, and the logits after the last of them.

    Immutable: any number of threads may use one context, and each answer has the bits that its request has alone.
    It keeps its model alive. A context that was saved or opened is pickled by the name of its file and its id;
    others refuse to be pickled.
    """

    def __init__(self, model: "Model", core: _core.Context, file: Optional[str] = None) -> None:
        self._model = model
        self._core = core
        self._file = file

    def __len__(self) -> int:
        return self._core.size()

    def __repr__(self) -> str:
        return f"<kvfork.Context of {len(self)} tokens, {self.kv_bytes} bytes>"

    def __reduce__(self) -> Any:
        if self._file is None:
            raise InvalidArgumentError("pickle: expected a context with a file, by whose name it is pickled; found one that "
                                       "was never saved; call save() first")
        return _unpickle_context, (self._model, self._file, self.id)

    @property
    def model(self) -> "Model":
        """The model that it belongs to."""
        return self._model

    @property
    def file(self) -> Optional[str]:
        """The file that it was saved to or opened from."""
        return self._file

    @property
    def input_ids(self) -> NDArray[np.int32]:
        """Its token ids: int32 [n], read-only, no copy."""
        return self._core.ids()

    @property
    def logits(self) -> NDArray[np.float32]:
        """Logits after the last token: float32 [vocab_size], read-only, no copy; the array keeps them alive."""
        return self._core.logits()

    @property
    def kv_bytes(self) -> int:
        """Bytes of its keys, values and states, those shared with a parent included."""
        return self._core.kv_bytes()

    @property
    def boundary(self) -> str:
        """"message", "probe" or "longest": how requests are compared with it."""
        return self._core.boundary()

    @property
    def identity(self) -> Mapping[str, str]:
        """What its bits and ids depend on, as fingerprints."""
        return self._core.identity()

    @property
    def id(self) -> str:
        """SHA-256 over identity and ids: contexts with the same id hold the same bits."""
        return self._core.id()

    def keys_values(self, layer: int) -> Optional[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Copies of a layer's keys and values: float32 [num_kv_heads, n, head_dim] each; keys are rotated by their positions.

        None for a layer that keeps no rows. Raises InvalidArgumentError for a layer that the model does not have.
        """
        return self._core.copy_rows(layer)

    def hash(self) -> str:
        """SHA-256 over all key and value bytes."""
        return self._core.hash()

    def check(self) -> None:
        """Compares every byte of its file with its checksums. Raises CorruptError."""
        self._core.check()

    def encode(self, prompt: Optional[str] = None, *, messages: Optional[Messages] = None,
               input_ids: Optional[Ids] = None) -> list[int]:
        """Token ids of a whole request: the fixed part and one user message, these messages, or ids as they are."""
        kind, given = one_of(prompt=prompt, messages=messages, input_ids=input_ids)
        if kind == "input_ids":
            return token_ids(given)
        if kind == "prompt":
            return self._core.encode_prompt(given)
        return self._core.encode_messages(to_json(list(given), "messages"))

    def generate(self, prompt: Optional[str] = None, *, messages: Optional[Messages] = None, input_ids: Optional[Ids] = None,
                 max_new_tokens: int = 64, **options: Any) -> Answer:
        """Answers one request.

        prompt: the text of a user message (for a context from plain text: the text that follows). messages: a list
        of messages that follow the fixed part. input_ids: the ids of the whole request, the context's included.
        Either is compared with the context token by token.

        Options: temperature (0: greedy), top_k, top_p, min_p, seed, repetition_penalty (default: the model's own),
        stop (a string or a list), eos_token_id (an id, a list, or [] for none), logprobs, fingerprints,
        speculate (several tokens per pass where the answer copies; the answer is the same in every bit).

        Raises BoundaryError with position, context_id and request_id; LimitError; InvalidArgumentError.
        KeyboardInterrupt ends it between tokens and leaves everything usable.
        """
        ask = self._ask(self.encode(prompt, messages=messages, input_ids=input_ids),
                        {"max_new_tokens": max_new_tokens, **options})
        return _answer(_core.generate(self._core, ask, None), options)

    def stream(self, prompt: Optional[str] = None, *, messages: Optional[Messages] = None, input_ids: Optional[Ids] = None,
               max_new_tokens: int = 64, **options: Any) -> Iterator[str]:
        """As generate, but yields the text piece by piece as it becomes certain; never half a character.

        The pieces joined are generate(...).text. Leaving the loop ends the generation.
        """
        ask = self._ask(self.encode(prompt, messages=messages, input_ids=input_ids),
                        {"max_new_tokens": max_new_tokens, **options})
        ask.check(self._core)
        return self._stream(ask, _core.TextStream(self._model._core, strings(options.get("stop"))))

    def _stream(self, ask: _core.Ask, text: _core.TextStream) -> Iterator[str]:
        pieces: "queue.SimpleQueue[Union[int, None, BaseException]]" = queue.SimpleQueue()
        is_wanted = True

        def on_token(token: int) -> bool:
            pieces.put(token)
            return is_wanted

        def work() -> None:
            try:
                _core.generate(self._core, ask, on_token)
                pieces.put(None)
            except BaseException as error:  # handed to the thread that reads
                pieces.put(error)

        worker = threading.Thread(target=work, name="kvfork stream", daemon=True)
        worker.start()
        try:
            while (item := pieces.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                if piece := text.push(item):
                    yield piece
            if piece := text.finish():
                yield piece
        finally:
            is_wanted = False
            worker.join()

    def generate_batch(self, prompts: Sequence[Union[str, Messages, Mapping[str, Any]]], *, max_new_tokens: int = 64,
                       width: int = 32, progress: bool = False, return_exceptions: bool = False,
                       **options: Any) -> list[Any]:
        """Answers many requests, decoded together: one pass over the weights serves all that run.

        prompts: each a string, a list of messages, or a dict with "prompt", "messages" or "input_ids" and options of
        its own, which go over those given here. width: how many run at once, at most.
        Returns Answers in the order of the prompts; each has the bits that its request has alone. Where requests
        fail, the first error is raised after all others were answered; with return_exceptions=True errors stand in
        the places of their answers.
        """
        results: list[Any] = [None] * len(prompts)
        asks: list[tuple[int, _core.Ask, dict[str, Any]]] = []
        for index, prompt in enumerate(prompts):
            try:
                own = self._split_request({"max_new_tokens": max_new_tokens, **options}, prompt)
                ask = self._ask(*own)
                ask.check(self._core)
                asks.append((index, ask, own[1]))
            except Error as error:
                results[index] = error
        done = 0

        def on_answer(_: int) -> None:
            nonlocal done
            done += 1
            bar.update(done)

        with Progress(progress, len(asks), "batch", "req") as bar:
            found = _core.generate_batch(self._core, [ask for _, ask, _ in asks], width, on_answer if bar.callback else None)
        for (index, _, used), item in zip(asks, found):
            results[index] = item if isinstance(item, Exception) else _answer(item, used)
        if not return_exceptions:
            for item in results:
                if isinstance(item, Exception):
                    raise item
        return results

    def _split_request(self, options: dict[str, Any], prompt: Any) -> tuple[list[int], dict[str, Any]]:
        if isinstance(prompt, str):
            return self.encode(prompt), options
        if isinstance(prompt, Mapping):
            own = dict(prompt)
            ids = self.encode(own.pop("prompt", None), messages=own.pop("messages", None), input_ids=own.pop("input_ids", None))
            return ids, {**options, **own}
        return self.encode(messages=prompt), options

    def _ask(self, ids: list[int], options: Mapping[str, Any]) -> _core.Ask:
        unknown = sorted(set(options) - _OPTIONS)
        if unknown:
            raise InvalidArgumentError(f"options: expected some of {', '.join(sorted(_OPTIONS))}; found {', '.join(unknown)}")
        given = {name: value for name, value in options.items() if value is not None}
        eos = given.get("eos_token_id", self._model.eos_token_ids)
        for name in ("max_new_tokens", "top_k", "seed"):
            value = given.get(name, 0)
            if isinstance(value, bool) or not hasattr(value, "__index__") or not 0 <= int(value) < 2**64:
                raise InvalidArgumentError(f"{name}: expected a whole number of at least 0, found {value!r}")
        try:
            return _core.Ask(
                ids=ids, max_new_tokens=int(given.get("max_new_tokens", 64)), eos_token_ids=[eos] if isinstance(eos, int) else list(eos),
                repetition_penalty=float(given.get("repetition_penalty", self._model._core.repetition_penalty())),
                temperature=float(given.get("temperature", 0.0)), top_k=int(given.get("top_k", 0)),
                top_p=float(given.get("top_p", 1.0)), min_p=float(given.get("min_p", 0.0)), seed=int(given.get("seed", 0)),
                stop=strings(given.get("stop")), logprobs=bool(given.get("logprobs", False)),
                fingerprints=bool(given.get("fingerprints", False)), speculate=bool(given.get("speculate", False)))
        except TypeError as error:
            raise InvalidArgumentError(f"options: expected numbers and strings, found something else: {error}") from None

    def score(self, continuations: Sequence[Union[str, Ids]], *, prompt: Optional[str] = None,
              messages: Optional[Messages] = None, input_ids: Optional[Ids] = None) -> list[Score]:
        """Log-probabilities of continuations of one request, or of the context itself where no request is given.

        continuations: token ids that follow, or, with prompt, texts: the prompt and each text are rendered and
        tokenized as one, and what is scored begins where the ids part from the prompt's own.
        What the continuations share is run once. Raises BoundaryError, InvalidArgumentError, LimitError.
        """
        if prompt is None and messages is None and input_ids is None:
            given = self.input_ids.tolist()
        else:
            given = self.encode(prompt, messages=messages, input_ids=input_ids)
        pairs = []
        for continuation in continuations:
            if not isinstance(continuation, str):
                pairs.append((given, token_ids(continuation)))
                continue
            if prompt is None:
                raise InvalidArgumentError("continuations: expected token ids where there is no prompt, found text")
            whole = self._core.encode_continuation(prompt, continuation)
            parted = next((i for i, (a, b) in enumerate(zip(given, whole)) if a != b), min(len(given), len(whole)))
            pairs.append((whole[:parted], whole[parted:]))
        return score_ids(self._model._core, self._core, pairs, True, False)

    def fork(self, input_ids: Ids, *, progress: bool = False) -> "Context":
        """A context that holds a whole request, whose ids must begin with this context's (BoundaryError).

        What both share is not run again and not copied. Its `logits` are those after the request.
        """
        ids = token_ids(input_ids)
        with Progress(progress, len(ids), "fork", "tok") as bar:
            return Context(self._model, self._core.fork(ids, bar.callback))

    def extend(self, messages: Optional[Messages] = None, *, text: Optional[str] = None, progress: bool = False) -> "Context":
        """A context on top of this one: its fixed part goes on with these messages, or with this plain text.

        Takes requests as this one does; shares its memory; saved, its file names this one's.
        """
        kind, given = one_of(messages=messages, text=text)
        more = given if kind == "text" else to_json(list(given), "messages")
        with Progress(progress, 0, "extend", "tok") as bar:
            return Context(self._model, self._core.extend(more, kind == "text", bar.callback))

    def save(self, path: Union[str, "os.PathLike[str]"], *, flatten: bool = False, progress: bool = False) -> int:
        """Writes one file, for Model.open_context, and returns its size in bytes.

        The name is taken once everything has reached the disk: an interrupt leaves an old file as it was.
        flatten: a child is saved whole; else its own part, which names its parent's file. Raises IoError.
        """
        name = os.path.abspath(os.fspath(path))
        with Progress(progress, 0, "save", "B") as bar:
            size = self._core.save(name, flatten, bar.callback)
        self._file = name
        return size


def score_ids(model: _core.Model, context: Optional[_core.Context], pairs: Sequence[tuple[list[int], list[int]]], share: bool,
              progress: bool, on_count: Optional[Callable[[int, int], None]] = None) -> list[Score]:
    """Scores of pairs of ids: given, and scored after them. Raises the first error."""
    with Progress(progress, sum(len(given) + len(more) for given, more in pairs), "score", "tok") as bar:
        found, rows, tokens = _core.score(model, context, [([*given, *more], len(given)) for given, more in pairs], share,
                                          bar.callback)
    log.debug("scored %d requests: %d tokens run, %d without sharing", len(pairs), rows, tokens)
    if on_count:
        on_count(rows, tokens)
    scores = []
    for item, (_, more) in zip(found, pairs):
        if isinstance(item, Exception):
            raise item
        scores.append(Score(float(sum(item[0])), item[0], more, item[1]))
    return scores


def _answer(core: _core.Answer, options: Mapping[str, Any]) -> Answer:
    return Answer(core.text, core.ids, core.stop, core.n_cached, core.n_run, core.logprobs if options.get("logprobs") else None,
                  core.fingerprints if options.get("fingerprints") else None, core.n_passes)


def _unpickle_context(model: "Model", file: str, identity: str) -> Context:
    context = model.open_context(file)
    if context.id != identity:
        raise InvalidArgumentError(f"{file}: expected the context {identity[:16]}..., which was pickled, found {context.id[:16]}...")
    return context
