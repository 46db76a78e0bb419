// The direct algorithms by the switch (NVLink SHARP): a multicast address stands for the same place in the memory of all ranks. One
// multimem.ld_reduce reads all replicas and combines them on the way, one multimem.st writes all.
//
//     memory bound to the multicast object, on each rank
//       arrived     a counter for each block: how many have come to closing gates
//       in, out     two halves: a window of the inputs, of the outputs
//
//                      before            between the gates                              after
//     one-shot         copy in           out of the caller = ld_reduce
//     two-shot         copy in           own block: multimem.st(ld_reduce)              copy out
//     reduce-scatter   copy in           out of the caller = ld_reduce of the own block
//     all-gather                         multimem.st of the own input                   copy out
//     broadcast                          multimem.st, by the root                       copy out
//
// Nothing is copied where the arrays of all ranks are in bound memory at the same place (comm.empty). Each rank knows that of its own
// array only, and tells where it is at the first opening gate: if the places differ, all copy. Whoever had hoped for better copies then,
// and the gate is opened once more.
//
// The opening gate is that of the other native kernels: each rank tells each peer what it calls. At the closing one nobody has anything
// to tell, so a single multimem.red counts on all ranks. Data are reached by two addresses, which a fence for aliases has to order, on
// the way from each access to those behind the next gate: it is made by the threads that tell the others, after a barrier.
//
// Sizes are in bytes: all of a call but its reduction moves bytes.
#pragma once

#include "cuda/kernels/direct.cuh"
#include "cuda/kernels/multimem.hpp"

namespace pc::cuda {

// `Form`: what the switch combines; none where nothing is.
template <Multimem Form>
class Multicast : public Direct<Copy> {
 public:
  PC_DEVICE Multicast(const DirectCall& call, char* shared)
      : Direct<Copy>(call, shared, blockIdx.x, gridDim.x) {}

  PC_DEVICE void run() {
    begin_call();
    arrived_ = load_relaxed_sys(arrivals());  // all have left the gates before
    bool copies = call_.takes_all && !call_.in_everywhere, judged = false;
    uint32_t rounds = call_.rounds;
    PC_ROLL
    for (uint32_t round = 0; round < rounds;) {
      const uint64_t begin = uint64_t{round} * window_;
      if (copies)
        for (uint32_t q = 0; q < call_.in_blocks; ++q)
          copy(call_.local + place(0, q), block(call_.in, false, q, begin), length(q, begin));
      if (!open(begin)) return;
      if (!judged) {
        judged = true;
        compare();
        copies = call_.takes_all && !in_there_;
        if (copies && !in_agreed_ && !mutant(kGateNotOpenedAgain)) continue;
        if (!copies && (!call_.stores_all || out_there_)) {
          window_ = kWholeWindow;
          rounds = static_cast<uint32_t>((call_.stride + kWholeWindow - 1) / kWholeWindow);
        }
      }
      if (call_.works) work(begin);
      if (!close()) return;
      if (call_.stores_all && !out_there_)
        for (uint32_t q = 0; q < call_.out_blocks; ++q)
          copy(block(call_.out, false, q, begin), call_.local + place(1, q), length(q, begin));
      ++round;
    }
    end_call();
  }

 private:
  static constexpr uint32_t kWholeWindow = 1u << 30;  // of each block, where nothing is copied

  // What all have told at the gate: the same on all ranks, so they go the same way.
  PC_DEVICE void compare() {
    const uint64_t in = told(call_.in_place, call_.in_blocks, 0),
                   out = told(call_.out_place, call_.out_blocks, 1);
    bool in_differs = false, out_differs = false;
    for (uint32_t p = threadIdx.x; p < call_.size; p += blockDim.x) {
      const Gate* gate = gate_of(call_.rank, p);
      in_differs |= load_relaxed_sys(&gate->in) != in;
      out_differs |= load_relaxed_sys(&gate->out) != out;
    }
    in_differs &= !mutant(kPlacesNotCompared);
    out_differs &= !mutant(kPlacesNotCompared);
    in_agreed_ = !(mutant(kInputsComparedAlone) ? in_differs : __syncthreads_or(in_differs));
    out_there_ = !(mutant(kOutputsComparedAlone) ? out_differs : __syncthreads_or(out_differs)) &&
                 call_.out_everywhere;
    in_there_ = in_agreed_ && call_.in_everywhere;
  }

  // Of block `q`'s window in a half.
  PC_DEVICE uint64_t place(uint32_t half, uint32_t q) const {
    return multicast_half(call_.segment, half) + uint64_t{q} * call_.window;  // of the copies
  }
  PC_DEVICE uint64_t* arrivals() const {
    return reinterpret_cast<uint64_t*>(call_.local + uint64_t{block_} * kLineBytes);
  }

  static PC_DEVICE void order_aliases() {
    if (!mutant(kNoAliasFence)) fence_aliases();
  }

  PC_DEVICE bool open(uint64_t begin) {
    if (!mutant(kGateBeforeWork)) __syncthreads();
    if (threadIdx.x < call_.size) order_aliases();
    return gate(true, begin);
  }

  PC_DEVICE bool close() {
    if (!mutant(kGateBeforeWork)) __syncthreads();
    arrived_ += call_.size;
    if (threadIdx.x == 0) {
      order_aliases();
      auto* everywhere = reinterpret_cast<uint64_t*>(call_.multicast + uint64_t{block_} * kLineBytes);
      if (mutant(kGateNotReleased))
        multimem_add_relaxed(everywhere, 1);
      else
        multimem_add_release(everywhere, 1);
      order_aliases();
      while (!mutant(kGateNotAwaited)) {
        const uint64_t seen =
            mutant(kGateNotAcquired) ? load_relaxed_sys(arrivals()) : load_acquire_sys(arrivals());
        if (seen >= arrived_ || !thread_.wait("multicast gate", -1, arrived_)) break;
      }
    }
    return all_are_through();
  }

  // The switch moves whole vectors; what is behind the end of a block of its own memory is nobody's.
  PC_DEVICE void work(uint64_t begin) {
    const uint32_t bytes =
        length(call_.in_blocks > call_.out_blocks ? call_.in_block : call_.out_block, begin);
    const char* from = Form == Multimem::none ? block(call_.in, false, call_.in_block, begin)
                       : in_there_            ? block(call_.in_everywhere, false, call_.in_block, begin)
                                              : call_.multicast + place(0, call_.in_block);
    char* to = !call_.stores_all ? block(call_.out, false, call_.out_block, begin)
               : out_there_      ? block(call_.out_everywhere, false, call_.out_block, begin)
                                 : call_.multicast + place(1, call_.out_block);
    PC_ROLL
    for (uint32_t g = first(); bytes_of(g, bytes); g += stride() * kUnroll) {
      Vector v[kUnroll];
      PC_UNROLL
      for (uint32_t u = 0; u < kUnroll; ++u) {
        const char* at = from + uint64_t{g + u * stride()} * kVectorBytes;
        if (const uint32_t some = bytes_of(g + u * stride(), bytes)) {
          if constexpr (Form == Multimem::none)
            v[u] = load_bytes(at, some);
          else
            v[u] = multimem_load<Form>(at);
        }
      }
      if constexpr (can_finish(Form)) {
        if (call_.epilogue) {
          PC_UNROLL
          for (uint32_t u = 0; u < kUnroll; ++u) finish_sums(v[u]);
        }
      }
      PC_UNROLL
      for (uint32_t u = 0; u < kUnroll; ++u) {
        char* at = to + uint64_t{g + u * stride()} * kVectorBytes;
        if (const uint32_t some = bytes_of(g + u * stride(), bytes)) {
          if (!call_.stores_all)
            store_bytes(at, v[u], some);
          else if (some == kVectorBytes || !out_there_)
            multimem_store(at, v[u]);
          else
            store_tail(g + u * stride(), v[u], some);
        }
      }
    }
  }

  // What is behind the end of an array is somebody's: a vector that is not whole goes to each rank by its own address.
  PC_DEVICE void store_tail(uint32_t group, const Vector& v, uint32_t bytes) const {
    PC_ROLL
    for (uint32_t p = 0; p < call_.size; ++p)
      store_bytes(arrays_[p].out + uint64_t{group} * kVectorBytes, v, bytes);
  }

  PC_DEVICE void finish_sums(Vector& v) const {
    using T = std::conditional_t<Form == Multimem::add_f32, float, double>;
    Reducer<Native<T>, ReduceOp::sum> reducer(0, 0);
    typename Reducer<Native<T>, ReduceOp::sum>::Acc acc;
    reducer.read(acc, v, false, 0);
    reducer.finish(acc, call_.epilogue, call_.factor);
    v = reducer.write(acc, false, 0);
  }

  uint64_t arrived_ = 0;
  bool in_there_ = false, out_there_ = false, in_agreed_ = false;  // in place; the places are the same
};

template <Multimem Form>
PC_KERNEL(kThreads)
void multicast(PC_PARAMETER DirectCall call) {
  PC_SHARED_MEMORY(shared);
  Multicast<Form>(call, shared).run();
}

}  // namespace pc::cuda
