// Shared memory without names: memfd, allocated for real, never inherited by a fork.
#pragma once

#include <cstddef>

namespace pc {

class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  // Creates `bytes` of memory. Throws Error(transport) with needed and available bytes if they are not there.
  static Mapping create(size_t bytes, const char* name);
  // Private memory without a descriptor; pages are there when they are touched.
  static Mapping alone(size_t bytes);
  // Maps a descriptor received from a peer (the descriptor stays the caller's). Throws Error(transport) if it
  // is smaller.
  static Mapping attach(int fd, size_t bytes);

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  int fd() const { return fd_; }  // of memory created here, else -1
  void close_fd();

 private:
  Mapping(std::byte* data, size_t bytes);

  std::byte* data_ = nullptr;
  size_t size_ = 0;
  int fd_ = -1;
  int process_ =
      0;  // that mapped it: it is not there in a forked child, where something else may be at its place
};

// Maps whole pages that exist, at once and not one by one when they are touched; older kernels than Linux 5.14 do nothing.
void map_pages(std::byte* first, size_t bytes, bool to_write);

// Bytes that this process may still allocate: free memory, the limits of its control groups, its address space.
size_t available_memory();

}  // namespace pc
