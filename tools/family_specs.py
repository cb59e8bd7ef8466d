"""The random checkpoints of tools/oracle_families.py: for each family one or more configurations in which every special part
is active, and faults: changes of a configuration or of tensors that switch one part off, so that a comparison must fail.

Head counts and widths do not follow from each other where a family allows it. A spec's sizes are drawn from `Sizes`, so that
the same specs give larger checkpoints for the oracle and smaller ones for the committed goldens.
"""

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Sizes:
    hidden: int
    heads: int
    kv: int
    head_dim: int  # not hidden / heads
    inner: int
    expert: int    # width of one expert
    vocab: int
    original: int  # length after which rotary scaling acts
    positions: int  # of families with learned positions

    @property
    def own_dim(self):
        return self.hidden // self.heads


LARGE = Sizes(hidden=72, heads=6, kv=2, head_dim=20, inner=104, expert=36, vocab=211, original=64, positions=310)
SMALL = Sizes(hidden=32, heads=4, kv=2, head_dim=12, inner=28, expert=8, vocab=96, original=16, positions=60)
WINDOW = 24
LIMIT = 512
FULL, SLIDING = "full_attention", "sliding_attention"


class Missing:
    """In place of a value: the key is taken out."""


@dataclasses.dataclass(frozen=True)
class Spec:
    name: str
    kind: str             # model_type
    config: object        # Sizes -> arguments of the configuration class
    faults: dict = dataclasses.field(default_factory=dict)
    goldens: tuple = ("4.57.3",)  # versions of Transformers whose files are committed
    window: int = 0
    scaled: bool = False  # something changes at Sizes.original
    vision: object = None
    loose: float = 6e-2   # of the row's range, in bfloat16 mode


# ---------------------------------------------------------------- faults: what is changed in a copy

def keys(**changes):
    """Sets keys wherever the configuration has them, however deep; where it has none, at its top."""
    def change(config, tensors):
        for name, value in changes.items():
            if not _set(config, name, value) and value is not Missing:
                config[name] = value
    return change


def _set(node, name, value):
    found = False
    if isinstance(node, dict):
        if name in node:
            found = True
            if value is Missing:
                del node[name]
            else:
                node[name] = value(node[name]) if callable(value) else value
        for below in list(node.values()):
            found = _set(below, name, value) or found
    return found


def tensors(pattern, function):
    def change(config, tensors):
        names = [name for name in tensors if re.search(pattern, name)]
        if not names:
            raise ValueError(f"no tensor is named {pattern}")
        for name in names:
            tensors[name] = function(tensors[name])
    return change


def plain_rope(config, tensors):
    """No scaling of the rotation, in the spellings of Transformers 4 and 5."""
    def strip(node):
        if isinstance(node, dict):
            if node.get("rope_scaling"):
                node["rope_scaling"] = None
            parameters = node.get("rope_parameters")
            if parameters:
                for one in parameters.values() if all(isinstance(v, dict) for v in parameters.values()) else [parameters]:
                    kept = {key: one[key] for key in ("rope_theta", "partial_rotary_factor") if key in one}
                    one.clear()
                    one.update(kept, rope_type="default")
            for below in node.values():
                strip(below)
    strip(config)


WIDER = {"window one wider": keys(sliding_window=WINDOW + 1), "no window": keys(sliding_window=LIMIT)}
UNSCALED = {"no rotary scaling": plain_rope}
THETA = {"other theta": keys(rope_theta=3000.0)}
ZERO_HEAD_NORMS = {"head norms without weights": tensors(r"(q|k|query|key)_?(norm|layernorm)\.", lambda t: t * 0 + 1)}
LESS_ONE = {"norm weights not less one": tensors(r"norm\.weight$", lambda t: t - 1)}
NO_BIAS = {"no biases": tensors(r"\.bias$", lambda t: t * 0)}


# ---------------------------------------------------------------- configurations

def shape(s, layers, tied, own_dim=False, **more):
    base = {"hidden_size": s.hidden, "num_attention_heads": s.heads, "num_key_value_heads": s.kv, "num_hidden_layers": layers,
            "intermediate_size": s.inner, "vocab_size": s.vocab, "tie_word_embeddings": tied, "max_position_embeddings": LIMIT,
            "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    if not own_dim:
        base["head_dim"] = s.head_dim
    return base | more


def llama3(s):
    return {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": s.original}


def yarn(s, **more):
    return {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": s.original, **more}


def longrope(s, pairs):
    return {"type": "longrope", "short_factor": [1.0 + 0.1 * i for i in range(pairs)],
            "long_factor": [1.5 + 1.7 * i for i in range(pairs)]}


def mixture(s, experts=6, **more):
    return {"num_experts": experts, "num_experts_per_tok": 2, "moe_intermediate_size": s.expert} | more


MULTIPLIERS = {"embedding_multiplier": 3.0, "residual_multiplier": 0.6, "attention_multiplier": 0.31, "logits_scaling": 2.5}
MULTIPLIER_FAULTS = {f"no {name}": keys(**{name: 1.0}) for name in MULTIPLIERS}
CAPS = {"query_pre_attn_scalar": 17, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}
CAP_FAULTS = {"no attention cap": keys(attn_logit_softcapping=None), "no logit cap": keys(final_logit_softcapping=None),
              "other query scalar": keys(query_pre_attn_scalar=21)}
LOCAL = {"rope_theta": 1e6, "rope_local_base_freq": 1e4}
GEMMA3 = [SLIDING, FULL, SLIDING]


def gemma3(s, **more):
    return shape(s, 3, True, layer_types=GEMMA3, sliding_window=WINDOW, query_pre_attn_scalar=17,
                 rope_scaling={"rope_type": "linear", "factor": 8.0}, **LOCAL) | more


GEMMA3_FAULTS = {**WIDER, **UNSCALED, **LESS_ONE, **ZERO_HEAD_NORMS, "other query scalar": keys(query_pre_attn_scalar=21),
                 "types of layers exchanged": keys(layer_types=[FULL, SLIDING, SLIDING])}
PIXTRAL = {"model_type": "pixtral", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
           "image_size": 8, "patch_size": 4, "head_dim": 4}
SIGLIP = {"model_type": "siglip_vision_model", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
          "num_attention_heads": 2, "image_size": 8, "patch_size": 4}
SIGMOID = {"n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "n_group": 4, "topk_group": 2,
           "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.7}
SIGMOID_FAULTS = {"no correction": tensors("e_score_correction_bias", lambda t: t * 0), "no groups": keys(n_group=1, topk_group=1),
                  "no scaling of experts": keys(routed_scaling_factor=1.0), "weights not divided": keys(norm_topk_prob=False)}


def moe_width(s):
    return {"moe_intermediate_size": s.expert}


def dots1(s):
    return shape(s, 2, False, **SIGMOID, **moe_width(s), sliding_window=None)


def ernie_moe(s, tied, **more):
    return shape(s, 3, tied, True, moe_num_experts=6, moe_k=2, moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=2,
                 moe_layer_interval=1, **moe_width(s)) | more


def drop_first_tap(t):
    t = t.clone()
    t[..., 0] = 0
    return t


def delta(s):
    """Gated delta rule: more value heads than key heads, sizes of keys and values that differ; one layer is attention. What a
    state answers may be near zero, and a norm of it would enlarge rounding errors of the reference and of kvfork alike: hence its eps."""
    return {"rms_norm_eps": 1e-2, "linear_conv_kernel_dim": 4, "linear_key_head_dim": s.head_dim // 2, "linear_value_head_dim": s.head_dim - 4,
            "linear_num_key_heads": 2, "linear_num_value_heads": 4, "head_dim": s.head_dim + 4, "partial_rotary_factor": 0.5,
            "layer_types": ["linear_attention", FULL, "linear_attention"]}


DELTA_FAULTS = {
    "oldest tap dropped": tensors("conv1d.weight", drop_first_tap),
    "other fade": tensors("A_log", lambda t: t + 0.5),
    "no fade bias": tensors("dt_bias", lambda t: t * 0),
    "norms less one": tensors("layernorm.weight", lambda t: t + 0.5),
    "other gates": tensors("linear_attn.norm.weight", lambda t: t * 0 + 1),
}


def mamba_sizes(s, names):
    """Heads, values of one, groups, keys of one and taps, by a family's names."""
    return dict(zip(names, (4, s.head_dim // 2 - 1, 2, s.head_dim // 2, 4)))


MAMBA_FAULTS = {
    "oldest tap dropped": tensors("conv1d.weight", drop_first_tap),
    "convolution without bias": tensors("conv1d.bias", lambda t: t * 0),
    "other fade": tensors("A_log", lambda t: t + 0.5),
    "no step bias": tensors("dt_bias", lambda t: t * 0),
    "own value left out": tensors(r"\.D$", lambda t: t * 0),
}
FALCON = {"embedding_multiplier": 3.0, "lm_head_multiplier": 0.4, "key_multiplier": 0.7, "attention_in_multiplier": 1.3,
          "attention_out_multiplier": 0.6, "ssm_in_multiplier": 1.2, "ssm_out_multiplier": 0.8}
FALCON_FAULTS = {**{f"no {name}": keys(**{name: 1.0}) for name in FALCON},
                 "other ssm_multipliers": keys(ssm_multipliers=[1.0] * 5), "other mlp_multipliers": keys(mlp_multipliers=[1.0, 1.0])}


def falcon(s, **more):
    heads, dim, groups, state, width = mamba_sizes(s, range(5)).values()
    return shape(s, 2, False, mamba_n_heads=heads, mamba_d_ssm=heads * dim, mamba_n_groups=groups, mamba_d_state=state, mamba_d_conv=width,
                 ssm_multipliers=[0.9, 1.1, 0.8, 1.2, 0.7], mlp_multipliers=[1.4, 0.6], rms_norm_eps=1e-2, rope_theta=1e5, **FALCON) | more


SPECS = [
    Spec("llama-llama3", "llama", lambda s: shape(s, 2, False, attention_bias=True, mlp_bias=True, rope_theta=5e5, rope_scaling=llama3(s)),
         {**UNSCALED, **NO_BIAS}, ("4.57.3", "5.24.0"), scaled=True),
    Spec("llama-linear", "llama", lambda s: shape(s, 2, True, rope_scaling={"rope_type": "linear", "factor": 3.0}), UNSCALED, ()),
    Spec("llama-yarn", "llama", lambda s: shape(s, 2, True, rope_scaling=yarn(s, beta_fast=3.0, beta_slow=0.5)), UNSCALED, scaled=True),
    Spec("llama-dynamic", "llama", lambda s: shape(s, 2, True, rope_scaling={"rope_type": "dynamic", "factor": 2.0}), THETA, ()),
    Spec("qwen2-window", "qwen2", lambda s: shape(s, 3, True, True, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1,
                                                  rope_theta=1e6),
         {**WIDER, **NO_BIAS, "windows from another layer on": keys(max_window_layers=2, layer_types=[FULL, FULL, SLIDING])}, window=WINDOW),
    Spec("qwen2-yarn", "qwen2", lambda s: shape(s, 2, False, True, rope_scaling=yarn(s), rope_theta=1e6), UNSCALED, ("5.24.0",), scaled=True),
    Spec("mistral", "mistral", lambda s: shape(s, 2, False, sliding_window=WINDOW, rope_theta=1e5), {**WIDER, **THETA}, window=WINDOW),
    Spec("mistral3", "mistral3", lambda s: shape(s, 2, False, sliding_window=None, rope_theta=1e5), THETA, ("4.57.3",), vision=PIXTRAL),
    Spec("ministral", "ministral", lambda s: shape(s, 3, False, sliding_window=WINDOW, layer_types=[SLIDING, FULL, SLIDING]),
         {**WIDER, "types of layers exchanged": keys(layer_types=[FULL, SLIDING, SLIDING])}, window=WINDOW),
    Spec("phi3-longrope", "phi3",
         lambda s: shape(s, 2, False, True, original_max_position_embeddings=s.original, partial_rotary_factor=0.5,
                         rope_scaling=longrope(s, s.own_dim // 4)), {**UNSCALED}, ("4.57.3", "5.24.0"), scaled=True),
    Spec("phi3-window", "phi3", lambda s: shape(s, 2, True, True, sliding_window=WINDOW, rope_theta=1e5), {**WIDER, **THETA}, window=WINDOW),
    Spec("seed_oss", "seed_oss", lambda s: shape(s, 2, False, attention_bias=True, attention_out_bias=False, mlp_bias=True), NO_BIAS),
    Spec("seed_oss-out", "seed_oss", lambda s: shape(s, 2, True, attention_bias=True, attention_out_bias=True),
         {"no output bias": tensors("o_proj.bias", lambda t: t * 0)}, ()),
    Spec("qwen3", "qwen3", lambda s: shape(s, 2, True, attention_bias=True, rope_theta=1e6), {**ZERO_HEAD_NORMS, **NO_BIAS}),
    Spec("qwen3-yarn-window", "qwen3",
         lambda s: shape(s, 3, False, rope_scaling=yarn(s), use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1),
         {**UNSCALED, **WIDER, **ZERO_HEAD_NORMS}, ("5.24.0",), window=WINDOW, scaled=True),
    Spec("smollm3", "smollm3", lambda s: shape(s, 3, True, True, no_rope_layers=[1, 0, 1], rope_theta=5e4),
         {"every layer rotates": keys(no_rope_layers=[1, 1, 1])}),
    Spec("smollm3-window", "smollm3",
         lambda s: shape(s, 4, False, True, no_rope_layer_interval=3, use_sliding_window=True, sliding_window=WINDOW, attention_bias=True),
         {**WIDER, **NO_BIAS}, (), window=WINDOW),
    Spec("gemma", "gemma", lambda s: shape(s, 2, True), {**LESS_ONE, **THETA}),
    Spec("gemma2", "gemma2", lambda s: shape(s, 3, True, sliding_window=WINDOW, **CAPS), {**WIDER, **LESS_ONE, **CAP_FAULTS}, window=WINDOW),
    Spec("gemma3_text", "gemma3_text", gemma3, GEMMA3_FAULTS, ("4.57.3", "5.24.0"), window=WINDOW),
    Spec("gemma3", "gemma3", gemma3, {**WIDER, **LESS_ONE}, ("4.57.3",), window=WINDOW, vision=SIGLIP),
    Spec("vaultgemma", "vaultgemma", lambda s: shape(s, 3, True, sliding_window=WINDOW, layer_types=[SLIDING, FULL, SLIDING], **CAPS),
         {**WIDER, **LESS_ONE, **CAP_FAULTS}, window=WINDOW),
    Spec("granite", "granite", lambda s: shape(s, 2, False, True, attention_bias=True, mlp_bias=True, **MULTIPLIERS), {**MULTIPLIER_FAULTS, **NO_BIAS}),
    Spec("granite4-dense", "granitemoehybrid",
         lambda s: shape(s, 2, True, True, layer_types=["attention"] * 2, num_local_experts=0, num_experts_per_tok=0,
                         shared_intermediate_size=s.inner, position_embedding_type="rope", mamba_n_heads=4, **MULTIPLIERS),
         {**MULTIPLIER_FAULTS, "no rotation": keys(position_embedding_type="nope")}),
    Spec("olmo2", "olmo2", lambda s: shape(s, 2, False, True), ZERO_HEAD_NORMS),
    Spec("olmo3", "olmo3", lambda s: shape(s, 3, False, True, sliding_window=WINDOW, layer_types=[SLIDING, FULL, SLIDING], rope_scaling=yarn(s)),
         {**WIDER, **UNSCALED, **ZERO_HEAD_NORMS}, ("4.57.3", "5.24.0"), window=WINDOW, scaled=True),
    Spec("exaone4-window", "exaone4", lambda s: shape(s, 3, False, sliding_window=WINDOW, layer_types=[SLIDING, FULL, SLIDING],
                                                      sliding_window_pattern=3),
         {**WIDER, **ZERO_HEAD_NORMS}, window=WINDOW),
    Spec("exaone4-full", "exaone4", lambda s: shape(s, 2, True, sliding_window=None, layer_types=[FULL] * 2, sliding_window_pattern=4, rope_scaling=llama3(s)),
         UNSCALED, (), scaled=True),
    Spec("mixtral", "mixtral", lambda s: shape(s, 2, False, num_local_experts=4, num_experts_per_tok=2, sliding_window=WINDOW,
                                               intermediate_size=s.expert),
         {**WIDER, "one expert fewer": keys(num_experts_per_tok=1)}, window=WINDOW),
    Spec("qwen2_moe", "qwen2_moe",
         lambda s: shape(s, 2, False, True, **mixture(s), shared_expert_intermediate_size=s.expert + 4, mlp_only_layers=[], norm_topk_prob=False),
         {"weights divided": keys(norm_topk_prob=True), "shared gate open": tensors("shared_expert_gate", lambda t: t * 0), **NO_BIAS}),
    Spec("qwen2_moe-window", "qwen2_moe",
         lambda s: shape(s, 3, True, True, **mixture(s), shared_expert_intermediate_size=s.expert, mlp_only_layers=[1], norm_topk_prob=True,
                         use_sliding_window=True, sliding_window=WINDOW, max_window_layers=2), WIDER, (), window=WINDOW),
    Spec("qwen3_moe", "qwen3_moe", lambda s: shape(s, 3, False, **mixture(s), mlp_only_layers=[], decoder_sparse_step=2, norm_topk_prob=True),
         {"weights not divided": keys(norm_topk_prob=False), **ZERO_HEAD_NORMS}, ("4.57.3", "5.24.0")),
    Spec("olmoe", "olmoe", lambda s: shape(s, 2, False, True, num_experts=6, num_experts_per_tok=2, intermediate_size=s.expert, clip_qkv=1.0),
         {"no clip": keys(clip_qkv=None), "weights divided": keys(norm_topk_prob=True), **ZERO_HEAD_NORMS}),
    Spec("granitemoe", "granitemoe",
         lambda s: shape(s, 2, True, True, num_local_experts=6, num_experts_per_tok=2, intermediate_size=s.expert, **MULTIPLIERS),
         {**MULTIPLIER_FAULTS, "one expert fewer": keys(num_experts_per_tok=1)}),
    Spec("gpt_oss", "gpt_oss",
         lambda s: shape(s, 2, False, num_local_experts=4, num_experts_per_tok=2, intermediate_size=s.expert, sliding_window=WINDOW,
                         rope_scaling=yarn(s, beta_fast=4.0, beta_slow=1.0, truncate=False), rope_theta=150000.0),
         {**WIDER, **UNSCALED, **NO_BIAS, "no sinks": tensors("sinks", lambda t: t * 0 - 1e30),
          "yarn truncated": keys(truncate=True), "types of layers exchanged": keys(layer_types=[FULL, SLIDING])},
         ("4.57.3", "5.24.0"), window=WINDOW, scaled=True),
    Spec("glm", "glm", lambda s: shape(s, 2, False, attention_bias=True, partial_rotary_factor=0.5), {**NO_BIAS, "full rotation": keys(partial_rotary_factor=1.0)}),
    Spec("glm4", "glm4", lambda s: shape(s, 2, False, attention_bias=True, partial_rotary_factor=0.5),
         {**NO_BIAS, "full rotation": keys(partial_rotary_factor=1.0),
          "no norms after": tensors("post_(mlp|self_attn)_layernorm", lambda t: t * 0 + 1)}, ("4.57.3", "5.24.0")),
    Spec("cohere", "cohere", lambda s: shape(s, 2, True, True, logit_scale=0.4, use_qk_norm=True, attention_bias=True),
         {"no logit scale": keys(logit_scale=1.0), **ZERO_HEAD_NORMS, **NO_BIAS}),
    Spec("cohere2", "cohere2", lambda s: shape(s, 3, True, logit_scale=0.4, sliding_window=WINDOW, layer_types=[SLIDING, FULL, SLIDING]),
         {"no logit scale": keys(logit_scale=1.0), **WIDER}, window=WINDOW),
    Spec("helium", "helium", lambda s: shape(s, 2, False, head_dim=s.own_dim), THETA),
    Spec("ernie4_5", "ernie4_5", lambda s: shape(s, 2, True, use_bias=True, rope_theta=5e5), {**NO_BIAS, **THETA}),
    Spec("phi", "phi", lambda s: shape(s, 2, False, True, partial_rotary_factor=0.5), {**NO_BIAS, "full rotation": keys(partial_rotary_factor=1.0)}),
    Spec("phi-norms", "phi", lambda s: shape(s, 2, False, True, partial_rotary_factor=0.5, qk_layernorm=True), NO_BIAS, ()),
    Spec("gpt_neox", "gpt_neox", lambda s: {**shape(s, 2, False, True, rotary_pct=0.5), "num_key_value_heads": s.heads},
         {**NO_BIAS, "branches in sequence": keys(use_parallel_residual=False)}),
    Spec("gpt_neox-sequence", "gpt_neox", lambda s: {**shape(s, 2, False, True, rotary_pct=1.0, use_parallel_residual=False), "num_key_value_heads": s.heads},
         {"branches in parallel": keys(use_parallel_residual=True)}, ()),
    Spec("stablelm", "stablelm", lambda s: shape(s, 2, False, True, use_qkv_bias=True, partial_rotary_factor=0.5),
         {**NO_BIAS, "full rotation": keys(partial_rotary_factor=1.0)}),
    Spec("stablelm-parallel", "stablelm", lambda s: shape(s, 2, False, True, use_parallel_residual=True, qk_layernorm=True, partial_rotary_factor=0.5),
         {"head norms equal": tensors("(q|k)_layernorm", lambda t: t * 0 + 1)}, ()),
    Spec("starcoder2", "starcoder2", lambda s: shape(s, 2, True, True, use_bias=True, sliding_window=WINDOW), {**NO_BIAS, **WIDER}, window=WINDOW),
    Spec("nemotron", "nemotron", lambda s: shape(s, 2, False, partial_rotary_factor=0.5, attention_bias=True, mlp_bias=True),
         {**LESS_ONE, **NO_BIAS, "full rotation": keys(partial_rotary_factor=1.0)}),
    Spec("arcee", "arcee", lambda s: shape(s, 2, False, mlp_bias=True, attention_bias=True, rope_scaling=yarn(s)), {**NO_BIAS, **UNSCALED}, scaled=True),
    Spec("apertus", "apertus", lambda s: shape(s, 2, False, True, attention_bias=True, rope_scaling=llama3(s)),
         {**ZERO_HEAD_NORMS, **UNSCALED, **NO_BIAS, "other activation": tensors("alpha_n", lambda t: t + 0.5)}, scaled=True),
    Spec("olmo", "olmo", lambda s: shape(s, 2, False, True, clip_qkv=1.0), {"no clip": keys(clip_qkv=None), **THETA}),
    Spec("gpt2", "gpt2", lambda s: {"n_embd": s.hidden, "n_head": s.heads, "n_layer": 2, "n_inner": s.inner, "vocab_size": s.vocab,
                                    "n_positions": s.positions, "bos_token_id": 1, "eos_token_id": 2},
         {**NO_BIAS, "no positions": tensors("wpe", lambda t: t * 0)}),
    Spec("opt", "opt", lambda s: {"hidden_size": s.hidden, "num_attention_heads": s.heads, "num_hidden_layers": 2, "ffn_dim": s.inner,
                                  "vocab_size": s.vocab, "max_position_embeddings": s.positions, "word_embed_proj_dim": s.hidden,
                                  "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
         {**NO_BIAS, "no positions": tensors("embed_positions", lambda t: t * 0)}),
    Spec("glm4_moe", "glm4_moe", lambda s: shape(s, 2, False, **SIGMOID, **moe_width(s), use_qk_norm=True, attention_bias=True, partial_rotary_factor=0.5),
         {**SIGMOID_FAULTS, **ZERO_HEAD_NORMS, **NO_BIAS}, ("4.57.3", "5.24.0")),
    Spec("ernie4_5_moe", "ernie4_5_moe", lambda s: ernie_moe(s, True),
         {"no correction": tensors("e_score_correction_bias", lambda t: t * 0), **THETA}),
    Spec("ernie4_5_moe-bias", "ernie4_5_moe", lambda s: ernie_moe(s, False, use_bias=True), NO_BIAS, ()),
    Spec("dots1", "dots1", dots1, {**SIGMOID_FAULTS, **ZERO_HEAD_NORMS}),
    Spec("hunyuan_v1_dense", "hunyuan_v1_dense",
         lambda s: shape(s, 2, True, attention_bias=True, rope_scaling={"type": "dynamic", "alpha": 100.0, "factor": 1.0}),
         {**UNSCALED, **ZERO_HEAD_NORMS, **NO_BIAS}),
    Spec("hunyuan_v1_moe", "hunyuan_v1_moe",
         lambda s: shape(s, 2, True, num_experts=4, moe_topk=2, intermediate_size=s.expert,
                         rope_scaling={"type": "dynamic", "alpha": 100.0, "factor": 1.0}),
         {**UNSCALED, **ZERO_HEAD_NORMS, "one expert fewer": keys(moe_topk=1)}),
    Spec("lfm2", "lfm2",
         lambda s: shape(s, 4, True, conv_L_cache=4, conv_bias=True, head_dim=s.own_dim, block_multiple_of=8, layer_types=["conv", FULL, "conv", "conv"]),
         {"oldest tap dropped": tensors("conv.conv.weight", drop_first_tap), "no bias": tensors("conv.*bias", lambda t: t * 0), **ZERO_HEAD_NORMS},
         ("5.24.0",)),
    Spec("lfm2_moe", "lfm2_moe",
         lambda s: shape(s, 4, True, True, conv_L_cache=3, conv_bias=True, layer_types=["conv", FULL, "conv", "conv"], num_dense_layers=1, num_experts=6,
                         num_experts_per_tok=2, moe_intermediate_size=s.expert, routed_scaling_factor=1.7),
         {"oldest tap dropped": tensors("conv.conv.weight", drop_first_tap), "no correction": tensors("expert_bias", lambda t: t * 0),
          "weights not divided": keys(norm_topk_prob=False), "no scaling of experts": keys(routed_scaling_factor=1.0)}, ("5.24.0",)),
    Spec("minimax_m2", "minimax_m2",
         lambda s: shape(s, 2, False, num_local_experts=6, num_experts_per_tok=2, intermediate_size=s.expert, rotary_dim=s.head_dim // 2),
         {**ZERO_HEAD_NORMS, "no correction": tensors("e_score_correction_bias", lambda t: t * 0), "one expert fewer": keys(num_experts_per_tok=1)},
         ("5.24.0",)),
    Spec("qwen3_5", "qwen3_5_text", lambda s: shape(s, 3, True, **delta(s)), DELTA_FAULTS, ("5.24.0",), loose=0.25),
    Spec("qwen3_5_moe", "qwen3_5_moe_text",
         lambda s: shape(s, 3, False, **delta(s), num_experts=6, num_experts_per_tok=2, moe_intermediate_size=s.expert,
                         shared_expert_intermediate_size=s.expert + 4),
         {**DELTA_FAULTS, "one expert fewer": keys(num_experts_per_tok=1)}, ("5.24.0",)),
    Spec("qwen3_next", "qwen3_next",
         lambda s: shape(s, 3, False, **delta(s), num_experts=6, num_experts_per_tok=2, moe_intermediate_size=s.expert, decoder_sparse_step=1,
                         mlp_only_layers=[1], shared_expert_intermediate_size=s.expert + 4),
         {**DELTA_FAULTS, "one expert fewer": keys(num_experts_per_tok=1)}, ("5.24.0",)),
    Spec("nemotron_h", "nemotron_h",
         lambda s: {**shape(s, 5, False, **mamba_sizes(s, ("mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel"))),
                    "layers_block_type": ["linear_attention", "moe", FULL, "mlp", "linear_attention"], "layer_norm_epsilon": 1e-2,
                    "n_routed_experts": 8, "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.7,
                    "norm_topk_prob": True, "moe_intermediate_size": s.expert, "moe_shared_expert_intermediate_size": s.expert + 4,
                    "moe_latent_size": s.head_dim + 2},
         {**MAMBA_FAULTS, "no correction": tensors("e_score_correction_bias", lambda t: t * 0), "weights not divided": keys(norm_topk_prob=False),
          "no scaling of experts": keys(routed_scaling_factor=1.0)}, ("5.24.0",)),
    Spec("nemotron_h-plain", "nemotron_h",
         lambda s: {**shape(s, 3, False, **mamba_sizes(s, ("mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel"))),
                    "layers_block_type": ["linear_attention", "moe", FULL], "layer_norm_epsilon": 1e-2, "use_bias": True,
                    "n_routed_experts": 6, "moe_intermediate_size": s.expert, "moe_shared_expert_intermediate_size": s.expert + 4,
                    "time_step_min": 0.7},
         {**MAMBA_FAULTS, **NO_BIAS, "steps without bound": keys(time_step_min=0.0)}, ()),
    Spec("granite4-hybrid", "granitemoehybrid",
         lambda s: {**shape(s, 3, True, True, rms_norm_eps=1e-2, layer_types=["mamba", "attention", "mamba"], num_local_experts=4,
                            num_experts_per_tok=2, shared_intermediate_size=s.expert + 4, mamba_expand=2, mamba_n_heads=4, mamba_n_groups=2,
                            mamba_d_state=s.head_dim // 2, mamba_d_conv=4, **MULTIPLIERS), "intermediate_size": s.expert},
         {**MAMBA_FAULTS, **MULTIPLIER_FAULTS, "rotation": keys(position_embedding_type="rope")}, ("5.24.0",)),
    Spec("falcon_h1", "falcon_h1", lambda s: falcon(s, mamba_rms_norm=False), {**MAMBA_FAULTS, **FALCON_FAULTS}, ("5.24.0",)),
    Spec("falcon_h1-norm", "falcon_h1", lambda s: falcon(s, mamba_rms_norm=True, time_step_limit=[0.05, 0.6]),
         {**MAMBA_FAULTS, "norm of gated values": keys(mamba_norm_before_gate=False), "steps without bounds": keys(time_step_limit=None)}, ()),
    Spec("ministral3", "ministral3",
         lambda s: shape(s, 2, False, sliding_window=None, rope_parameters={
             "type": "yarn", "rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": s.original, "max_position_embeddings": LIMIT,
             "beta_fast": 32.0, "beta_slow": 1.0, "mscale_all_dim": 1.0, "mscale": 1.0, "llama_4_scaling_beta": 0.3}),
         {"no stretch": keys(llama_4_scaling_beta=0.0), **UNSCALED}, ("5.24.0",), scaled=True),
]
