// What a rank needs of a device, kept for later communicators of this process: the memory of its segment, and streams.
//
// To free device memory waits for all kernels on the device; where several ranks are in one process, one that frees would wait for
// the kernel of another, which waits for the call that the first one is about to make. So nothing is freed before the process ends,
// and a segment is used again when all ranks of its communicator in this process are gone: nobody writes there any more. Streams are
// kept, too: they share a few queues in the order of their making, and two ranks in one queue would wait for each other.
#pragma once

#include <memory>
#include <string>

#include "cuda/host/multicast.hpp"
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

// It ends. `kept`: other ranks have mapped the memory in this process only, or there are none; else it is freed at once, and `multicast`
// (or nullptr) is. That is never used again, but peers' kernels may still reach it where they have not ended.
void give_segment(const std::string& name, const SegmentMemory& memory,
                  std::shared_ptr<MulticastMemory> multicast, bool kept);

}  // namespace pc::cuda
