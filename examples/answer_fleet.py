"""Questions from a JSONL file, answered on all machines of a Ray cluster from one saved context.

    python answer_fleet.py MODEL CONTEXT.kv REQUESTS.jsonl ANSWERS_FOLDER [ACTORS]

Lines have the form of `kvfork batch`: {"id": 1, "prompt": "..."}. The answers are JSONL files in the folder.
"""

import sys

import ray

import kvfork.ray


def main(model: str, context: str, requests: str, answers: str, actors: int = 2) -> None:
    ray.init(ignore_reinit_error=True)  # actors take a core each; the reading of files needs one more
    rows = ray.data.read_json(requests)
    answered = rows.map_batches(kvfork.ray.Answerer, batch_size=64, concurrency=actors, num_cpus=1,
                                fn_constructor_kwargs={"model": model, "context": context, "num_threads": 1, "max_new_tokens": 32})
    answered.write_json(answers)


if __name__ == "__main__":
    main(*sys.argv[1:5], *map(int, sys.argv[5:]))
