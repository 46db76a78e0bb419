#include "core/chaos.hpp"

#ifdef PC_CHAOS

#include <sched.h>
#include <unistd.h>

namespace pc {
namespace {

thread_local uint64_t state = 1;

uint64_t draw() {  // splitmix64
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

}  // namespace

void seed_chaos(uint64_t seed) { state = seed * 0xd1342543de82ef95u + 1; }

void chaos() {
  const uint64_t dice = draw();
  if (dice % 2) return;
  if (dice % 64 == 0) {
    usleep(static_cast<useconds_t>(dice >> 32) % 60);
  } else if (dice % 2048 == 2) {
    usleep(2000);
  } else if (dice % 16 == 4) {
    sched_yield();
  } else {
    for (volatile uint64_t turns = (dice >> 40) % 200; turns > 0;) {
      turns = turns - 1;
    }
  }
}

}  // namespace pc

#endif
