// Reduction by a function of the user's, compiled to machine code that combines whole arrays
// (pycollectives/user_op.py).
//
//     sources    s0 ---+
//                s1 ---f--- running ---+
//                s2 -------------------f--- sink       left to right, block by block, all of it in L1
//
// An item is what the function works on: one element, a small block of elements, or a record. 16- and 8-bit
// floats are widened to float32 before, and rounded once at a narrow sink, by the kernels of reduce.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dtype.hpp"
#include "reduce.hpp"

namespace pc {

// out[i] = f(a[i], b[i]) for n items; `out` does not overlap `a` or `b`. Anything but 0: f raised.
using UserFunction = int64_t (*)(const void* a, const void* b, void* out, int64_t n);

struct UserCode {
  UserFunction function;
  std::shared_ptr<const void> owner;  // keeps the machine code
  uint32_t elements;                  // of the dtype in one item
  size_t alignment;                   // that the function expects of its arrays
  std::string name;                   // as in error texts
};

// Belongs to one prepared call, which runs in one thread at a time.
class UserOp {
 public:
  UserOp(DType dtype, UserCode code);

  // The contract of a Kernel without epilogue, but `count` is in items. Allocates nothing.
  // Throws Error(invalid_argument) if the function raised.
  void combine(const Source* sources, int nsources, const Sink* sinks, int nsinks, size_t count) const;

  const UserCode& code() const { return code_; }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  std::byte* room(int index) const { return scratch_[static_cast<size_t>(index) * room_].bytes; }
  size_t item(bool wide) const { return wide ? wide_item_ : item_; }
  bool fits(const void* data, bool wide) const;
  const std::byte* read(const Source& source, size_t done, size_t items, std::byte* into) const;
  std::byte* target(const Sink* sinks, int nsinks, size_t done, const std::byte* a, const std::byte* b) const;

  UserCode code_;
  Kernel copy_;  // converts, too
  bool widens_;
  size_t item_, wide_item_;            // bytes
  size_t block_;                       // items
  size_t room_;                        // lines of one block
  mutable std::vector<Line> scratch_;  // running value, the next one, a source that had to be copied
};

}  // namespace pc
