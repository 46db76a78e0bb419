// One kind of call, ready to be run: a plan, the sizes and types of its data, and how they are cut.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/chunking.hpp"
#include "core/plan.hpp"
#include "core/reduce.hpp"
#include "core/user_op.hpp"
#include "shm/contest.hpp"

namespace pc {

inline constexpr size_t kPieceAlign = 16;  // pieces of a message in a slot
inline constexpr size_t kContested =
    8192;  // of a message: from here on it is worth while to try several ways
constexpr size_t round_up(size_t x, size_t to) { return (x + to - 1) / to * to; }

// Sizes in bytes that decide how calls are cut and where their data go; the same on all ranks.
struct Sizes {
  size_t pool;           // memory for messages in flight
  size_t segment;        // one message, where data are cut
  size_t ring;           // over which the messages of a call are spread
  size_t stream_output;  // outputs from here on are written past the caches
  size_t single_copy;    // messages from here on are read where they lie in the sender's memory
  size_t cache;          // a rank's part of a core's own cache
  bool crowded;          // ranks share cores
};

// How the data of a call travel.
struct Flow : Cut {
  uint32_t lanes = 1;  // slices in flight per channel
  uint32_t slots = 1;  // per connection and lane
  size_t slot_bytes = 0;
};

// A plan with everything that the call's arguments decide, but for the addresses. Made once per kind of call.
struct Prepared {
  std::shared_ptr<const Plan> plan;
  Chunking chunking;
  Flow flow;
  // The same in whole blocks, for single copy (agreed_cut.hpp). No slices: there is nothing to gain.
  Flow whole{Cut{.slices = 0}};
  Kernel kernel = nullptr;
  Epilogue epilogue;
  std::shared_ptr<const UserOp> user;  // combines in place of `kernel`, where the operator is the caller's
  uint32_t element = 1, wide_element = 1;  // bytes
  bool stream_output = false;
  bool long_data = false;          // no core's own cache holds the data of a call, as the same on all ranks
  bool long_output = false;        // nor what this rank writes in the call: peers may read that in place
  bool may_stream_output = false;  // `stream_output` may become true by trials, as the same on all ranks
  bool grows = false;              // this rank's messages may be read while they are written
  size_t single_copy = SIZE_MAX;   // bytes of a message from which on it is read in the sender's own memory
  bool brief = false;  // every message is one whole chunk that fits into a header, of elements as they are
  size_t work_bytes = 0, scratch_bytes = 0;
  size_t staged_bytes = 0;               // of whole blocks that cannot be read in the caller's arrays
  uint64_t in_bytes = 0, out_bytes = 0;  // that this rank's input and output must have
  uint64_t fingerprint = 0;              // without the sequence number
  uint64_t count = 0;                    // for the record, as are the next
  std::string algorithm_name;
  uint16_t verb = 0, algorithm = 0;
  uint8_t dtype = 0, op = 0, deterministic = 0;
  int32_t root = -1;
  mutable std::array<Contest, 2> ways;  // how messages are sent: of ordinary arrays, of symmetric ones
  mutable uint64_t kind =
      0;  // number of its text in the recorder of the one communicator that it is made for

  bool is_bool() const {
    return static_cast<DType>(dtype) == DType::bool_;
  }  // any byte but 0 is true: a copy makes it 1

  size_t ring_bytes() const {  // of the pool that its slots take
    return plan->channels.size() * flow.lanes * plan->max_connections * flow.slots * flow.slot_bytes;
  }

  // Chooses slices, lanes and slots, the same on all ranks.
  void fit(const Sizes& sizes);
  void fit_whole();
  // May peers read the message in this rank's arrays?
  bool points(const Instruction& in, bool in_place) const {
    const uint32_t flags =
        in_place ? Instruction::may_point : Instruction::may_point | Instruction::may_point_apart;
    return (in.flags & flags) && sent_chunk(in).where != Where::data_work;
  }
  bool all_point(bool in_place) const;  // all of them
  const Ref& sent_chunk(const Instruction& in) const {
    return plan->refs[in.store >= 0 ? static_cast<uint32_t>(in.store) : plan->operands[in.operand].refs];
  }
};

}  // namespace pc
