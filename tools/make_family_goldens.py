#!/usr/bin/env python3
"""Writes tests/golden/families: for each family a tiny random checkpoint and the reference's logits for 48 ids.

Run it with Transformers 4.57.3 and then with 5.24.0: each version writes the goldens that tools/family_specs.py lists for it. NAME/
holds config.json, model.safetensors, logits.safetensors (`ids` [48], `logits` [48, vocab], float32) and golden.json, which says
what made them. Names of goldens that Transformers 5 wrote end in -5. The same versions give the same weights and logits.
"""

import argparse
import datetime
import json
import pathlib
import shutil
import tempfile
import warnings

import torch
import transformers
from safetensors.torch import load_file, save_file

import family_checkpoints
from family_specs import SMALL, SPECS

ROOT = pathlib.Path(__file__).resolve().parent.parent
LENGTH = 48
MOST_BYTES = {"bfloat16": 96 * 1024, "float32": 104 * 1024}
# Spec names whose weights are stored as float32; the others are stored as bfloat16.
FLOAT32 = ("qwen3", "gemma", "phi", "opt")


def write_golden(spec, folder):
    dtype = "float32" if spec.name in FLOAT32 else "bfloat16"
    with tempfile.TemporaryDirectory() as temporary:
        made = family_checkpoints.make(spec, SMALL, pathlib.Path(temporary) / "model", dtype)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        shutil.copy(made / "config.json", folder)
        # Image parts are left out: the text part alone is compared.
        kept = {name: tensor for name, tensor in load_file(made / "model.safetensors").items()
                if not any(part in name for part in ("vision", "projector"))}
        save_file(kept, folder / "model.safetensors", {"format": "pt"})
        ids = family_checkpoints.draw_ids(SMALL, LENGTH)
        logits = family_checkpoints.reference_logits(family_checkpoints.reference(made), ids)
    save_file({"ids": torch.tensor(ids), "logits": torch.from_numpy(logits)}, folder / "logits.safetensors")
    facts = {"made_by": "tools/make_family_goldens.py", "spec": spec.name, "model_type": spec.kind, "dtype": dtype,
             "date": datetime.date.today().isoformat(), "transformers": transformers.__version__,
             "torch": torch.__version__.split("+")[0], "reference": "float32, attn_implementation=eager"}
    (folder / "golden.json").write_text(json.dumps(facts, indent=1) + "\n")
    size = (folder / "model.safetensors").stat().st_size
    print(f"{folder.name}: {size / 1024:.0f} KiB, logits range {float(logits.max() - logits.min()):.1f}", flush=True)
    if size > MOST_BYTES[dtype]:
        raise SystemExit(f"{folder.name}: {size} bytes of weights, at most {MOST_BYTES[dtype]} may be committed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests" / "golden" / "families")
    parser.add_argument("--only", default="", help="only specs whose name begins with this")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    suffix = "-5" if transformers.__version__.startswith("5.") else ""
    for spec in SPECS:
        if spec.name.startswith(args.only) and transformers.__version__ in spec.goldens:
            write_golden(spec, args.out / (spec.name + suffix))


if __name__ == "__main__":
    main()
