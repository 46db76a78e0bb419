// Memory that is bound to multicast objects, for driver.cpp and multicast.cpp.
//
//     window      where a rank has mapped an object: no memory, only addresses
//     replica     an owner's memory, where its own kernels reach it; and a view of it, which is what accesses by a window reach.
//                 A fence for aliases brings both to what was written last in either.
//
// Changed between runs only (between_runs in runtime.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace pc::emulation {

struct Replica {
  char* memory;
  std::unique_ptr<uint64_t[]> view, synced;
};

struct MulticastObject {
  size_t bytes = 0;
  std::vector<Replica> replicas;

  explicit MulticastObject(size_t size);
  ~MulticastObject();
  MulticastObject(const MulticastObject&) = delete;
  void bind(char* memory);
  void unbind(const char* memory);
};

void open_window(const char* begin, MulticastObject* object);
void close_window(const char* begin);

}  // namespace pc::emulation
