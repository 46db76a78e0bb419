// Symmetric memory on devices: pieces that the ranks of a communicator make together and map, so that kernels find arrays in them
// where they are.
//
//     place of an array      region << 48 | offset      the same in every rank's tables (kernels/layout.hpp)
//     region 0               the address space          ranks that share it
//     region 1               the segments
//     region 2 ...           symmetric memory
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cuda/host/multicast.hpp"
#include "cuda/host/peer_memory.hpp"

namespace pc::cuda {

// One rank's piece. When nobody needs it any more it is kept for the next one: to free device memory waits for all kernels, and
// peers may not have closed it yet. That which is bound to a multicast object is of these ranks only: it is unmapped, but not here,
// since kernels of the caller's that use the array may be on their way.
class SymmetricMemory {
 public:
  SymmetricMemory(int device, size_t bytes);                            // throws Error(device)
  SymmetricMemory(int device, std::shared_ptr<MulticastMemory> bound);  // that all have bound
  ~SymmetricMemory();
  SymmetricMemory(const SymmetricMemory&) = delete;
  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  std::string exported() const {
    return bound_ ? export_mapped(data_, device_, bytes_) : export_memory(data_, device_);
  }
  // Where all ranks' pieces are at once; nullptr if they are not bound.
  char* everywhere() const { return bound_ ? bound_->everywhere() : nullptr; }

 private:
  const int device_;
  size_t bytes_;  // that were allocated: at least those asked for
  char* data_;
  const std::shared_ptr<MulticastMemory> bound_;
};

// Bound pieces of `device` that nobody has any more, when all its kernels have ended. Waits for these: where ranks meet.
void unmap_unused(int device);

// The regions that one rank knows.
class Regions {
 public:
  static constexpr uint32_t kFirst = 2, kMost = 256;

  // `table`: in device memory, with room for kMost rows of `size` addresses.
  Regions(int rank, int size, int device, char** table, cudaStream_t service);
  ~Regions() { close(); }
  Regions(const Regions&) = delete;

  // `exported`: of all ranks; `descriptors`: of bound pieces, or none. Returns its number, the same on all ranks if they add and
  // remove alike.
  uint32_t add(std::shared_ptr<SymmetricMemory> own, const std::vector<std::string>& exported,
               const std::vector<int>& descriptors);
  void remove(uint32_t number);
  // Closes what it knows; its own pieces are for whoever waits until no peer reaches them.
  std::vector<std::shared_ptr<SymmetricMemory>> close();
  // Where peers find `bytes` from `memory` on; 0 if they are in no region.
  uint64_t place_of(const void* memory, uint64_t bytes) const;
  // The multicast address of the same; nullptr if there is none.
  char* everywhere(const void* memory, uint64_t bytes) const;

 private:
  struct Region {
    std::shared_ptr<SymmetricMemory> own;
    std::vector<PeerMemory> peers;
  };
  const Region* find(const void* memory, uint64_t bytes, uint32_t& number) const;

  const int rank_, size_, device_;
  char** const table_;
  const cudaStream_t service_;
  std::map<uint32_t, Region> known_;
};

}  // namespace pc::cuda
