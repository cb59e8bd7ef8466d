"""Many requests over one context, decoded together. Each answer has the bits that its request has alone. The twin of batch.cc.

    python batch.py MODEL
"""

import sys

import kvfork

THINGS = ["a tent", "a stove", "a lamp", "a sleeping bag for the cold"]


def main(name: str) -> int:
    context = kvfork.Model.from_pretrained(name).prefill(system="You write short product names.")
    requests = [{"prompt": thing, "temperature": 0.8, "top_p": 0.95, "seed": 1 + i} for i, thing in enumerate(THINGS)]
    answers = context.generate_batch(requests, max_new_tokens=12, width=3)
    alone = [context.generate(**request, max_new_tokens=12) for request in requests]
    for answer, other in zip(answers, alone):
        print(answer.text, "  (as alone)" if answer == other else "  (NOT as alone)")
    return 0 if answers == alone else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
