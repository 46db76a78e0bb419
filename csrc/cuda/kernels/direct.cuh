// The native kernels of the direct algorithms: no messages. Every rank reads the inputs of all ranks where they are, and writes into
// all outputs where they are.
//
//                      takes        stores                    gates, once per round
//     one-shot         all          own                       1. all are there: inputs are ready, outputs may be written
//     two-shot         all          all, its own block        2. all are through: inputs may be written, outputs are ready
//     reduce-scatter   all          own
//     all-gather       own          all, its own block
//     broadcast        own (root)   all
//
// Whose array peers cannot reach (or must not, since it is overwritten meanwhile) copies its window into staging before gate 1, or out
// of it after gate 2. Each rank decides that for itself, and tells where its arrays are at gate 1.
//
// A block moves the same groups of elements of a window on all ranks, so a gate is between the blocks of one number.
#pragma once

#include "cuda/kernels/local.cuh"
#include "cuda/kernels/mutants.hpp"
#include "cuda/kernels/reducers.cuh"
#include "cuda/kernels/thread.cuh"

namespace pc::cuda {

template <class R>
class Direct {
 public:
  // `block`: which of the rank's `blocks` blocks this is.
  PC_DEVICE Direct(const DirectCall& call, char* shared, uint32_t block, uint32_t blocks)
      : call_(call),
        block_(block),
        blocks_(blocks),
        thread_(call),
        arrays_(reinterpret_cast<Arrays*>(shared)),
        reducer_(reducer_of<R>(call)),
        window_(call.window) {}

  PC_DEVICE void run() {
    begin_call();
    const bool stages_in = call_.in_blocks && !call_.in_place,
               stages_out = call_.out_blocks && !call_.out_place;
    for (uint32_t round = 0; round < call_.rounds; ++round) {
      const uint64_t begin = uint64_t{round} * call_.window;
      if (stages_in)
        for (uint32_t q = 0; q < call_.in_blocks; ++q)
          copy(block(staging(call_.rank, 0), true, q, begin), block(call_.in, false, q, begin),
               length(q, begin));
      if (!gate(true, begin)) return;
      if (call_.works) work(begin);
      if (!gate(false, begin)) return;
      if (stages_out)
        for (uint32_t q = 0; q < call_.out_blocks; ++q)
          copy(block(call_.out, false, q, begin), block(staging(call_.rank, 1), true, q, begin),
               length(q, begin));
    }
    end_call();
  }

 protected:  // for Multicast
  static constexpr uint32_t kUnroll = R::kUnroll;

  PC_DEVICE void begin_call() {
    stamp_ =
        ((call_.fingerprint + *calls() * 0x9e3779b97f4a7c15u) * 0xd6e8feb86659fd93u) & 0xffffffff00000000u;
    number_ = *gone();
  }
  PC_DEVICE void end_call() {  // all have read the counters: there was a gate
    if (threadIdx.x == 0 && !mutant(kCountersNotSaved)) {
      ++*calls();
      *gone() = number_;
    }
  }

  // -- memory ----------------------------------------------------------------------------------------------------------

  PC_DEVICE uint64_t* calls() const { return counter(call_.segment.calls); }
  PC_DEVICE uint64_t* gone() const { return counter(call_.segment.gone); }
  PC_DEVICE uint64_t* counter(uint64_t offset) const {
    return reinterpret_cast<uint64_t*>(call_.segments[call_.rank] + offset) + block_;
  }
  PC_DEVICE Gate* gate_of(uint32_t owner, uint32_t who) const {
    return reinterpret_cast<Gate*>(call_.segments[owner] + call_.segment.gates +
                                   (uint64_t{block_} * call_.size + who) * kLineBytes);
  }
  PC_DEVICE char* staging(uint32_t rank, uint32_t half) const {
    return call_.segments[rank] + call_.segment.staging + half * call_.segment.half;
  }
  PC_DEVICE uint32_t item() const { return kVectorBytes / reducer_.group(); }

  // Elements of block `q` in the window that starts at `begin`.
  PC_DEVICE uint32_t length(uint32_t q, uint64_t begin) const {
    const uint64_t first = q * call_.stride, end = first + call_.stride;
    const uint64_t whole = (end < call_.total ? end : call_.total > first ? call_.total : first) - first;
    if (whole <= begin) return 0;
    return static_cast<uint32_t>(whole - begin < window_ ? whole - begin : window_);
  }
  PC_DEVICE char* block(char* base, bool staged, uint32_t q, uint64_t begin) const {
    return base + (staged ? uint64_t{q} * call_.window : q * call_.stride + begin) * item();
  }

  // Where peers find an array in this round; 0 for none.
  PC_DEVICE uint64_t told(uint64_t place, uint32_t blocks, uint32_t half) const {
    if (!blocks) return 0;
    if (place) return place;
    return kSegmentRegion << kRegionShift | (call_.segment.staging + half * call_.segment.half);
  }
  // The block that this rank takes from there, or stores there.
  PC_DEVICE char* found(uint64_t place, uint32_t rank, uint32_t q, uint64_t begin) const {
    const uint64_t region = place >> kRegionShift, offset = place & ((uint64_t{1} << kRegionShift) - 1);
    const bool staged = region == kSegmentRegion;
    char* base =
        region ? call_.regions[region * call_.size + rank] + offset : reinterpret_cast<char*>(offset);
    return block(base, staged, q, begin);
  }

  // -- gates -----------------------------------------------------------------------------------------------------------

  PC_DEVICE bool gate(bool opens, uint64_t begin) {
    if (!mutant(kGateBeforeWork)) __syncthreads();
    const uint64_t flag = stamp_ | static_cast<uint32_t>(++number_);
    for (uint32_t p = threadIdx.x; p < call_.size; p += blockDim.x) {
      Gate* theirs = gate_of(p, call_.rank);
      if (opens) {
        store_relaxed_sys(&theirs->in, told(call_.in_place, call_.in_blocks, 0));
        store_relaxed_sys(&theirs->out, told(call_.out_place, call_.out_blocks, 1));
      }
      if (mutant(kGateNotReleased))
        store_relaxed_sys(&theirs->number, flag);
      else if (mutant(kGateGpuScope))
        store_release_gpu(&theirs->number, flag);
      else
        store_release_sys(&theirs->number, flag);
    }
    for (uint32_t p = threadIdx.x; p < call_.size; p += blockDim.x) {
      const Gate* mine = gate_of(call_.rank, p);
      if (!(mutant(kGateNotAwaited) && !opens)) await(&mine->number, flag, p, opens);
      if (opens)
        arrays_[p] = {found(load_relaxed_sys(&mine->in), p, call_.in_block, begin),
                      found(load_relaxed_sys(&mine->out), p, call_.out_block, begin)};
    }
    return all_are_through();
  }

  PC_DEVICE bool all_are_through() const {
    return !(mutant(kNoBarrierBehindGate) ? thread_.aborted : __syncthreads_or(thread_.aborted));
  }

  // Whoever is one gate ahead has been here, too. Only at the first gate of a round is that the same call for certain: from the
  // second one a peer may have gone on to its next call, whose stamp is another.
  PC_DEVICE void await(const uint64_t* number, uint64_t flag, uint32_t peer, bool opens) {
    for (;;) {
      const uint64_t seen = mutant(kGateNotAcquired) ? load_relaxed_sys(number) : load_acquire_sys(number);
      const auto ahead = static_cast<int32_t>(static_cast<uint32_t>(seen) - static_cast<uint32_t>(flag));
      if (ahead >= 0) {
        if (opens && (seen ^ flag) >> 32 && !mutant(kGateNotChecked)) thread_.fail(Failure::mismatch, peer);
        return;
      }
      if (!thread_.wait("gate", static_cast<int>(peer), flag)) return;
    }
  }

  // -- data --------------------------------------------------------------------------------------------------------------

  PC_DEVICE uint32_t first() const { return block_ * blockDim.x + threadIdx.x; }
  PC_DEVICE uint32_t stride() const { return blocks_ * blockDim.x; }
  PC_DEVICE uint32_t bytes_of(uint32_t group, uint32_t count) const {
    const uint32_t groups = count / reducer_.group();
    return group < groups ? kVectorBytes : group == groups ? (count % reducer_.group()) * item() : 0;
  }

  PC_DEVICE void copy(char* to, const char* from, uint32_t count) const {
    PC_ROLL
    for (uint32_t g = first(); bytes_of(g, count); g += stride() * kUnroll) {
      Vector v[kUnroll];
      PC_UNROLL
      for (uint32_t u = 0; u < kUnroll; ++u)
        if (const uint32_t bytes = bytes_of(g + u * stride(), count))
          v[u] = load_bytes(from + uint64_t{g + u * stride()} * kVectorBytes, bytes);
      PC_UNROLL
      for (uint32_t u = 0; u < kUnroll; ++u)
        if (const uint32_t bytes = bytes_of(g + u * stride(), count))
          store_bytes(to + uint64_t{g + u * stride()} * kVectorBytes, v[u], bytes);
    }
  }

  PC_DEVICE void work(uint64_t begin) {
    const uint32_t count =
        length(call_.in_blocks > call_.out_blocks ? call_.in_block : call_.out_block, begin);
    const uint32_t sources = call_.takes_all ? call_.size : 1, targets = call_.stores_all ? call_.size : 1;
    PC_ROLL
    for (uint32_t g = first(); bytes_of(g, count); g += stride() * kUnroll) {
      typename R::Acc acc[kUnroll];
      if constexpr (CountsItems<R>) {
        PC_UNROLL
        for (uint32_t u = 0; u < kUnroll; ++u)
          reducer_.limit(acc[u], bytes_of(g + u * stride(), count) / item());
      }
      PC_ROLL
      for (uint32_t k = 0; k < sources; ++k) {
        const char* from = arrays_[call_.takes_all ? k : call_.rank].in;
        Vector v[kUnroll];
        PC_UNROLL
        for (uint32_t u = 0; u < kUnroll; ++u) {
          const uint32_t bytes = bytes_of(g + u * stride(), count);
          v[u] = bytes ? load_bytes(from + uint64_t{g + u * stride()} * kVectorBytes, bytes) : Vector{};
        }
        PC_UNROLL
        for (uint32_t u = 0; u < kUnroll; ++u) {
          if (k == 0)
            reducer_.read(acc[u], v[u], false, 0);
          else
            reducer_.combine(acc[u], v[u], false, 0);
        }
      }
      if (call_.epilogue) {
        PC_UNROLL
        for (uint32_t u = 0; u < kUnroll; ++u) reducer_.finish(acc[u], call_.epilogue, call_.factor);
      }
      Vector v[kUnroll];
      PC_UNROLL
      for (uint32_t u = 0; u < kUnroll; ++u) v[u] = reducer_.write(acc[u], false, 0);
      PC_ROLL
      for (uint32_t k = 0; k < targets; ++k) {
        const uint32_t p = call_.stores_all ? (call_.rank + k) % call_.size : call_.rank;
        char* to = arrays_[p].out;
        PC_UNROLL
        for (uint32_t u = 0; u < kUnroll; ++u)
          if (const uint32_t bytes = bytes_of(g + u * stride(), count))
            store_bytes(to + uint64_t{g + u * stride()} * kVectorBytes, v[u], bytes);
      }
    }
  }

  const DirectCall& call_;
  const uint32_t block_, blocks_;
  Thread<DirectCall> thread_;
  Arrays* arrays_;
  R reducer_;
  uint32_t window_;  // elements of each block in a round
  uint64_t stamp_ = 0, number_ = 0;
};

template <class R>
PC_KERNEL(kThreads)
void direct(PC_PARAMETER DirectCall call) {
  PC_SHARED_MEMORY(shared);
  Direct<R>(call, shared, blockIdx.x, gridDim.x).run();
}

}  // namespace pc::cuda
