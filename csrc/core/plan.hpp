// A plan: the schedule of one rank, lowered to flat arrays. It holds chunk indices and no sizes, so one plan
// serves every message size. A call brings the sizes (see chunking.hpp) and the executor runs every channel's
// program slice by slice.
//
// There is a single kind of instruction. Its operands are messages from peers and local chunks, in rank
// order; their combination (or the single operand) goes to local chunks, to a connection, or to both in one
// pass:
//
//     operands                      store                 connection
//     local                 ->      -                     peers        send
//     message               ->      chunks                -            recv
//     message, local, ...   ->      chunks                -            reduce
//     message, local, ...   ->      (chunks)              peers        reduce and send, fused
//     local                 ->      chunks                -            copy
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pc {

// Where the pieces of a chunk live. `data_*`: chunks of the working vector, by place; the others are named by
// the author.
enum class Where : uint32_t { data_in, data_out, data_work, input, output, scratch };
inline constexpr size_t kPlaces = 6;
inline constexpr uint32_t kMostChunks = 1 << 20;

struct Ref {
  Where where;
  uint32_t chunk;
};

struct Operand {
  int32_t peer;   // the rank whose message this is, or -1: local
  uint32_t refs;  // local: index of the first of the instruction's `nrefs` chunks
  uint32_t wide;  // elements are of the accumulation type (partial sums of 16- and 8-bit floats)
};

struct Instruction {
  enum Flags : uint32_t {
    final_value = 1,   // the result is complete: apply the epilogue (average, scale)
    store_wide = 2,    // the stored elements are of the accumulation type
    send_wide = 4,     // so are the sent ones
    first_output = 8,  // the first write to the caller's output: all ranks must have agreed on the call
    may_point = 16,    // the sent chunk is not written again in this call: peers may read it in place
    may_point_apart =
        32,         // it is, but in the output while it is read in the input: not where the call is in place
    last_use = 64,  // this rank does not read the stored chunks again in this call
  };
  uint32_t operand, noperands;
  uint32_t nrefs;      // chunks of the message
  uint32_t shape;      // index of the first of `nrefs` chunks that give the sizes
  int32_t store;       // index of the first of `nrefs` chunks, or -1
  int32_t connection;  // index within the channel, or -1
  uint32_t flags;
  uint32_t step;  // label, for tracing
};

struct Connection {
  uint32_t first, npeers;  // the peers that read each message
};

struct Channel {
  uint32_t instruction, ninstructions;
  uint32_t connection, nconnections;
};

// The tables of a plan as they come from Python or from a file: rows of 32-bit numbers, one after the other.
struct PlanTables {
  std::span<const int32_t> instructions, operands, refs, connections, peers, channels, scratch_like;
};

struct Plan {
  int size = 0, rank = 0;
  uint32_t nchunks = 0, nscratch = 0;
  uint32_t max_message = 1;      // the most chunks in one message, over all ranks
  uint32_t max_connections = 1;  // the most connections of one channel, over all ranks
  uint32_t steps = 1;            // of the schedule: the most slices worth having in flight
  bool waits_for_all = false;    // the result depends on every rank
  bool proves_all = false;       // and what goes to the output has passed through all of them
  bool balanced = false;         // every rank sends as many messages as every other
  std::vector<Instruction> instructions;
  std::vector<Operand> operands;
  std::vector<Ref> refs;
  std::vector<Connection> connections;
  std::vector<int32_t> peers;
  std::vector<Channel> channels;
  std::vector<uint32_t> scratch_like;  // the data chunk that each scratch chunk has the size of

  // Fills in the tables; the numbers above have been set. Throws Error(schedule) unless every index is in range.
  void decode(const PlanTables& tables);

 private:
  void validate() const;
};

}  // namespace pc
