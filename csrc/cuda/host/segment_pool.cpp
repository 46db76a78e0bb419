#include "cuda/host/segment_pool.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>

#include "cuda/host/peer_memory.hpp"

namespace pc::cuda {
namespace {

struct Members {
  int here = 0;                 // ranks of one communicator in this process
  std::vector<Remains> parked;  // of those that are gone
};

std::mutex mutex;
// Neither is freed without a driver.
std::map<std::string, Members>& communicators = *new std::map<std::string, Members>;
std::vector<Remains>& waiting = *new std::vector<Remains>;  // for marks
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

// Have all ranks of other processes said that they are gone?
bool is_marked(const Remains& one) {
  const SegmentMemory& segment = one.segment;
  uint64_t& word = segment.status->failure;  // pinned; no kernel of the rank's writes it any more
  return std::all_of(one.marks.begin(), one.marks.end(), [&](uint64_t mark) {
    return cudaMemcpyAsync(&word, segment.data + mark, sizeof word, cudaMemcpyDeviceToHost,
                           segment.service) == cudaSuccess &&
           cudaStreamSynchronize(segment.service) == cudaSuccess && word;
  });
}

// Segments of `device` that peers have left since.
void look_for_marks(int device) {
  std::vector<Remains> seen;
  {
    const std::scoped_lock lock(mutex);
    const auto first = std::partition(waiting.begin(), waiting.end(),
                                      [&](const Remains& one) { return one.segment.device != device; });
    std::move(first, waiting.end(), std::back_inserter(seen));
    waiting.erase(first, waiting.end());
  }
  const auto first = std::partition(seen.begin(), seen.end(), is_marked);
  const std::scoped_lock lock(mutex);
  for (auto one = seen.begin(); one != first; ++one) spare.push_back(one->segment);
  std::move(first, seen.end(), std::back_inserter(waiting));
}  // and what else they held is given back

}  // namespace

int streams_in_use() {
  const std::scoped_lock lock(mutex);
  int ranks = 0;
  for (const auto& [name, members] : communicators) ranks += members.here;
  return 2 * ranks;
}

SegmentMemory take_segment(const std::string& name, int device, size_t bytes) {
  look_for_marks(device);
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

void give_segment(const std::string& name, Remains remains) {
  std::vector<Remains> over;  // what else they held is given back when the lock is
  const std::scoped_lock lock(mutex);
  Members& members = communicators[name];
  members.parked.push_back(std::move(remains));
  if (--members.here > 0) return;
  for (Remains& one : members.parked) {
    if (!one.marks.empty()) {
      waiting.push_back(std::move(one));
      continue;
    }
    spare.push_back(one.segment);
    over.push_back(std::move(one));
  }
  communicators.erase(name);
}

}  // namespace pc::cuda
