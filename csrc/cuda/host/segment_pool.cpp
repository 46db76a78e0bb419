#include "cuda/host/segment_pool.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

namespace pc::cuda {
namespace {

struct Members {
  int here = 0;                       // ranks of one communicator in this process
  std::vector<SegmentMemory> parked;  // of those that are gone
};

std::mutex mutex;
std::map<std::string, Members> communicators;
std::vector<SegmentMemory> spare;

SegmentMemory allocate(int device, size_t bytes) {
  SegmentMemory made{device, bytes, nullptr, nullptr};
  void *data, *status;
  check(cudaMalloc(&data, bytes), "allocating device memory");
  made.data = static_cast<char*>(data);
  if (const cudaError_t error = cudaHostAlloc(&status, sizeof(Status), cudaHostAllocDefault)) {
    static_cast<void>(cudaFree(data));
    check(error, "allocating pinned memory");
  }
  made.status = static_cast<Status*>(status);
  return made;
}

}  // namespace

SegmentMemory take_segment(const std::string& name, int device, size_t bytes) {
  const std::scoped_lock lock(mutex);
  const auto fits = [&](const SegmentMemory& m) { return m.device == device && m.bytes == bytes; };
  const auto found = std::find_if(spare.begin(), spare.end(), fits);
  SegmentMemory taken;
  if (found == spare.end()) {
    taken = allocate(device, bytes);
  } else {
    taken = *found;
    spare.erase(found);
  }
  ++communicators[name].here;
  return taken;
}

void give_segment(const std::string& name, const SegmentMemory& memory, bool shared) {
  const std::scoped_lock lock(mutex);
  Members& members = communicators[name];
  if (shared) {
    members.parked.push_back(memory);
  } else {
    static_cast<void>(cudaFree(memory.data));
    static_cast<void>(cudaFreeHost(memory.status));
  }
  if (--members.here > 0) return;
  spare.insert(spare.end(), members.parked.begin(), members.parked.end());
  communicators.erase(name);
}

}  // namespace pc::cuda
