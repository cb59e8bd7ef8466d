"""`kvfork bench`: the figures as JSON and as a table, and the HTML report, which must need nothing but itself."""

import html.parser
import json
import re
import xml.etree.ElementTree

import cli

CONTEXT = "hello the order"


class Page(html.parser.HTMLParser):
    """The tags of a page; every one that is not void must be closed in order."""
    VOID = {"meta", "link", "br"}

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes = [], [], []
        self.feed(text)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, (tag, self.getpos())


class BenchTest(cli.CliTest):
    def bench(self, *arguments):
        return self.json("bench", "--model", self.model, "--context", CONTEXT, "--prompt", "hello", "--repeats", 2, *arguments)


class Figures(BenchTest):
    def test_has_every_length_and_what_was_measured(self):
        report = self.bench("--prefix-lengths", "100,40", "--max-new-tokens", 4)
        self.assertEqual([row["prefix_tokens"] for row in report["rows"]], [40, 100])
        self.assertIs(report["parity"], True)
        self.assertEqual((report["new_tokens"], report["repeats"]), (4, 2))
        for row in report["rows"]:
            for name in ("prefill_ms", "fork_ms", "copy_ms", "ttft_cached_ms", "ttft_uncached_ms", "decode_ms_per_token",
                         "total_cached_ms", "total_uncached_ms"):
                self.assertLessEqual(row[name]["min"], row[name]["median"], name)
                self.assertLessEqual(row[name]["median"], row[name]["max"], name)
                self.assertGreater(row[name]["max"], 0, name)
            self.assertAlmostEqual(row["speedup"], row["ttft_uncached_ms"]["median"] / row["ttft_cached_ms"]["median"])
            saved = row["total_uncached_ms"]["median"] - row["total_cached_ms"]["median"]
            if saved > 0:
                n = row["break_even_requests"]
                self.assertLess(row["prefill_ms"]["median"], n * saved)
                self.assertGreaterEqual(row["prefill_ms"]["median"] * (1 + 1e-9), (n - 1) * saved)
            else:
                self.assertIsNone(row["break_even_requests"])
        environment = report["environment"]
        for name in ("cpu", "cores", "memory_bytes", "system", "started", "load_before", "load_after"):
            self.assertTrue(environment[name] is not None and environment[name] != "", name)

    def test_the_usual_lengths_are_those_that_fit_and_the_fixed_part(self):
        rows = self.bench()["rows"]
        lengths = [row["prefix_tokens"] for row in rows]
        self.assertEqual([length for length in lengths if length > 100], [128, 512, 1024])
        self.assertEqual([row["prefix_tokens"] for row in rows if row["is_context"]], lengths[:1])

    def test_one_new_token_has_no_decode_rate(self):
        (row,) = self.bench("--prefix-lengths", 50, "--max-new-tokens", 1)["rows"]
        self.assertIsNone(row["decode_ms_per_token"])

    def test_a_saved_context_is_measured_as_it_is(self):
        saved = self.folder / "saved.safetensors"
        self.ok("save", "--model", self.model, "--context", CONTEXT, "--out", saved)
        rows = self.json("bench", "--model", self.model, "--load", saved, "--prompt", "hello", "--repeats", 1)["rows"]
        self.assertTrue(any(row["is_context"] for row in rows))

    def test_on_the_terminal(self):
        output = self.ok("bench", "--model", self.model, "--context", CONTEXT, "--prompt", "hello", "--repeats", 1)
        self.assertIn("parity", output)
        self.assertRegex(output, r"(?m)^ +128 .* \d+(\.\d)?x ")

    def test_lengths_that_cannot_be(self):
        arguments = ["bench", "--model", self.model, "--context", CONTEXT, "--prompt", "hello", "--prefix-lengths"]
        self.fails(1, *arguments, "9999", says=["context limit", "9999"])
        self.fails(2, *arguments, "0")
        self.fails(2, *arguments, "many")
        self.fails(2, *arguments[:-1], "--repeats", 0)


class Html(BenchTest):
    def page(self, *arguments):
        path = self.write("report.html", b"")
        report = self.bench("--html", path, *arguments)
        return report, path.read_text(encoding="utf-8")

    def test_is_one_page_that_needs_nothing_else(self):
        _, text = self.page()
        page = Page(text)
        self.assertTrue(text.startswith("<!doctype html>"))
        self.assertFalse({"script", "img", "iframe", "object", "embed", "audio", "video"} & set(page.tags))
        self.assertFalse([value for name, value in page.attributes if name in ("src", "href", "xlink:href") and value != "data:,"])
        self.assertNotRegex(text, r"https?:|url\(|@import|//[a-z]")
        for needed in ("prefers-color-scheme: dark", "@media print", "name=\"viewport\"", "default-src 'none'"):
            self.assertIn(needed, text)

    def test_shows_the_figures_of_the_json(self):
        report, text = self.page("--prefix-lengths", "40,100,300")
        for row in report["rows"]:
            self.assertIn(f"<td>{row['prefix_tokens']}", text)
            self.assertIn(f"<td>{row['speedup']:.1f}\u00d7</td>", text)
        for name in ("cpu", "system", "started"):
            self.assertIn(report["environment"][name], text)

    def test_plots_lie_within_their_frame(self):
        for lengths in ("40,100,300", "100"):
            _, text = self.page("--prefix-lengths", lengths)
            svgs = re.findall(r"<svg.*?</svg>", text, re.S)
            self.assertEqual(len(svgs), 4)
            for svg in svgs:
                root = xml.etree.ElementTree.fromstring(svg)
                _, _, width, height = map(float, root.get("viewBox").split())
                marks = [e for e in root.iter() if "mark " in (e.get("class") or "")]
                self.assertGreaterEqual(len(marks), 1)
                for element in root.iter():
                    for name, value in element.attrib.items():
                        if name in ("x", "x1", "x2", "cx"):
                            self.assertTrue(0 <= float(value) <= width, (name, value))
                        if name in ("y", "y1", "y2", "cy"):
                            self.assertTrue(0 <= float(value) <= height, (name, value))

    def test_words_of_the_user_are_text_and_no_markup(self):
        prompt = "hello <script>alert('\"x')</script> & \u4e2d"
        path = self.write("report.html", b"")
        self.json("bench", "--model", self.model, "--context", CONTEXT, "--prompt", prompt, "--repeats", 1, "--html", path)
        text = path.read_text(encoding="utf-8")
        self.assertNotIn("script", Page(text).tags)
        self.assertIn("&lt;script&gt;", text)
        self.assertIn("\u4e2d", text)

    def test_a_place_that_cannot_be_written_to(self):
        self.fails(1, "bench", "--model", self.model, "--context", CONTEXT, "--prompt", "hello", "--repeats", 1, "--html",
                   "/nothing/report.html", says="/nothing/report.html")


if __name__ == "__main__":
    cli.main()
