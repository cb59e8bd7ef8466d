// The machine's ceilings, measured beside what they bound, because clocks move within minutes.
#pragma once

#include <cstddef>
#include <string_view>

namespace kvfork::bench {

/// Bytes per second of one thread reading [data, data + bytes) once, in order.
double read_bytes_per_second(const void* data, size_t bytes);

/// Floating-point operations per second (a multiply-add is two) of one thread whose operands never leave registers,
/// in the vectors of the named kernel set.
double register_flops_per_second(std::string_view kernel_set);

/// The same of products of pairs of bfloat16 numbers (vdpbf16ps), or 0 where the processor has none.
double pair_flops_per_second();

/// The same of products of bfloat16 tiles; only where the set `amx` runs.
double tile_flops_per_second();

/// Cycles per second of the core that runs it: additions of which each needs the one before.
double clock_hertz();

}  // namespace kvfork::bench
