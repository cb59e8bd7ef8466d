"""`kvfork score --in`: lines of requests, scored as a tree, with the figures that each has alone."""

import json
import math

import cli
from tiny_checkpoint import VOCAB_SIZE


class ScoreRequests(cli.CliTest):
    def lines(self, requests, *arguments, code=0):
        path = self.write("in.jsonl", "".join(json.dumps(request) + "\n" for request in requests))
        done = self.start("score", "--model", self.model, "--in", path, *arguments)
        self.assertEqual(done.returncode, code, done.stderr)
        return [json.loads(line) for line in done.stdout.decode().splitlines()]

    def test_figures_are_those_of_each_text_alone(self):
        shared = [(i * 7) % VOCAB_SIZE for i in range(30)]
        requests = [{"id": f"r{i}", "context": shared + [i], "continuation": [5, i, 3]} for i in range(6)]
        requests.append({"context": shared, "continuations": [[1], [1, 2], [2]]})
        answers = self.lines(requests)
        for request, answer in zip(requests[:6], answers):
            ids = request["context"] + request["continuation"]
            positions = self.json("score", "--model", self.model, "--ids", ",".join(map(str, ids)))["positions"]
            logprobs = [position["logprob"] for position in positions[-3:]]
            self.assertEqual(answer["id"], request["id"])
            self.assertEqual(answer["ids"], request["continuation"])
            for found, expected in zip(answer["logprobs"], logprobs, strict=True):
                self.assertTrue(math.isclose(found, expected, abs_tol=1e-5))
            self.assertEqual(answer["is_greedy"], all(position["top"][0]["id"] == position["id"] for position in positions[-3:]))
            self.assertEqual(self.lines([request]), [answer])  # to the last digit
        self.assertEqual(answers[6]["id"], 6)
        self.assertEqual([score["ids"] for score in answers[6]["scores"]], [[1], [1, 2], [2]])
        self.assertEqual(answers[6]["scores"][0]["logprobs"][0], answers[6]["scores"][1]["logprobs"][0])

    def test_texts_are_tokenized_as_one(self):
        answer, = self.lines([{"context": "Once upon", "continuation": " a time"}])
        whole = self.json("tokenize", "--model", self.model, "--text", "Once upon a time")["ids"]
        self.assertEqual(answer["ids"], whole[len(whole) - len(answer["ids"]):])
        self.assertTrue(answer["ids"])

    def test_lines_with_errors_are_answered_and_touch_no_other(self):
        good = {"context": [1, 2], "continuation": [3]}
        answers = self.lines([good, {"context": [1]}, {"context": [1], "continuation": [VOCAB_SIZE]}, {"continuation": [1]}, 5,
                              {"context": [1], "continuations": []}, {"context": [1], "continuations": [[2], {}]}, good], code=1)
        self.assertEqual([sorted(answer) == ["error", "id"] for answer in answers], [False] + [True] * 6 + [False])
        self.assertEqual(answers[0]["logprobs"], answers[7]["logprobs"])

    def test_other_inputs_exclude_it(self):
        path = self.write("in.jsonl", "")
        self.fails(2, "score", "--model", self.model, "--in", path, "--text", "a")
        self.fails(2, "score", "--model", self.model, "--in", path, "--logits", self.folder / "l")


if __name__ == "__main__":
    cli.main()
