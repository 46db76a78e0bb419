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
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/plan.hpp"
#include "cuda/kernels/ptx.cuh"

namespace pc::cuda {

enum class Protocol : uint32_t { ll, ll128, simple };
inline constexpr uint32_t kProtocols = 3;
inline constexpr const char* kProtocolNames[kProtocols] = {"ll", "ll128", "simple"};

inline constexpr uint32_t kThreads = 512;  // the most in a block
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

struct Segment {
  uint64_t abort;  // offset of the abort word
  uint64_t calls;  // of the number of calls made, by block
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
};

// Shared memory of a block: its ends of all connections.
struct End {
  Vector* slot;
  uint64_t number;
};

struct Peer {
  uint64_t sent, acknowledged, received;
};

inline constexpr size_t shared_bytes(uint32_t size) {
  return size * sizeof(Peer) + (2 * size + 2) * sizeof(End);
}

}  // namespace pc::cuda
