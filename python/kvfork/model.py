"""Models: opening a checkpoint, and making contexts from it."""

from __future__ import annotations

import json
import logging
import os
import threading
import weakref
from typing import Any, Mapping, Optional, Sequence, Union

from . import _core
from ._inputs import Ids, Messages, Progress, dtype_name, one_of, to_json, token_ids, tools_json
from .context import Context, Score, score_ids
from .errors import InvalidArgumentError

log = logging.getLogger("kvfork")

# Models that pickling has opened here, so that many contexts of one model share it.
_opened: "weakref.WeakValueDictionary[tuple[Any, ...], Model]" = weakref.WeakValueDictionary()
_opening = threading.Lock()


class Model:
    """A checkpoint opened for running. Immutable: any number of threads may use one model.

    It is pickled by its place and options and opened again where it is unpickled. A model belongs to the process that
    opened it: in a process made by os.fork() its methods that compute raise InvalidArgumentError.
    """

    def __init__(self, core: _core.Model, key: tuple[str, str, int, str]) -> None:
        self._core = core
        self._key = key
        self._info = core.info()

    @staticmethod
    def from_pretrained(model: Union[str, "os.PathLike[str]"], *, dtype: Any = "float32", num_threads: Optional[int] = None,
                        revision: Optional[str] = None, gguf_file: Optional[str] = None, local_files_only: bool = False,
                        kernel_set: Optional[str] = None, progress: bool = False) -> "Model":
        """Opens a directory in Hugging Face layout, a GGUF file, or a model of the Hub.

        model: a path, or a Hub id "ORG/NAME", which is pulled into the cache that huggingface_hub uses.
        dtype: "float32" or "bfloat16" (or torch's, NumPy's): how activations and the cache are held. Weights stay as
            they are stored.
        num_threads: by default the cores that this process may use. No bit depends on it.
        kernel_set: "portable", "avx2", "avx512", ...; by default the best that this machine runs.
        progress: shows a download with tqdm.

        Raises NotFoundError, UnsupportedError, CorruptError, InvalidArgumentError, NetworkError, IoError.
        """
        name = os.fspath(model)
        if num_threads is not None and num_threads < 1:
            raise InvalidArgumentError(f"num_threads: expected at least 1, found {num_threads}")
        if gguf_file is not None and os.path.isdir(name):
            path = os.path.join(name, gguf_file)
        else:
            with Progress(progress, 0, "pull", "B") as bar:
                pulled = bar.callback
                path = _core.locate(name, revision, gguf_file, local_files_only,
                                    (lambda _, done, total: pulled(done, total)) if pulled else None, log.warning)
        return Model._open(Model._key_of(path, dtype, num_threads, kernel_set))

    @staticmethod
    def _key_of(path: str, dtype: Any, num_threads: Optional[int], kernel_set: Optional[str]) -> tuple[str, str, int, str]:
        return os.path.abspath(path), dtype_name(dtype), num_threads or 0, kernel_set or ""

    @staticmethod
    def _open(key: tuple[str, str, int, str]) -> "Model":
        model = Model(_core.open_model(*key), key)
        log.info("opened %s: %s, %s", key[0], model.dtype, model.kernel_set)
        return model

    def __reduce__(self) -> Any:
        return _unpickle_model, (self._key,)

    def __repr__(self) -> str:
        return f"<kvfork.Model {self.path!r} {self.dtype} {self.kernel_set}>"

    @property
    def path(self) -> str:
        """Where it lies."""
        return str(self._info["path"])

    @property
    def architecture(self) -> str:
        """As in config.json: "Qwen2ForCausalLM"."""
        return str(self._info["architecture"])

    @property
    def dtype(self) -> str:
        """"float32" or "bfloat16"."""
        return str(self._info["dtype"])

    @property
    def kernel_set(self) -> str:
        """The set of kernels that runs. Bits are equal within one set."""
        return str(self._info["kernel_set"])

    @property
    def info(self) -> Mapping[str, Any]:
        """Sizes and names: vocab_size, num_layers, hidden_size, max_position_embeddings, kv_bytes_per_token, ..."""
        return dict(self._info)

    @property
    def eos_token_ids(self) -> list[int]:
        """What ends an answer: generation_config.json's, else config.json's."""
        return self._core.eos_token_ids()

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Token ids of a text, as the checkpoint's own tokenizer makes them."""
        return self._core.encode(text, add_special_tokens)

    def decode(self, ids: Ids, *, skip_special_tokens: bool = True) -> str:
        """The text of token ids."""
        return self._core.decode(token_ids(ids), skip_special_tokens)

    def apply_chat_template(self, messages: Messages, *, tools: Optional[Sequence[Any]] = None,
                            documents: Optional[Messages] = None, add_generation_prompt: bool = False,
                            continue_final_message: bool = False) -> list[int]:
        """Token ids of a conversation: rendered by the checkpoint's chat template and tokenized as a whole."""
        fixed = _fixed_part(messages=messages, tools=tools, documents=documents)
        return self._core.encode_messages(fixed, add_generation_prompt, continue_final_message)

    def prefill(self, system: Optional[str] = None, *, messages: Optional[Messages] = None, text: Optional[str] = None,
                input_ids: Optional[Ids] = None, tools: Optional[Sequence[Any]] = None,
                documents: Optional[Messages] = None, template_vars: Optional[Mapping[str, Any]] = None,
                chat_template: Optional[str] = None, boundary: str = "message", add_special_tokens: bool = False,
                user_text: str = "as_transformers", now: Optional[str] = None, progress: bool = False) -> Context:
        """Runs a fixed part once and returns it as a context that any number of requests start from.

        One of these says what the fixed part is:
        system: the text of a system message. messages: a list of messages. text: plain text without a template.
        input_ids: token ids [n], as a list, a NumPy array or a tensor; such a context takes requests as ids alone.

        tools, documents, template_vars: for the chat template, beside messages. Functions among the tools are
            described by Transformers. chat_template: the name of one of the checkpoint's templates, or a file.
        boundary: where the context ends: "message", "probe" or "longest" (docs/design.md).
        user_text: "as_transformers", or "literal": control tokens in the messages' own words stay plain text.
        now: the templates' clock, "2031-01-05T06:07:08".
        progress: shows a bar of tqdm, where it is installed.

        Raises TemplateError, BoundaryError, InvalidArgumentError, LimitError. KeyboardInterrupt ends it.
        """
        if system is not None and messages is not None:
            messages, system = [{"role": "system", "content": system}, *messages], None
        if (tools or documents) and system is None and messages is None and text is None and input_ids is None:
            messages = []
        kind, given = one_of(system=system, messages=messages, text=text, input_ids=input_ids)
        if kind == "input_ids":
            ids = token_ids(given)
            with Progress(progress, len(ids), "prefill", "tok") as bar:
                return Context(self, self._core.prefill_ids(ids, bar.callback))
        if kind == "system":
            messages = [{"role": "system", "content": given}]
        fixed = _fixed_part(messages=messages, text=text, tools=tools, documents=documents, template_vars=template_vars,
                            now=now, add_special_tokens=add_special_tokens, user_text=user_text)
        with Progress(progress, 0, "prefill", "tok") as bar:
            return Context(self, self._core.prefill_fixed(fixed, chat_template, boundary, bar.callback))

    def score(self, requests: Sequence[tuple[Ids, Ids]], *, share: bool = True, progress: bool = False) -> list[Score]:
        """Log-probabilities of continuations: requests are pairs of ids (what is given, what is scored after it).

        Requests are laid out as a tree of shared token prefixes, each of which is run once; every score has the bits
        that its request has alone. share=False runs each by itself, for comparison.
        Raises the first request's error; InvalidArgumentError, LimitError.
        """
        return score_ids(self._core, None, [(token_ids(given), token_ids(more)) for given, more in requests], share, progress)

    def open_context(self, path: Union[str, "os.PathLike[str]"], *, parent: Union[None, str, "os.PathLike[str]"] = None) -> Context:
        """Opens what Context.save wrote. Keys and values are mapped, and shared by all processes that open the file.

        parent: the file of a child's parent; by default it is looked for beside the child's.
        Raises NotFoundError, CorruptError, IoError; InvalidArgumentError for a file that another model, tokenizer,
        template, mode or kernel set made.
        """
        name = os.path.abspath(os.fspath(path))
        core = self._core.open_context(name, "" if parent is None else os.path.abspath(os.fspath(parent)))
        return Context(self, core, file=name)


def _unpickle_model(key: tuple[str, str, int, str]) -> Model:
    place = (os.getpid(), *key)
    with _opening:
        model = _opened.get(place)
        if model is None:
            model = _opened[place] = Model._open(key)
        return model


def _fixed_part(*, messages: Optional[Messages] = None, text: Optional[str] = None, tools: Optional[Sequence[Any]] = None,
                documents: Optional[Messages] = None, template_vars: Optional[Mapping[str, Any]] = None,
                now: Optional[str] = None, add_special_tokens: bool = False,
                user_text: str = "as_transformers") -> _core.FixedPart:
    if user_text not in ("as_transformers", "literal"):
        raise InvalidArgumentError(f"user_text: expected 'as_transformers' or 'literal', found {user_text!r}")
    variables = [(name, to_json(value, f"template_vars[{name!r}]")) for name, value in (template_vars or {}).items()]
    return _core.make_fixed_part(json.dumps([]) if messages is None else to_json(list(messages), "messages"),
                                 tools_json(tools), "" if documents is None else to_json(list(documents), "documents"),
                                 variables, now, text, add_special_tokens, user_text == "literal")
