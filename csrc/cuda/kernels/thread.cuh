// What a thread knows while it works on a call, and how it waits: no wait outlives the communicator.
#pragma once

#include "cuda/kernels/layout.hpp"
#include "cuda/kernels/mutants.hpp"
#include "cuda/kernels/ptx.cuh"

namespace pc::cuda {

inline constexpr uint32_t kPollsPerLook = 64;  // at the abort word in device memory
inline constexpr uint32_t kLooksPerAsk = 64;   // at the host's, which is far away

// `C` is the call: what has segments, a segment's layout, and a status.
template <class C>
PC_DEVICE uint64_t* abort_word(const C& call, uint32_t rank) {
  return reinterpret_cast<uint64_t*>(call.segments[rank] + call.segment.abort);
}

// Ends the work of all ranks. Not inlined: it happens once.
template <class C>
PC_NOINLINE void end_all(const C& call, Failure failure, uint32_t peer) {
  if (failure == Failure::mismatch)
    store_relaxed_sys(&call.status->failure, static_cast<uint64_t>(failure) | uint64_t{peer} << 32);
  for (uint32_t r = 0; r < call.size; ++r) store_relaxed_sys(abort_word(call, r), 1);
}

// Has the work been ended, by a rank or by the host?
template <class C>
PC_NOINLINE bool is_ended(const C& call, bool ask_host) {
  if (!mutant(kAbortIgnored) && load_relaxed_sys(abort_word(call, call.rank))) {
    if (!load_relaxed_sys(
            &call.status->failure))  // the result is none; a failure that was found here says more
      store_relaxed_sys(&call.status->failure, static_cast<uint64_t>(Failure::aborted));
    return true;
  }
  if (!ask_host || mutant(kHostAbortIgnored) || !load_relaxed_sys(&call.status->abort)) return false;
  end_all(call, Failure::aborted, call.rank);
  return true;
}

template <class C>
struct Thread {
  const C& call;
  uint32_t polls = 0;
  bool aborted = false;  // it waits no more; its block ends at the next barrier

  PC_DEVICE explicit Thread(const C& c) : call(c) {}

  // After a poll in vain: poll again? `what`, `peer` and `number` say what is waited for.
  PC_DEVICE bool wait(const char* what, int peer, uint64_t number) {
    if (aborted) return false;
    pause(what, peer, number);
    if (++polls % kPollsPerLook == 0) aborted = is_ended(call, polls % (kPollsPerLook * kLooksPerAsk) == 0);
    return !aborted;
  }

  PC_DEVICE void fail(Failure failure, uint32_t peer) {
    end_all(call, failure, peer);
    aborted = true;
  }
};

}  // namespace pc::cuda
