"""`kvfork verify`: the report as JSON, as JUnit and on the terminal, on models that pass and on one that must not."""

import json
import xml.etree.ElementTree

import cli
from tiny_checkpoint import TEMPLATE, read_safetensors, safetensors_bytes

CONTEXT = "hello the order"
NAMES = ["boundary", "parity", "logit_bits", "empty", "whitespace", "isolation", "limit", "fork_cost", "batch", "sampling",
         "save_open", "refusal"]
# Once a request holds an x, the system message is rendered in another way.
BREAKING = "{% if 'x' in messages[-1].content %}<|system|>\nx<|end|>\n{% endif %}" + TEMPLATE


class VerifyTest(cli.CliTest):
    def verify(self, *arguments, code=0, model=None):
        """The document of a call that exits with code; its JUnit file must agree."""
        junit = self.write("report.xml", b"")
        done = self.start("verify", "--model", model or self.model, "--json", "--junit", junit, *arguments)
        self.assertEqual(done.returncode, code, done.stderr.decode())
        report = json.loads(done.stdout)
        self.assertEqual([check["name"] for check in report["checks"]], NAMES)
        for check in report["checks"]:
            self.assertTrue(check["detail"], check)
            self.assertIn(check["pass"], (True, False, None))
        self.assertIs(report["pass"], all(check["pass"] is not False for check in report["checks"]))
        self.assertIs(report["pass"], code == 0)
        self.check_junit(junit, report)
        return {check["name"]: check for check in report["checks"]}

    def check_junit(self, path, report):
        root = xml.etree.ElementTree.parse(path).getroot()
        self.assertEqual(root.tag, "testsuites")
        (suite,) = root
        cases = {case.get("name"): case for case in suite}
        self.assertEqual(list(cases), NAMES)
        verdicts = {"failure": False, "skipped": None}
        for check in report["checks"]:
            found = [verdicts[part.tag] for part in cases[check["name"]] if part.tag in verdicts]
            self.assertEqual(found, [] if check["pass"] else [check["pass"]], check["name"])
        for element in (root, suite):
            self.assertEqual(int(element.get("tests")), len(NAMES))
            self.assertEqual(int(element.get("failures")), sum(check["pass"] is False for check in report["checks"]))
            self.assertEqual(int(element.get("skipped")), sum(check["pass"] is None for check in report["checks"]))

    def assert_all_pass(self, checks):
        self.assertEqual({name: check["detail"] for name, check in checks.items() if check["pass"] is not True}, {})


class Passes(VerifyTest):
    def test_with_the_built_in_prompts_and_policy(self):
        self.assert_all_pass(self.verify())

    def test_with_what_the_user_gives(self):
        prompts = self.write("prompt.txt", "the order\n")
        checks = self.verify("--context", CONTEXT, "--prompt", "hello", "--prompt-file", prompts, "--dtype", "bfloat16")
        self.assert_all_pass(checks)
        self.assertEqual(len(checks["boundary"]["lines"]), 2)

    def test_in_every_kernel_set(self):
        for isa in cli.kernel_sets():
            done = self.start("verify", "--model", self.model, "--context", CONTEXT, "--prompt", "hello", "--json", isa=isa)
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            self.assertEqual(json.loads(done.stdout)["kernel_set"], isa)

    def test_with_a_saved_context(self):
        saved = self.folder / "saved.safetensors"
        self.ok("save", "--model", self.model, "--context", CONTEXT, "--out", saved)
        self.assert_all_pass(self.verify("--load", saved, "--prompt", "hello"))

    def test_with_a_saved_context_that_continues_another(self):
        parent, child = self.folder / "parent.safetensors", self.folder / "child.safetensors"
        long = " ".join([CONTEXT] * 30)  # of more than one block: what is shared is not in the child's file
        self.ok("save", "--model", self.model, "--context", long, "--out", parent)
        more = self.write("more.json", json.dumps([{"role": "user", "content": "hello"}, {"role": "assistant", "content": "the order"}]))
        self.ok("save", "--model", self.model, "--load", parent, "--messages", more, "--out", child)
        self.assertLess(child.stat().st_size, parent.stat().st_size)
        self.assert_all_pass(self.verify("--load", child, "--prompt", "hello"))

    def test_in_a_small_context_limit(self):
        model = self.checkpoint(max_position_embeddings=96)
        checks = self.verify("--context", CONTEXT, "--prompt", "hello", "--max-new-tokens", 4, model=model)
        self.assertIn("96", checks["limit"]["detail"])
        self.assertIs(checks["limit"]["pass"], True)
        self.assertIsNot(checks["fork_cost"]["pass"], False)

    def test_on_the_terminal(self):
        output = self.ok("verify", "--model", self.model, "--context", CONTEXT, "--prompt", "hello")
        for name in NAMES:
            self.assertRegex(output, rf"(?m)^pass  {name} ")
        self.assertIn("12 passed, 0 failed, 0 not run", output)


class Fails(VerifyTest):
    def test_a_template_that_breaks_the_boundary_for_some_prompts(self):
        model = self.checkpoint(template=BREAKING)
        checks = self.verify("--context", CONTEXT, "--prompt", "hello", "--prompt", "fix it", code=3, model=model)
        self.assertIs(checks["boundary"]["pass"], False)
        self.assertRegex(checks["boundary"]["detail"], r"position \d+ the context has id \d+ .* the request has id \d+")
        self.assertEqual([name for name in NAMES if checks[name]["pass"] is False], ["boundary"])
        done = self.start("verify", "--model", model, "--context", CONTEXT, "--prompt", "fix it")
        self.assertEqual(done.returncode, 3)
        self.assertRegex(done.stdout.decode(), r"(?m)^FAIL  boundary ")
        self.assertRegex(done.stderr.decode(), r"^kvfork: error: verify: failed: boundary")

    def test_a_template_that_renders_nothing_before_a_request(self):
        template = "{% if messages|length > 1 %}" + TEMPLATE + "{% endif %}"
        checks = self.verify("--context", CONTEXT, "--prompt", "hello", code=3, model=self.checkpoint(template=template))
        self.assertEqual([name for name in NAMES if checks[name]["pass"] is None], NAMES[1:])


class Refuses(VerifyTest):
    def test_what_run_refuses_before_any_work(self):
        self.fails(1, "verify", "--model", self.folder / "nothing", says="nothing")
        self.fails(2, "verify", "--model", self.model, "--max-new-tokens", 0)
        self.fails(1, "verify", "--model", self.checkpoint(template="{{ raise_exception('no system') }}"), says="no system")

    def test_a_junit_file_that_cannot_be_written(self):
        done = self.start("verify", "--model", self.model, "--context", CONTEXT, "--prompt", "hello", "--junit", "/nothing/here.xml")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nothing/here.xml", done.stderr.decode())

    def test_a_damaged_saved_context(self):
        saved = self.folder / "damaged.safetensors"
        self.ok("save", "--model", self.model, "--context", CONTEXT, "--out", saved)
        data = bytearray(saved.read_bytes())
        data[len(data) // 2] ^= 1
        saved.write_bytes(data)
        self.fails(1, "verify", "--model", self.model, "--load", saved, says="damaged.safetensors")

    def test_a_saved_context_of_a_fine_tune(self):
        saved = self.folder / "other.safetensors"
        self.ok("save", "--model", self.model, "--context", CONTEXT, "--out", saved)
        model = self.checkpoint()
        tensors = read_safetensors(model / "model.safetensors")
        dtype, shape, data = tensors["model.norm.weight"]
        tensors["model.norm.weight"] = (dtype, shape, bytes([data[0] ^ 1]) + data[1:])
        (model / "model.safetensors").write_bytes(safetensors_bytes(tensors))
        self.fails(1, "verify", "--model", model, "--load", saved, says="weights")


if __name__ == "__main__":
    cli.main()
