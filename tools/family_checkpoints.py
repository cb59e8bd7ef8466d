"""Makes the random checkpoints of tools/family_specs.py with the classes of Transformers 4.57.3 or 5, and their references."""

import copy
import json
import pathlib
import shutil
import zlib

import torch
import transformers
from safetensors.torch import load_file, save_file

try:
    from transformers.initialization import no_init_weights
except ImportError:  # Transformers 4
    from transformers.modeling_utils import no_init_weights

# Classes that hold an image model's text part.
IMAGE_MODELS = ("mistral3", "gemma3")
LESS_ONE = ("Qwen3_5RMSNorm", "Qwen3_5MoeRMSNorm", "Qwen3NextRMSNorm")
TEXT_PARTS = {"mistral3": "mistral", "gemma3": "gemma3_text"}


def config_of(spec, sizes):
    """The configuration object; image models get a tiny image part."""
    fields = dict(spec.config(sizes))
    if spec.vision is None:
        return transformers.AutoConfig.for_model(spec.kind, **copy.deepcopy(fields))
    tied = fields["tie_word_embeddings"]
    text = {"model_type": TEXT_PARTS[spec.kind], **fields}
    outside = {name: sizes.vocab - 1 for name in ("image_token_index", "image_token_id")}
    if spec.kind == "gemma3":
        outside |= {"boi_token_index": sizes.vocab - 2, "eoi_token_index": sizes.vocab - 3, "mm_tokens_per_image": 4}
    return transformers.AutoConfig.for_model(spec.kind, text_config=text, vision_config=dict(spec.vision), tie_word_embeddings=tied,
                                             **outside)


def auto_class(kind):
    return transformers.AutoModelForImageTextToText if kind in IMAGE_MODELS else transformers.AutoModelForCausalLM


def is_norm(module):
    name = type(module).__name__.lower()
    return "norm" in name and not list(module.children())


def stored_less_one(module):
    name = type(module).__name__
    return name.startswith(("Gemma", "VaultGemma")) or name.endswith("1P") or name in LESS_ONE


def fill(model, kind, generator):
    """Draws every parameter, with scales that keep activations and scores spread and no part without effect."""
    draw = lambda tensor, scale, middle=0.0: tensor.copy_(middle + scale * torch.randn(tensor.shape, generator=generator))
    tied = model.config.get_text_config().tie_word_embeddings
    norms = {name: module for name, module in model.named_modules() if is_norm(module)}
    with torch.no_grad():
        for name, parameter in [*model.named_parameters(), *model.named_buffers()]:
            owner, _, leaf = name.rpartition(".")
            if "e_score_correction_bias" in name or leaf == "expert_bias":
                draw(parameter, 0.3)
            elif leaf in ("alpha_p", "alpha_n"):
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
            elif name not in dict(model.named_parameters()):
                continue
            elif owner in norms and leaf == "weight":
                draw(parameter, 0.3, 0.0 if stored_less_one(norms[owner]) else 1.0)
            elif "sinks" in name:
                draw(parameter, 1.0, 1.0)
            elif leaf.endswith("bias"):
                draw(parameter, 0.5)
            elif any(part in name for part in ("embed_tokens", "embed_in", "wte", "wpe", "embed_positions")):
                draw(parameter, 0.15 if tied else 0.7)
            else:
                transposed = kind == "gpt_oss" and ".experts." in name or kind == "gpt2"
                draw(parameter, 1.5 / parameter.shape[-2 if transposed else -1] ** 0.5)


def make(spec, sizes, folder, dtype, seed=0):
    """Writes the checkpoint of a spec, without a tokenizer."""
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(seed)
    with no_init_weights():  # fill draws everything; the class of some families cannot initialise what it has
        model = auto_class(spec.kind).from_config(config_of(spec, sizes))
    model.tie_weights()
    fill(model, spec.kind, torch.Generator().manual_seed(seed * 100003 + zlib.crc32(spec.name.encode())))
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    (pathlib.Path(folder) / "generation_config.json").unlink(missing_ok=True)
    return pathlib.Path(folder)


def reference(folder):
    """The model in float32, whose mixtures add one expert after another."""
    kind = json.loads((pathlib.Path(folder) / "config.json").read_text())["model_type"]
    experts = {} if transformers.__version__.startswith("4.") else {"experts_implementation": "eager"}
    return auto_class(kind).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", **experts).eval()


def reference_logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float().numpy()


def draw_ids(sizes, length, seed=0):
    """Ids below the ones that image models keep for themselves."""
    return torch.randint(0, sizes.vocab - 8, (length,), generator=torch.Generator().manual_seed(length + 1000 * seed)).tolist()


def damaged(folder, out, fault):
    """A copy of a checkpoint with one part switched off."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    config = json.loads((folder / "config.json").read_text())
    weights = {name: tensor.clone() for path in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(path).items()}
    fault(config, weights)
    (out / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, out / "model.safetensors", {"format": "pt"})
    return out
