// What this processor and its operating system can run: CPUID bits together with the register state that the system
// saves on a context switch.
#pragma once

namespace kvfork::kernels {

/// AVX2, FMA and F16C.
bool cpu_runs_avx2() noexcept;

/// AVX-512 F, BW, DQ and VL, and all that avx2 needs.
bool cpu_runs_avx512() noexcept;

/// AVX-512 BF16 as fast as AVX-512's other multiply-adds, which it is on AMD's processors and not on Intel's, and
/// all that avx512 needs.
bool cpu_runs_avx512_bf16() noexcept;

/// AMX tiles with bf16 products, and all that avx512 needs. A process has to ask for them before it runs a tile
/// instruction: request_tiles.
bool cpu_runs_amx() noexcept;

/// Asks the operating system for the tile registers, for every thread of the process and for good. 0, or the errno
/// of a refusal: ENOSPC where a signal stack of some thread is too small for them. Where it grants them, later
/// signal stacks must have room for them too, so only a process that uses tiles should ask.
int request_tiles() noexcept;

}  // namespace kvfork::kernels
