#include "cuda/host/segment_pool.hpp"

#include <map>
#include <mutex>
#include <vector>

#include "cuda/host/peer_memory.hpp"

namespace pc::cuda {
namespace {

struct Members {
  int here = 0;                                             // ranks of one communicator in this process
  std::vector<SegmentMemory> parked;                        // of those that are gone
  std::vector<std::shared_ptr<MulticastMemory>> multicast;  // of the same
};

std::mutex mutex;
std::map<std::string, Members>& communicators =
    *new std::map<std::string, Members>;  // not freed without a driver
std::vector<SegmentMemory> spare;

void release(const SegmentMemory& memory) {
  for (cudaStream_t stream : {memory.calls, memory.service})
    if (stream) static_cast<void>(cudaStreamDestroy(stream));
  if (memory.status) static_cast<void>(cudaFreeHost(memory.status));
  if (memory.data) static_cast<void>(cudaFree(memory.data));
}

SegmentMemory allocate(int device, size_t bytes) {
  SegmentMemory made;
  bytes = (bytes + kSharedBytes - 1) / kSharedBytes * kSharedBytes;
  made.device = device;
  made.bytes = bytes;
  try {
    void *data, *status;
    check(cudaMalloc(&data, bytes), "allocating device memory");
    made.data = static_cast<char*>(data);
    check(cudaHostAlloc(&status, sizeof(Status), cudaHostAllocDefault), "allocating pinned memory");
    made.status = static_cast<Status*>(status);
    check(cudaStreamCreateWithFlags(&made.calls, cudaStreamNonBlocking), "making a stream");
    check(cudaStreamCreateWithFlags(&made.service, cudaStreamNonBlocking), "making a stream");
  } catch (...) {
    release(made);
    throw;
  }
  return made;
}

}  // namespace

int streams_in_use() {
  const std::scoped_lock lock(mutex);
  int ranks = 0;
  for (const auto& [name, members] : communicators) ranks += members.here;
  return 2 * ranks;
}

SegmentMemory take_segment(const std::string& name, int device, size_t bytes) {
  {
    const std::scoped_lock lock(mutex);
    auto found = spare.end();  // the smallest that is large enough
    for (auto one = spare.begin(); one != spare.end(); ++one)
      if (one->device == device && one->bytes >= bytes && (found == spare.end() || one->bytes < found->bytes))
        found = one;
    if (found != spare.end()) {
      const SegmentMemory taken = *found;
      spare.erase(found);
      ++communicators[name].here;
      return taken;
    }
  }
  const SegmentMemory made = allocate(device, bytes);  // may wait for kernels
  const std::scoped_lock lock(mutex);
  ++communicators[name].here;
  return made;
}

void give_segment(const std::string& name, const SegmentMemory& memory,
                  std::shared_ptr<MulticastMemory> multicast, bool kept) {
  if (!kept) release(memory);
  std::map<std::string, Members>::node_type over;  // its multicast memory is given back when the lock is
  const std::scoped_lock lock(mutex);
  Members& members = communicators[name];
  if (kept) {
    members.parked.push_back(memory);
    members.multicast.push_back(std::move(multicast));
  }
  if (--members.here > 0) return;
  spare.insert(spare.end(), members.parked.begin(), members.parked.end());
  over = communicators.extract(name);
}

}  // namespace pc::cuda
