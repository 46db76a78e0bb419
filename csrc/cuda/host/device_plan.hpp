// A plan as kernels read it: with the sizes of one kind of call, cut into channels, slices and lanes.
//
//     chunk          |--------------------------------------|
//     channels       |------- 0 ---------|------- 1 --------|     as on the CPU (core/chunking.hpp)
//     slices         |- 0 -|- 1 -|- 2 -|3|- 0 -|- 1 -|- 2 -||     of one length but for the last: the device need not divide
#pragma once

#include <cstddef>
#include <vector>

#include "core/blocks.hpp"
#include "core/reduce.hpp"
#include "cuda/host/segment.hpp"
#include "cuda/host/user_kernels.hpp"

namespace pc::cuda {

// What decides the form of a call besides its plan.
struct CallOptions {
  Protocol protocol;
  DType dtype;
  ReduceOp op;
  bool moves;  // bytes, which are not combined
  bool wide;   // partial values are kept and sent in the accumulation type
  bool any;    // by the kernel that decides at run time
  bool hand;   // by the ring that is written by hand; the plan is that of the schedule
  Epilogue epilogue;
  uint64_t fingerprint;
  uint32_t threads;                         // per block
  uint32_t lanes;                           // blocks per channel at most
  uint32_t least_slice;                     // bytes: shorter slices are not worth another block
  std::shared_ptr<const UserKernels> user;  // an operator of the caller's; counts are in its items

  // Bytes of what is counted, and of the same while it is combined.
  uint32_t item() const { return user ? user->item().bytes : static_cast<uint32_t>(item_size(dtype)); }
  uint32_t accumulated() const {
    return user ? user->item().accumulated : static_cast<uint32_t>(item_size(accumulation(dtype)));
  }
  uint32_t packed_op() const { return user ? user->item().packed() : static_cast<uint32_t>(op); }
};

struct DevicePlan {
  std::vector<std::byte> bytes;  // all tables, one after the other, at these offsets
  size_t instructions = 0, operands = 0, refs = 0, connections = 0, peers = 0, channels = 0, chunks = 0;
  uint32_t nchannels = 0, lanes = 1, slices = 1, slice_elements = 1;
  uint64_t in_bytes = 0, out_bytes = 0, work_bytes = 0, scratch_bytes = 0;

  // Throws Error(unsupported) where a message has too many chunks for a slot.
  DevicePlan(const Plan& plan, const Extent& extent, const CallOptions& options, const Segment& segment);
};

}  // namespace pc::cuda
