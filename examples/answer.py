"""The main job: a fixed context is run once, and every question starts from it. The twin of answer.cc.

    python answer.py MODEL QUESTION [QUESTION ...]
"""

import sys

import kvfork

POLICY = ("You answer questions about orders. Returns: 30 days, unused, with the order number. Damage: report it within 14 days with a "
          "photo. Be brief, and never guess.")


def main(name: str, *questions: str) -> None:
    model = kvfork.Model.from_pretrained(name)
    context = model.prefill(system=POLICY)
    print(f"context of {len(context)} tokens\n")
    for question in questions:
        print(f"> {question}")
        for piece in context.stream(question, max_new_tokens=40):
            print(piece, end="", flush=True)
        print("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
