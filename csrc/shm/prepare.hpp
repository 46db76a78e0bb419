// From a plan and the sizes and types of one kind of call to what the executor runs.
#pragma once

#include <cstdint>
#include <memory>

#include "core/blocks.hpp"
#include "core/dtype.hpp"
#include "core/reduce.hpp"
#include "shm/executor.hpp"

namespace pc {

struct CallKind {
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;
  Epilogue epilogue;
  bool wide = false;  // partial sums rest and travel in the accumulation type
  Extent extent;
  size_t pool_bytes = 0, segment_bytes = 0;
  size_t ring_bytes = size_t{2} << 20;           // over which the messages of a call are spread
  size_t stream_output_bytes = size_t{8} << 20;  // outputs from here on are written past the caches
  size_t single_copy_bytes =
      SIZE_MAX;  // messages from here on are read where they lie in the sender's memory
  size_t cache_bytes = size_t{1} << 20;  // of a core's own cache that is this rank's
  bool crowded = false;                  // ranks share cores
  uint64_t fingerprint = 0, count = 0;   // as the next: for messages and records
  uint16_t verb = 0, algorithm = 0;
  uint8_t record_dtype = 0, record_op = 0;
  int32_t root = -1;
  bool deterministic = false;
  std::shared_ptr<const UserOp> user;
};

// Throws Error: unsupported where dtype and operator do not fit or messages find no room in the pool, and what
// lay_out throws.
std::shared_ptr<Prepared> prepare(std::shared_ptr<const Plan> plan, const CallKind& kind);

}  // namespace pc
