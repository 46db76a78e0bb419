#include "shm/reference_ring.hpp"

#include <algorithm>
#include <cstring>

#include "core/reduce.hpp"

namespace pc {
namespace {
constexpr uint32_t kSlots = 4;
}

void ReferenceRing::all_reduce(const float* in, float* out, size_t count) {
  static const Kernel add = find_kernel(DType::float32, ReduceOp::sum);
  const auto size = static_cast<size_t>(group_.size()), rank = static_cast<size_t>(group_.rank());
  slot_bytes_ = std::min<size_t>(group_.pool_bytes() / kSlots / kLine * kLine, 128 * 1024);
  ++call_;
  Waiter waiter(group_.control(group_.rank()), patience_);
  const size_t per_chunk = (count + size - 1) / size, per_slot = slot_bytes_ / sizeof(float);
  const size_t segments = std::max<size_t>(1, (per_chunk + per_slot - 1) / per_slot);
  for (size_t segment = 0; segment < segments; ++segment) {
    // The elements of this segment of chunk `index`, counted round the ring.
    const auto part = [&](size_t index) {
      const size_t chunk = std::min(count, index % size * per_chunk),
                   end = std::min(count, chunk + per_chunk);
      const size_t first = std::min(end, chunk + segment * per_slot);
      return std::pair(first, std::min(end - first, per_slot));
    };
    const auto [first, length] = part(rank);
    std::memcpy(slot(waiter), in + first, length * sizeof(float));
    publish(length * sizeof(float));
    for (size_t step = 1; step < size; ++step) {  // reduce-scatter: add mine to what arrives, pass it on
      const auto [at, n] = part(rank + size - step);
      const float* arrived = receive(waiter);
      const Source sources[] = {{arrived, false}, {in + at, false}};
      const Sink sinks[] = {{slot(waiter), false}, {out + at, false}};
      add(sources, 2, sinks, step + 1 == size ? 2 : 1, n, Epilogue{});
      acknowledge();
      publish(n * sizeof(float));
    }
    for (size_t step = 1; step < size;
         ++step) {  // all-gather: keep what arrives, pass it on but for the last
      const auto [at, n] = part(rank + 1 + size - step);
      const float* arrived = receive(waiter);
      const Source source{arrived, false};
      const bool last = step + 1 == size;
      const Sink sinks[] = {{out + at, false}, {last ? nullptr : slot(waiter), false}};
      add(&source, 1, sinks, last ? 1 : 2, n, Epilogue{});
      acknowledge();
      if (!last) publish(n * sizeof(float));
    }
  }
}

const float* ReferenceRing::receive(Waiter& waiter) {
  const int left = (group_.rank() + group_.size() - 1) % group_.size();
  const Header& header = group_.header(left, group_.rank(), kLane, received_ + 1);
  while (header.flag.load(std::memory_order_acquire) != received_ + 1)
    if (waiter.pause()) group_.check_peers(0, 0);
  waiter.progress();
  if (header.bytes <= kInline) return reinterpret_cast<const float*>(header.payload);
  return reinterpret_cast<const float*>(group_.pool(left) + header.location);
}

void ReferenceRing::acknowledge() {
  const int left = (group_.rank() + group_.size() - 1) % group_.size();
  group_.ack(group_.rank(), left, kLane).store(++received_, std::memory_order_release);
  ring(group_.control(left));
}

float* ReferenceRing::slot(Waiter& waiter) {
  const int right = (group_.rank() + 1) % group_.size();
  while (sent_ >= kSlots &&
         group_.ack(right, group_.rank(), kLane).load(std::memory_order_acquire) + kSlots <= sent_)
    if (waiter.pause()) group_.check_peers(0, 0);
  waiter.progress();
  return reinterpret_cast<float*>(group_.pool(group_.rank()) + (sent_ + 1) % kSlots * slot_bytes_);
}

void ReferenceRing::publish(size_t bytes) {
  const int right = (group_.rank() + 1) % group_.size();
  Header& header = group_.header(group_.rank(), right, kLane, ++sent_);
  header.fingerprint = call_;
  header.location = sent_ % kSlots * slot_bytes_;
  header.bytes = static_cast<uint32_t>(bytes);
  if (bytes <= kInline) std::memcpy(header.payload, group_.pool(group_.rank()) + header.location, kInline);
  header.flag.store(sent_, std::memory_order_release);
  ring(group_.control(right));
}

}  // namespace pc
