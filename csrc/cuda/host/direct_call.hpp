// The direct algorithms as native kernels take them (kernels/direct.cuh).
#pragma once

#include "cuda/host/device_plan.hpp"
#include "cuda/kernels/multimem.hpp"

namespace pc::cuda {

enum class Direct : uint32_t { one_shot, two_shot, reduce_scatter, all_gather, broadcast };

struct DirectOptions {
  Direct algorithm;
  uint64_t
      count;  // elements of the whole vector: of the input where it is scattered, of the output where it is gathered
  uint32_t root;  // broadcast
  uint32_t blocks;
};

// Does the switch, which combines in `form`, give the result of this call? All ranks get the same bits.
bool serves(Direct algorithm, const CallOptions& options, Multimem form);

// The sizes of a call, without addresses; and the bytes of its input and output.
struct DirectLayout {
  DirectCall call{};
  uint64_t in_bytes = 0, out_bytes = 0;
  uint32_t blocks = 1;

  DirectLayout(const DirectOptions& direct, const CallOptions& options, const Segment& segment, uint32_t rank,
               uint32_t size);
};

}  // namespace pc::cuda
