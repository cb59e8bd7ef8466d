"""Usage errors, checkpoints that are broken, hostile or not supported: one clear error, the right exit code, no crash."""

import json
import random
import struct

import cli
from tiny_checkpoint import read_safetensors, safetensors_bytes


class Usage(cli.CliTest):
    def test_help_is_data(self):
        for arguments in (["--help"], ["run", "--help"], ["tokenize", "--help"], ["score", "--help"]):
            self.assertIn("--", self.ok(*arguments))

    def test_version(self):
        self.assertRegex(self.ok("--version"), r"\d+\.\d+\.\d+")

    def test_usage_errors(self):
        model = ["--model", self.model]
        for arguments in ([], ["no-such-command"], ["run", "--no-such-option"], ["run", *model, "--prompt"], ["tokenize"], ["score"],
                          ["run", *model, "--prompt", "x", "--dtype", "float64"], ["run", *model, "--prompt", "x", "--threads", "many"],
                          ["run", *model, "--prompt", "x", "--max-new-tokens", "-1"],
                          ["run", *model, "--prompt", "x", "--context", "a", "--context-file", "b"],
                          ["run", *model, "--prompt", "x", "--temperature", "-1"], ["run", *model, "--prompt", "x", "--top-p", "1.5"],
                          ["run", *model, "--prompt", "x", "--benchmark-repeats", "-1"],
                          *[["run", *model, "--prompt", "x", option, value] for value in ("nan", "inf", "-nan", "x", "")
                            for option in ("--temperature", "--top-p", "--min-p", "--repetition-penalty", "--max-new-tokens", "--seed")],
                          ["verify", *model, "--limit-seconds", "nan"], ["bench", *model, "--max-new-tokens", "nan"]):
            self.fails(2, *arguments)


class Files(cli.CliTest):
    def test_missing_paths_are_named(self):
        self.fails(1, "run", "--model", self.folder / "nowhere", "--prompt", "x", says="nowhere")
        self.fails(1, "run", "--model", self.model, "--prompt-file", self.folder / "no-prompts", says="no-prompts")
        self.fails(1, "run", "--model", self.model, "--context-file", self.folder / "no-context", "--prompt", "x", says="no-context")

    def test_missing_parts_are_named(self):
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            model = self.checkpoint()
            (model / name).unlink()
            self.fails(1, "run", "--model", model, "--prompt", "x", says=name.split(".")[0])

    def test_a_directory_or_an_empty_file_instead_of_a_part(self):
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            model = self.checkpoint()
            (model / name).unlink()
            (model / name).mkdir()
            self.fails(1, "run", "--model", model, "--prompt", "x", says=name)
            (model / name).rmdir()
            (model / name).write_bytes(b"")
            self.fails(1, "run", "--model", model, "--prompt", "x", says=name)

    def test_prompts_that_are_not_utf8(self):
        self.fails(1, "run", "--model", self.model, stdin=b"\xff\xfe\n", says="UTF-8")
        self.fails(1, "run", "--model", self.model, "--context-file", self.write("c", b"a\xc3"), "--prompt", "x", says="UTF-8")


class Config(cli.CliTest):
    def refused(self, says, **changes):
        model = self.checkpoint()
        config = json.loads((model / "config.json").read_text())
        config.update(changes)
        (model / "config.json").write_text(json.dumps(config))
        self.fails(1, "run", "--model", model, "--prompt", "x", says=says)

    def test_what_is_not_supported_is_refused_by_name(self):
        self.refused("MambaForCausalLM", architectures=["MambaForCausalLM"], model_type="mamba")
        self.refused("no_such_rope", rope_scaling={"rope_type": "no_such_rope", "factor": 2.0})
        self.refused("gelu_10", hidden_act="gelu_10")
        self.refused("quantization_config", quantization_config={"quant_method": "gptq", "bits": 4})

    def test_a_sliding_window_where_the_family_has_none_is_refused(self):
        self.refused("sliding_window", sliding_window=16)
        for is_on in (True, False):
            model = self.checkpoint(family="qwen2", use_sliding_window=is_on, sliding_window=16, max_window_layers=0)
            self.json("run", "--model", model, "--prompt", "x", "--max-new-tokens", 2)

    def test_sizes_that_make_no_sense(self):
        for changes in ({"hidden_size": 0}, {"hidden_size": -32}, {"num_attention_heads": 0}, {"num_attention_heads": 3},
                        {"num_key_value_heads": 3}, {"num_hidden_layers": 10**9}, {"vocab_size": 2**40}, {"hidden_size": "32"},
                        {"hidden_size": 32.5}, {"rms_norm_eps": "x"}, {"rope_theta": -1.0}, {"max_position_embeddings": 0}):
            self.refused(next(iter(changes)), **changes)

    def test_config_that_is_not_json(self):
        for text in ("", "{", "[]", "null", '{"a": 1', "\xff", "[" * 100000):
            model = self.checkpoint()
            (model / "config.json").write_bytes(text.encode("latin-1"))
            self.fails(1, "run", "--model", model, "--prompt", "x", says="config.json")

    def test_generation_config_that_makes_no_sense(self):
        for generation in ({"eos_token_id": "x"}, {"eos_token_id": [1.5]}, {"repetition_penalty": 0}, {"repetition_penalty": "x"}):
            model = self.checkpoint(generation=generation)
            self.fails(1, "run", "--model", model, "--prompt", "x", says="generation_config")


class Weights(cli.CliTest):
    def attempt(self, data, code=1, says=()):
        model = self.checkpoint()
        (model / "model.safetensors").write_bytes(data)
        return self.fails(code, "run", "--model", model, "--prompt", "x", says=says)

    def setUp(self):
        self.data = (self.model / "model.safetensors").read_bytes()
        self.tensors = read_safetensors(self.model / "model.safetensors")

    def test_truncated_anywhere(self):
        size = struct.unpack("<Q", self.data[:8])[0] + 8
        for end in (0, 1, 7, 8, 9, size - 1, size, size + 1, len(self.data) // 2, len(self.data) - 1):
            self.attempt(self.data[:end], says="model.safetensors")

    def test_longer_than_it_says(self):
        self.attempt(self.data + b"\0", says="model.safetensors")

    def test_header_sizes_that_lie(self):
        for size in (0, 1, 2**20, 2**32, 2**63, 2**64 - 1):
            self.attempt(struct.pack("<Q", size) + self.data[8:], says="model.safetensors")

    def test_tensors_that_do_not_fit_the_config_are_named(self):
        name = "model.layers.1.mlp.up_proj.weight"
        dtype, shape, raw = self.tensors[name]
        without = {other: entry for other, entry in self.tensors.items() if other != name}
        self.attempt(safetensors_bytes(without), says=name)
        self.attempt(safetensors_bytes({**self.tensors, "model.layers.9.extra.weight": ("F32", [1], b"\0" * 4)}), says="model.layers.9.extra.weight")
        self.attempt(safetensors_bytes({**self.tensors, name: (dtype, shape[::-1], raw)}), says=name)
        self.attempt(safetensors_bytes({**self.tensors, name: ("I32", shape, raw)}), says=name)

    def header(self, change):
        """The file with a changed header."""
        size = struct.unpack("<Q", self.data[:8])[0]
        header = json.loads(self.data[8:8 + size])
        text = change(header) or json.dumps(header)
        text = text.encode() if isinstance(text, str) else text
        return struct.pack("<Q", len(text)) + text + self.data[8 + size:]

    def test_hostile_headers(self):
        name = "model.norm.weight"
        changes = [
            lambda h: h[name].update(data_offsets=[0, 10**18]), lambda h: h[name].update(data_offsets=[-4, 124]),
            lambda h: h[name].update(data_offsets=[128, 0]), lambda h: h[name].update(shape=[2**62, 2**62]),
            lambda h: h[name].update(shape=[-32]), lambda h: h[name].update(shape="x"), lambda h: h[name].update(dtype="F99"),
            lambda h: h[name].pop("dtype"), lambda h: h[name].update(data_offsets=[0]), lambda h: h.update({name: 5}),
            lambda h: "[" * 100000, lambda h: "null", lambda h: b"\xff" * 50,
            lambda h: json.dumps(h)[:-1] + ',"' + name + '":' + json.dumps(h[name]) + "}",
        ]
        for i, change in enumerate(changes):
            with self.subTest(change=i):
                self.attempt(self.header(change), says="model.safetensors")

    def test_random_damage_never_crashes(self):
        generator = random.Random(7)
        size = struct.unpack("<Q", self.data[:8])[0]
        model = self.checkpoint()
        for _ in range(25):
            damaged = bytearray(self.data)
            for _ in range(generator.randrange(1, 6)):
                damaged[generator.randrange(8 + size)] = generator.randrange(256)
            (model / "model.safetensors").write_bytes(damaged)
            done = self.start("score", "--model", model, "--ids", "1,2,3", "--json")
            self.assertIn(done.returncode, (0, 1), done.stderr)

    def test_weights_that_are_not_numbers_give_no_answer(self):
        name = "model.norm.weight"
        dtype, shape, raw = self.tensors[name]
        self.attempt(safetensors_bytes({**self.tensors, name: (dtype, shape, struct.pack("<f", float("nan")) * (len(raw) // 4))}))


class Shards(cli.CliTest):
    def sharded(self, change=lambda index, model: None):
        """A checkpoint in two shards; change may break the index or the files."""
        model = self.checkpoint()
        tensors = read_safetensors(model / "model.safetensors")
        (model / "model.safetensors").unlink()
        names = sorted(tensors)
        files = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
        for file, held in files.items():
            (model / file).write_bytes(safetensors_bytes({name: tensors[name] for name in held}))
        index = {"metadata": {"total_size": 1}, "weight_map": {name: file for file, held in files.items() for name in held}}
        change(index, model)
        (model / "model.safetensors.index.json").write_text(json.dumps(index))
        return model

    def test_shards_give_the_bits_of_one_file(self):
        one, two = self.folder / "one", self.folder / "two"
        self.ok("score", "--model", self.model, "--ids", "1,2,3,4,5", "--logits", one)
        self.ok("score", "--model", self.sharded(), "--ids", "1,2,3,4,5", "--logits", two)
        self.assertTrue(one.read_bytes() == two.read_bytes())

    def test_a_broken_index_is_refused(self):
        first = "model-00001-of-00002.safetensors"
        changes = [
            (lambda index, model: (model / first).unlink(), first),
            (lambda index, model: index["weight_map"].update({"lm_head.weight": "../model/" + first}), ()),
            (lambda index, model: index["weight_map"].update({"lm_head.weight": "/etc/passwd"}), ()),
            (lambda index, model: index["weight_map"].pop("model.norm.weight"), "model.norm.weight"),
            (lambda index, model: index["weight_map"].update({"no.such": first}), "no.such"),
            (lambda index, model: index.pop("weight_map"), "weight_map"),
            (lambda index, model: index.update(weight_map=[1]), "weight_map"),
        ]
        for change, says in changes:
            self.fails(1, "run", "--model", self.sharded(change), "--prompt", "x", says=says)


class Gguf(cli.CliTest):
    def test_hostile_files(self):
        counts = struct.pack("<QQ", 2**62, 2**62)
        for data in (b"", b"GGUF", b"GGUF" + struct.pack("<I", 99), b"GGUF" + struct.pack("<I", 3), b"GGUF" + struct.pack("<I", 3) + counts,
                     b"FUGG" + b"\0" * 100, b"GGUF" + struct.pack("<I", 3) + struct.pack("<QQ", 0, 0),
                     b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**63) + b"x" * 64):
            path = self.write("model.gguf", data)
            self.fails(1, "run", "--model", path, "--prompt", "x", says="model.gguf")
            self.fails(1, "tokenize", "--model", path, "--text", "x", says="model.gguf")


if __name__ == "__main__":
    cli.main()
