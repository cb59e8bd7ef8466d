"""An installed kvfork: a project outside builds against it with find_package, its programs and the tool run, and man pages and
completion know every option.

Usage: install_test.py SOURCE_DIR BUILD_DIR CXX_COMPILER
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD, COMPILER = pathlib.Path(sys.argv.pop(1)), pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1)
SKIPPED = 77
MODEL = SOURCE / "tests" / "golden" / "checkpoints" / "qwen2-bf16-tied"


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls._temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls._temporary.name)
        cls.prefix = cls.folder / "prefix"
        run("cmake", "--install", BUILD, "--prefix", cls.prefix)
        cls.tool = cls.prefix / "bin" / "kvfork"

    @classmethod
    def tearDownClass(cls):
        cls._temporary.cleanup()

    def commands(self):
        part = run(self.tool, "--help").split("Subcommands:")[1]
        return re.findall(r"(?m)^  ([a-z]+) ", part)

    def options_of(self, command):
        # An option's own line begins with two spaces; words on it that exclude other options come later.
        return sorted(set(re.findall(r"(?m)^  (?:-\w,)?(--[a-z][a-z-]*)", run(self.tool, command, "--help"))) - {"--help"})

    def test_the_tool_runs(self):
        self.assertRegex(run(self.tool, "--version"), r"^kvfork \d+\.\d+\.\d+")

    def test_headers_are_all_there_and_no_others(self):
        installed = sorted(path.name for path in (self.prefix / "include" / "kvfork").iterdir())
        self.assertEqual(installed, sorted(path.name for path in (SOURCE / "include" / "kvfork").glob("*.h")))

    def test_a_project_outside_builds_and_its_programs_run(self):
        project = self.folder / "outside"
        shutil.copytree(SOURCE / "examples", project)
        build = self.folder / "build"
        launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        run("cmake", "-G", "Ninja", "-S", project, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DCMAKE_CXX_COMPILER={COMPILER}",
            "-DCMAKE_BUILD_TYPE=Release", *launcher)
        cache = (build / "CMakeCache.txt").read_text()
        self.assertIn(f"kvfork_DIR:PATH={self.prefix}", cache)
        run("cmake", "--build", build, "--parallel", "2")

        output = run(build / "example_answer", MODEL, "When?", "How?")
        self.assertRegex(output, r"context of \d+ tokens")
        self.assertEqual(output.count("> "), 2)
        self.assertTrue(run(build / "example_nested", MODEL, self.folder).rstrip().endswith("\nequal"))
        output = run(build / "example_batch", MODEL)
        self.assertEqual(output.count("(as alone)"), 4)
        self.assertIn("at most 3 at once", output)

    def test_another_version_is_not_taken(self):
        project = self.folder / "future"
        project.mkdir()
        (project / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(future LANGUAGES CXX)\n"
                                                "find_package(kvfork 99 REQUIRED)\n")
        done = subprocess.run(["cmake", "-G", "Ninja", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}",
                               f"-DCMAKE_CXX_COMPILER={COMPILER}"], capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("99", done.stderr)

    def test_man_pages_name_every_command_and_option(self):
        pages = self.prefix / "share" / "man" / "man1"
        text = (pages / "kvfork.1").read_text().replace("\\-", "-")
        shared = re.findall(r"(?m)^\.BI? (--[a-z][a-z-]*)", text)
        commands = self.commands()
        self.assertGreater(len(commands), 6)
        for command in commands:
            self.assertIn(f"kvfork-{command}", text)
            page = (pages / f"kvfork-{command}.1").read_text().replace("\\-", "-")
            described = sorted(set(re.findall(r"(?m)^\.BI? (--[a-z][a-z-]*)", page)))
            for option in self.options_of(command):
                self.assertTrue(option in described or option in shared, f"kvfork-{command}.1 lacks {option}")
            for option in described:
                self.assertIn(option, self.options_of(command), f"kvfork-{command}.1")
        self.assertEqual(sorted(path.name for path in pages.iterdir()),
                         sorted(["kvfork.1", *(f"kvfork-{command}.1" for command in commands)]))

    def test_man_pages_are_well_formed(self):
        if shutil.which("mandoc") is None and shutil.which("man") is None:
            self.skipTest("neither mandoc nor man is here")
        for page in (self.prefix / "share" / "man" / "man1").iterdir():
            command = ["mandoc", "-T", "lint", "-W", "warning", page] if shutil.which("mandoc") else ["man", "--warnings", "-l", page]
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""), f"{page}: {done.stdout}")

    def complete(self, line):
        """What bash offers for the last word of a line."""
        script = self.prefix / "share" / "bash-completion" / "completions" / "kvfork"
        words = line.split(" ")
        program = (f'source {script}; COMP_WORDS=({" ".join(repr(word) for word in words)}); COMP_CWORD={len(words) - 1}; '
                   'COMPREPLY=(); _kvfork; printf "%s\\n" "${COMPREPLY[@]}"')
        environment = {"PATH": f"{self.tool.parent}:/usr/bin:/bin"}
        return run("bash", "-c", program, env=environment, cwd=self.folder).split()

    def test_bash_completes_commands_options_and_values(self):
        self.assertEqual(sorted(self.complete("kvfork ")), sorted(self.commands()))
        self.assertEqual(self.complete("kvfork ver"), ["verify"])
        for command in self.commands():
            self.assertEqual(sorted(self.complete(f"kvfork {command} --")), sorted([*self.options_of(command), "--help"]))
        self.assertEqual(self.complete("kvfork run --dtype b"), ["bfloat16"])
        self.assertEqual(sorted(self.complete("kvfork run --boundary ")), ["longest", "message", "probe"])
        (self.folder / "some-model").mkdir(exist_ok=True)
        self.assertEqual(self.complete("kvfork run --model some-m"), ["some-model"])

    def test_zsh_completes_the_same(self):
        script = self.prefix / "share" / "zsh" / "site-functions" / "_kvfork"
        self.assertTrue(script.read_text().startswith("#compdef kvfork"))
        if shutil.which("zsh"):
            run("zsh", "-n", script)


if __name__ == "__main__":
    if re.search(r"(?m)^KVFORK_SANITIZE:\w+=.", (BUILD / "CMakeCache.txt").read_text()):
        print("a library with sanitizers links only into programs with them")
        sys.exit(SKIPPED)
    unittest.main(verbosity=0)
