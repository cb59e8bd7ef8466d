"""llama.cpp as a worker (peers_worker.py), through the C interface of llama-cpp-python: peers_llamacpp.py GGUF flash|plain THREADS

Every context lies in a llama_context of its own, so that attention reads no cells of another; a fork is a sequence copy. Keys
and values are float16, its default.
"""

import ctypes
import sys
import time

import llama_cpp as lib
import numpy

import peers_worker

SEQUENCES = 17  # the context's own and 16 forks
ROOM = 1024     # cells beyond the context's


class Cells:
    """A llama_context with sequences in it."""

    def __init__(self, engine, n_cells):
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_seq_max, params.kv_unified = n_cells, SEQUENCES, True
        params.n_batch, params.n_ubatch = 4096, 512
        params.n_threads = params.n_threads_batch = engine.threads
        params.flash_attn_type = engine.flash
        params.no_perf = True
        self.vocab = engine.vocab
        self.llama = lib.llama_init_from_model(engine.model, params)
        assert self.llama, "llama_init_from_model failed"
        self.memory = lib.llama_get_memory(self.llama)
        self.batch = lib.llama_batch_init(4096, 0, 1)
        self.ids = []

    def run(self, rows):
        """rows of (id, position, sequence, wants logits)"""
        batch = self.batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wants) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, wants
            batch.seq_id[i][0] = sequence
        found = lib.llama_decode(self.llama, batch)
        assert found == 0, f"llama_decode returned {found}"

    def append(self, ids, position, sequence):
        self.run([(token, position + i, sequence, i == len(ids) - 1) for i, token in enumerate(ids)])
        return self.logits(len(ids) - 1)

    def logits(self, row):
        address = lib.llama_get_logits_ith(self.llama, row)
        return numpy.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (self.vocab,))

    def fork(self, sequence):
        lib.llama_memory_seq_cp(self.memory, 0, sequence, -1, -1)

    def drop(self, sequence):
        lib.llama_memory_seq_rm(self.memory, sequence, -1, -1)


class LlamaCpp:
    def __init__(self, path, attention, threads):
        self.threads = threads
        self.flash = lib.LLAMA_FLASH_ATTN_TYPE_ENABLED if attention == "flash" else lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
        lib.llama_log_set(silent, None)
        lib.llama_backend_init()
        params = lib.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = lib.llama_model_load_from_file(path.encode(), params)
        assert self.model, f"cannot load {path}"
        self.vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        self.contexts = {"": Cells(self, 4096 + ROOM)}  # without a name: empty between calls

    def about(self):
        return {"version": f"llama-cpp-python {lib.__version__}", "system": lib.llama_print_system_info().decode()}

    def prefill(self, ids):
        started = time.perf_counter()
        self.contexts[""].append(ids, 0, 0)
        ms = peers_worker.milliseconds_since(started)
        self.contexts[""].drop(0)
        return {"ms": ms}

    def context(self, context, ids):
        if context not in self.contexts:
            self.contexts[context] = Cells(self, (len(ids) + ROOM + 255) // 256 * 256)
        cells = self.contexts[context]
        for sequence in range(SEQUENCES):
            cells.drop(sequence)
        cells.append(ids, 0, 0)
        cells.ids = ids
        return {}

    def decode(self, context, ids, new):
        cells = self.contexts[context]
        cells.fork(1)
        logits = cells.append(ids, len(cells.ids), 1)
        picked, ms = self.steps(cells, logits, len(cells.ids) + len(ids), 1, new)
        cells.drop(1)
        return {"ms": ms, "ids": picked}

    @staticmethod
    def steps(cells, logits, position, sequence, new):
        """Greedy steps of one sequence: (ids, median milliseconds)."""
        state = {"logits": logits, "position": position}

        def step():
            token = int(state["logits"].argmax())
            state["logits"] = cells.append([token], state["position"], sequence)
            state["position"] += 1
            return token

        return peers_worker.timed_steps(step, new)

    def hit(self, context, ids):
        cells = self.contexts[context]
        started = time.perf_counter()
        cells.fork(1)
        first = int(cells.append(ids, len(cells.ids), 1).argmax())
        ms = peers_worker.milliseconds_since(started)
        cells.drop(1)
        return {"ms": ms, "id": first}

    def fork(self, context):
        cells = self.contexts[context]
        times = []
        for _ in range(20):
            times.append(peers_worker.timed_steps(lambda: cells.fork(1), 1)[1])
            cells.drop(1)
        return {"ms": sorted(times)[10]}

    def together(self, context, ids, new):
        cells = self.contexts[context]
        sequences = range(1, 1 + len(ids))
        for sequence in sequences:
            cells.fork(sequence)
        state = {"ids": ids, "position": len(cells.ids)}

        def step():
            cells.run([(token, state["position"], sequence, True) for token, sequence in zip(state["ids"], sequences)])
            state["position"] += 1
            state["ids"] = [int(cells.logits(row).argmax()) for row in range(len(ids))]

        step()
        _, ms = peers_worker.timed_steps(step, new)
        for sequence in sequences:
            cells.drop(sequence)
        return {"per_s": 1e3 * len(ids) / ms}

    def compare(self, context, ids, new):
        cells, apart = self.contexts[context], self.contexts[""]
        position = len(cells.ids) + len(ids)
        cells.fork(1)
        hit = cells.append(ids, len(cells.ids), 1).copy()
        miss = apart.append(cells.ids + ids, 0, 0).copy()
        hit_ids, _ = self.steps(cells, hit, position, 1, new)
        miss_ids, _ = self.steps(apart, miss, position, 0, new)
        cells.drop(1)
        apart.drop(0)
        return {"max_difference": float(abs(hit - miss).max()), "bits_differ": hit.tobytes() != miss.tobytes(),
                "hit_ids": hit_ids, "miss_ids": miss_ids}


@lib.llama_log_callback
def silent(level, text, data):
    pass


if __name__ == "__main__":
    peers_worker.serve(lambda: LlamaCpp(sys.argv[1], sys.argv[2], int(sys.argv[3])))
