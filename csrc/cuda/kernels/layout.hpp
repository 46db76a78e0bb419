// What host and device share: the memory of a rank that its peers write to, the plan in the form that kernels read, and the
// arguments of a launch.
//
// Data are pushed: a sender writes into a slot in the receiver's memory, so that everybody polls memory of his own.
//
//     segment of rank r           written by      read by
//       abort                     anyone          r            a word that ends the waiting of all kernels
//       for each protocol a Mailbox:
//         cells                   the sender      r            Simple: what has arrived, a cell for each slot
//         credits                 the receiver    r            how many of r's messages it has consumed
//         slots                   the sender      r            the messages: [source][block][depth]
//         counters                r               r            numbers of the last messages, kept from call to call
//       gates                     the peers       r            native kernels: who is there, and where his arrays are
//       staging                   anyone          anyone       native kernels: stands in for arrays that peers cannot reach
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/plan.hpp"
#include "cuda/kernels/vector.hpp"

namespace pc::cuda {

enum class Protocol : uint32_t { ll, ll128, simple };
inline constexpr uint32_t kProtocols = 3;
inline constexpr const char* kProtocolNames[kProtocols] = {"ll", "ll128", "simple"};

inline constexpr uint32_t kThreads = 512;  // the most in a block
// By protocol: messages by LL are short, and its threads hold many registers.
inline constexpr uint32_t kMostThreads[kProtocols] = {256, kThreads, kThreads};
inline constexpr uint32_t kLineBytes = 128;

// Numbers of the messages between this block and the same block of a peer.
struct Counter {
  uint64_t sent, received;
};

// Offsets within a segment; the same for all ranks of a communicator.
struct Mailbox {
  uint64_t cells, credits, slots, counters;
  uint32_t slot_bytes;
  uint32_t number_mask;  // of a message's number, the part that LL flags carry
  uint32_t period;       // LL: each slot is wiped once in so many messages, before numbers come again
  uint32_t reserved;
};

// What a rank tells the same block of a peer when it comes to a gate: a line for each block and rank.
struct Gate {
  uint64_t number;   // of the gate, and the stamp of the call above bit 32
  uint64_t in, out;  // where its arrays are
};

// Where memory is that several ranks use: a region, and the offset in it. Region 0 is the address space itself.
inline constexpr uint64_t kRegionShift = 48;
inline constexpr uint64_t kSegmentRegion = 1;

struct Segment {
  uint64_t abort;        // offset of the abort word
  uint64_t calls, gone;  // of the number of calls made, and of gates passed, by block
  uint64_t gates;        // [block][rank]
  uint64_t staging;      // two halves: for inputs, for outputs
  uint64_t half;         // bytes of one
  Mailbox mailbox[kProtocols];
  uint32_t blocks, depth;  // blocks per call at most; messages in flight per peer and block
  uint64_t bytes;
};

// Where a chunk's elements lie, for the channel that the reference belongs to.
struct DeviceRef {
  uint64_t offset;  // bytes from the beginning of its place
  uint64_t length;  // elements
  uint32_t where;
  uint32_t unit;  // bytes from one element's place to the next
};

enum class Failure : uint32_t { none, aborted, mismatch };

// Written by kernels, read by the host; in host memory that the device can write.
struct Status {
  uint64_t abort;    // the host asks the kernels to end
  uint64_t failure;  // Failure, and the peer at fault above bit 32
};

struct Call {
  char* base[kPlaces];
  char* const* segments;  // of all ranks
  Status* status;
  const Instruction* instructions;
  const Operand* operands;
  const DeviceRef* refs;
  const Connection* connections;
  const int32_t* peers;
  const Channel* channels;
  Segment segment;
  uint64_t fingerprint;
  double factor;  // of the epilogue
  uint32_t rank, size;
  uint32_t lanes, slices;   // blocks per channel; each runs every lanes-th slice
  uint32_t slice_elements;  // of every chunk, the last slice's may be fewer
  uint32_t epilogue;
  uint32_t dtype, op;
  const void* user;  // the operator of the caller's, where kernels run on the CPU (kernels/user.cuh)
};

// A collective by a native kernel. Inputs and outputs are one block of elements or one per rank, `stride` apart; a rank combines one
// block of all inputs, or takes its own, and stores it into all outputs, or into its own.
struct DirectCall {
  char *in, *out;
  char* const* segments;  // of all ranks
  char* const* regions;   // [region][rank]
  Status* status;
  Segment segment;
  uint64_t fingerprint;
  uint64_t in_place, out_place;  // as peers find the arrays; 0: they cannot, and staging stands in
  uint64_t total, stride;        // elements of all blocks, and from one to the next
  double factor;
  uint32_t rank, size;
  uint32_t in_blocks, out_blocks;
  uint32_t in_block, out_block;  // that this rank takes and stores
  uint32_t window;               // elements of each block in a round
  uint32_t rounds;
  uint32_t takes_all, stores_all, works;  // bool
  uint32_t epilogue, dtype, op;
  const void* user;  // as in Call
  // By the switch (kernels/multicast.cuh), where sizes are in bytes:
  char *local,
      *multicast;  // the own memory that is bound to the multicast object, and where all of it is at once
  char *in_everywhere,
      *out_everywhere;  // the same for arrays that the switch reaches where they are; else nullptr
};

// Memory that is bound to a multicast object: a line for each block, and two halves as in staging.
inline constexpr uint64_t multicast_half(const Segment& segment, uint32_t half) {
  return (uint64_t{segment.blocks} * kLineBytes + 511) / 512 * 512 + half * segment.half;
}
inline constexpr uint64_t multicast_bytes(const Segment& segment) { return multicast_half(segment, 2); }

// One grid for several ranks of a process (kernels/fused.cuh). A part for each: the number of its blocks, and its Call or DirectCall.
struct FusedCall {
  const char* parts;
  uint32_t share;  // blocks of a rank, of which it may use fewer
};

struct alignas(kVectorBytes) PartHead {
  uint32_t blocks;
};

inline constexpr size_t padded(size_t bytes) {
  return (bytes + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
}
inline constexpr size_t kCallBytes =
    padded(sizeof(Call) > sizeof(DirectCall) ? sizeof(Call) : sizeof(DirectCall));
inline constexpr size_t kPartBytes = sizeof(PartHead) + kCallBytes;

// Words that a kernel writes somewhere, in the order of a stream: a kernel's arguments may be 4096 bytes.
struct Parcel {
  static constexpr uint32_t kMost = 510, kThreads = 32;
  uint64_t* to;
  uint32_t count;
  uint64_t word[kMost];
};

// Shared memory of a block: its ends of all connections.
struct End {
  Vector* slot;
  uint64_t number;
};

struct Peer {
  uint64_t sent, acknowledged, received;
};

// Shared memory of a native kernel's block: where everybody's arrays are in this round.
struct Arrays {
  char *in, *out;
};

inline constexpr size_t shared_bytes(uint32_t size) {
  return size * sizeof(Peer) + (2 * size + 2) * sizeof(End);
}

}  // namespace pc::cuda
