"""A worker process (peers_worker.py) from the outside."""

import json
import os
import subprocess

TICKS = os.sysconf("SC_CLK_TCK")


class Failed(Exception):
    """A worker cannot do what it was asked; the text says why."""


def last_line(path):
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else "no message"


class Worker:
    def __init__(self, command, log, environment=()):
        """`log`: a file for its standard error."""
        self.log = log
        with log.open("wb") as errors:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                                            env={**os.environ, **dict(environment)})
        self.about = self.read()

    def read(self):
        while line := self.process.stdout.readline():
            if line.startswith("{"):  # libraries print as they like
                return json.loads(line)
        raise Failed(f"worker ended with {self.process.wait()}: {last_line(self.log)}")

    def ask(self, op, **operands):
        try:
            self.process.stdin.write(json.dumps({"op": op, **operands}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # read says why
        answer = self.read()
        if "reason" in answer:
            raise Failed(answer["reason"])
        return answer

    def peak_bytes(self):
        for line in open(f"/proc/{self.process.pid}/status"):
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024

    def cpu_seconds(self):
        try:
            fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / TICKS

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def busy_seconds():
    """Of all cores since boot, time stolen by the host included."""
    user, nice, system, _, _, irq, softirq, steal = map(int, open("/proc/stat").readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS
