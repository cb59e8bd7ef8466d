"""The rows of bench/peers: what each engine is asked, once per round, with the same token ids for all."""

import dataclasses
import random
from collections.abc import Callable

VOCABULARY = range(1000, 150000)
REQUEST = 32
CONTEXTS = (1024, 1055, 2048, 4096)
NEW = {False: 32, True: 12}  # decoded tokens, by --quick


def token_ids(seed, n):
    return random.Random(seed).choices(VOCABULARY, k=n)


def context_ids(n):
    """The contexts begin alike, as texts that grow do."""
    return token_ids("context", max(CONTEXTS))[:n]


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    unit: str
    context: int                        # tokens that must be there before; 0: none
    operands: Callable[[str], dict]     # of the seed of a round
    answer: str                         # the field of the answer that is the figure
    rounds: float = 1.0                 # share of the rounds that are asked for
    flops: Callable = None              # of a Shape: operations that cannot be saved
    bytes: Callable = None              # of a Shape and the bytes of a token's keys and values: what must be read
    per: float = 1.0                    # figures per such work

    @property
    def higher_is_better(self):
        return self.unit == "tokens/s"


@dataclasses.dataclass(frozen=True)
class Shape:
    """What of a checkpoint decides floors."""

    weight_bytes: int
    layer_parameters: int
    head_parameters: int
    layers: int
    attention_width: int

    @classmethod
    def of(cls, config, weight_bytes):
        hidden, inner, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
        width = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
        return cls(weight_bytes, layers * (2 * hidden * hidden + 2 * hidden * width + 3 * hidden * inner),
                   hidden * config["vocab_size"], layers, hidden)

    def flops(self, n_tokens, n_before, n_logits=1):
        """Of n_tokens that each see the n_before tokens before them and themselves."""
        pairs = n_tokens * n_before + n_tokens * (n_tokens + 1) / 2
        return 2 * self.layer_parameters * n_tokens + 4 * self.attention_width * self.layers * pairs + 2 * self.head_parameters * n_logits


def prefill(n):
    return Row(f"prefill {n}", "ms", 0, lambda seed: {"op": "prefill", "ids": token_ids(seed, n)}, "ms", rounds=0.5 if n > 1024 else 1,
               flops=lambda shape: shape.flops(n, 0), bytes=lambda shape, kv: shape.weight_bytes)


def decode(depth, new):
    return Row(f"decode at {depth}", "ms", depth,
               lambda seed: {"op": "decode", "context": str(depth) if depth else "", "ids": token_ids(seed, 1), "new": new}, "ms",
               flops=lambda shape: shape.flops(1, depth), bytes=lambda shape, kv: shape.weight_bytes + depth * kv)


def hit(n):
    return Row(f"hit {n}+{REQUEST}", "ms", n, lambda seed: {"op": "hit", "context": str(n), "ids": token_ids(seed, REQUEST)}, "ms",
               flops=lambda shape: shape.flops(REQUEST, n), bytes=lambda shape, kv: shape.weight_bytes + n * kv)


def together(width, new):
    return Row(f"{width} forks over 1024", "tokens/s", 1024,
               lambda seed: {"op": "together", "context": "1024", "ids": token_ids(seed, width), "new": new}, "per_s",
               flops=lambda shape: shape.flops(1, 1024) * width, bytes=lambda shape, kv: shape.weight_bytes + 1024 * kv, per=width)


def all_rows(quick):
    new = NEW[quick]
    fork = [Row(f"fork {n}", "ms", n, lambda seed, n=n: {"op": "fork", "context": str(n)}, "ms") for n in (1024, 1055, 4096)]
    rows = [*map(hit, (1024, 1055, 4096)), *fork, *(decode(n, new) for n in (0, 1024, 2048, 4096)),
            *(together(n, new // 2) for n in (1, 4, 8, 16)), *map(prefill, (128, 512, 1024, 2048, 4096))]
    kept = {"hit 1024+32", "hit 1055+32", "decode at 0", "decode at 1024", "16 forks over 1024", "prefill 128", "prefill 512"}
    return [row for row in rows if not quick or row.name in kept]
