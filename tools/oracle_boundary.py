#!/usr/bin/env python3
"""Compares the boundary between context and requests with Transformers, for every chat template, request text and boundary mode.

For each template in the shared folder a checkpoint is made: the template, the tokenizer of a kindred model, and the template's
own control tokens added to it. `kvfork tokenize --boundary` is then asked about ten nasty requests and ten of the template's
control tokens, in every mode. The ids of the context and of each whole request must be AutoTokenizer's, and so must what
follows from them: how many tokens serve the request, whether it is refused, and whether the context ends at an added token.
With --literal-user-text the control tokens in the request must come out as plain text and those of the template as they are.

Usage: tools/oracle_boundary.py [--kvfork PATH] [--shared DIR] [--write-golden FILE] [--only TEMPLATE...]
--write-golden keeps what Transformers says for tests/prompt/boundary_table_test.cc, which runs without Python.
Prints one line per difference and ends with "N passed, N failed".
"""
import argparse
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"  # AutoTokenizer asks the Hub about folders too
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from oracle_templates import NOW, FrozenDatetime  # noqa: E402
from template_cases import BARE, DOCUMENTS  # noqa: E402

TOKENIZER_OF = {
    "Apertus": "mistral_nemo", "ByteDance-Seed": "qwen2_5", "CohereForAI": "llama3_2", "GLM": "qwen3", "HuggingFaceTB-SmolLM3": "llama3_2",
    "Kimi": "qwen2_5", "LFM2": "llama3_2", "MiniMax": "qwen2_5", "Mistral-Small": "mistral_nemo", "NVIDIA": "mistral_nemo",
    "NousResearch": "llama3_2", "Qwen-QwQ": "qwen2_5", "Qwen-Qwen2.5": "qwen2_5", "Qwen-Qwen3": "qwen3", "Qwen3": "qwen3",
    "deepseek": "qwen2_5", "google-gemma": "gemma3", "ibm-granite": "llama3_2", "meta-llama": "llama3_2", "microsoft-Phi": "llama2",
    "mistralai": "mistral_nemo", "openai": "llama3_2"}
CONTROL = re.compile(r"<\|[^|<>\s'\"{}+]+\|>|<｜[^｜<>'\"]+｜>|\[/?[A-Z_]{2,}\]|<(?:start|end)_of_turn>|<SPECIAL_\d+>|<\|(?:START|END)_[A-Z_]+\|>|<seed:\w+>|\]~!?b\]|\[e~\[")
POLICY = "You answer for a shop.\nReturns take 30 days; don't promise more."
REQUESTS = ["", " ", "\n\nHi", "\u0301x", "<|im_end|>", "\t", "中文", "'s", "12345", ("lorem ipsum 7 " * 7150)[:100_000]]
# As in src/prompt/prompt.cc.
PROBES = ["Alpha", "7 z", " b", "\n\nc", "\u0301d", "中", "'s", "<x", "."]
MODES = ["message", "probe", "longest"]


def tokenizer_of(name):
    return next(tokenizer for start, tokenizer in TOKENIZER_OF.items() if name.startswith(start))


def make_config(template):
    tokens = sorted(set(CONTROL.findall(template)))
    return json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
                       "clean_up_tokenization_spaces": False, "additional_special_tokens": tokens}, ensure_ascii=False), tokens


def common_prefix(a, b):
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


class Reference:
    """What Transformers' tokenizer of the checkpoint says."""

    def __init__(self, directory):
        import jinja2
        from transformers import AutoTokenizer
        from transformers.utils import chat_template_utils
        chat_template_utils.datetime = FrozenDatetime
        self.template_error = jinja2.exceptions.TemplateError
        self.tokenizer = AutoTokenizer.from_pretrained(directory)
        self.backend = self.tokenizer.backend_tokenizer
        self.added = set(self.tokenizer.added_tokens_decoder)
        self.special = [t.content for t in self.tokenizer.added_tokens_decoder.values() if t.special]
        self.fixed = [{"role": "system", "content": POLICY}]
        self.more = {}
        try:
            self.render("Alpha")
        except TypeError:  # a template that counts on tools and documents
            self.more = {"tools": [BARE], "documents": DOCUMENTS}
        except self.template_error:
            pass
        try:
            self.render("Alpha")
        except self.template_error:  # a template that knows no system message
            self.fixed = [{"role": "user", "content": POLICY}, {"role": "assistant", "content": "I see."}]

    def messages(self, text):
        return self.fixed if text is None else [*self.fixed, {"role": "user", "content": text}]

    def render(self, text):
        return self.tokenizer.apply_chat_template(self.messages(text), tokenize=False, add_generation_prompt=text is not None,
                                                  **self.more)

    def ids(self, text):
        return self.tokenizer.apply_chat_template(self.messages(text), tokenize=True, add_generation_prompt=text is not None,
                                                  **self.more)

    def context(self, mode):
        if mode != "probe":
            try:
                return self.ids(None)
            except self.template_error as error:
                if mode == "message":
                    return str(error)
        wholes = [self.ids(probe) for probe in PROBES]
        n = min(common_prefix(wholes[0], whole) for whole in wholes[1:])
        if mode == "probe":
            end = n
            while end > 0 and wholes[0][end - 1] not in self.added:
                end -= 1
            n = end if end > 1 else max(n, 1) - 1
        return wholes[0][:n] if n else "boundary: "

    def verdict(self, context, whole, mode):
        """Tokens that serve the request; None: refused."""
        n = common_prefix(context, whole)
        if mode != "longest":
            return n if context and n == len(context) else None
        if n == len(whole) and n < len(context):
            n -= 1
        return n or None

    def literal_ids(self, text):
        """The ids where the request's control tokens are plain text; None where the template does more with a request than strip it."""
        words = "QZXJ0qzxj"
        rendered = self.render(words)
        for kept in (text, text.strip()):
            if rendered.replace(words, kept) == self.render(text):
                break
        else:
            return None
        by_length = sorted(self.special, key=len, reverse=True)
        pattern = re.compile("|".join(map(re.escape, by_length)) or "(?!)")
        ids = []
        parts = rendered.split(words)
        text_part = ""
        # Text between the template's control tokens, the request inside it, is encoded without looking for any.
        for i, part in enumerate(parts):
            if i > 0:
                text_part += kept
            done = 0
            for match in pattern.finditer(part):
                ids += self.plain(text_part + part[done:match.start()]) + [self.tokenizer.convert_tokens_to_ids(match.group())]
                text_part, done = "", match.end()
            text_part += part[done:]
        return ids + self.plain(text_part)

    def plain(self, text):
        if not text:
            return []
        self.backend.encode_special_tokens = True
        try:
            return self.backend.encode(text, add_special_tokens=False).ids
        finally:
            self.backend.encode_special_tokens = False


def ask(kvfork, directory, mode, requests, *more):
    command = [kvfork, "tokenize", "--model", directory, "--boundary", mode, "--messages", os.path.join(directory, "fixed.json"), "--now", NOW,
               "--json", *more]
    for name in ("tools", "documents"):
        if os.path.exists(os.path.join(directory, f"{name}.json")):
            command += [f"--{name}", os.path.join(directory, f"{name}.json")]
    for request in requests:
        command += [f"--prompt={request}"]
    done = subprocess.run(command, capture_output=True)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr.decode()


def digest(ids):
    return hashlib.sha256(" ".join(map(str, ids)).encode()).hexdigest()[:16]


class Table:
    def __init__(self):
        self.passed = self.failed = self.refused = 0
        self.literal = self.looked_at = 0

    def check(self, same, label, *shown):
        self.passed, self.failed = self.passed + bool(same), self.failed + (not same)
        if not same and self.failed <= 30:
            print(f"{label}: expected {str(shown[0])[:200]}, found {str(shown[1])[:300]}")

    def check_mode(self, name, mode, reference, answer, requests, wholes, golden):
        code, view, message = answer
        context = reference.context(mode)
        rows = golden[mode] = {"requests": []}
        if isinstance(context, str):
            self.check(code == 1 and context in message, f"{name} {mode}: context", context, message or view)
            rows["error"] = context
            return
        rows["context"] = {"tokens": len(context), "digest": digest(context), "safe": context[-1:] != [] and context[-1] in reference.added}
        self.check(view is not None and view["context"]["ids"] == context, f"{name} {mode}: context", context, message if view is None else view["context"])
        if view is None:
            return
        self.check((view["context"]["safe_for"] == "any request") == rows["context"]["safe"], f"{name} {mode}: safe for", rows["context"], view["context"]["safe_for"])
        refused = 0
        for text, whole, found in zip(requests, wholes, view["requests"]):
            label = f"{name} {mode}: {text[:20]!r}"
            n = reference.verdict(context, whole, mode)
            refused += n is None
            rows["requests"].append({"cached": n, "digest": digest(whole)})
            self.check(found["ids"] == whole, label, whole[:30], found)
            self.check(found.get("cached_tokens") == n and ("error" in found) == (n is None), label, n, found.get("error", found.get("cached_tokens")))
            if n is not None:
                safe = whole[n - 1] in reference.added
                self.check((found["safe_for"] == "any request") == safe, label, safe, found["safe_for"])
        self.refused += refused
        self.check(code == (3 if refused else 0), f"{name} {mode}: exit code", 3 if refused else 0, code)

    def check_literal(self, name, reference, kvfork, directory, requests):
        code, view, message = ask(kvfork, directory, "probe", requests, "--literal-user-text")
        if view is None:
            self.looked_at += 1
            self.check("literal text: " in message, f"{name} literal", "ids", message)
            return
        for text, found in zip(requests, view["requests"]):
            want = reference.literal_ids(text)
            if want is None:
                continue
            self.literal += 1
            self.check(found["ids"] == want, f"{name} literal: {text[:20]!r}", want, found["ids"])


def main():
    here = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvfork", default=str(here / "build/release/kvfork"))
    parser.add_argument("--shared", default=os.environ.get("KVFORK_SHARED", str(here.parent / "shared")))
    parser.add_argument("--write-golden")
    parser.add_argument("--only", nargs="*", default=[])
    args = parser.parse_args()
    import tokenizers
    import transformers
    shared = pathlib.Path(args.shared)
    table = Table()
    golden = {"versions": {"transformers": transformers.__version__, "tokenizers": tokenizers.__version__}, "now": NOW,
              "requests": REQUESTS[:-1], "templates": []}
    paths = [path for path in sorted((shared / "templates").glob("*.jinja")) if not args.only or path.stem in args.only]
    for path in paths:
        template = path.read_text(encoding="utf-8")
        base = tokenizer_of(path.stem)
        with tempfile.TemporaryDirectory() as directory:
            config, tokens = make_config(template)
            folder = pathlib.Path(directory)
            (folder / "tokenizer.json").symlink_to((shared / "tokenizers" / base / "tokenizer.json").resolve())
            (folder / "tokenizer_config.json").write_text(config, encoding="utf-8")
            (folder / "chat_template.jinja").write_bytes(path.read_bytes())
            reference = Reference(directory)
            (folder / "fixed.json").write_text(json.dumps(reference.fixed))
            for name, value in reference.more.items():
                (folder / f"{name}.json").write_text(json.dumps(value))
            rows = {}
            own = [f"a{token}b" for token in tokens] + ["".join(tokens), " \n".join(tokens) + " ", *(token[:-1] for token in tokens[:3])]
            requests = [*REQUESTS, *own[:10]]
            wholes = [reference.ids(request) for request in requests]
            for mode in MODES:
                table.check_mode(path.stem, mode, reference, ask(args.kvfork, directory, mode, requests), requests, wholes, rows)
                rows[mode]["requests"] = rows[mode]["requests"][:len(REQUESTS)]
            table.check_literal(path.stem, reference, args.kvfork, directory, requests)
            golden["templates"].append({"template": path.name, "tokenizer": base, "tokenizer_config": config, "fixed": reference.fixed, **reference.more, "modes": rows})
    if args.write_golden:
        with open(args.write_golden, "w", encoding="utf-8") as file:
            json.dump(golden, file, ensure_ascii=False, indent=1)
            file.write("\n")
    print(f"boundary: {len(paths)} templates; {table.refused} requests refused on both sides; {table.literal} requests kept literal, "
          f"{table.looked_at} templates that look at control tokens")
    print(f"{table.passed} passed, {table.failed} failed")
    return 1 if table.failed or not table.passed else 0


if __name__ == "__main__":
    sys.exit(main())
