"""Which kernel sets a machine runs, so that a check can count what it must have seen."""

import pathlib

# What /proc/cpuinfo must list for a machine to be one that runs a kernel set.
AVX512 = {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
NEEDED_FLAGS = {"portable": set(), "avx2": {"avx2", "fma", "f16c"}, "avx512": AVX512,
                "avx512_bf16": AVX512 | {"avx512_bf16", "AuthenticAMD"}, "amx": AVX512 | {"amx_tile", "amx_bf16"}}


def kernel_sets():
    """The names of the kernel sets that this machine runs, `portable` first."""
    words = set(pathlib.Path("/proc/cpuinfo").read_text().split())
    return [name for name, needed in NEEDED_FLAGS.items() if needed <= words]
