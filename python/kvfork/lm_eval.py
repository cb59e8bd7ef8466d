"""The model `kvfork` of the Language Model Evaluation Harness (lm_eval).

    python -m kvfork.lm_eval --model kvfork --model_args pretrained=DIR,dtype=float32 --tasks arc_easy --num_fewshot 5

lm_eval has no entry points for models of other packages, so this module registers the model and hands over to lm_eval's own
command line. A program imports kvfork.lm_eval before it calls lm_eval.simple_evaluate(model="kvfork", ...).

Requests are laid out as a tree of shared token prefixes; each shared part (the few-shot examples, the question of several
choices) is run once and forked. Every figure has the bits that its request has alone, so results depend on no order, batch or
grouping.
"""

from __future__ import annotations

import logging
from typing import Any, Optional

from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from ._inputs import strings, to_json
from .context import Answer, score_ids
from .errors import InvalidArgumentError
from .model import Model

log = logging.getLogger("kvfork")

SHARED_AT_LEAST = 16  # tokens that a group of generations must share for a context of its own


@register_model("kvfork")
class KvforkLM(TemplateLM):  # type: ignore[misc]
    """lm_eval's interface over kvfork.Model.

    model_args: pretrained, dtype, num_threads, revision, kernel_set, add_bos_token, max_length, max_gen_toks, width (requests that
    are decoded at once), share (False: every request is run by itself, for comparison).
    """

    backend = "causal"

    def __init__(self, pretrained: str, dtype: str = "float32", num_threads: Optional[int] = None, revision: Optional[str] = None,
                 kernel_set: Optional[str] = None, add_bos_token: Optional[bool] = None, max_length: Optional[int] = None,
                 max_gen_toks: int = 256, width: int = 32, share: bool = True, batch_size: Any = None,
                 max_batch_size: Any = None, device: Any = None) -> None:
        super().__init__()
        self.model = Model.from_pretrained(pretrained, dtype=dtype, num_threads=num_threads, revision=revision, kernel_set=kernel_set)
        self._add_bos_token = add_bos_token
        limit = int(self.model.info["max_position_embeddings"])
        self._max_length = min(int(max_length), limit) if max_length else limit
        self._max_gen_toks = int(max_gen_toks)
        self._width = int(width)
        self._share = bool(share)
        self.tokens_run = 0  #: what was computed
        self.tokens_requested = 0  #: what would have been computed without sharing

    @property
    def max_length(self) -> int:
        return self._max_length

    @property
    def max_gen_toks(self) -> int:
        return self._max_gen_toks

    @property
    def tokenizer_name(self) -> str:
        return self.model.path.replace("/", "__")

    @property
    def eot_token_id(self) -> int:
        return self._special_id("eos_token")

    @property
    def prefix_token_id(self) -> int:
        name = "bos_token" if self.model._core.special_token("bos_token") else "eos_token"
        return self._special_id(name)

    def _special_id(self, name: str) -> int:
        ids = self.model.encode(self.model._core.special_token(name))
        if len(ids) != 1:
            raise InvalidArgumentError(f"{name}: expected one token, found {len(ids)}")
        return ids[0]

    def tok_encode(self, string: str, add_special_tokens: Optional[bool] = None, **_: Any) -> list[int]:
        if add_special_tokens is None:
            bos = self.model._core.special_token("bos_token")
            add_special_tokens = False if bos and string.startswith(bos) else self._add_bos_token is not False
        return self.model.encode(string, add_special_tokens=add_special_tokens)

    def tok_decode(self, tokens: list[int]) -> str:
        return self.model.decode(tokens)

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        return self.model._core.render_messages(to_json(chat_history, "messages"), add_generation_prompt)

    def chat_template(self, chat_template: Any = False) -> Optional[str]:
        return "" if chat_template else None

    def _loglikelihood_tokens(self, requests: Any, disable_tqdm: bool = False, **_: Any) -> list[tuple[float, bool]]:
        pairs = []
        for _, given, scored in requests:
            if len(scored) > self.max_length:
                raise InvalidArgumentError(f"continuation: expected at most {self.max_length} tokens, found {len(scored)}")
            room = self.max_length + 1 - len(scored)  # the last token is only predicted
            pairs.append((given[-room:], scored))
        scores = score_ids(self.model._core, None, pairs, self._share, not disable_tqdm, self._count)
        answers = [(score.logprob, score.is_greedy) for score in scores]
        for (key, _, _), answer in zip(requests, answers):
            if key is not None:
                self.cache_hook.add_partial("loglikelihood", key, answer)
        return answers

    def _count(self, run: int, requested: int) -> None:
        self.tokens_run += run
        self.tokens_requested += requested

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
        windows, owners = [], []
        for index, (text,) in enumerate(request.args for request in requests):
            for window in get_rolling_token_windows(self.tok_encode(text), self.prefix_token_id, self.max_length, 1):
                windows.append((None, *make_disjoint_window(window)))
                owners.append(index)
        sums = [0.0] * len(requests)
        for owner, (logprob, _) in zip(owners, self._loglikelihood_tokens(windows, disable_tqdm)):
            sums[owner] += logprob
        for request, total in zip(requests, sums):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return sums

    def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
        asks = [self._ask(*request.args) for request in requests]
        answers: list[str] = [""] * len(asks)
        for group in _groups([ids for ids, _ in asks], self._share):
            ids, shared = [asks[i][0] for i in group], _shared(asks[group[0]][0], asks[group[-1]][0])
            context = self.model.prefill(input_ids=ids[0][:shared])
            found: list[Answer] = context.generate_batch([{"input_ids": asks[i][0], **asks[i][1]} for i in group], width=self._width,
                                                         progress=not disable_tqdm)
            self._count(shared + sum(len(own) - shared for own in ids), sum(map(len, ids)))
            for index, answer in zip(group, found):
                answers[index] = answer.text
                self.cache_hook.add_partial("generate_until", requests[index].args, answer.text)
        return answers

    def _ask(self, text: str, given: dict[str, Any]) -> tuple[list[int], dict[str, Any]]:
        options = dict(given)
        until = [stop for stop in strings(options.pop("until", None)) if stop]
        eos = self.model._core.special_token("eos_token")
        limit = int(options.pop("max_gen_toks", None) or options.pop("max_new_tokens", None) or self.max_gen_toks)
        samples = options.pop("do_sample", None)
        temperature = float(options.pop("temperature", 0.0) or 0.0)
        if samples and temperature == 0.0:
            temperature = 1.0
        own: dict[str, Any] = {"max_new_tokens": limit, "temperature": temperature if samples is not False else 0.0,
                               "stop": [*until, *([eos] if eos and eos not in until else [])]}
        for name in ("top_p", "top_k", "min_p", "seed", "repetition_penalty"):
            if (value := options.pop(name, None)) is not None:
                own[name] = value
        if options:
            raise InvalidArgumentError(f"generation_kwargs: expected until, max_gen_toks, do_sample, temperature, top_p, top_k, min_p, seed "
                                       f"and repetition_penalty, found {', '.join(options)}")
        ids = self.tok_encode(text)
        room = self.max_length - limit
        if room < 1:
            raise InvalidArgumentError(f"max_gen_toks: expected fewer than the {self.max_length} tokens of the model, found {limit}")
        if len(ids) > room:
            log.warning("a request of %d tokens is cut on the left to %d, so that %d new ones have room", len(ids), room, limit)
        return ids[-room:], own


def _shared(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def _groups(requests: list[list[int]], share: bool) -> list[list[int]]:
    """Places of requests, in sorted order, in groups of neighbours that share at least SHARED_AT_LEAST tokens."""
    groups: list[list[int]] = []
    for index in sorted(range(len(requests)), key=lambda i: requests[i]):
        if share and groups and _shared(requests[groups[-1][0]], requests[index]) >= SHARED_AT_LEAST:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate
    cli_evaluate()
