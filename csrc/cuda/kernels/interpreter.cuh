// The kernel that runs any plan. A block runs the program of one channel for every lanes-th slice of the data:
//
//     grid    block 0     channel 0, lane 0     slices 0, L, 2L, ...      blocks never wait for each other; block b of a rank
//             block 1     channel 0, lane 1     slices 1, L+1, ...        exchanges messages with block b of its peers
//             ...
//             block L     channel 1, lane 0
//
// An instruction, as in csrc/core/plan.hpp:
//
//     1. each end of a connection is looked after by one thread: is there room at the target, is the source's message there?
//     2. barrier: all threads know the slots
//     3. all threads combine the operands, group by group, into the store and the messages
//     4. barrier: all is read and written
//     5. the same threads as in 1 publish what was written and acknowledge what was read
#pragma once

#include "cuda/kernels/local.cuh"
#include "cuda/kernels/protocols.cuh"
#include "cuda/kernels/reducers.cuh"

namespace pc::cuda {

template <class R, class P>
class Interpreter {
  static constexpr uint32_t kWide = R::kWide, kUnrollWide = kWide > 4 ? 1 : kWide;
  static constexpr uint32_t kUnroll = R::kUnroll < P::kMostUnroll ? R::kUnroll : P::kMostUnroll;

 public:
  // `block`: which of the rank's blocks this is.
  PC_DEVICE Interpreter(const Call& call, char* shared, uint32_t block)
      : call_(call),
        block_(block),
        mailbox_(call.segment.mailbox[static_cast<uint32_t>(P::kind)]),
        thread_(call),
        peers_(reinterpret_cast<Peer*>(shared)),
        targets_(reinterpret_cast<End*>(peers_ + call.size)),
        sources_(targets_ + call.size),
        reducer_(reducer_of<R>(call)) {}

  PC_DEVICE void run() {
    const Channel channel = call_.channels[block_ / call_.lanes];
    connections_ = call_.connections + channel.connection;
    begin();
    for (uint32_t slice = block_ % call_.lanes; slice < call_.slices; slice += call_.lanes) {
      for (uint32_t pc = 0; pc < channel.ninstructions; ++pc) {
        note(pc, slice);
        if (!execute(call_.instructions[channel.instruction + pc], slice)) return;
      }
    }
    end();
  }

 private:
  // -- the memory of connections -----------------------------------------------------------------------------------

  PC_DEVICE uint64_t index(uint32_t peer) const { return uint64_t{peer} * call_.segment.blocks + block_; }
  PC_DEVICE Vector* slot(uint32_t owner, uint32_t source, uint64_t number) const {
    const uint64_t i = index(source) * call_.segment.depth + number % call_.segment.depth;
    return reinterpret_cast<Vector*>(call_.segments[owner] + mailbox_.slots + i * mailbox_.slot_bytes);
  }
  PC_DEVICE uint64_t* cell(uint32_t owner, uint32_t source, uint64_t number) const {
    return reinterpret_cast<uint64_t*>(call_.segments[owner] + mailbox_.cells + index(source) * kLineBytes) +
           number % call_.segment.depth;
  }
  // Where `reader` acknowledges what `owner` sends.
  PC_DEVICE uint64_t* credit(uint32_t owner, uint32_t reader) const {
    return reinterpret_cast<uint64_t*>(call_.segments[owner] + mailbox_.credits + index(reader) * kLineBytes);
  }
  PC_DEVICE Counter* counters() const {
    return reinterpret_cast<Counter*>(call_.segments[call_.rank] + mailbox_.counters) +
           uint64_t{block_} * call_.size;
  }
  PC_DEVICE uint64_t* calls() const {
    return reinterpret_cast<uint64_t*>(call_.segments[call_.rank] + call_.segment.calls) + block_;
  }

  // -- the call ----------------------------------------------------------------------------------------------------

  PC_DEVICE void begin() {
    for (uint32_t p = threadIdx.x; p < call_.size; p += blockDim.x) {
      const Counter counter = counters()[p];
      peers_[p] = {counter.sent, 0, counter.received};
    }
    stamp_ = (call_.fingerprint + *calls() * 0x9e3779b97f4a7c15u) * 0xd6e8feb86659fd93u;
    if (!mutant(kNoBarrierAtBegin)) __syncthreads();
  }

  PC_DEVICE void end() {
    for (uint32_t p = threadIdx.x; p < call_.size; p += blockDim.x)
      if (!mutant(kCountersNotSaved)) counters()[p] = {peers_[p].sent, peers_[p].received};
    if (threadIdx.x == 0) ++*calls();
  }

  // -- one instruction -----------------------------------------------------------------------------------------------

  // False when the communicator has been aborted.
  PC_DEVICE bool execute(const Instruction& in, uint32_t slice) {
    const Operand* operands = call_.operands + in.operand;
    const bool sends = in.connection >= 0;
    const Connection connection = sends ? connections_[in.connection] : Connection{0, 0};
    const int32_t* readers = call_.peers + connection.first;
    for (uint32_t k = threadIdx.x; k < connection.npeers; k += blockDim.x)
      open_target(k, static_cast<uint32_t>(readers[k]));
    for (uint32_t k = first_source(connection.npeers); k < in.noperands; k += blockDim.x)
      if (operands[k].peer >= 0) open_source(k, static_cast<uint32_t>(operands[k].peer));
    if (mutant(kNoBarrierBeforeWork) ? thread_.aborted : __syncthreads_or(thread_.aborted)) return false;

    uint32_t narrow_at = 0, wide_at = 0;
    for (uint32_t j = 0; j < in.nrefs; ++j) {
      const uint64_t length = call_.refs[in.shape + j].length, begin = uint64_t{slice} * call_.slice_elements;
      const uint32_t count =
          length > begin ? static_cast<uint32_t>(less(length - begin, call_.slice_elements)) : 0;
      const uint32_t groups = (count + reducer_.group() - 1) / reducer_.group();
      const Piece piece{j, begin, count, groups, P::plane(groups), narrow_at, wide_at};
      combine(in, operands, connection.npeers, piece);
      narrow_at += piece.plane;
      wide_at += piece.plane * reducer_.wide();
    }
    if (!P::kCells && narrow_at == 0)  // an empty message is one line: a barrier has to wait for something
      combine(in, operands, connection.npeers, {0, 0, 0, 1, P::plane(1), 0, 0});

    bool wiped = false;
    if (P::kind == Protocol::ll && !mutant(kNoWipe)) wiped = wipe(in, operands);
    if (mutant(kCreditTooEarly)) acknowledge(operands, in.noperands, connection.npeers, wiped);
    if (mutant(kNoBarrierAfterWork) ? thread_.aborted : __syncthreads_or(thread_.aborted)) return false;
    for (uint32_t k = threadIdx.x; k < connection.npeers; k += blockDim.x)
      P::publish(cell(static_cast<uint32_t>(readers[k]), call_.rank, targets_[k].number),
                 P::flag(call_, targets_[k].number, stamp_));
    if (!mutant(kCreditTooEarly)) acknowledge(operands, in.noperands, connection.npeers, wiped);
    return true;
  }

  static PC_DEVICE uint64_t less(uint64_t a, uint64_t b) { return a < b ? a : b; }

  PC_DEVICE void open_target(uint32_t k, uint32_t peer) {
    Peer& state = peers_[peer];
    const uint64_t number = ++state.sent;
    if (number > call_.segment.depth && !mutant(kNoCreditWait)) {
      const uint64_t needed = number - call_.segment.depth;
      while (state.acknowledged < needed) {
        state.acknowledged = P::credit(credit(call_.rank, peer));
        if (state.acknowledged < needed && !thread_.wait("credit", static_cast<int>(peer), needed)) break;
      }
    }
    targets_[k] = {slot(peer, call_.rank, number), number};
  }

  PC_DEVICE void open_source(uint32_t k, uint32_t peer) {
    const uint64_t number = ++peers_[peer].received;
    P::await(thread_, cell(call_.rank, peer, number), P::flag(call_, number, stamp_), static_cast<int>(peer));
    sources_[k] = {slot(call_.rank, peer, number), number};
  }

  // Of the sources that a thread looks after, which are counted from the last thread on. An end belongs to one thread for good: a
  // slow one may still acknowledge while the others open the ends of the next instruction.
  PC_DEVICE uint32_t first_source(uint32_t ntargets) const {
    if (mutant(kEndMovesOn)) return (threadIdx.x + blockDim.x - ntargets % blockDim.x) % blockDim.x;
    return blockDim.x - 1 - threadIdx.x;
  }

  PC_DEVICE void acknowledge(const Operand* operands, uint32_t noperands, uint32_t ntargets, bool wiped) {
    if (mutant(kCreditNeverGiven)) return;
    for (uint32_t k = first_source(ntargets); k < noperands; k += blockDim.x)
      if (operands[k].peer >= 0)
        P::give_credit(credit(static_cast<uint32_t>(operands[k].peer), call_.rank), sources_[k].number,
                       wiped);
  }

  // LL: before the numbers in the flags come again, each slot is cleared of old lines once.
  PC_DEVICE bool wipe(const Instruction& in, const Operand* operands) {
    bool any = false;
    for (uint32_t k = 0; k < in.noperands; ++k) {
      if (operands[k].peer < 0 || sources_[k].number % mailbox_.period >= call_.segment.depth) continue;
      if (!any && !mutant(kNoBarrierInWipe)) __syncthreads();  // all lines have been read
      any = true;
      for (uint32_t i = threadIdx.x; i < mailbox_.slot_bytes / kVectorBytes; i += blockDim.x)
        store_line(sources_[k].slot + i, Vector{});
    }
    return any;
  }

  // -- the data --------------------------------------------------------------------------------------------------------

  struct Piece {
    uint32_t ref;
    uint64_t begin;  // of the slice, in elements of the chunk
    uint32_t count, groups, plane;
    uint32_t narrow_at, wide_at;  // lines before it in a message of narrow, of wide elements
  };

  PC_DEVICE char* address(uint32_t ref, uint64_t begin) const {
    const DeviceRef& r = call_.refs[ref];
    return call_.base[r.where] + r.offset + begin * r.unit;
  }

  // Bytes of vector `w` of a group that are inside the piece.
  PC_DEVICE uint32_t bytes_of(const Piece& piece, uint32_t group, uint32_t w, bool wide) const {
    const uint32_t item = kVectorBytes / reducer_.group() * (wide ? reducer_.wide() : 1);
    const uint32_t left = (piece.count - group * reducer_.group()) * item;
    return left <= w * kVectorBytes ? 0 : static_cast<uint32_t>(less(left - w * kVectorBytes, kVectorBytes));
  }

  // Elements of a group that are inside the piece.
  PC_DEVICE uint32_t items_of(const Piece& piece, uint32_t group) const {
    return static_cast<uint32_t>(less(piece.count - group * reducer_.group(), reducer_.group()));
  }

  PC_DEVICE void combine(const Instruction& in, const Operand* operands, uint32_t readers,
                         const Piece& piece) {
    const bool finishes = call_.epilogue && (in.flags & Instruction::final_value);
    bool stores = in.store >= 0;
    char* const store = stores ? address(static_cast<uint32_t>(in.store) + piece.ref, piece.begin) : nullptr;
    if (stores && in.noperands == 1 && operands[0].peer < 0 && !finishes &&
        store == address(operands[0].refs + piece.ref, piece.begin)) {
      stores = false;  // it is there
      if (!readers) return;
    }
    const bool wide_store = kWide > 1 && (in.flags & Instruction::store_wide);
    const bool wide_send = kWide > 1 && (in.flags & Instruction::send_wide);
    const bool two_forms = stores && readers && wide_store != wide_send;
    const Output store_only{stores ? store : nullptr, 0}, both{store_only.store, readers};
    // Where nothing is combined and no form changes, vectors need not become numbers.
    const bool moves = R::kConverts && in.noperands == 1 && !finishes && !reducer_.normalises() &&
                       !two_forms && (operands[0].wide != 0) == (stores ? wide_store : wide_send);
    PC_ROLL
    for (uint32_t first = 0; first < piece.groups; first += P::stride() * kUnroll) {
      Place places[kUnroll];
      PC_UNROLL
      for (uint32_t u = 0; u < kUnroll; ++u) places[u] = P::place(first + u * P::stride(), piece.groups);
      typename R::Acc acc[kUnroll];
      if constexpr (CountsItems<R>) {
        PC_UNROLL
        for (uint32_t u = 0; u < kUnroll; ++u)
          reducer_.limit(acc[u], places[u].moves ? items_of(piece, places[u].group) : 0);
      }
      PC_ROLL
      for (uint32_t k = 0; k < in.noperands; ++k) {
        const bool wide = kWide > 1 && operands[k].wide != 0;
        PC_UNROLL_BY(kUnrollWide)
        for (uint32_t w = 0; w < kWide; ++w) {
          if (!has_vector(w, wide)) break;
          Vector raw[kUnroll];
          fetch(raw, operands[k], k, wide, w, piece, places);
          if (R::kConverts && moves) {
            put(raw, both, wide, w, piece, places);
            continue;
          }
          PC_UNROLL
          for (uint32_t u = 0; u < kUnroll; ++u) {
            if (k == 0)
              reducer_.read(acc[u], raw[u], wide, w);
            else
              reducer_.combine(acc[u], raw[u], wide, w);
          }
        }
      }
      if (R::kConverts && moves) continue;
      if (finishes) {
        PC_UNROLL
        for (uint32_t u = 0; u < kUnroll; ++u) reducer_.finish(acc[u], call_.epilogue, call_.factor);
      }
      PC_ROLL
      for (int form = 0; form < (two_forms ? 2 : 1); ++form) {  // narrow here and wide there: once for each
        const bool wide = form == 0 && stores ? wide_store : wide_send;
        const Output output = !two_forms ? both : form == 0 ? store_only : Output{nullptr, readers};
        PC_UNROLL_BY(kUnrollWide)
        for (uint32_t w = 0; w < kWide; ++w) {
          if (!has_vector(w, wide)) break;
          Vector raw[kUnroll];
          PC_UNROLL
          for (uint32_t u = 0; u < kUnroll; ++u) raw[u] = reducer_.write(acc[u], wide, w);
          put(raw, output, wide, w, piece, places);
        }
      }
    }
  }

  // Is there a vector `w` in a group?
  PC_DEVICE bool has_vector(uint32_t w, bool wide) const { return w == 0 || (wide && w < reducer_.wide()); }

  PC_DEVICE uint64_t local_offset(uint32_t group, uint32_t w, bool wide) const {
    return (uint64_t{group} * (wide ? reducer_.wide() : 1) + w) * kVectorBytes;
  }

  // Vector `w` of the groups of an operand.
  PC_DEVICE void fetch(Vector (&raw)[kUnroll], const Operand& operand, uint32_t k, bool wide, uint32_t w,
                       const Piece& piece, const Place (&places)[kUnroll]) {
    if (operand.peer < 0) {
      const char* from = address(operand.refs + piece.ref, piece.begin);
      PC_UNROLL
      for (uint32_t u = 0; u < kUnroll; ++u) {
        const uint32_t bytes = places[u].moves ? bytes_of(piece, places[u].group, w, wide) : 0;
        raw[u] = bytes ? load_bytes(from + local_offset(places[u].group, w, wide), bytes) : Vector{};
      }
      return;
    }
    const End source = sources_[k];
    const uint64_t flag = P::flag(call_, source.number, stamp_);
    const Vector* lines = source.slot + (wide ? piece.wide_at : piece.narrow_at) + w * piece.plane;
    typename P::Line line[kUnroll];
    PC_UNROLL
    for (uint32_t u = 0; u < kUnroll; ++u)
      if (places[u].active) line[u] = P::begin(lines, places[u]);
    PC_UNROLL
    for (uint32_t u = 0; u < kUnroll; ++u)
      if (places[u].active) raw[u] = P::finish(thread_, line[u], lines, places[u], flag, operand.peer);
  }

  struct Output {
    char* store;       // or nullptr
    uint32_t readers;  // of the messages
  };

  // Vector `w` of the groups of a result.
  PC_DEVICE void put(const Vector (&raw)[kUnroll], const Output& output, bool wide, uint32_t w,
                     const Piece& piece, const Place (&places)[kUnroll]) {
    if (output.store) {
      PC_UNROLL
      for (uint32_t u = 0; u < kUnroll; ++u) {
        const uint32_t bytes = places[u].moves ? bytes_of(piece, places[u].group, w, wide) : 0;
        if (bytes) store_bytes(output.store + local_offset(places[u].group, w, wide), raw[u], bytes);
      }
    }
    PC_ROLL
    for (uint32_t k = 0; k < output.readers; ++k) {
      Vector* lines = targets_[k].slot + (wide ? piece.wide_at : piece.narrow_at) + w * piece.plane;
      const uint64_t flag = P::flag(call_, targets_[k].number, stamp_);
      PC_UNROLL
      for (uint32_t u = 0; u < kUnroll; ++u)
        if (places[u].active) P::send(lines, places[u], raw[u], flag);
    }
  }

  const Call& call_;
  const uint32_t block_;
  const Mailbox& mailbox_;
  Thread<Call> thread_;
  Peer* peers_;
  End *targets_, *sources_;
  const Connection* connections_ = nullptr;
  uint64_t stamp_ = 0;
  R reducer_;
};

template <class R, class P>
PC_KERNEL(kMostThreads[static_cast<uint32_t>(P::kind)])
void interpret(PC_PARAMETER Call call) {
  PC_SHARED_MEMORY(shared);
  Interpreter<R, P>(call, shared, blockIdx.x).run();
}

}  // namespace pc::cuda
