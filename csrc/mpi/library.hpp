// The MPI library that mpi4py has loaded, without mpi.h: one binary for MPICH, Intel MPI, Open MPI and the MPI-5 ABI.
//
// For the few calls that are used here the libraries differ in two things only: a handle is an int or a pointer, and
// constants have other values. mpi4py knows both. Statuses are never read: a buffer larger than any of them is passed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace pc::mpi {

// What mpi4py says about its library.
struct Identity {
  std::string extension;  // the file of mpi4py's extension module, which has been loaded
  size_t handle_bytes;    // 4: MPICH's family, 8: Open MPI and the MPI-5 ABI
  uint64_t byte_type;     // the handle of MPI_BYTE
};

// A message that is under way.
class Request {
 public:
  bool active() const { return active_; }

 private:
  friend class Library;
  uint64_t handle_ = 0;  // an int or a pointer in its first bytes
  bool active_ = false;
};

class Library {
 public:
  // Throws Error(transport) if a function is missing.
  explicit Library(const Identity& identity);
  Library(const Library&) = delete;

  // Bytes of one message: MPI counts in int, and Open MPI 5 has no functions that count further. More is sent in pieces.
  static constexpr size_t kLongest = size_t{1} << 30;

  // A communicator's handle is passed as mpi4py gives it. Both throw Error(transport), with MPI's own text.
  void isend(const void* data, size_t bytes, int to, int tag, uint64_t comm, Request& request) const;
  void irecv(void* data, size_t bytes, int from, int tag, uint64_t comm, Request& request) const;

  // Tests active requests and makes progress. `index`: of one that is done now, or -1; `code`: its error, or 0.
  struct Tested {
    int index, code;
  };
  Tested test_any(Request* const* requests, int count) const;
  Tested test(Request& request) const {
    Request* one = &request;
    return test_any(&one, 1);
  }
  void cancel(Request& request) const noexcept;  // of a receive; it is active until tested
  bool finalized() const noexcept;

  std::string error_text(int code) const;  // MPI's own
  const std::string& path() const { return path_; }
  // Does it take device pointers? The answers of MPIX_Query_cuda_support and MPIX_GPU_query_support; -1: there is none.
  int cuda_query() const { return cuda_query_; }
  int gpu_query() const { return gpu_query_; }

 private:
  struct Status {
    alignas(16) std::byte raw[128];  // 20 to 32 bytes in the known libraries
  };
  template <class H>
  struct Functions {
    H byte_type;
    int (*isend)(const void*, int, H, int, int, H, H*);
    int (*irecv)(void*, int, H, int, int, H, H*);
    int (*test)(H*, int*, Status*);
    int (*test_any)(int, H*, int*, int*, Status*);
    int (*cancel)(H*);

    void load(void* library, const Identity& identity);
  };
  template <class Use>
  auto with(Use use) const {
    return pointers_ ? use(wide_) : use(narrow_);
  }

  bool pointers_;
  Functions<int32_t> narrow_{};
  Functions<void*> wide_{};
  int (*error_string_)(int, char*, int*);
  int (*finalized_)(int*);
  int cuda_query_ = -1, gpu_query_ = -1;
  std::string path_;
};

}  // namespace pc::mpi
