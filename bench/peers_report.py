"""What bench/peers found, as one table and as JSON."""

import statistics

KV_VALUE_BYTES = {"float32": 4, "bfloat16": 2}
FIXED = {"open to ready": "ms", "peak memory": "MB"}


class Report:
    def __init__(self, engines):
        self.engines = engines
        self.about, self.versions, self.compared = {}, {}, {}
        self.figures, self.reasons = {}, {}  # by (row, engine)
        self.loads, self.probes = {}, {}     # by row

    def add(self, row, engine, figure):
        self.figures.setdefault((row, engine), []).append(figure)

    def add_load(self, row, cores):
        self.loads.setdefault(row, []).append(cores)

    def add_probe(self, row, probe):
        self.probes.setdefault(row, []).append(probe)

    def fail(self, row, engine, reason):
        self.reasons[row, engine] = reason

    def describe(self, engine, about):
        self.versions[engine] = {key: value for key, value in about.items() if key != "ms"}

    def median(self, row, engine):
        figures = self.figures.get((row, engine))
        return statistics.median(figures) if figures else None

    def ratio(self, row, engine, other, higher_is_better=False):
        """Time of engine over time of other: the median of the rounds' ratios."""
        ours, theirs = self.figures.get((row, engine)), self.figures.get((row, other))
        if not ours or not theirs:
            return None
        ratios = [a / b for a, b in zip(ours, theirs) if b]
        if not ratios:
            return None
        found = statistics.median(ratios)
        return 1 / found if higher_is_better else found

    def probe(self, row, field):
        """The best of the rounds: others on the machine can only lower it."""
        return max((probe[field] for probe in self.probes.get(row, []) if field in probe), default=None)

    def peak(self, row, engine):
        """Operations per second that never leave registers, of the instructions that the engine's products use, and their name.
        On tiles a float32 activation is three bfloat16 numbers."""
        rounds = "bfloat16" in engine
        if tiles := self.probe(row, "tile_flops_per_s"):
            return (tiles, "tile") if rounds else (tiles / 3, "three-term tile")
        if rounds and (pairs := self.probe(row, "pair_flops_per_s")):
            return pairs, "pair"
        return self.probe(row, "fma_flops_per_s"), "fma"

    def of_floor(self, row, engine, shape):
        """(fraction of the floor that is reached, what binds): the least time that bytes and operations take, over the time."""
        best = self.figures.get((row.name, engine))
        if row.flops is None or not best or not engine.startswith("kvfork") or not self.probes.get(row.name):
            return None
        kv = 2 * shape.layers * KV_VALUE_BYTES[engine.split()[1]] * 128
        reading = row.bytes(shape, kv) / self.probe(row.name, "read_bytes_per_s")
        peak, instruction = self.peak(row.name, engine)
        computing = row.flops(shape) / peak
        seconds = row.per / max(best) if row.higher_is_better else min(best) / 1e3
        return max(reading, computing) / seconds, "read" if reading > computing else instruction

    def kvforks(self):
        return [engine for engine in self.engines if engine.startswith("kvfork")]

    def ratios(self, row, higher_is_better=False):
        """Each kvfork against each peer, as times: below 1 kvfork is faster."""
        return {f"{ours} / {peer}": self.ratio(row, ours, peer, higher_is_better) for ours in self.kvforks()
                for peer in self.engines if peer not in self.kvforks()}

    def as_json(self, rows, shape):
        def of_row(name, unit, row=None):
            engines = {}
            for engine in self.engines:
                figures = self.figures.get((name, engine))
                engines[engine] = ({"median": statistics.median(figures), "min": min(figures), "max": max(figures), "rounds": figures}
                                   if figures else {"reason": self.reasons.get((name, engine), "not run")})
                if row and (found := self.of_floor(row, engine, shape)):
                    engines[engine]["of_floor"], engines[engine]["floor"] = found
            return {"row": name, "unit": unit, "engines": engines, "ratios": self.ratios(name, row is not None and row.higher_is_better),
                    "other_load_cores": self.loads.get(name, []), "probes": self.probes.get(name, [])}

        return {"about": self.about, "engines": self.versions, "hit_against_miss": self.compared,
                "rows": [of_row(name, unit) for name, unit in FIXED.items()] + [of_row(row.name, row.unit, row) for row in rows]}


def number(value):
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def peaks(report, name):
    """What the machine computes per second in each kind of instruction that it has, at best in the row's rounds."""
    kinds = {"FMA": "fma_flops_per_s", "pairs": "pair_flops_per_s", "tiles": "tile_flops_per_s",
             "tiles on one thread": "tile_flops_per_s_one_thread"}
    found = {kind: report.probe(name, field) for kind, field in kinds.items()}
    return ", ".join(f"{value / 1e9:.0f} GFLOP/s ({kind})" for kind, value in found.items() if value)


def lines_of(report, name, unit, row, shape):
    load = report.loads.get(name)
    heading = f"{name} ({unit})"
    if load:
        heading += f"; others took {statistics.median(load):.2f} cores (up to {max(load):.2f})"
    if row and report.probes.get(name):
        heading += f"; the machine reads {report.probe(name, 'read_bytes_per_s') / 1e9:.1f} GB/s, computes {peaks(report, name)}"
    yield heading
    kvforks = report.kvforks()
    for engine in report.engines:
        figures = report.figures.get((name, engine))
        if not figures:
            yield f"  {engine:24} {report.reasons.get((name, engine), 'not run')}"
            continue
        line = f"  {engine:24}{number(statistics.median(figures)):>9}  {number(min(figures)) + ' .. ' + number(max(figures)):20}"
        if engine not in kvforks:
            line += "".join(f"{number(report.ratio(name, ours, engine, row is not None and row.higher_is_better)):>10}" for ours in kvforks)
        elif row and (found := report.of_floor(row, engine, shape)):
            line += f"{100 * found[0]:9.0f}% of the {found[1]} floor"
        yield line.rstrip()


def comparison(report):
    yield "hit against miss, requests of 32, 7 and 1 tokens: largest difference of logits, bits, greedy ids over 32 tokens"
    for engine, found in report.compared.items():
        if "reason" in found:
            yield f"  {engine:24} {found['reason']}"
            continue
        ids = f"ids differ in {found['ids_differ']} of {found['cases']}"
        bits = "bits differ" if found["bits_differ"] else "every bit equal"
        note = f" ({found['of']})" if "of" in found else ""
        yield f"  {engine:24}{number(found['max_difference']):>9}  {bits}, {ids}{note}"


def text(report, rows, shape):
    """One table. Ratios are times of kvfork over times of the peer, one column for each kvfork."""
    out = ["; ".join(f"{key} {value}" for key, value in report.about.items())]
    out += [f"  {engine}: {', '.join(str(value).strip() for value in about.values())}" for engine, about in report.versions.items()]
    out.append("median, min .. max; then time over the peer's (below 1: faster) of: " + ", ".join(report.kvforks()))
    for name, unit in FIXED.items():
        out += lines_of(report, name, unit, None, shape)
    for row in rows:
        out += lines_of(report, row.name, row.unit, row, shape)
    out += comparison(report)
    return "\n".join(out)
