"""The HTML report of `kvfork bench` in a headless Chromium: plots drawn, light and dark, on a phone and in print; nothing on the
console, and no request to the network. Skipped where there is no Chromium.
"""

import re
import shutil
import struct
import subprocess
import sys
import zlib

import cli

SKIPPED = 77
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# What the browser asks for by itself, whatever the page.
OWN_REQUESTS = r"https?://([a-z0-9-]+\.)*(google|googleapis|gstatic|gvt1)\.com\b"


def read_png(data):
    """(width, height, rows of RGB triples) of an 8-bit RGB or RGBA picture."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    position, packed = 8, b""
    while position < len(data):
        length, kind = struct.unpack(">I4s", data[position:position + 8])
        body = data[position + 8:position + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", body[:10])
            assert depth == 8 and colour in (2, 6)
        elif kind == b"IDAT":
            packed += body
        position += 12 + length
    channels = 3 if colour == 2 else 4
    raw, stride = zlib.decompress(packed), width * channels
    rows, previous = [], bytearray(stride)
    for y in range(height):
        kind, line = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        for x in range(stride):
            left = line[x - channels] if x >= channels else 0
            up = previous[x]
            corner = previous[x - channels] if x >= channels else 0
            if kind == 1:
                line[x] = (line[x] + left) & 255
            elif kind == 2:
                line[x] = (line[x] + up) & 255
            elif kind == 3:
                line[x] = (line[x] + (left + up) // 2) & 255
            elif kind == 4:
                guess = left + up - corner
                nearest = min((abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner))
                line[x] = (line[x] + nearest[2]) & 255
        rows.append([tuple(line[x:x + 3]) for x in range(0, stride, channels)])
        previous = line
    return width, height, rows


class Report(cli.CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.page = cls.folder / "report.html"
        command = [cli.TOOL, "bench", "--model", cls.model, "--context", "hello the order", "--prompt", "hello", "--repeats", 3]
        done = subprocess.run([*map(str, command), "--html", str(cls.page)], capture_output=True, timeout=300)
        assert done.returncode == 0, done.stderr

    def browse(self, *arguments):
        """Standard error and the requests of one visit."""
        log = self.folder / "net.json"
        log.unlink(missing_ok=True)
        done = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr",
                               "--disable-background-networking", "--disable-component-update", "--no-first-run",
                               f"--user-data-dir={self.folder / 'profile'}", f"--log-net-log={log}", *arguments, self.page.as_uri()],
                              capture_output=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr.decode()[-2000:])
        self.assertEqual([line for line in done.stderr.decode().splitlines() if "CONSOLE" in line], [])
        urls = set(re.findall(r'"url":"((?:https?|wss?):[^"]*)"', log.read_text()))
        self.assertEqual({url for url in urls if not re.match(OWN_REQUESTS, url)}, set())
        return done

    def picture(self, name, *arguments):
        path = self.folder / name
        self.browse(f"--screenshot={path}", *arguments)
        return read_png(path.read_bytes())

    def colours(self, rows):
        counts = {}
        for row in rows:
            for pixel in row:
                counts[pixel] = counts.get(pixel, 0) + 1
        return counts

    def check_plots(self, page, cached, uncached, *arguments):
        """The page has its colour, and the plots add pixels of each line's colour to what legends and text have."""
        text = self.page.read_text()
        counts = []
        try:
            for style in ("", "svg { visibility: hidden; }"):
                self.page.write_text(text.replace("</style>", style + "</style>"))
                _, _, rows = self.picture("page.png", "--window-size=900,1000", *arguments)
                self.assertEqual(rows[2][2], page)
                counts.append(self.colours(rows))
        finally:
            self.page.write_text(text)
        for colour in (cached, uncached):
            self.assertGreater(counts[0].get(colour, 0), counts[1].get(colour, 0) + 300, colour)

    def test_light(self):
        self.check_plots((0xFB, 0xFA, 0xF8), (0x0B, 0x6E, 0x75), (0xB4, 0x53, 0x1A))

    def test_dark(self):
        self.check_plots((0x16, 0x16, 0x14), (0x5C, 0xC6, 0xCD), (0xF0, 0x9A, 0x5F), "--blink-settings=preferredColorScheme=0")

    def test_a_phone_shows_it_without_scrolling_sideways(self):
        # An outer page of a phone's width; what hangs over the frame's right edge would be seen in its last column.
        done = self.browse("--window-size=500,900", "--dump-dom")
        self.assertIn("<svg", done.stdout.decode())
        _, _, rows = self.picture("phone.png", "--window-size=500,2600")
        page = (0xFB, 0xFA, 0xF8)
        self.assertTrue(all(row[-2] == page for row in rows), "something reaches the right edge")

    def test_print(self):
        path = self.folder / "report.pdf"
        self.browse(f"--print-to-pdf={path}", "--no-pdf-header-footer")
        data = path.read_bytes()
        self.assertTrue(data.startswith(b"%PDF-"))
        self.assertLessEqual(len(re.findall(rb"/Type\s*/Page\b", data)), 3)


if __name__ == "__main__":
    if BROWSER is None:
        print("no Chromium here")
        sys.exit(SKIPPED)
    cli.main()
