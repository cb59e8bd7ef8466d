"""Runs the tool on a pseudo-terminal, and says what is left on its screen."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time

import cli


def show(drawn, width):
    """The lines that stay on a screen of this width. Knows what the tool may send, and refuses anything else."""
    lines, row, column = [[]], 0, 0

    def put(character):
        nonlocal row, column
        if column == width:
            row, column = row + 1, 0
        while row >= len(lines):
            lines.append([])
        line = lines[row]
        line.extend(" " * (column + 1 - len(line)))
        line[column] = character
        column += 1

    for part in re.finditer(r"\x1b\[(\d*)([A-Za-z])|(.)", drawn, re.S):
        number, command, character = part.groups()
        if command == "K":
            del lines[row][column:]
        elif command == "C":
            column = min(column + int(number or 1), width - 1)
        elif command:
            raise AssertionError(f"an escape sequence that is not expected: {part.group()!r}")
        elif character == "\r":
            column = 0
        elif character == "\n":
            row, column = row + 1, 0
            while row >= len(lines):
                lines.append([])
        elif character == "\t":
            column = min(column // 8 * 8 + 8, width - 1)
        elif character < " ":
            raise AssertionError(f"a control character: {character!r}")
        else:
            put(character)
    return ["".join(line).rstrip() for line in lines]


class Terminal:
    """A process whose standard input, output and error are one terminal."""

    def __init__(self, *arguments, width=80, term="xterm", stdin=None, **environment):
        self.width = width
        self.terminal, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        environment = {**os.environ, "TERM": term, **environment}
        environment.pop("COLUMNS", None)
        self.process = subprocess.Popen([cli.TOOL, *map(str, arguments)], stdin=end if stdin is None else subprocess.PIPE,
                                        stdout=end, stderr=end, env=environment, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(end, termios.TIOCSCTTY, 0))
        os.close(end)
        self.drawn = ""
        if stdin is not None:
            self.process.stdin.write(stdin.encode())
            self.process.stdin.close()

    def read(self):
        try:
            data = os.read(self.terminal, 65536)
        except OSError:  # the other end is closed
            return False
        self.drawn += data.decode(errors="replace")
        return bool(data)

    def wait_for(self, text, seconds=60):
        """Reads until `text` was drawn since the last call."""
        end = time.monotonic() + seconds
        start = getattr(self, "seen", 0)
        while text not in self.drawn[start:]:
            if time.monotonic() > end or not self.read():
                raise AssertionError(f"{text!r} was not drawn; drawn was {self.drawn!r}")
        self.seen = start + self.drawn[start:].index(text) + len(text)

    def type(self, text):
        os.write(self.terminal, text.encode())

    def interrupt(self):
        os.killpg(self.process.pid, signal.SIGINT)

    def finish(self):
        """(exit status, lines left on the screen)."""
        while self.read():
            pass
        os.close(self.terminal)
        code = self.process.wait(60)
        return code, show(self.drawn, self.width)
