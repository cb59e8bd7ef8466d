#!/usr/bin/env python3
"""Writes tests/golden/jinja/*.json: what jinja2 and Transformers give for template snippets and chat requests.

snippets.json: for each family of template_snippets.py, templates with their text, "error" where jinja2 fails, or "raised"
with the message of raise_exception. apply.json: directories as checkpoints have them, and what
tokenizer.apply_chat_template(tokenize=False) makes of requests. Both record what made them.

Usage: make_template_goldens.py [--count N] [--seed N]
"""
import argparse
import json
import pathlib
import random
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from oracle_templates import NOW, REFUSED, make_reference  # noqa: E402,F401
from template_cases import DOCUMENTS, SEARCH, WEATHER  # noqa: E402
from template_snippets import FAMILIES, VARIABLES, generate  # noqa: E402

OUT = HERE.parent / "tests/golden/jinja"


def made_by(command):
    import jinja2
    import transformers
    return {"command": command, "python": sys.version.split()[0], "jinja2": jinja2.__version__,
            "transformers": transformers.__version__, "now": NOW}


def is_portable(result):
    """False where Python's answer is an address, a number kvfork refuses, or text that UTF-8 cannot hold."""
    text = str(result.get("text", result.get("error")))
    return not (" at 0x" in text or "'inf'" in text or "'nan'" in text or any(0xD800 <= ord(c) < 0xE000 for c in text))


def beyond_64_bits(result):
    digits = ""
    for c in result.get("text", "") + " ":
        digits = digits + c if c.isdigit() else ""
        if len(digits) > 18:
            return True
    return "j)" in result.get("text", "")


def write_snippets(count, seed, command):
    reference = make_reference()
    families = {}
    for family in sorted(FAMILIES):
        rng = random.Random(f"{seed}/{family}")
        cases, seen = [], set()
        while len(cases) < count and len(seen) < 20 * count:
            template, variables = generate(rng, family)
            seen.add(len(seen))
            if template in [case["template"] for case in cases]:
                continue
            result = reference(template, variables)
            if not is_portable(result) or beyond_64_bits(result):
                continue
            case = {"template": template}
            if variables is not VARIABLES:
                case["variables"] = variables
            if "text" in result:
                case["text"] = result["text"]
            elif result["raised"]:
                case["raised"] = result["error"]
            else:
                case["error"] = True
            cases.append(case)
        families[family] = cases
    with open(OUT / "snippets.json", "w", encoding="ascii") as out:
        out.write('{"made_by": ' + json.dumps(made_by(command)) + ',\n"variables": ' + json.dumps(VARIABLES) + ',\n"families": {\n')
        blocks = []
        for family, cases in families.items():
            blocks.append(json.dumps(family) + ": [\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]")
        out.write(",\n".join(blocks) + "\n}}\n")
    return sum(map(len, families.values()))


CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
TRIMMING = ("{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}{{ eos_token }}{% endfor %}"
            "{% if tools %}{{ tools | tojson }}{% endif %}")
BLOCKS = ("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for b in m.content %}"
          "{% if b.type == 'text' %}{{ b.text }}{% endif %}{% endfor %}{% endif %}|{% endfor %}")
VARS = ("{{ bos_token }},{{ eos_token }},{{ unk_token }},{{ pad_token }},{{ cls_token }},{{ additional_special_tokens }},"
        "{{ image_token }},{{ tools }},{{ documents }},{{ add_generation_prompt }},{{ continue_final_message }},{{ custom }}")
DEFAULT, TOOL_USE, RAG = "DEFAULT{{ messages|length }}", "TOOLS{{ tools|length }}", "RAG{{ documents|length }}"

ADDED = {"__type": "AddedToken", "content": "</s>", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False}

SOURCES = {
    "string": {"tokenizer_config": {"bos_token": "<s>", "eos_token": "</s>", "chat_template": CHATML}},
    "file_wins": {"tokenizer_config": {"bos_token": "<s>", "eos_token": ADDED, "chat_template": "CONFIG"},
                  "chat_template.jinja": TRIMMING},
    "list": {"tokenizer_config": {"chat_template": [{"name": "default", "template": DEFAULT}, {"name": "tool_use", "template": TOOL_USE},
                                                    {"name": "rag", "template": RAG}]}},
    "list_without_default": {"tokenizer_config": {"chat_template": [{"name": "tool_use", "template": TOOL_USE}]}},
    "additional": {"tokenizer_config": {"chat_template": "CONFIG"}, "chat_template.jinja": DEFAULT,
                   "additional_chat_templates/tool_use.jinja": TOOL_USE, "additional_chat_templates/rag.jinja": RAG},
    "additional_only": {"tokenizer_config": {"chat_template": "CONFIG"}, "additional_chat_templates/rag.jinja": RAG},
    "none": {"tokenizer_config": {"bos_token": "<s>"}},
    "blocks": {"tokenizer_config": {"chat_template": BLOCKS}},
    "variables": {"tokenizer_config": {"bos_token": "<s>", "eos_token": ADDED, "unk_token": None,
                                       "pad_token": "", "cls_token": "<c>", "additional_special_tokens": ["<a>", "<b>"],
                                       "extra_special_tokens": {"image_token": "<img>"}, "chat_template": VARS}},
    "old_map": {"tokenizer_config": {"bos_token": "<s>", "chat_template": VARS},
                "special_tokens_map.json": {"eos_token": {"content": "<eos>", "lstrip": False, "normalized": False, "rstrip": False,
                                                          "single_word": False}, "bos_token": "<bos>"}},
    "raises": {"tokenizer_config": {"chat_template": "{{ raise_exception('roles must alternate: ' ~ messages[0].role) }}"}},
    "line_ends": {"tokenizer_config": {}, "chat_template.jinja": "{% for m in messages %}\r\n{{ m.content }}\r\n{% endfor %}\r\n"},
}

CONVERSATION = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "  Sure, here it is: "}]
BLOCK_CONVERSATION = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b "}]}]
REQUESTS = [
    {"messages": CONVERSATION}, {"messages": CONVERSATION, "add_generation_prompt": True},
    {"messages": CONVERSATION, "continue_final_message": True},
    {"messages": CONVERSATION, "continue_final_message": True, "add_generation_prompt": True},
    {"messages": BLOCK_CONVERSATION}, {"messages": BLOCK_CONVERSATION, "continue_final_message": True},
    {"messages": [{"role": "user", "content": [{"type": "image"}]}], "continue_final_message": True},
    {"messages": [{"role": "user", "content": None}], "continue_final_message": True},
    {"messages": [{"role": "user"}], "continue_final_message": True},
    {"messages": [{"role": "user", "content": "no spaces"}], "continue_final_message": True},
    {"messages": [{"role": "user", "content": "tail  \n"}], "continue_final_message": True},
    {"messages": [{"role": "user", "content": ""}], "continue_final_message": True},
    {"messages": []}, {"messages": CONVERSATION, "tools": [SEARCH, WEATHER]}, {"messages": CONVERSATION, "tools": []},
    {"messages": CONVERSATION, "tools": ["text"]}, {"messages": CONVERSATION, "tools": [SEARCH], "documents": DOCUMENTS},
    {"messages": CONVERSATION, "documents": DOCUMENTS}, {"messages": CONVERSATION, "documents": ["text"]},
    {"messages": CONVERSATION, "vars": {"custom": {"a": [1, None]}, "bos_token": "<mine>"}},
]


def write_directory(path, files):
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    Tokenizer(WordLevel({"<unk>": 0}, unk_token="<unk>")).save(str(path / "tokenizer.json"))
    for name, content in files.items():
        target = path / ("tokenizer_config.json" if name == "tokenizer_config" else name)
        target.parent.mkdir(exist_ok=True)
        if name == "tokenizer_config":
            content = {"tokenizer_class": "PreTrainedTokenizerFast", **content}
        data = content if isinstance(content, str) else json.dumps(content)
        target.write_bytes(data.encode())


def apply(tokenizer, request):
    import jinja2
    options = dict(request)
    variables = options.pop("vars", {})
    messages = options.pop("messages")
    try:
        return {"text": tokenizer.apply_chat_template(messages, tokenize=False, **options, **variables)}
    except jinja2.exceptions.TemplateError as error:
        return {"raised": str(error)} if type(error) is jinja2.exceptions.TemplateError else {"error": True}
    except Exception:  # noqa: BLE001
        return {"error": True}


def write_requests(command):
    from transformers import PreTrainedTokenizerFast
    cases = []
    for name, files in SOURCES.items():
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory)
            write_directory(path, files)
            tokenizer = PreTrainedTokenizerFast.from_pretrained(directory)
            cases.append({"name": name, "files": files, "requests": [{"request": request, **apply(tokenizer, request)}
                                                                      for request in REQUESTS]})
    with open(OUT / "apply.json", "w", encoding="ascii") as out:
        out.write('{"made_by": ' + json.dumps(made_by(command)) + ',\n"checkpoints": [\n')
        out.write(",\n".join(json.dumps(case) for case in cases) + "\n]}\n")
    return len(cases) * len(REQUESTS)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=40, help="snippets for each family")
    parser.add_argument("--seed", type=int, default=20)
    args = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    command = f"tools/make_template_goldens.py --count {args.count} --seed {args.seed}"
    print(f"{write_snippets(args.count, args.seed, command)} snippets, {write_requests(command)} requests")


if __name__ == "__main__":
    main()
