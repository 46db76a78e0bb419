#include "mpi/library.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>

#include "core/error.hpp"

namespace pc::mpi {
namespace {

constexpr int kMost = 64;  // requests in one call of MPI_Testany

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

template <class Function>
void need(void* library, const char* name, Function& function) {
  if (!find(library, name, function))
    throw Error(ErrorKind::transport, std::string("the MPI library has no function ") + name);
}

template <class H>
H handle(uint64_t value) {
  if constexpr (sizeof(H) == sizeof(int32_t))
    return static_cast<H>(static_cast<int32_t>(value));
  else
    return reinterpret_cast<H>(value);
}

int count_of(size_t bytes) {
  if (bytes > Library::kLongest)
    throw Error(ErrorKind::transport, "a message of " + std::to_string(bytes) + " bytes by MPI");
  return static_cast<int>(bytes);
}

// Which handle of this library lies in the first bytes of `value`.
template <class H>
H* place(uint64_t& value) {
  return reinterpret_cast<H*>(&value);
}

}  // namespace

template <class H>
void Library::Functions<H>::load(void* library, const Identity& identity) {
  byte_type = handle<H>(identity.byte_type);
  need(library, "MPI_Isend", isend);
  need(library, "MPI_Irecv", irecv);
  need(library, "MPI_Test", test);
  need(library, "MPI_Testany", test_any);
  need(library, "MPI_Cancel", cancel);
}

Library::Library(const Identity& identity) : pointers_(identity.handle_bytes == 8) {
  // NOLOAD: the module is there. dlsym on it searches what it depends on, too, so it finds the MPI library that mpi4py
  // opened for itself, one that is linked statically, and one that is preloaded.
  void* library = dlopen(identity.extension.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (!library) throw Error(ErrorKind::transport, "mpi4py is not loaded: " + identity.extension);
  if (pointers_)
    wide_.load(library, identity);
  else if (identity.handle_bytes == 4)
    narrow_.load(library, identity);
  else
    throw Error(ErrorKind::unsupported, "MPI handles of " + std::to_string(identity.handle_bytes) + " bytes");
  need(library, "MPI_Error_string", error_string_);
  need(library, "MPI_Finalized", finalized_);
  int (*query)() = nullptr;
  if (find(library, "MPIX_Query_cuda_support", query)) cuda_query_ = query();
  int (*gpu)(int, int*) = nullptr;
  int supported = 0;  // the type 0 is CUDA in MPICH, whose function it is
  if (find(library, "MPIX_GPU_query_support", gpu) && gpu(0, &supported) == 0) gpu_query_ = supported;
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(error_string_), &info) && info.dli_fname) path_ = info.dli_fname;
  dlclose(library);  // mpi4py keeps it
}

std::string Library::error_text(int code) const {
  char text[8192] = {};  // MPI_MAX_ERROR_STRING: 256 to 1024
  int length = 0;
  if (error_string_(code, text, &length)) return "MPI error " + std::to_string(code);
  std::string found(text, static_cast<size_t>(std::clamp<int>(length, 0, sizeof text)));
  std::replace(found.begin(), found.end(), '\n', ' ');
  return found;
}

void Library::isend(const void* data, size_t bytes, int to, int tag, uint64_t comm, Request& request) const {
  request.handle_ = 0;
  const int code = with([&]<class H>(const Functions<H>& mpi) {
    H* out = place<H>(request.handle_);
    return mpi.isend(data, count_of(bytes), mpi.byte_type, to, tag, handle<H>(comm), out);
  });
  if (code) throw Error(ErrorKind::transport, "MPI_Isend: " + error_text(code));
  request.active_ = true;
}

void Library::irecv(void* data, size_t bytes, int from, int tag, uint64_t comm, Request& request) const {
  request.handle_ = 0;
  const int code = with([&]<class H>(const Functions<H>& mpi) {
    H* out = place<H>(request.handle_);
    return mpi.irecv(data, count_of(bytes), mpi.byte_type, from, tag, handle<H>(comm), out);
  });
  if (code) throw Error(ErrorKind::transport, "MPI_Irecv: " + error_text(code));
  request.active_ = true;
}

Library::Tested Library::test_any(Request* const* requests, int count) const {
  return with([&]<class H>(const Functions<H>& mpi) {
    Status status;
    int done = 0;
    if (count == 1) {
      const int code = mpi.test(place<H>(requests[0]->handle_), &done, &status);
      if (!code && !done) return Tested{-1, 0};
      requests[0]->active_ = false;
      return Tested{0, code};
    }
    for (int first = 0; first < count; first += kMost) {
      const int n = std::min(count - first, kMost);
      H handles[kMost];
      for (int i = 0; i < n; ++i) handles[i] = *place<H>(requests[first + i]->handle_);
      int index = -1;
      const int code = mpi.test_any(n, handles, &index, &done, &status);
      if (!code && !done) continue;
      // Open MPI gives back all failed requests then, not only the one that it names.
      for (int i = 0; code && i < n; ++i)
        if (handles[i] != *place<H>(requests[first + i]->handle_)) requests[first + i]->active_ = false;
      if (index < 0 || index >= n) {  // MPI_UNDEFINED
        if (code) throw Error(ErrorKind::transport, "MPI_Testany: " + error_text(code));
        continue;
      }
      Request& request = *requests[first + index];
      request.active_ = false;
      return Tested{first + index, code};
    }
    return Tested{-1, 0};
  });
}

void Library::cancel(Request& request) const noexcept {
  if (!request.active_) return;
  with([&]<class H>(const Functions<H>& mpi) { return mpi.cancel(place<H>(request.handle_)); });
}

bool Library::finalized() const noexcept {
  int flag = 0;
  return finalized_(&flag) != 0 || flag != 0;
}

}  // namespace pc::mpi
