#include "cuda/host/regions.hpp"

#include <algorithm>
#include <mutex>

#include "cuda/host/on_device.hpp"
#include "cuda/kernels/layout.hpp"

namespace pc::cuda {
namespace {

struct Spare {
  int device;
  size_t bytes;
  char* data;
};
std::mutex mutex;
std::vector<Spare> spares;
struct Unused {
  int device;
  std::shared_ptr<MulticastMemory> memory;
};
std::vector<Unused>& unused = *new std::vector<Unused>;  // not unmapped without a driver

// What no device has is asked for as it is: the allocation says so.
size_t rounded(size_t bytes) {
  return bytes > SIZE_MAX / 2 ? bytes : (bytes + kSharedBytes - 1) / kSharedBytes * kSharedBytes;
}

}  // namespace

SymmetricMemory::SymmetricMemory(int device, size_t bytes)
    : device_(device), bytes_(rounded(bytes)), data_(nullptr) {
  bytes = bytes_;
  {
    const std::scoped_lock lock(mutex);
    auto found = spares.end();  // the smallest that is large enough, and not wastefully so
    for (auto one = spares.begin(); one != spares.end(); ++one)
      if (one->device == device && one->bytes >= bytes && one->bytes / 2 <= bytes &&
          (found == spares.end() || one->bytes < found->bytes))
        found = one;
    if (found != spares.end()) {
      data_ = found->data;
      bytes_ = found->bytes;
      spares.erase(found);
      return;
    }
  }
  const On on(device_);
  const NotCaptured mode;
  void* made = nullptr;
  check(cudaMalloc(&made, bytes_), "allocating symmetric device memory");
  data_ = static_cast<char*>(made);
}

SymmetricMemory::SymmetricMemory(int device, std::shared_ptr<MulticastMemory> bound)
    : device_(device), bytes_(bound->bytes()), data_(bound->local()), bound_(std::move(bound)) {}

SymmetricMemory::~SymmetricMemory() {
  const std::scoped_lock lock(mutex);
  if (bound_)
    unused.push_back({device_, bound_});
  else
    spares.push_back({device_, bytes_, data_});
}

void unmap_unused(int device) {
  std::vector<Unused> over;
  {
    const std::scoped_lock lock(mutex);
    const auto first =
        std::partition(unused.begin(), unused.end(), [&](const Unused& one) { return one.device != device; });
    over.assign(first, unused.end());
    unused.erase(first, unused.end());
  }
  if (over.empty()) return;
  const On on(device);
  const NotCaptured mode;
  if (cudaDeviceSynchronize() == cudaSuccess) return;  // and `over` goes
  static_cast<void>(cudaGetLastError());
  const std::scoped_lock lock(mutex);
  unused.insert(unused.end(), over.begin(), over.end());
}

Regions::Regions(int rank, int size, int device, char** table, cudaStream_t service)
    : rank_(rank), size_(size), device_(device), table_(table), service_(service) {}

std::vector<std::shared_ptr<SymmetricMemory>> Regions::close() {
  std::vector<std::shared_ptr<SymmetricMemory>> own;
  for (auto& [number, region] : known_) {
    for (const PeerMemory& peer : region.peers) close_memory(peer);
    own.push_back(std::move(region.own));
  }
  known_.clear();
  return own;
}

uint32_t Regions::add(std::shared_ptr<SymmetricMemory> own, const std::vector<std::string>& exported,
                      const std::vector<int>& descriptors) {
  uint32_t number = kFirst;
  while (known_.contains(number)) ++number;
  if (number >= kMost)
    throw Error(ErrorKind::unsupported, "a communicator has at most " + std::to_string(kMost - kFirst) +
                                            " arrays in symmetric device memory at a time");
  const On on(device_);
  const NotCaptured mode;
  Region region{std::move(own), {}};
  std::vector<char*> bases(static_cast<size_t>(size_));
  try {
    for (int peer = 0; peer < size_; ++peer) {
      char*& base = bases[static_cast<size_t>(peer)];
      if (peer == rank_) {
        base = region.own->data();
        continue;
      }
      const auto at = static_cast<size_t>(peer);
      region.peers.push_back(
          open_memory(exported.at(at), peer, device_, descriptors.empty() ? -1 : descriptors.at(at)));
      base = region.peers.back().data;
    }
    check(cudaMemcpyAsync(table_ + size_t{number} * static_cast<size_t>(size_), bases.data(),
                          bases.size() * sizeof(char*), cudaMemcpyHostToDevice, service_),
          "copying to the device");
    check(cudaStreamSynchronize(service_), "copying to the device");
  } catch (...) {
    for (const PeerMemory& peer : region.peers) close_memory(peer);
    throw;
  }
  known_.emplace(number, std::move(region));
  return number;
}

void Regions::remove(uint32_t number) {
  const auto found = known_.find(number);
  if (found == known_.end()) return;
  const On on(device_);
  for (const PeerMemory& peer : found->second.peers) close_memory(peer);
  known_.erase(found);
  unmap_unused(device_);
}

const Regions::Region* Regions::find(const void* memory, uint64_t bytes, uint32_t& number) const {
  const auto* at = static_cast<const char*>(memory);
  for (const auto& [one, region] : known_) {
    const char* first = region.own->data();
    if (at < first || at + bytes > first + region.own->bytes()) continue;
    number = one;
    return &region;
  }
  return nullptr;
}

uint64_t Regions::place_of(const void* memory, uint64_t bytes) const {
  uint32_t number = 0;
  const Region* region = find(memory, bytes, number);
  if (!region) return 0;
  const auto offset = static_cast<uint64_t>(static_cast<const char*>(memory) - region->own->data());
  return uint64_t{number} << kRegionShift | offset;
}

char* Regions::everywhere(const void* memory, uint64_t bytes) const {
  uint32_t number = 0;
  const Region* region = find(memory, bytes, number);
  char* all = region ? region->own->everywhere() : nullptr;
  return all ? all + (static_cast<const char*>(memory) - region->own->data()) : nullptr;
}

}  // namespace pc::cuda
