// The protocols: how the vectors of a message lie in a slot, and how the receiver knows that they are there.
//
//     Simple     plain vectors. The sender's block writes them, meets at a barrier, and one thread releases the slot's cell; a
//                thread of the receiver's acquires it. High bandwidth; two barriers and two fences of latency.
//
//     LL         lines of 16 bytes:  | data 4 | flag 4 | data 4 | flag 4 |      whole to 8 bytes, so each half has its flag.
//                Whoever reads a line knows from its flags that it is the line of this message. No fence; half the bandwidth.
//
//     LL128      lines of 128 bytes: | data 120 | flag 8 |                      whole to 128 bytes where the link keeps the stores
//                of a warp together, which only some do (host/links.hpp). 15/16 of the bandwidth, no fence.
//
//                lane     0  1  2  3  4  5  6  7    8  9 10 11 12 13 14 15      two lines are written by 16 lanes:
//                vector   0  1  2  3  4  5  6  7'f  8  9 10 11 12 13 14 7"f     vector 7 is split between the two flag lanes
//
// A flag is the message's number and a part of the call's fingerprint, so that ranks which call different things find out at the
// first line. Only the low bits of a number fit into LL's; before they come again the receiver wipes each slot once.
//
// Credits: a sender uses a slot again when the receiver has acknowledged the message before it in that slot.
#pragma once

#include "cuda/kernels/mutants.hpp"
#include "cuda/kernels/thread.cuh"

namespace pc::cuda {

// A thread's part of a piece: a group of elements and the line that carries its vector.
struct Place {
  uint32_t group, line;
  bool moves;   // it has a group
  bool active;  // it takes part in moving lines
};

PC_DEVICE uint32_t warp_of_block() { return threadIdx.x / 32; }

struct Simple {
  static constexpr Protocol kind = Protocol::simple;
  static constexpr bool kCells = true;
  static constexpr uint32_t kMostUnroll = 4;

  static PC_DEVICE uint64_t flag(const Call&, uint64_t number, uint64_t stamp) {
    return (stamp & 0xffffffff00000000u) | (mutant(kCellConstant) ? 1 : static_cast<uint32_t>(number));
  }

  // Lines of a plane: one vector of each group of a piece.
  static PC_DEVICE uint32_t plane(uint32_t groups) { return groups; }
  // Groups that the block moves at a time.
  static PC_DEVICE uint32_t stride() { return blockDim.x; }
  static PC_DEVICE Place place(uint32_t first, uint32_t groups) {
    const uint32_t g = first + threadIdx.x;
    return {g, g, g < groups, g < groups};
  }

  struct Line {
    Vector v;
  };
  static PC_DEVICE Line begin(const Vector* slot, const Place& place) {
    return {load_vector(slot + place.line)};
  }
  static PC_DEVICE Vector finish(Thread<Call>&, const Line& line, const Vector*, const Place&, uint64_t,
                                 int) {
    return line.v;
  }
  static PC_DEVICE void send(Vector* slot, const Place& place, const Vector& v, uint64_t) {
    store_vector(slot + place.line, v);
  }

  static PC_DEVICE void await(Thread<Call>& thread, const uint64_t* cell, uint64_t flag, int peer) {
    for (;;) {
      const uint64_t seen = mutant(kCellNotAcquired) ? load_relaxed_sys(cell) : load_acquire_sys(cell);
      if (seen == flag) return;
      if (static_cast<uint32_t>(seen) == static_cast<uint32_t>(flag)) {  // the message, but of another call
        if (mutant(kCellNotChecked)) return;
        return thread.fail(Failure::mismatch, static_cast<uint32_t>(peer));
      }
      if (!thread.wait("message", peer, flag)) return;
    }
  }
  static PC_DEVICE void publish(uint64_t* cell, uint64_t flag) {
    if (mutant(kCellNotReleased))
      store_relaxed_sys(cell, flag);
    else if (mutant(kCellGpuScope))
      store_release_gpu(cell, flag);
    else
      store_release_sys(cell, flag);
  }
  static PC_DEVICE uint64_t credit(const uint64_t* from) {
    return mutant(kCreditNotAcquired) ? load_relaxed_sys(from) : load_acquire_sys(from);
  }
  static PC_DEVICE void give_credit(uint64_t* to, uint64_t number, bool) {
    if (mutant(kCreditNotReleased))
      store_relaxed_sys(to, number);
    else
      store_release_sys(to, number);
  }
};

// What LL and LL128 have in common: every line says whose it is.
struct Flagged {
  static constexpr bool kCells = false;
  static PC_DEVICE void await(Thread<Call>&, const uint64_t*, uint64_t, int) {}
  static PC_DEVICE void publish(uint64_t*, uint64_t) {}

  // Lines are only touched by single accesses that bypass no one, and a reader has seen its line's flags before the barrier that
  // precedes the credit: no fence is needed, except after a wipe, which nothing but the credit orders before the next message.
  static PC_DEVICE uint64_t credit(const uint64_t* from) { return load_relaxed_sys(from); }
  static PC_DEVICE void give_credit(uint64_t* to, uint64_t number, bool wiped) {
    if (wiped && !mutant(kWipeNotReleased))
      store_release_sys(to, number);
    else
      store_relaxed_sys(to, number);
  }
};

struct LL : Flagged {
  static constexpr Protocol kind = Protocol::ll;
  static constexpr uint32_t kMostUnroll = 1;

  // 32 bits: the low bits of the number, and above them fingerprint bits that are never all 0, as those of a wiped line are.
  static PC_DEVICE uint64_t flag(const Call& call, uint64_t number, uint64_t stamp) {
    const uint32_t mask = call.segment.mailbox[0].number_mask;
    const uint32_t low = mutant(kFlagConstant) ? 1 : static_cast<uint32_t>(number) & mask;
    return low | ((static_cast<uint32_t>(stamp >> 32) | (mask + 1)) & ~mask);
  }

  static PC_DEVICE uint32_t plane(uint32_t groups) { return 2 * groups; }
  static PC_DEVICE uint32_t stride() { return blockDim.x; }
  static PC_DEVICE Place place(uint32_t first, uint32_t groups) {
    const uint32_t g = first + threadIdx.x;
    return {g, 2 * g, g < groups, g < groups};
  }

  struct Line {
    Vector first, second;
  };
  static PC_DEVICE Line begin(const Vector* slot, const Place& place) {
    return {load_line(slot + place.line), load_line(slot + place.line + 1)};
  }
  static PC_DEVICE bool has(const Vector& line, uint32_t flag) {
    return (line.word[1] == flag || mutant(kFirstFlagUnchecked)) &&
           (line.word[3] == flag || mutant(kSecondFlagUnchecked));
  }
  static PC_DEVICE bool foreign(Thread<Call>& thread, uint32_t seen, uint32_t flag, int peer) {
    const uint32_t mask = thread.call.segment.mailbox[0].number_mask;
    if (seen == flag || (seen & mask) != (flag & mask) || (seen & ~mask) == 0) return false;
    if (!thread.aborted) thread.fail(Failure::mismatch, static_cast<uint32_t>(peer));
    return true;
  }
  static PC_DEVICE void await_line(Thread<Call>& thread, Vector& line, const Vector* from, uint32_t flag,
                                   int peer) {
    while (!has(line, flag)) {
      if (mutant(kFlagWithoutCall)) {
        const uint32_t mask = thread.call.segment.mailbox[0].number_mask;
        if ((line.word[1] & mask) == (flag & mask) && (line.word[3] & mask) == (flag & mask) && line.word[1])
          return;
      } else if (foreign(thread, line.word[1], flag, peer) || foreign(thread, line.word[3], flag, peer)) {
        return;
      }
      if (!thread.wait("line", peer, flag)) return;
      line = load_line(from);
    }
  }
  static PC_DEVICE Vector finish(Thread<Call>& thread, const Line& line, const Vector* slot,
                                 const Place& place, uint64_t flag, int peer) {
    Vector first = line.first, second = line.second;
    await_line(thread, first, slot + place.line, static_cast<uint32_t>(flag), peer);
    await_line(thread, second, slot + place.line + 1, static_cast<uint32_t>(flag), peer);
    return {{first.word[0], first.word[2], second.word[0], second.word[2]}};
  }
  static PC_DEVICE void send(Vector* slot, const Place& place, const Vector& v, uint64_t flag) {
    const auto f = static_cast<uint32_t>(flag);
    store_line(slot + place.line, {{v.word[0], f, v.word[1], f}});
    store_line(slot + place.line + 1, {{v.word[2], f, v.word[3], f}});
  }
};

struct LL128 : Flagged {
  static constexpr Protocol kind = Protocol::ll128;
  static constexpr uint32_t kMostUnroll = 1;
  static constexpr uint32_t kGroups = 30;  // that a warp moves at a time, in 4 lines

  static PC_DEVICE uint64_t flag(const Call&, uint64_t number, uint64_t stamp) {
    const uint64_t low = mutant(kFlagConstant) ? 1 : static_cast<uint32_t>(number);
    return low | ((stamp | uint64_t{1} << 32) & 0xffffffff00000000u);
  }

  static PC_DEVICE uint32_t plane(uint32_t groups) { return (groups + kGroups - 1) / kGroups * 32; }
  static PC_DEVICE uint32_t stride() { return blockDim.x / 32 * kGroups; }
  static PC_DEVICE Place place(uint32_t first, uint32_t groups) {
    const uint32_t run = first / kGroups + warp_of_block(), lane = threadIdx.x % 32, q = lane % 16;
    const uint32_t group = run * kGroups + lane / 16 * 15 + q;
    return {group, run * 32 + lane, q < 15 && group < groups, run * kGroups < groups};
  }

  struct Line {
    Vector v;
  };
  static PC_DEVICE Line begin(const Vector* slot, const Place& place) {
    return {load_warp_lines(slot + place.line)};
  }
  static PC_DEVICE uint64_t flag_in(const Vector& v) { return v.word[2] | uint64_t{v.word[3]} << 32; }

  // All lanes of the warp together.
  static PC_DEVICE Vector finish(Thread<Call>& thread, const Line& line, const Vector* slot,
                                 const Place& place, uint64_t flag, int peer) {
    Vector v = line.v;
    const uint32_t lane = threadIdx.x % 32;
    const bool checks = lane % 8 == 7 && !(mutant(kLineFlagUnchecked) && lane % 16 == 7) &&
                        !(mutant(kSecondLineFlagUnchecked) && lane % 16 == 15);
    for (;;) {
      const uint64_t seen = flag_in(v);
      bool there = !checks || seen == flag;
      if (!there && static_cast<uint32_t>(seen) == static_cast<uint32_t>(flag) && seen >> 32) {
        if (mutant(kFlagWithoutCall))
          there = true;
        else if (!thread.aborted)
          thread.fail(Failure::mismatch, static_cast<uint32_t>(peer));
      }
      const bool again = !there && thread.wait("line", peer, flag);
      if (!(mutant(kNoVote) ? again : __any_sync(~0u, again))) break;
      v = load_warp_lines(slot + place.line);
    }
    // The lower halves of the flag lanes are the two halves of vector 7.
    const uint32_t upper0 = __shfl_down_sync(~0u, v.word[0], 8), upper1 = __shfl_down_sync(~0u, v.word[1], 8);
    if (lane % 16 == 7 && !mutant(kNoSplit)) {
      v.word[2] = upper0;
      v.word[3] = upper1;
    }
    return v;
  }
  static PC_DEVICE void send(Vector* slot, const Place& place, const Vector& vector, uint64_t flag) {
    Vector v = vector;
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t upper0 = __shfl_up_sync(~0u, v.word[2], 8), upper1 = __shfl_up_sync(~0u, v.word[3], 8);
    if (lane % 16 == 15) {
      v.word[0] = upper0;
      v.word[1] = upper1;
    }
    if (lane % 8 == 7) {
      v.word[2] = static_cast<uint32_t>(flag);
      v.word[3] = static_cast<uint32_t>(flag >> 32);
    }
    store_warp_lines(slot + place.line, v);
  }
};

}  // namespace pc::cuda
