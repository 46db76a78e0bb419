#include "user_op.hpp"

#include <algorithm>
#include <utility>

#include "error.hpp"

namespace pc {
namespace {

constexpr size_t block_bytes = 8192;  // three of these and a few sources stay in L1
constexpr Epilogue nothing{};

}  // namespace

UserOp::UserOp(DType dtype, UserCode code)
    : code_(std::move(code)),
      copy_(find_kernel(dtype, ReduceOp::sum)),
      widens_(accumulation(dtype) != dtype),
      item_(item_size(dtype) * code_.elements),
      wide_item_(item_size(accumulation(dtype)) * code_.elements),
      block_(std::max<size_t>(1, block_bytes / wide_item_)),
      room_((block_ * wide_item_ + sizeof(Line) - 1) / sizeof(Line)),
      scratch_(3 * room_) {}

// Can the function work on this memory as it is?
bool UserOp::fits(const void* data, bool wide) const {
  return (wide || !widens_) && reinterpret_cast<uintptr_t>(data) % code_.alignment == 0;
}

// The items of a source from `done` on, where they are or, if the function cannot work on those, in `into`.
const std::byte* UserOp::read(const Source& source, size_t done, size_t items, std::byte* into) const {
  const auto* data = static_cast<const std::byte*>(source.data) + done * item(source.wide);
  if (fits(data, source.wide)) return data;
  const Source from{data, source.wide};
  const Sink to{into, true};
  copy_(&from, 1, &to, 1, items * code_.elements, nothing);
  return into;
}

// A sink that can take the function's result directly: not one of its operands, `a` or `b`. Or nullptr.
std::byte* UserOp::target(const Sink* sinks, int nsinks, size_t done, const std::byte* a,
                          const std::byte* b) const {
  for (int k = 0; k < nsinks; ++k) {
    std::byte* data = static_cast<std::byte*>(sinks[k].data) + done * item(sinks[k].wide);
    if (fits(data, sinks[k].wide) && data != a && data != b) return data;
  }
  return nullptr;
}

void UserOp::combine(const Source* sources, int nsources, const Sink* sinks, int nsinks, size_t count) const {
  if (nsources == 1) return copy_(sources, 1, sinks, nsinks, count * code_.elements, nothing);
  for (size_t done = 0; done < count; done += block_) {
    const size_t items = std::min(block_, count - done);
    std::byte *free = room(0), *spare = room(1);
    const std::byte* value = read(sources[0], done, items, spare);
    for (int k = 1; k < nsources; ++k) {
      const std::byte* next = read(sources[k], done, items, room(2));
      std::byte* result = k + 1 == nsources ? target(sinks, nsinks, done, value, next) : nullptr;
      if (!result) {
        result = free;
        std::swap(free, spare);
      }
      if (code_.function(value, next, result, static_cast<int64_t>(items))) [[unlikely]]
        throw Error(ErrorKind::invalid_argument,
                    code_.name + " raised an exception while it combined this rank's values");
      value = result;
    }
    const Source result{value, true};
    for (int k = 0; k < nsinks; ++k) {
      const Sink to{static_cast<std::byte*>(sinks[k].data) + done * item(sinks[k].wide), sinks[k].wide};
      if (to.data != value) copy_(&result, 1, &to, 1, items * code_.elements, nothing);
    }
  }
}

}  // namespace pc
