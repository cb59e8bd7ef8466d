"""Contexts on top of contexts: a policy that all share, a record for one customer, questions on top of both. The twin of nested.cc.

    python nested.py MODEL DIRECTORY
"""

import pathlib
import sys

import kvfork


def main(name: str, directory: str) -> int:
    folder = pathlib.Path(directory)
    model = kvfork.Model.from_pretrained(name)
    policy = model.prefill(text="Policy: goods may be returned within 30 days.\n")
    record = policy.extend(text="Customer: Ada, order 1815, one tent, delivered on Monday.\n")  # shares the policy's memory
    policy.save(folder / "policy.kv")
    record.save(folder / "record.kv")  # its own part, which names the policy
    opened = model.open_context(folder / "record.kv")

    question = "Question: until when may Ada return the tent?\nAnswer:"
    before, after = (context.generate(question, max_new_tokens=16) for context in (record, opened))
    is_equal = before == after and record.hash() == opened.hash()
    print(f"policy {len(policy)} tokens, with the record {len(record)}")
    print(f"before saving:{before.text}\nafter opening:{after.text}\n{'equal' if is_equal else 'DIFFERENT'}")
    return 0 if is_equal else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
