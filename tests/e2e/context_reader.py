"""Reads and checks a saved context with the standard library alone, from docs/cache-file.md.

    context_reader.py FILE...    checks each and prints what it holds
"""

import hashlib
import json
import struct
import sys

PRIME = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1
SIZES = {"F32": 4, "BF16": 2, "I64": 8, "U64": 8, "U8": 1}
BIT_FIELDS = ("architecture", "config", "weights", "dtype", "kernel_set", "kernel_bits")


class Damaged(Exception):
    pass


def step(state, word):
    value = ((state ^ word) * PRIME) & MASK
    return (value << 29 | value >> 35) & MASK


def checksum(data):
    lanes = [(i + 1) * PRIME & MASK for i in range(8)]
    padded = data + b"\0" * (-len(data) % 64)
    for index, word in enumerate(struct.unpack(f"<{len(padded) // 8}Q", padded)):
        lanes[index % 8] = step(lanes[index % 8], word)
    result = len(data)
    for lane in lanes:
        result = step(result, lane)
    result ^= result >> 32
    result = result * PRIME & MASK
    return result ^ result >> 29


def expect(holds, what):
    if not holds:
        raise Damaged(what)


class SavedContext:
    """tensors: {name: (dtype, shape, bytes)}; metadata: {key: text}; ids, text."""

    def __init__(self, path):
        data = path.read_bytes()
        expect(len(data) >= 8, "length")
        start = 8 + struct.unpack("<Q", data[:8])[0]
        expect(start <= len(data) and start % 4096 == 0, "header length")
        header = json.loads(data[8:start])
        self.metadata = header.pop("__metadata__")
        expect(self.metadata["format"] == "kvfork.context" and self.metadata["format_version"] == "1", "format")
        self.tensors, end = {}, 0
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            begin, stop = entry["data_offsets"]
            count = 1
            for size in entry["shape"]:
                count *= size
            expect(begin == end and stop - begin == count * SIZES[entry["dtype"]], name)
            end = stop
            self.tensors[name] = (entry["dtype"], entry["shape"], data[start + begin:start + stop])
        expect(start + end == len(data), "length")
        self.check(data[:start])
        self.ids = list(struct.unpack(f"<{self.tensors['ids'][1][0]}q", self.tensors["ids"][2]))
        self.text = self.tensors["text"][2].decode()
        self.n_layers = sum(name.endswith(".k") for name in self.tensors)
        self.check_id()

    def check(self, header):
        units = [header]
        for name, (_, shape, data) in self.tensors.items():
            if name == "checksums":
                continue
            rows = shape[0] if name.startswith("layers.") else 1
            size = len(data) // rows
            units += [data[i * size:(i + 1) * size] for i in range(rows)]
        table = self.tensors["checksums"][2]
        expected = struct.unpack(f"<{len(table) // 8}Q", table)
        expect(len(expected) == len(units) + 1 and checksum(table[:-8]) == expected[-1], "checksums")
        for index, unit in enumerate(units):
            expect(checksum(unit) == expected[index], f"unit {index}")

    def check_id(self):
        text = "".join(f"{name} {self.metadata[name]}\n" for name in BIT_FIELDS) + "".join(f"{token} " for token in self.ids)
        expect(hashlib.sha256(text.encode()).hexdigest() == self.metadata["id"], "id")

    def element(self, name, index):
        dtype, _, data = self.tensors[name]
        if dtype == "F32":
            return struct.unpack_from("<f", data, 4 * index)[0]
        return struct.unpack("<f", b"\0\0" + data[2 * index:2 * index + 2])[0]

    def key(self, layer, head, position, component):
        _, (_, heads, _, head_dim, _), _ = self.tensors[f"layers.{layer}.k"]
        block, slot = self.place(position)
        return self.element(f"layers.{layer}.k", (((block * heads + head) * 4 + slot // 16) * head_dim + component) * 16 + slot % 16)

    def value(self, layer, head, position, component):
        _, (_, heads, _, stride), _ = self.tensors[f"layers.{layer}.v"]
        block, slot = self.place(position)
        return self.element(f"layers.{layer}.v", ((block * heads + head) * 64 + slot) * stride + component)

    def place(self, position):
        return position // 64 - int(self.metadata["first_block"]), position % 64


def with_metadata(data, key, value):
    """The bytes of a saved context whose metadata say something else, with checksums that fit."""
    start = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:start])
    header["__metadata__"][key] = value
    text = json.dumps(header, ensure_ascii=False).encode().ljust(start - 8)
    expect(len(text) == start - 8, "room for the header")
    begin, end = (start + offset for offset in header["checksums"]["data_offsets"])
    sums = struct.pack("<Q", checksum(data[:8] + text)) + data[begin + 8:end - 8]
    return data[:8] + text + data[start:begin] + sums + struct.pack("<Q", checksum(sums)) + data[end:]


def weights_fingerprint(paths):
    """As the metadata's `weights`, for safetensors files in the order of their names."""
    joined = ""
    for path in sorted(paths):
        data = path.read_bytes()
        pieces = (hashlib.sha256(data[i:i + (4 << 20)]).digest() for i in range(0, len(data), 4 << 20))
        joined += hashlib.sha256(b"".join(pieces)).hexdigest()
    return hashlib.sha256(joined.encode()).hexdigest()


if __name__ == "__main__":
    import pathlib
    for argument in sys.argv[1:]:
        context = SavedContext(pathlib.Path(argument))
        print(f"{argument}: {len(context.ids)} tokens, {context.n_layers} layers, id {context.metadata['id']}")
