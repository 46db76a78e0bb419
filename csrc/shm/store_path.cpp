#include "shm/store_path.hpp"

#include <algorithm>
#include <cstring>

#include "core/stream_copy.hpp"
#include "shm/wait.hpp"

namespace pc {
namespace {

constexpr uint64_t kFactor = 4;      // streaming pays where plain stores take so many times as long
constexpr uint64_t kShare = 200;     // trials take one part in so many of the time
constexpr uint32_t kConvincing = 2;  // measurements in a row

}  // namespace

void StorePath::calibrate(std::byte* memory, size_t bytes) {
  if (!automatic_) return;
  constexpr size_t most = 16384;
  alignas(64) static const std::byte zeros[most]{};
  bytes = std::min(bytes, most);
  uint64_t least = ~uint64_t{0};
  for (int i = 0; i < 8; ++i) {  // the first of them bring the pages
    const uint64_t begin = ticks();
    stream_copy(memory, zeros, bytes);
    stream_fence();
    least = std::min(least, ticks() - begin);
  }
  limit_ = std::max<uint64_t>(1, kFactor * least * kUnit / bytes);
}

bool StorePath::copy(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes < kFrom || (!automatic_ && !streams_)) {
    std::memcpy(to, from, bytes);
    return false;
  }
  if (!automatic_) {
    stream_copy(to, from, bytes);
    return true;
  }
  const uint64_t begin = ticks();
  size_t plain = bytes;
  if (streams_) {
    plain = begin < next_trial_ ? 0 : std::min(bytes, kTrial);
    if (plain < bytes) stream_copy(to + plain, from + plain, bytes - plain);
    if (!plain) return true;
  }
  const uint64_t middle = streams_ ? ticks() : begin;
  std::memcpy(to, from, plain);
  const uint64_t took = ticks() - middle;
  if (!disturbed(plain, took)) surprises_ = slow(plain, took) != streams_ ? surprises_ + 1 : 0;
  next_trial_ = middle + (surprises_ ? 0 : kShare * took);
  const bool streamed = plain < bytes;
  if (surprises_ >= kConvincing) {
    streams_ = !streams_;
    surprises_ = 0;
    next_trial_ = middle + kShare * took;
  }
  return streamed;
}

}  // namespace pc
