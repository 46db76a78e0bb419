// Delays at random places, to shake out what depends on the order of things. Nothing but in a build with
// PC_CHAOS, which the native tests use (tests/native).
#pragma once

#include <cstdint>

namespace pc {

#ifdef PC_CHAOS
void chaos();                    // maybe waits: nothing, a few turns, a yield, or up to two milliseconds
void seed_chaos(uint64_t seed);  // what the calling thread does from here on
#else
inline void chaos() {}
inline void seed_chaos(uint64_t) {}
#endif

}  // namespace pc
