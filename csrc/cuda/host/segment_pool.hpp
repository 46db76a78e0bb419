// What a rank needs of a device, kept for later communicators of this process: the memory of its segment, and streams.
//
// To free device memory waits for all kernels on the device; where several ranks are in one process, one that frees would wait for
// the kernel of another, which waits for the call that the first one is about to make. And what another process has open must not be
// freed at all. So nothing is freed before the process ends, and a segment is used again when nobody reaches it any more: when all
// ranks of its communicator in this process are gone, and those of other processes have left their mark in it. One that dies leaves
// none. Streams are kept, too: they share a few queues in the order of their making, and two ranks in one queue would wait for each
// other.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/host/multicast.hpp"
#include "cuda/host/regions.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/kernels/layout.hpp"

namespace pc::cuda {

struct SegmentMemory {
  int device = 0;
  size_t bytes = 0;
  char* data = nullptr;
  Status* status = nullptr;                         // pinned host memory
  cudaStream_t calls = nullptr, service = nullptr;  // for calls, for memory
};

// That ranks of this process have now.
int streams_in_use();

// A rank of communicator `name` begins, on the current device. Throws Error(device).
SegmentMemory take_segment(const std::string& name, int device, size_t bytes);

// What a rank leaves behind, which kernels of its peers may still reach.
struct Remains {
  SegmentMemory segment;
  std::shared_ptr<MulticastMemory> multicast;  // or nullptr
  std::vector<std::shared_ptr<SymmetricMemory>> pieces;
  std::vector<uint64_t>
      marks;  // where in the segment ranks of other processes say that they are gone: offsets of words
};

// It ends.
void give_segment(const std::string& name, Remains remains);

}  // namespace pc::cuda
