"""`kvfork run`: the JSON contract, prompts from everywhere, generation, and the figures around it."""

import json
import random

import cli
from tiny_checkpoint import END, TEMPLATE, VOCAB_SIZE, write_checkpoint

CONTEXT = "hello the order"


def middle(time):
    """A time is a number or {"median", "min", "max"}."""
    if isinstance(time, dict):
        assert time["min"] <= time["median"] <= time["max"], time
        return time["median"]
    return time


class RunJson(cli.CliTest):
    def test_has_the_keys_of_the_contract(self):
        output = self.run_json("--context", CONTEXT, "--prompt", "hello", "--prompt", "the order")
        self.assertLessEqual({"model", "revision", "dtype", "kernel_set", "threads", "versions", "context", "timings", "answers"},
                             output.keys())
        self.assertEqual(output["dtype"], "float32")
        self.assertIn(output["kernel_set"], cli.kernel_sets())
        self.assertGreater(output["context"]["tokens"], 5)
        self.assertGreater(output["context"]["bytes"], 0)
        for name in ("open_ms", "prefill_ms"):
            self.assertGreater(middle(output["timings"][name]), 0, name)
        self.assertEqual([answer["prompt"] for answer in output["answers"]], ["hello", "the order"])

    def test_answers_have_the_keys_of_the_contract(self):
        output = self.run_json("--context", CONTEXT, "--prompt", "hello", "--benchmark-repeats", 3)
        (answer,) = output["answers"]
        self.assertLessEqual({"prompt", "ids", "text", "stop", "parity", "cached_tokens", "request_tokens", "timings"}, answer.keys())
        self.assertIs(answer["parity"], True)
        self.assertIn(answer["stop"], ("eos", "length"))
        self.assertEqual(answer["cached_tokens"], output["context"]["tokens"])
        for name in ("fork_ms", "ttft_cached_ms", "ttft_uncached_ms", "decode_ms_per_token"):
            self.assertGreater(middle(answer["timings"][name]), 0, name)

    def test_counts_are_those_of_the_rendered_request(self):
        output = self.run_json("--context", CONTEXT, "--prompt", "hello")
        for field, roles in (("context", ["system"]), ("request", ["system", "user"])):
            contents = {"system": CONTEXT, "user": "hello"}
            path = self.write("m.json", json.dumps([{"role": role, "content": contents[role]} for role in roles]))
            more = ["--no-generation-prompt"] if field == "context" else []
            ids = self.json("tokenize", "--model", self.model, "--messages", path, *more)["ids"]
            (answer,) = output["answers"]
            found = answer["cached_tokens"] if field == "context" else answer["cached_tokens"] + answer["request_tokens"]
            self.assertEqual(found, len(ids), field)

    def test_text_is_the_decoded_ids_without_special_tokens(self):
        for answer in self.run_json("--context", CONTEXT, "--prompt", "hello", "--max-new-tokens", 40)["answers"]:
            ids = [token for token in answer["ids"] if token < END]
            text = self.ok("tokenize", "--model", self.model, "--decode", " ".join(map(str, ids)))
            self.assertEqual(answer["text"], text.removesuffix("\n"))

    def test_max_new_tokens_bounds_the_ids(self):
        longer = self.run_json("--prompt", "hello", "--max-new-tokens", 7)["answers"][0]["ids"]
        shorter = self.run_json("--prompt", "hello", "--max-new-tokens", 3)["answers"][0]["ids"]
        self.assertEqual(longer[:3], shorter)

    def test_lookup_is_the_default_and_answers_as_plain_decoding_does(self):
        found = {}
        for how in ((), ("--speculate", "lookup"), ("--speculate", "off")):  # a penalty below 1 makes the answer repeat itself
            (found[how],) = self.run_json("--context", CONTEXT, "--prompt", "order order order order", "--repetition-penalty", 0.5,
                                          "--max-new-tokens", 60, *how)["answers"]
        default, lookup, plain = found.values()
        self.assertEqual(plain["ids"], lookup["ids"])
        self.assertEqual((default["ids"], default["passes"]), (lookup["ids"], lookup["passes"]))
        for answer in found.values():
            self.assertEqual(answer["tokens"], len(answer["ids"]))
        self.assertLessEqual(abs(plain["tokens"] - plain["passes"]), 1)
        self.assertLess(lookup["passes"], plain["passes"])

    def test_both_families_and_modes(self):
        for family in ("llama", "qwen2"):
            model = self.checkpoint(family=family)
            for dtype in ("float32", "bfloat16"):
                output = self.json("run", "--model", model, "--prompt", "hello", "--max-new-tokens", 5, "--dtype", dtype)
                self.assertEqual(output["dtype"], dtype)
                self.assertIs(output["answers"][0]["parity"], True)


class Prompts(cli.CliTest):
    def answers(self, *arguments, **options):
        return [(answer["prompt"], answer["ids"]) for answer in self.run_json("--context", CONTEXT, *arguments, **options)["answers"]]

    def test_come_from_options_a_file_or_standard_input(self):
        expected = self.answers("--prompt", "hello", "--prompt", "the order")
        self.assertEqual(self.answers(stdin="hello\nthe order\n"), expected)
        self.assertEqual(self.answers(stdin="hello\nthe order"), expected)
        files = [self.write("p.txt", "hello"), self.write("q.txt", "the order\n")]
        self.assertEqual(self.answers("--prompt-file", files[0], "--prompt-file", files[1]), expected)
        self.assertEqual(self.answers("--prompt-file", self.write("r.txt", "hello\nthe order\n"))[0][0], "hello\nthe order")

    def test_context_file_is_the_context(self):
        expected = self.run_json("--context", CONTEXT, "--prompt", "hello")["answers"][0]["ids"]
        path = self.write("c.txt", CONTEXT)
        self.assertEqual(self.run_json("--context-file", path, "--prompt", "hello")["answers"][0]["ids"], expected)

    def test_a_policy_is_built_in(self):
        output = self.run_json("--prompt", "hello", "--max-new-tokens", 1)
        self.assertGreater(output["context"]["tokens"], 60)

    def test_empty_and_whitespace_prompts_work(self):
        prompts = ["", " ", "\n\t ", "\u00a0"]
        found = self.answers(*[f"--prompt={prompt}" for prompt in prompts])
        self.assertEqual([prompt for prompt, _ in found], prompts)
        self.assertTrue(all(ids for _, ids in found))

    def test_a_value_may_look_like_an_option(self):
        prompts = ["--prompt=", "--prompt", "--json", "--", "-", "-5", "--no-such-option", "--prompt=--prompt=x", "=", "-- a"]
        for arguments in ([text for prompt in prompts for text in ("--prompt", prompt)], [f"--prompt={prompt}" for prompt in prompts]):
            self.assertEqual([prompt for prompt, _ in self.answers(*arguments)], prompts)
        self.fails(2, "run", "--model", self.model, "--prompt")

    def test_a_request_that_adds_no_token_works(self):
        template = "{% for message in messages if message.role == 'system' %}<|system|>{{ message.content }}<|end|>{% endfor %}"
        model = self.checkpoint(template=template)
        (answer,) = self.json("run", "--model", model, "--prompt", "x", "--max-new-tokens", 4)["answers"]
        self.assertEqual(answer["request_tokens"], 0)
        self.assertIs(answer["parity"], True)
        self.assertTrue(answer["ids"])

    def test_order_and_company_do_not_matter(self):
        prompts = ["hello", "the order", "a", "", "hello hello the order 123"]
        alone = {prompt: self.answers(f"--prompt={prompt}")[0][1] for prompt in prompts}
        random.Random(3).shuffle(prompts)
        self.assertEqual(dict(self.answers(*[f"--prompt={prompt}" for prompt in prompts])), alone)


class Generation(cli.CliTest):
    def ids(self, model, *arguments):
        (answer,) = self.json("run", "--model", model, "--context", CONTEXT, "--prompt", "hello", *arguments)["answers"]
        return answer["ids"], answer["stop"]

    def setUp(self):
        self.greedy, _ = self.ids(self.model, "--max-new-tokens", 12)

    def test_ends_at_each_eos_of_the_generation_config(self):
        wanted = self.greedy[4]
        first = self.greedy.index(wanted)
        model = self.checkpoint(generation={"eos_token_id": [VOCAB_SIZE - 1, wanted]})
        self.assertEqual(self.ids(model, "--max-new-tokens", 12), (self.greedy[:first + 1], "eos"))

    def test_config_eos_counts_only_without_one_in_the_generation_config(self):
        wanted = self.greedy[4]
        first = self.greedy.index(wanted)
        for generation, expected in ((None, first + 1), ({"do_sample": False}, first + 1), ({"eos_token_id": END}, 12)):
            model = self.checkpoint(eos_token_id=wanted, generation=generation)
            self.assertEqual(self.ids(model, "--max-new-tokens", 12)[0], self.greedy[:expected], generation)

    def test_repetition_penalty_of_the_generation_config_applies(self):
        model = self.checkpoint(generation={"repetition_penalty": 30.0, "eos_token_id": END})
        penalized, _ = self.ids(model, "--max-new-tokens", 30)
        self.assertEqual(len(set(penalized)), len(penalized))
        plain, _ = self.ids(self.model, "--max-new-tokens", 30)
        self.assertNotEqual(penalized, plain)

    def test_sampling_depends_on_the_seed_alone(self):
        options = ["--temperature", 1.5, "--max-new-tokens", 16, "--seed"]
        first = self.ids(self.model, *options, 5)
        self.assertEqual(self.ids(self.model, *options, 5), first)
        self.assertGreater(len({tuple(self.ids(self.model, *options, seed)[0]) for seed in range(1, 6)}), 3)

    def test_top_k_of_one_is_greedy(self):
        self.assertEqual(self.ids(self.model, "--temperature", 2, "--top-k", 1, "--max-new-tokens", 12)[0], self.greedy)

    def test_sampling_options_narrow_the_choice(self):
        for option in (["--top-p", 1e-6], ["--min-p", 1.0]):
            self.assertEqual(self.ids(self.model, "--temperature", 1, *option, "--seed", 9, "--max-new-tokens", 12)[0], self.greedy)

    def test_a_sampled_answer_does_not_depend_on_its_place(self):
        options = ["--context", CONTEXT, "--temperature", 1.5, "--seed", 11, "--max-new-tokens", 10]
        one = self.run_json(*options, "--prompt", "hello", "--prompt", "order", "--prompt", "the")["answers"]
        other = self.run_json(*options, "--prompt", "the", "--prompt", "hello", "--prompt", "order")["answers"]
        key = lambda answer: answer["prompt"]
        self.assertEqual([a["ids"] for a in sorted(one, key=key)], [a["ids"] for a in sorted(other, key=key)])


class Limit(cli.CliTest):
    def test_is_exact(self):
        output = self.run_json("--context", CONTEXT, "--prompt", "hello", "--max-new-tokens", 1)
        used = output["answers"][0]["cached_tokens"] + output["answers"][0]["request_tokens"]
        arguments = ["run", "--model", self.model, "--context", CONTEXT, "--prompt", "hello", "--max-new-tokens"]
        self.json(*arguments, 2048 - used)
        self.fails(1, *arguments, 2048 - used + 1, says=["2048"])

    def test_is_found_before_any_answer(self):
        arguments = ["run", "--model", self.model, "--context", CONTEXT, "--prompt", "hello", "--prompt", "hello " * 2500]
        self.fails(1, *arguments, "--max-new-tokens", 4, says="2048")


class Machine(cli.CliTest):
    def test_every_kernel_set_runs_and_is_named(self):
        for isa in cli.kernel_sets():
            output = self.run_json("--context", CONTEXT, "--prompt", "hello", isa=isa)
            self.assertEqual(output["kernel_set"], isa)
            self.assertIs(output["answers"][0]["parity"], True)

    def test_the_best_kernel_set_is_the_default(self):
        self.assertEqual(self.run_json("--prompt", "hello", "--max-new-tokens", 1)["kernel_set"], cli.kernel_sets()[-1])

    def test_an_unknown_kernel_set_is_an_error(self):
        for isa in ("sse9", "AVX2 ", "avx512x"):
            self.fails(1, "run", "--model", self.model, "--prompt", "hello", isa=isa, says=[isa.strip(), "portable"])

    def test_threads_change_nothing_but_their_count(self):
        outputs = [self.run_json("--context", CONTEXT, "--prompt", "hello", "--threads", n) for n in (1, 2, 3, 4)]
        self.assertEqual([output["threads"] for output in outputs], [1, 2, 3, 4])
        self.assertEqual(len({json.dumps(output["answers"][0]["ids"]) for output in outputs}), 1)


class Terminal(cli.CliTest):
    def test_text_output_names_what_ran_and_then_the_times(self):
        arguments = ("run", "--model", self.model, "--context", CONTEXT, "--prompt", "hello", "--max-new-tokens", 6)
        done = self.start(*arguments, "--benchmark-repeats", 2)
        output = done.stderr.decode()
        for word in ("float32", cli.kernel_sets()[-1], "parity", "prefill", "fork", "context"):
            self.assertIn(word, output.lower(), output)
        quiet = self.start(*arguments, "--quiet")
        self.assertEqual(quiet.stderr, b"")
        self.assertEqual(quiet.stdout, done.stdout)  # the answer and nothing else

    def test_a_pipe_gets_no_progress_and_no_colours(self):
        done = self.start("run", "--model", self.model, "--prompt", "hello", "--max-new-tokens", 6)
        self.assertEqual(done.returncode, 0)
        for stream in (done.stdout, done.stderr):
            self.assertNotIn(b"\x1b", stream)
            self.assertNotIn(b"\r", stream)

    def test_json_is_one_document_alone(self):
        done = self.start("run", "--model", self.model, "--prompt", "hello", "--max-new-tokens", 2, "--json")
        json.loads(done.stdout)
        self.assertEqual(done.stderr, b"")


class Boundary(cli.CliTest):
    def refused(self, template, *says):
        model = write_checkpoint(self.folder / f"boundary{random.random()}", template=template)
        return self.fails(3, "run", "--model", model, "--context", CONTEXT, "--prompt", "hello", says=says)

    def test_a_template_that_rewrites_the_system_text_is_refused(self):
        template = TEMPLATE.replace("{{ message.content }}", "{{ message.content }}{% if messages|length > 1 and loop.first %} or{% endif %}")
        message = self.refused(template)
        # <|system|> \n hello Ġthe Ġ or de r: the context goes on with <|end|> at position 8, the request with Ġ (32).
        for number in (8, END, 32):
            self.assertRegex(message, rf"\b{number}\b")

    def test_a_context_that_renders_to_nothing_is_refused(self):
        self.refused("{% for m in messages if m.role == 'user' %}<|user|>{{ m.content }}{% endfor %}", "empty")

    def test_a_system_text_folded_into_the_user_turn_is_refused(self):
        self.refused("{% if messages|length > 1 %}<|user|>{{ messages[0].content }} {{ messages[1].content }}"
                     "{% else %}<|system|>{{ messages[0].content }}{% endif %}")

    def test_a_token_that_grows_across_the_join_is_refused(self):
        # "hell" is a token of the context alone, "hello" of the request.
        self.refused("hell{% if messages|length > 1 %}o{{ messages[1].content }}{% endif %}", "258", "259")


if __name__ == "__main__":
    cli.main()
