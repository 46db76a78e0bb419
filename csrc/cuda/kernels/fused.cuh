// One grid for all ranks of a process on one device, where grids of their own could not all be there at once: block b of rank r is
// block r * share + b.
//
//     grid     | rank 0: 0 1 .. share-1 | rank 1: 0 1 .. share-1 | ...
//     parts    | blocks, call           | blocks, call           | ...      in device memory
//
// A block takes its rank's call into shared memory, and then is like any block of that rank.
#pragma once

#include "cuda/kernels/direct.cuh"
#include "cuda/kernels/interpreter.cuh"

namespace pc::cuda {

// The call of this block's rank, at the beginning of shared memory; nullptr if the rank has no such block.
template <class C>
PC_DEVICE const C* take_part(const FusedCall& fused, char* shared) {
  const char* part = fused.parts + uint64_t{blockIdx.x / fused.share} * kPartBytes;
  if (blockIdx.x % fused.share >= reinterpret_cast<const PartHead*>(part)->blocks) return nullptr;
  const auto* from = reinterpret_cast<const Vector*>(part + sizeof(PartHead));
  auto* to = reinterpret_cast<Vector*>(shared);
  for (uint32_t i = threadIdx.x; i < padded(sizeof(C)) / kVectorBytes; i += blockDim.x) to[i] = from[i];
  if (!mutant(kNoBarrierBehindPart)) __syncthreads();
  return reinterpret_cast<const C*>(shared);
}

template <class R, class P>
PC_DEVICE void interpret_part(const FusedCall& fused, char* shared) {
  if (const Call* call = take_part<Call>(fused, shared))
    Interpreter<R, P>(*call, shared + kCallBytes, blockIdx.x % fused.share).run();
}

template <class R>
PC_DEVICE void direct_part(const FusedCall& fused, char* shared) {
  const auto* head =
      reinterpret_cast<const PartHead*>(fused.parts + uint64_t{blockIdx.x / fused.share} * kPartBytes);
  if (const DirectCall* call = take_part<DirectCall>(fused, shared))
    Direct<R>(*call, shared + kCallBytes, blockIdx.x % fused.share, head->blocks).run();
}

template <class R, class P>
PC_KERNEL(kMostThreads[static_cast<uint32_t>(P::kind)])
void interpret_fused(PC_PARAMETER FusedCall fused) {
  PC_SHARED_MEMORY(shared);
  interpret_part<R, P>(fused, shared);
}

template <class R>
PC_KERNEL(kThreads)
void direct_fused(PC_PARAMETER FusedCall fused) {
  PC_SHARED_MEMORY(shared);
  direct_part<R>(fused, shared);
}

}  // namespace pc::cuda
