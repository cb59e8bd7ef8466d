"""Transformers as a worker (peers_worker.py): peers_transformers.py MODEL DTYPE THREADS

It uses what Transformers does best on a CPU: sdpa attention, logits of the last position alone, inference mode. A fork is a
deep copy of a DynamicCache.
"""

import copy
import sys
import time

import torch
import transformers

import peers_worker


class Transformers:
    def __init__(self, path, dtype, threads):
        torch.set_num_threads(threads)
        transformers.utils.logging.disable_progress_bar()
        self.model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=dtype, attn_implementation="sdpa").eval()
        self.contexts = {"": ([], None)}  # ids and cache by name

    def about(self):
        return {"version": f"transformers {transformers.__version__}, torch {torch.__version__}"}

    def run(self, ids, cache=None):
        """ids [batch, n] -> (logits [batch, vocab], cache)"""
        out = self.model(torch.tensor(ids), past_key_values=cache, use_cache=True, logits_to_keep=1)
        return out.logits[:, -1], out.past_key_values

    def forked(self, context):
        return copy.deepcopy(self.contexts[context][1])

    def prefill(self, ids):
        started = time.perf_counter()
        self.run([ids])
        return {"ms": peers_worker.milliseconds_since(started)}

    def context(self, context, ids):
        self.contexts[context] = (ids, self.run([ids])[1])
        return {}

    def decode(self, context, ids, new):
        picked, ms = self.steps(*self.run([ids], self.forked(context)), new)
        return {"ms": ms, "ids": [row[0] for row in picked]}

    def steps(self, logits, cache, new):
        """Greedy steps of a batch: (ids [new, batch], median milliseconds)."""
        state = {"logits": logits, "cache": cache}

        def step():
            ids = state["logits"].argmax(-1, keepdim=True).tolist()
            state["logits"], state["cache"] = self.run(ids, state["cache"])
            return [row[0] for row in ids]

        return peers_worker.timed_steps(step, new)

    def hit(self, context, ids):
        started = time.perf_counter()
        logits, _ = self.run([ids], self.forked(context))
        first = int(logits.argmax(-1))
        return {"ms": peers_worker.milliseconds_since(started), "id": first}

    def fork(self, context):
        return {"ms": peers_worker.timed_steps(lambda: self.forked(context) and None, 5)[1]}

    def together(self, context, ids, new):
        cache = self.forked(context)
        cache.batch_repeat_interleave(len(ids))
        _, ms = self.steps(*self.run([[i] for i in ids], cache), new)
        return {"per_s": 1e3 * len(ids) / ms}

    def compare(self, context, ids, new):
        hit, hit_cache = self.run([ids], self.forked(context))
        miss, miss_cache = self.run([self.contexts[context][0] + ids])
        answers = [[row[0] for row in self.steps(logits, cache, new)[0]] for logits, cache in ((hit, hit_cache), (miss, miss_cache))]
        return {"max_difference": float((hit.float() - miss.float()).abs().max()), "bits_differ": not torch.equal(hit, miss),
                "hit_ids": answers[0], "miss_ids": answers[1]}


if __name__ == "__main__":
    with torch.inference_mode():
        peers_worker.serve(lambda: Transformers(sys.argv[1], getattr(torch, sys.argv[2]), int(sys.argv[3])))
