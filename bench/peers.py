"""kvfork against its peers in one interleaved run; start it through bench/peers.

Every engine holds the same random bf16 checkpoint of Qwen2-0.5B's shape in a process of its own and is asked in turn, round by
round, with the same token ids, so that a slow moment of the machine falls on all. A figure is the median of its rounds with its
spread; a ratio is the median of the rounds' ratios. What else the machine did meanwhile is part of each row.
"""

import argparse
import json
import os
import pathlib
import sys
import time

import peers_process
import peers_report
import peers_rows
import peers_setup
import speed

ENGINES = {
    "kvfork": None,
    "openvino": {"OpenVINO bf16": lambda args: peers_setup.openvino_command("bf16", args.threads),
                 "OpenVINO f32": lambda args: peers_setup.openvino_command("f32", args.threads)},
    "transformers": {"Transformers bf16": lambda args: peers_setup.transformers_command("bfloat16", args.threads),
                     "Transformers f32": lambda args: peers_setup.transformers_command("float32", args.threads)},
    "llamacpp": {"llama.cpp BF16 flash": lambda args: peers_setup.llamacpp_command(args.llamacpp, "flash", args.threads),
                 "llama.cpp BF16": lambda args: peers_setup.llamacpp_command(args.llamacpp, "plain", args.threads)},
}


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default=",".join(ENGINES), help="of these (default: %(default)s)")
    parser.add_argument("--isa", default="", help="kernel sets of kvfork, e.g. avx512,avx2 (default: the best here)")
    parser.add_argument("--llamacpp", choices=peers_setup.LLAMA_BUILDS, default="native", help="how llama.cpp is built")
    parser.add_argument("--rounds", type=int, default=5, help="of each row; half as many for the longest")
    parser.add_argument("--rows", default="", help="only rows whose names hold one of these, e.g. 'hit,decode at 0'")
    parser.add_argument("--quick", action="store_true", help="fewer rows and fewer decoded tokens")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--worker", type=pathlib.Path, help="kvfork's worker, if built elsewhere")
    parser.add_argument("--json", type=pathlib.Path, help="also write every figure here")
    args = parser.parse_args()
    args.engines = args.engines.split(",")
    if unknown := set(args.engines) - set(ENGINES):
        parser.error(f"--engines: expected some of {', '.join(ENGINES)}, found {', '.join(sorted(unknown))}")
    return args


def commands(args):
    """The command of each engine by name, or Failed."""
    makers = {}
    if "kvfork" in args.engines:
        binary = args.worker or peers_setup.worker_binary()
        for isa in args.isa.split(","):
            for dtype in ("float32", "bfloat16"):
                makers[f"kvfork {dtype} {isa}".strip()] = lambda _, d=dtype, i=isa: peers_setup.kvfork_command(binary, d, args.threads, i)
    for engine in args.engines:
        makers.update(ENGINES[engine] or {})
    found = {}
    for name, make in makers.items():
        try:
            found[name] = make(args)
        except peers_process.Failed as reason:
            found[name] = reason
    return found


class Run:
    def __init__(self, args):
        self.args = args
        self.commands = commands(args)
        self.report = peers_report.Report(list(self.commands))
        self.logs = peers_setup.CACHE / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.workers = {}
        self.prober = None

    def open(self, name):
        if isinstance(self.commands[name], peers_process.Failed):
            raise self.commands[name]
        return peers_process.Worker(list(map(str, self.commands[name])), self.logs / f"{name.replace(' ', '-')}.log")

    def turn(self, round_number):
        """The engines, a different one first in each round."""
        names = list(self.commands)
        first = round_number % len(names)
        return names[first:] + names[:first]

    def cpu_seconds(self, workers):
        return sum(worker.cpu_seconds() for worker in workers) + time.process_time()

    def measured(self, row_name, name, ask):
        """One figure, with what other processes took meanwhile in cores. A token before it brings back the weights: while an engine
        waited for its turn they left the caches, and a mapped file may have left memory."""
        workers = list(self.workers.values())
        try:
            self.workers[name].ask("decode", context="", ids=[0], new=1)
        except peers_process.Failed as reason:
            self.report.fail(row_name, name, str(reason))
            return
        started, busy, own = time.perf_counter(), peers_process.busy_seconds(), self.cpu_seconds(workers)
        try:
            figure = ask()
        except peers_process.Failed as reason:
            self.report.fail(row_name, name, str(reason))
            return
        seconds = time.perf_counter() - started
        if seconds > 0.2:  # the counters have ticks of 10 ms
            others = peers_process.busy_seconds() - busy - (self.cpu_seconds(workers) - own)
            self.report.add_load(row_name, max(0.0, others / seconds))
        self.report.add(row_name, name, figure)

    def open_and_memory(self):
        """Fresh processes: the time to open, and what one hit and a short answer over 1024 tokens leave as peak."""
        for number in range(max(2, self.args.rounds // 2)):
            for name in self.turn(number):
                try:
                    worker = self.open(name)
                except peers_process.Failed as reason:
                    self.report.fail("open to ready", name, str(reason))
                    self.report.fail("peak memory", name, str(reason))
                    continue
                self.report.add("open to ready", name, worker.about["ms"])
                self.report.describe(name, worker.about)
                if number == 0:
                    worker.ask("context", context="1024", ids=peers_rows.context_ids(1024))
                    worker.ask("decode", context="1024", ids=peers_rows.token_ids("memory", peers_rows.REQUEST), new=32)
                    self.report.add("peak memory", name, worker.peak_bytes() / 1e6)
                worker.close()

    def open_all(self, rows):
        for name in self.commands:
            try:
                self.workers[name] = self.open(name)
                for n in sorted({row.context for row in rows} - {0}):
                    self.workers[name].ask("context", context=str(n), ids=peers_rows.context_ids(n))
                self.workers[name].ask("prefill", ids=peers_rows.token_ids("warm", 64))
            except peers_process.Failed as reason:
                self.commands[name] = reason
                self.workers.pop(name, None)
        self.prober = next((worker for name, worker in self.workers.items() if name.startswith("kvfork")), None)

    def measure(self, row):
        for number in range(max(2, round(self.args.rounds * row.rounds))):
            if self.prober:
                self.report.add_probe(row.name, self.prober.ask("probe"))
            for name in self.turn(number):
                if name not in self.workers:
                    self.report.fail(row.name, name, str(self.commands[name]))
                    continue
                operands = row.operands(f"{row.name} {number}")
                self.measured(row.name, name, lambda: self.workers[name].ask(**operands)[row.answer])

    def compare(self, contexts):
        """Hits against misses, lengths that fill blocks and others: the worst of all."""
        for name, worker in self.workers.items():
            try:
                found = [worker.ask("compare", context=str(n), ids=peers_rows.token_ids("compare", n_request), new=32)
                         for n in contexts for n_request in (peers_rows.REQUEST, 7, 1)]
                self.report.compared[name] = {
                    "max_difference": max((one["max_difference"] or 0 for one in found)),
                    "bits_differ": any(one["bits_differ"] for one in found),
                    "ids_differ": sum(one["hit_ids"] != one["miss_ids"] for one in found), "cases": len(found),
                    **({"of": found[0]["of"]} if "of" in found[0] else {})}
            except peers_process.Failed as reason:
                self.report.compared[name] = {"reason": str(reason)}


def main():
    args = options()
    folder = speed.make_checkpoint()
    shape = peers_rows.Shape.of(json.loads((folder / "config.json").read_text()), (folder / "model.safetensors").stat().st_size)
    rows = [row for row in peers_rows.all_rows(args.quick) if any(part in row.name for part in args.rows.split(","))]
    run = Run(args)
    report = run.report
    report.about = {"machine": speed.machine(), "commit": speed.commit(), "threads": args.threads, "rounds": args.rounds,
                    "llama.cpp build": args.llamacpp, "model": "Qwen2-0.5B shape, random bf16 weights"}
    if any(part in name for name in peers_report.FIXED for part in args.rows.split(",")):
        run.open_and_memory()
    run.open_all(rows)
    for row in rows:
        print(row.name, file=sys.stderr)
        run.measure(row)
        if args.json:
            args.json.write_text(json.dumps(report.as_json(rows, shape), indent=1))
    if contexts := sorted({row.context for row in rows} & {1024, 1055}):
        run.compare(contexts)
    for worker in run.workers.values():
        worker.close()
    print(peers_report.text(report, rows, shape))
    if args.json:
        args.json.write_text(json.dumps(report.as_json(rows, shape), indent=1))


if __name__ == "__main__":
    main()
