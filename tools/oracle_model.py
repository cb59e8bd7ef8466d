#!/usr/bin/env python3
"""Agreement of kvfork with Transformers 4.57.3 (float32, eager), live; run it through scripts/oracle.

For SmolLM2-135M-Instruct (the same GGUF on both sides) and for random Qwen2 and Llama checkpoints, with every kernel set
that this machine should run:
  logits   `score --logits` at every position, within 3e-5 of the reference relative to the row's range (max - min over
           the vocabulary); two paths of the reference itself differ by up to 5e-6. bfloat16 mode: within 3e-2, or what
           the reference's own bfloat16 differs by from its float32, where that is more.
  greedy   `run` on 20 prompts, 64 new tokens, against generate(do_sample=False); a prompt's comparison ends where the
           reference's two best scores are less than 1e-4 apart, and says so.
  prompt   the ids that kvfork feeds are those of apply_chat_template.
  bits     `score` with --chunks, --fork-at and --threads writes byte-identical files.
Each check is one line; the last line is 'N passed, N failed'. Exits 1 when a check failed or none ran.
"""

import argparse
import dataclasses
import filecmp
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import warnings

import numpy
import torch
import transformers
from safetensors.numpy import load_file

import fetch_models
import machine
import oracle_checkpoints

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOGITS_TOLERANCE = 3e-5
BFLOAT16_TOLERANCE = 3e-2
NEAR_TIE = 1e-4
NEW_TOKENS = 64
CONTEXT = "You answer questions about orders. Refunds are accepted within 30 days; bring the order number."
PROMPTS = [
    "What do I need to request a refund?", "My order arrived damaged. What should I do?", "Hello!", "",
    "   ", "How long does delivery take to Zürich?", "Wie lange dauert die Lieferung?", "注文はいつ届きますか。",
    "Когда приедет мой заказ?", "1234567890 + 987 = ?", "def f(x):\n    return x * 2\n\nprint(f(3))", "\n\n\n",
    "Is it 👩‍👩‍👧 friendly? 🎉", "a", "Tell me about fees, taxes,\tand customs.", "I'm sure they'd've said it's fine; isn't it?",
    "e\u0301 and \u00e9 are the same letter", "List three things. " * 12, "What is the order number for?", "Thanks, bye",
]


@dataclasses.dataclass
class Report:
    passed: int = 0
    failed: int = 0

    def add(self, ok, line):
        self.passed += bool(ok)
        self.failed += not ok
        print(f"{'ok  ' if ok else 'FAIL'} {line}", flush=True)


@dataclasses.dataclass
class Case:
    """A checkpoint with its reference model. `tokenizer` is None where Transformers' own is known to be wrong."""

    name: str
    model: str
    reference: transformers.PreTrainedModel
    tokenizer: transformers.PreTrainedTokenizerFast | None
    sequences: list
    real: bool = False


class Kvfork:
    """The tool under test, run with one kernel set."""

    def __init__(self, tool, kernel_set):
        self.tool, self.kernel_set = tool, kernel_set

    def run(self, *arguments, threads=2):
        command = [self.tool, *map(str, arguments)]
        if arguments[0] != "tokenize":
            command += ["--threads", str(threads)]
        environment = {**os.environ, "KVFORK_ISA": self.kernel_set}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)[:300]}: exit {done.returncode}: {done.stderr.strip()[-800:]}")
        return done.stdout

    def score(self, case, ids, out, *more, **options):
        self.run("score", "--model", case.model, "--ids", ",".join(map(str, ids)), "--logits", out, "--json", *more, **options)
        return out


def reference_logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float().numpy()


def worst_row(expected, found):
    """The largest difference of a row relative to its range; NaN, infinities and wrong shapes give infinity."""
    if expected.shape != found.shape or not numpy.isfinite(found).all():
        return float("inf")
    spread = expected.max(axis=1) - expected.min(axis=1)
    return float((numpy.abs(expected.astype(numpy.float64) - found).max(axis=1) / spread).max())


def within(error, tolerance):
    return error <= tolerance


def check_comparator(report):
    """The comparator itself fails on what is not proven close."""
    row = numpy.linspace(-4, 4, 50, dtype=numpy.float32)[None]
    bad = [row * numpy.nan, row + 1e-3, -row, row[:, :-1], numpy.full_like(row, numpy.inf)]
    poisoned = row.copy()
    poisoned[0, 7] = numpy.nan
    wrong = [within(worst_row(row, found), LOGITS_TOLERANCE) for found in [*bad, poisoned]]
    report.add(within(worst_row(row, row + 1e-5), LOGITS_TOLERANCE) and not any(wrong), "comparator refuses NaN and drift")


def check_spread(report, case, logits):
    """Random weights must not give near-constant logits, or closeness would prove nothing."""
    spread = float((logits.max(axis=1) - logits.min(axis=1)).min())
    winners = len(set(logits.argmax(axis=1).tolist()))
    rows = len(logits)
    report.add(spread > 3 and winners > min(rows, 8) / 4, f"{case.name}: spread {spread:.1f}, {winners} winners in {rows} rows")


def scored(kvfork, case, ids, folder, *more):
    tensors = load_file(kvfork.score(case, ids, folder / "logits.safetensors", *more))
    if tensors["ids"].tolist() != list(ids) or tensors["logits"].dtype != numpy.float32:
        raise RuntimeError("the file's ids are not those asked for, or its logits are not float32")
    return tensors["logits"]


def check_logits(report, kvfork, case, folder, references):
    """float32 logits of every sequence against the reference."""
    worst = 0.0
    for ids, expected in zip(case.sequences, references):
        worst = max(worst, worst_row(expected, scored(kvfork, case, ids, folder)))
    lengths = "+".join(str(len(ids)) for ids in case.sequences)
    report.add(within(worst, LOGITS_TOLERANCE), f"{case.name}: {kvfork.kernel_set}: logits of {lengths} ids, worst {worst:.1e}")


def check_bfloat16(report, kvfork, case, folder, ids, expected, own_error):
    error = worst_row(expected, scored(kvfork, case, ids, folder, "--dtype", "bfloat16"))
    tolerance = max(BFLOAT16_TOLERANCE, own_error)
    report.add(within(error, tolerance), f"{case.name}: {kvfork.kernel_set}: bfloat16 mode {error:.1e} from float32 "
               f"(reference's bfloat16 {own_error:.1e})")


def check_bits(report, kvfork, case, folder, dtype):
    """One sequence in different splits of the work: the files must be the same bytes."""
    ids = case.sequences[-1]
    whole = kvfork.score(case, ids, folder / "whole.safetensors", "--dtype", dtype, threads=1)
    n = len(ids)
    splits = [("--chunks", f"5,17,{n // 3}"), ("--chunks", ",".join(["1"] * min(n, 40))), ("--fork-at", 1),
              ("--fork-at", n // 2), ("--fork-at", n - 1), ("--fork-at", n // 3, "--chunks", "7,1,1,20")]
    variants = [(split, 1 + i % 4) for i, split in enumerate(splits)] + [((), threads) for threads in (2, 3, 4)]
    differing = []
    for split, threads in variants:
        other = kvfork.score(case, ids, folder / "split.safetensors", "--dtype", dtype, *split, threads=threads)
        if not filecmp.cmp(whole, other, shallow=False):
            differing.append(f"{' '.join(map(str, split))} threads {threads}")
    report.add(not differing, f"{case.name}: {kvfork.kernel_set}: {dtype}: bits over {len(variants)} splits of {n} ids"
               + (f"; differ: {'; '.join(differing)}" if differing else ""))


def messages(prompt):
    return [{"role": "system", "content": CONTEXT}, {"role": "user", "content": prompt}]


def fed_ids(report, kvfork, case, prompts, folder):
    """What kvfork feeds for each prompt, compared with apply_chat_template where that is an oracle."""
    fed, differing = [], []
    for prompt in prompts:
        path = folder / "messages.json"
        path.write_text(json.dumps(messages(prompt)))
        fed.append(json.loads(kvfork.run("tokenize", "--model", case.model, "--messages", path, "--json"))["ids"])
        if case.tokenizer and fed[-1] != case.tokenizer.apply_chat_template(messages(prompt), add_generation_prompt=True):
            differing.append(prompt)
    if case.tokenizer:
        report.add(not differing, f"{case.name}: prompt ids of {len(prompts)} prompts" + (f"; differ: {differing}" if differing else ""))
    return fed


@dataclasses.dataclass
class Generated:
    ids: list
    gaps: list  # between the two best scores, after the processors of generate


def reference_greedy(case, fed):
    """What generate(do_sample=False) returns for each prompt."""
    results = []
    for ids in fed:
        tokens = torch.tensor([ids])
        out = case.reference.generate(tokens, attention_mask=torch.ones_like(tokens), do_sample=False, max_new_tokens=NEW_TOKENS,
                                      return_dict_in_generate=True, output_scores=True)
        best = [torch.topk(score[0], 2).values for score in out.scores]
        results.append(Generated(out.sequences[0, len(ids):].tolist(), [float(top[0] - top[1]) for top in best]))
    return results


def compare_greedy(case, answer, expected, fed):
    """(ids compared, reason of a failure or None, whether a near tie ended the comparison) for one prompt."""
    if answer["parity"] is not True or answer["cached_tokens"] + answer["request_tokens"] != len(fed):
        return 0, f"parity {answer['parity']}, {answer['cached_tokens']}+{answer['request_tokens']} of {len(fed)} ids", False
    for i, (token, gap) in enumerate(zip(expected.ids, expected.gaps)):
        if gap < NEAR_TIE:
            return i, None, True
        if answer["ids"][i:i + 1] != [token]:
            return i, f"new id {i}: expected {token}, found {answer['ids'][i:i + 1]} (gap {gap:.1e})", False
    count = len(expected.ids)
    if len(answer["ids"]) != count:
        return count, f"expected {count} new ids, found {len(answer['ids'])}", False
    stop = "eos" if expected.ids[-1] in eos_ids(case) else "length"
    if answer["stop"] != stop:
        return count, f"expected stop {stop}, found {answer['stop']}", False
    if case.tokenizer:
        text = case.tokenizer.decode(expected.ids, skip_special_tokens=True)
        if answer["text"] != text:
            return count, f"expected text {text!r}, found {answer['text']!r}", False
    return count, None, False


def eos_ids(case):
    eos = case.reference.generation_config.eos_token_id
    return set(eos if isinstance(eos, list) else [eos])


def check_greedy(report, kvfork, case, prompts, fed, expected):
    options = [f"--prompt={prompt}" for prompt in prompts]
    output = json.loads(kvfork.run("run", "--model", case.model, f"--context={CONTEXT}", *options, "--max-new-tokens", NEW_TOKENS,
                                   "--benchmark-repeats", 1, "--json"))
    outcomes = [compare_greedy(case, *triple) for triple in zip(output["answers"], expected, fed)]
    errors = [f"{prompt!r}: {reason}" for prompt, (_, reason, _) in zip(prompts, outcomes) if reason]
    if len(output["answers"]) != len(prompts) or output["kernel_set"] != kvfork.kernel_set:
        errors.append(f"{len(output['answers'])} answers, kernel set {output['kernel_set']}")
    compared = sum(count for count, _, _ in outcomes)
    ties = sum(tie for _, _, tie in outcomes)
    ended = sum(generated.ids[-1] in eos_ids(case) for generated in expected)
    report.add(not errors and compared > 0, f"{case.name}: {kvfork.kernel_set}: greedy {len(prompts)} prompts, {compared} ids equal, "
               f"{ended} ended by EOS, {ties} comparisons ended at a near tie" + "".join(f"\n       {error}" for error in errors))


def load_reference(folder, dtype=torch.float32):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()


def random_sequences(vocab, generator, lengths):
    sequences = [generator.integers(0, vocab, length).tolist() for length in lengths]
    sequences[-1][:2] = [vocab - 1, 0]
    return sequences


def random_cases(args, folder):
    """(case, its directory), made one at a time."""
    for index, spec in enumerate(oracle_checkpoints.SPECS):
        if args.only and args.only not in spec.name:
            continue
        path = oracle_checkpoints.make_checkpoint(spec, folder / spec.name, args.seed * 1000 + index)
        lengths = [1, 2, 37, 150] if args.quick else [1, 2, 3, 31, 64, 129, 600]
        sequences = random_sequences(spec.config["vocab_size"], numpy.random.default_rng(args.seed * 1000 + index), lengths)
        print(f"     {spec.name}: {oracle_checkpoints.describe(path)}")
        yield Case(spec.name, str(path), load_reference(path), transformers.AutoTokenizer.from_pretrained(path), sequences), path


def smollm2_case(args):
    """SmolLM2 from its GGUF; Transformers' slow conversion is kept, its tokenizer (a wrong one) is not used."""
    gguf = fetch_models.fetch("smollm2")
    cache = ROOT / ".cache" / "oracle" / "smollm2-float32"
    if not (cache / "config.json").exists():
        model = transformers.AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
        model.save_pretrained(cache.with_suffix(".partial"))
        cache.with_suffix(".partial").rename(cache)
    reference = load_reference(cache)
    # The GGUF's own metadata: <|im_end|> ends a turn, and the file has no generation config.
    reference.generation_config = transformers.GenerationConfig(eos_token_id=2, pad_token_id=2)
    lengths = [2, 60] if args.quick else [1, 3, 40, 257]
    sequences = random_sequences(reference.config.vocab_size, numpy.random.default_rng(args.seed), lengths)
    return Case("SmolLM2-135M-Instruct", str(gguf), reference, None, sequences, real=True), cache


def check_case(report, args, case, path, kernel_sets, folder):
    started = time.monotonic()
    fed = fed_ids(report, Kvfork(args.kvfork, kernel_sets[-1]), case, PROMPTS, folder)
    case.sequences.append(fed[0])
    references = [reference_logits(case.reference, ids) for ids in case.sequences]
    check_spread(report, case, references[-2])
    own_error = worst_row(references[-1], reference_logits(load_reference(path, torch.bfloat16), fed[0]))
    expected = reference_greedy(case, fed)
    for kernel_set in kernel_sets:
        kvfork = Kvfork(args.kvfork, kernel_set)
        check_logits(report, kvfork, case, folder, references)
        check_bfloat16(report, kvfork, case, folder, fed[0], references[-1], own_error)
        # The real model is large for the slower sets: there, a few prompts (all with the best set).
        few = case.real and kernel_set != kernel_sets[-1] and args.quick
        count = 2 if few else len(PROMPTS)
        check_greedy(report, kvfork, case, PROMPTS[:count], fed[:count], expected[:count])
        for dtype in ("float32", "bfloat16"):
            if not few:
                check_bits(report, kvfork, case, folder, dtype)
    print(f"     {case.name}: {time.monotonic() - started:.0f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvfork", default=str(ROOT / "build" / "release" / "kvfork"), help="the tool to test")
    parser.add_argument("--seed", type=int, default=0, help="draws other weights and ids")
    parser.add_argument("--quick", action="store_true", help="fewer positions, and the real model mostly with the best set")
    parser.add_argument("--only", default="", help="only checkpoints whose name contains this")
    parser.add_argument("--isa", action="append", help="only this kernel set (repeatable)")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(2)
    assert transformers.__version__ == "4.57.3", transformers.__version__
    kernel_sets = args.isa or machine.kernel_sets()
    print(f"     Transformers {transformers.__version__}, torch {torch.__version__}, kernel sets {' '.join(kernel_sets)}, seed {args.seed}")
    report = Report()
    check_comparator(report)
    before = report.passed + report.failed
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        cases = list(random_cases(args, folder))
        if not args.only or args.only in "SmolLM2-135M-Instruct":
            cases.append(smollm2_case(args))
        for case, path in cases:
            try:
                check_case(report, args, case, path, kernel_sets, folder)
            except (RuntimeError, OSError, KeyError, ValueError) as error:
                report.add(False, f"{case.name}: {type(error).__name__}: {error}")
    if report.passed + report.failed == before:
        report.add(False, "nothing was compared")
    print(f"{report.passed} passed, {report.failed} failed")
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
