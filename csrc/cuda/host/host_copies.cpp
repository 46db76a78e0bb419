#include "cuda/host/host_copies.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

namespace pc::cuda {
namespace {

// To free pinned memory may wait for kernels that run, as to free device memory does: it is kept for the next one.
std::mutex mutex;
std::vector<char*>& spares = *new std::vector<char*>;

struct Piece {
  char* to;
  const char* from;
  size_t bytes;
  Status* status;
};

void move(void* data) {
  const std::unique_ptr<Piece> piece(static_cast<Piece*>(data));
  const auto is_set = [](uint64_t& word) {
    return std::atomic_ref(word).load(std::memory_order_acquire) != 0;
  };
  if (is_set(piece->status->abort) || is_set(piece->status->failure)) return;
  std::memcpy(piece->to, piece->from, piece->bytes);
}

}  // namespace

HostCopies::HostCopies(Status* status) : status_(status) {
  {
    const std::scoped_lock lock(mutex);
    if (!spares.empty()) {
      pinned_ = spares.back();
      spares.pop_back();
      return;
    }
  }
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, kPiece, cudaHostAllocDefault), "allocating pinned memory");
  pinned_ = static_cast<char*>(memory);
}

HostCopies::~HostCopies() {
  const std::scoped_lock lock(mutex);
  spares.push_back(pinned_);
}

void HostCopies::later(char* to, const char* from, size_t bytes, cudaStream_t stream) {
  auto piece = std::make_unique<Piece>(Piece{to, from, bytes, status_});
  check(cudaLaunchHostFunc(stream, &move, piece.get()), "copying in host memory");
  static_cast<void>(piece.release());  // `move` has it
}

void HostCopies::to_device(char* to, const char* from, size_t bytes, cudaStream_t stream) {
  for (size_t at = 0; at < bytes; at += kPiece) {
    const size_t some = std::min(kPiece, bytes - at);
    later(pinned_, from + at, some, stream);
    check(cudaMemcpyAsync(to + at, pinned_, some, cudaMemcpyHostToDevice, stream), "copying to the device");
  }
}

void HostCopies::to_host(char* to, const char* from, size_t bytes, cudaStream_t stream) {
  for (size_t at = 0; at < bytes; at += kPiece) {
    const size_t some = std::min(kPiece, bytes - at);
    check(cudaMemcpyAsync(pinned_, from + at, some, cudaMemcpyDeviceToHost, stream),
          "copying from the device");
    later(to + at, pinned_, some, stream);
  }
}

}  // namespace pc::cuda
