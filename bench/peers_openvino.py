"""OpenVINO GenAI as a worker (peers_worker.py): peers_openvino.py IR_FOLDER bf16|f32 THREADS

Its continuous-batching pipeline with prefix caching, driven by token ids, keys and values in the compute precision. A context
is what its cache has kept of an earlier request; there is no fork to time, and no logits to compare but those of picked ids.
"""

import sys
import time

import numpy
import openvino
import openvino_genai

import peers_worker

CACHE_GB = 1
BATCHED_TOKENS = 512  # per step, as kvfork and llama.cpp take them


class OpenVino:
    def __init__(self, folder, precision, threads):
        self.folder, self.precision, self.threads = folder, precision, threads
        self.pipeline = self.open(prefix_caching=True)
        self.contexts = {"": []}
        self.n_requests = 0

    def open(self, prefix_caching):
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = CACHE_GB
        scheduler.enable_prefix_caching = prefix_caching
        scheduler.max_num_batched_tokens = BATCHED_TOKENS
        return openvino_genai.ContinuousBatchingPipeline(self.folder, scheduler, "CPU", {
            "INFERENCE_PRECISION_HINT": self.precision, "KV_CACHE_PRECISION": self.precision,
            "INFERENCE_NUM_THREADS": self.threads})

    def about(self):
        return {"version": f"openvino {openvino.__version__}, openvino-genai {openvino_genai.__version__}"}

    def start(self, ids, new, pipeline=None):
        """The handle must be kept: a request without one is cancelled."""
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample, config.logprobs = new, True, False, 1
        self.n_requests += 1
        return (pipeline or self.pipeline).add_request(self.n_requests, openvino.Tensor(numpy.array([ids], dtype=numpy.int64)), config)

    def to_first_token(self, handles):
        while not all(handle.can_read() for handle in handles):
            self.pipeline.step()

    def finish(self, handle, pipeline=None):
        while (pipeline or self.pipeline).has_non_finished_requests():
            (pipeline or self.pipeline).step()
        (output,) = handle.read_all()
        return output

    def first_token(self, ids):
        """Milliseconds from ids to their first token."""
        started = time.perf_counter()
        handle = self.start(ids, 1)
        self.to_first_token([handle])
        ms = peers_worker.milliseconds_since(started)
        return ms, self.finish(handle).generated_ids[0]

    def touch(self, context):
        """Its blocks are in the cache afterwards, whatever was dropped for others."""
        if context:
            self.first_token(self.contexts[context] + [0])
        return self.contexts[context]

    def prefill(self, ids):
        return {"ms": self.first_token(ids)[0]}

    def context(self, context, ids):
        self.contexts[context] = ids
        self.touch(context)
        return {}

    def decode(self, context, ids, new):
        handle = self.start(self.touch(context) + ids, new + 1)
        self.to_first_token([handle])
        _, ms = peers_worker.timed_steps(self.pipeline.step, new)
        return {"ms": ms, "ids": list(self.finish(handle).generated_ids)}

    def hit(self, context, ids):
        ms, first = self.first_token(self.touch(context) + ids)
        return {"ms": ms, "id": first}

    def fork(self, context):
        raise peers_worker.Unable("no operation of its own: blocks are looked up as a request is scheduled")

    def together(self, context, ids, new):
        shared = self.touch(context)
        handles = [self.start(shared + [token], new + 1) for token in ids]
        self.to_first_token(handles)
        _, ms = peers_worker.timed_steps(self.pipeline.step, new - 1)
        for handle in handles:
            self.finish(handle)
        return {"per_s": 1e3 * len(ids) / ms}

    def compare(self, context, ids, new):
        whole = self.touch(context) + ids
        hit = self.finish(self.start(whole, new))
        apart = self.open(prefix_caching=False)
        miss = self.finish(self.start(whole, new, apart), apart)
        same = [a == b for a, b in zip(hit.generated_ids, miss.generated_ids)]
        n_same = same.index(False) if False in same else len(same)
        pairs = list(zip(hit.generated_log_probs, miss.generated_log_probs))[:n_same]
        return {"max_difference": max((abs(a - b) for a, b in pairs), default=None), "bits_differ": any(a != b for a, b in pairs),
                "of": "log-probabilities of picked ids, while these are the same",
                "hit_ids": list(hit.generated_ids), "miss_ids": list(miss.generated_ids)}


if __name__ == "__main__":
    peers_worker.serve(lambda: OpenVino(sys.argv[1], sys.argv[2], int(sys.argv[3])))
