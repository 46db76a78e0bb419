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

#include "cuda/host/peer_memory.hpp"

namespace pc::cuda {

// One rank's piece. When nobody needs it any more it is kept for the next one: to free device memory waits for all kernels, and
// peers may not have closed it yet.
class SymmetricMemory {
 public:
  SymmetricMemory(int device, size_t bytes);  // throws Error(device)
  ~SymmetricMemory();
  SymmetricMemory(const SymmetricMemory&) = delete;
  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  std::string exported() const { return export_memory(data_, device_); }

 private:
  const int device_;
  size_t bytes_;  // that were allocated: at least those asked for
  char* data_;
};

// The regions that one rank knows.
class Regions {
 public:
  static constexpr uint32_t kFirst = 2, kMost = 256;

  // `table`: in device memory, with room for kMost rows of `size` addresses.
  Regions(int rank, int size, int device, char** table, cudaStream_t service);
  ~Regions();
  Regions(const Regions&) = delete;

  // `exported`: of all ranks. Returns its number, the same on all ranks if they add and remove alike.
  uint32_t add(std::shared_ptr<SymmetricMemory> own, const std::vector<std::string>& exported);
  void remove(uint32_t number);
  // Where peers find `bytes` from `memory` on; 0 if they are in no region.
  uint64_t place_of(const void* memory, uint64_t bytes) const;

 private:
  struct Region {
    std::shared_ptr<SymmetricMemory> own;
    std::vector<PeerMemory> peers;
  };
  const int rank_, size_, device_;
  char** const table_;
  const cudaStream_t service_;
  std::map<uint32_t, Region> known_;
};

}  // namespace pc::cuda
