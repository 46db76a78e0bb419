// How far apart two ranks' cores are: the time that one flag takes from one to the other.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pc {

constexpr size_t kFlagBytes = 256;  // of zeroed shared memory that both ranks have mapped

// Bounces a flag between the two ranks that call this at the same time, one with `first`: turns `from + 1` to
// `from + turns`. Returns the nanoseconds of one way on average, or -1 when the other rank does not answer
// within `timeout_ns`.
double flag_latency(std::byte* memory, bool first, uint64_t from, uint64_t turns, uint64_t timeout_ns);

}  // namespace pc
