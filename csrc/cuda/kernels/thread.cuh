// What a thread knows while it works on a call, and how it waits: no wait outlives the communicator.
#pragma once

#include "cuda/kernels/layout.hpp"

namespace pc::cuda {

inline constexpr uint32_t kPollsPerLook = 64;  // at the abort word in device memory
inline constexpr uint32_t kLooksPerAsk = 64;   // at the host's, which is far away

struct Thread {
  const Call& call;
  uint32_t polls = 0;
  bool aborted = false;  // it waits no more; its block ends at the next barrier

  PC_DEVICE explicit Thread(const Call& c) : call(c) {}

  PC_DEVICE const uint64_t* abort_word(uint32_t rank) const {
    return reinterpret_cast<const uint64_t*>(call.segments[rank] + call.segment.abort);
  }

  // After a poll in vain: poll again? `what`, `peer` and `number` say what is waited for.
  PC_DEVICE bool wait(const char* what, int peer, uint64_t number) {
    if (aborted) return false;
    pause(what, peer, number);
    if (++polls % kPollsPerLook == 0) {
      uint64_t abort = load_relaxed_sys(abort_word(call.rank));
      if (!abort && polls % (kPollsPerLook * kLooksPerAsk) == 0 && load_relaxed_sys(&call.status->abort)) {
        fail(Failure::aborted, call.rank);
        return false;
      }
      if (abort) {
        aborted = true;
        return false;
      }
    }
    return true;
  }

  // Ends the work of all ranks.
  PC_DEVICE void fail(Failure failure, uint32_t peer) {
    if (failure == Failure::mismatch)
      store_relaxed_sys(&call.status->failure, static_cast<uint64_t>(failure) | uint64_t{peer} << 32);
    for (uint32_t r = 0; r < call.size; ++r) store_relaxed_sys(const_cast<uint64_t*>(abort_word(r)), 1);
    aborted = true;
  }
};

}  // namespace pc::cuda
