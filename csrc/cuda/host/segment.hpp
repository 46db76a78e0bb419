// How a rank's segment is divided: the same on all ranks of a communicator.
#pragma once

#include "cuda/kernels/layout.hpp"

namespace pc::cuda {

struct SegmentOptions {
  uint32_t size;           // ranks
  uint32_t blocks, depth;  // blocks of a call at most; messages in flight per peer and block, at least 2
  uint32_t slot_bytes[kProtocols];  // of one message: LL, LL128, Simple
  uint32_t number_bits;             // of a message's number in LL's flags
  uint64_t staging_bytes;           // for native kernels
};

// Throws Error(invalid_argument).
Segment divide(const SegmentOptions& options);

// Groups of elements that a slice may have at most, so that `pieces` of them, each of `wide` vectors, fit into a slot.
uint32_t groups_in_slot(Protocol protocol, uint32_t slot_bytes, uint32_t pieces, uint32_t wide);

}  // namespace pc::cuda
