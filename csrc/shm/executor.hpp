// Runs plans over shared memory.
//
// A plan's channel is a sequential program. It is run once per slice of the data, and several slices are in
// flight in lanes of their own, so that one slice may be reduced up a tree while another is broadcast down:
//
//     channel 0   lane 0   slice 0 ........ slice 2 ........ slice 4    each lane has messages, headers and
//                 lane 1   slice 1 ........ slice 3 ........            slots of its own: lanes never wait
//     channel 1   lane 2   slice 0 ...
//
// One thread serves all lanes: it makes every step that can be made and waits politely when none can.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shm/fault.hpp"
#include "shm/group.hpp"
#include "shm/own_core.hpp"
#include "shm/prepared.hpp"
#include "shm/store_path.hpp"

namespace pc {

inline constexpr size_t kBlock =
    8192;  // of a result that is streamed: stays in the first level of the caches
inline constexpr size_t kFetched =
    size_t{128} << 10;  // of messages that are operands, at a time, if they lie in other processes
// Bytes by which messages grow while they are read.
#ifdef PC_CHECKED  // by the native tests, whose messages are short
inline constexpr size_t kGrowth = 256;
#else
inline constexpr size_t kGrowth = 32768;
#endif

// To measure what it costs: CXXFLAGS=-DPYCOLLECTIVES_WITHOUT_AGREEMENT. Nothing else may turn it off.
#ifdef PYCOLLECTIVES_WITHOUT_AGREEMENT
inline constexpr bool kAgreement = false;
#else
inline constexpr bool kAgreement = true;
#endif

// What the executor did, instruction by instruction, with the working vector and the scratch memory after each; for
// teaching and tests.
struct TraceEvent {
  uint32_t channel, slice, instruction, step;
  uint64_t ns;
  std::vector<std::byte> state;
};

// Who looks on after each instruction: a trace, a test.
struct Probe {
  std::vector<TraceEvent>* trace = nullptr;
  Fault* fault = nullptr;
  std::byte blank{};  // of scratch memory, at the start of a trace
};

struct Call {
  const Prepared* prepared;
  const std::byte* in;
  std::byte* out;
  uint64_t sequence;
  uint64_t timeout_ns;
  bool interruptible = false;  // on the interpreter's main thread: Ctrl-C ends the wait
  uint64_t site = 0;           // where the caller is: number of a text in the recorder
  const Probe* probe = nullptr;
};

// What one rank publishes in a call, by Carrier.
struct Traffic {
  std::array<uint64_t, 4> messages{}, bytes{};
};

// A range of memory that all members have mapped (symmetric memory): peers may read it in place.
struct Region {
  uint32_t id;                   // below 2^30, the same on all ranks
  std::vector<std::byte*> base;  // by rank
  size_t bytes;
};

class Executor {
 public:
  Executor(Group& group, Patience patience, Stores stores = Stores::automatic);

  // Executes one call. Throws Error; the communicator is then poisoned.
  void run(const Call& call);

  void reserve(
      const Prepared& prepared);  // memory for `run`, which allocates nothing (but see prepare_to_stage)
  // What this rank would publish: for explanations. `symmetric`: its arrays lie in memory that all have mapped.
  static Traffic traffic(const Prepared& prepared, bool in_place, bool symmetric);

  void add_region(Region region);
  void remove_region(uint32_t id);

  static void set_interrupt(bool (*interrupted)()) { interrupted_ = interrupted; }
  static bool interrupted() { return interrupted_ && interrupted_(); }

  // Who is told of a long wait, after how many nanoseconds (0: never), and each time it has doubled. False ends the wait.
  static void set_warning(bool (*warn)(const std::string&), uint64_t after_ns) {
    warn_ = warn;
    warn_after_ns_ = after_ns;
  }
  static uint64_t warn_after_ns() { return warn_after_ns_; }
  // Says so if `due_ns` have passed, and moves it. Throws Error(interrupted).
  static void warn(uint64_t waited_ns, uint64_t& due_ns, const std::string& text);
  static inline Fault fault;
  uint64_t whole_calls() const { return whole_calls_; }  // that were cut into whole blocks
  void set_patience(const Patience& patience) { patience_ = patience; }

 private:
  struct Lane {
    const Instruction* program = nullptr;
    const Connection* connections = nullptr;
    uint32_t id = 0, index = 0, channel = 0, length = 0, pc = 0, slice = 0;
    uint32_t arrived = 0;  // operands of the current instruction whose message is there
    uint64_t taken = 0;    // elements that the current instruction is through with
    bool done = true;
  };

  struct Message {
    Carrier carrier = Carrier::inlined;
    uint32_t region = 0;
    uint64_t location = 0;
    size_t bytes = 0;
    std::byte* target = nullptr;         // where to write it, if anywhere
    const std::byte* payload = nullptr;  // where it is then, if not in the header
    bool stream = false;                 // written past the caches
  };

  void begin(const Call& call);
  void map_slots(const Prepared& prepared);
  void announce(const Call& call);
  Contest* begin_contest(const Call& call);
  bool may_be_whole() const;
  void choose_cut(const Contest& contest);
  void hear_of_cut(Waiter& waiter);
  bool all_readable();
  void prepare_to_stage();
  std::byte* staged(size_t bytes);
  Ways open_ways() const;
  void end_contest(Contest& contest);
  Contest::Times times_of_all(const Contest& contest) const;
  void listen(const Plan& plan);
  void lay_out_slots();
  void hand_over(Waiter& waiter);
  void describe_kind() const;
  void work(Waiter& waiter);
  bool advance(Lane& lane);
  bool writable(const Lane& lane, uint32_t connection);
  bool settled(const Lane& lane, const Instruction& in);
  bool agreed();
  void compute(const Lane& lane, const Instruction& in);
  void compute_brief(const Lane& lane, const Instruction& in);
  Message way_out(const Lane& lane, const Instruction& in, uint32_t part);
  bool streams(const Lane& lane, const Connection& connection, size_t bytes);
  size_t message_bytes(const Instruction& in, uint32_t part) const;
  void combine(const Lane& lane, const Instruction& in, uint32_t part, const Message& message,
               uint64_t begin = 0, uint64_t end = UINT64_MAX);
  bool grows(const Instruction& in, const Message& message) const;
  bool is_complete(const Lane& lane, const Instruction& in, const Header& header) const;
  void send_growing(const Lane& lane, const Instruction& in, uint32_t part, Message& message);
  bool follow(Lane& lane, const Instruction& in);
  void combine_single_copy(const Lane& lane, const Instruction& in, uint32_t part, const Message& message);
  void fetch(int peer, const std::byte* there, void* here, size_t bytes);
  bool readable(const Connection& connection) const;
  bool own_arrays_readable(const Call& call) const;
  // Does the message lie in the own memory of a rank on this host? What comes from others lies in a buffer of this process.
  bool is_elsewhere(int peer, const Header& header) const {
    return static_cast<Carrier>(header.carrier & 3) == Carrier::pointer && !group_.remote(peer);
  }
  const Header& next_header(const Lane& lane, int peer) const {
    return group_.header(peer, rank_, lane.id, received_[static_cast<size_t>(peer)][lane.id] + 1);
  }
  // The same if the message has been published, perhaps one that still grows. Throws where its sender has called something else.
  const Header* next_arrived(const Lane& lane, int peer) {
    const uint64_t number = received_[static_cast<size_t>(peer)][lane.id] + 1;
    const Header& header = group_.header(peer, rank_, lane.id, number);
    if (header.flag.load(std::memory_order_acquire) != number) return nullptr;
    if (kAgreement && header.fingerprint != fingerprint_) [[unlikely]]
      group_.raise_mismatch(call_->sequence);
    return &header;
  }
  void copy_piece(const Sink* targets, int ntargets, size_t bytes, int32_t peer);
  void fold_piece(int nsources, const Sink* targets, int ntargets, uint64_t length, const Epilogue& epilogue);
  void fold(int nsources, const Sink* sinks, int nsinks, uint64_t length, const Epilogue& epilogue);
  void publish(const Lane& lane, const Instruction& in, const Message& message);
  void finish(Lane& lane);
  void observe(const Lane& lane, const Instruction& in);
  void drain(Waiter& waiter, bool pointers_only);
  void look_after_peers(int awaited);
  void say_who_is_awaited(uint64_t waited);
  int awaited();
  bool waits_for_own_core() const;
  const std::byte* payload(int peer, const Header& header) const;
  bool comes_from_far(int peer, const Header& header) const;
  const Region* region_of(const std::byte* address, size_t bytes) const;
  bool all_symmetric(const Call& call) const;
  static size_t piece_bytes(const Instruction& in, uint64_t length, size_t element);
  std::byte* address(const Ref& ref, uint64_t begin) const;
  Piece part_of(const Ref& shape, uint32_t part) const;
  size_t slot_index(const Lane& lane, uint32_t connection) const {
    return lane.id * prepared_->plan->max_connections + connection;
  }
  size_t reader_index(const Lane& lane, const Connection& connection, uint32_t k, uint32_t turn) const {
    return ((connection.first + k) * flow_->lanes + lane.index) * flow_->slots + turn;
  }

  // Large messages: a rank that runs far ahead writes what has left the caches before it is read.
  uint32_t depth() const { return prepared_->brief && !group_.mirror() ? kDepth : kLargeDepth; }

  Group& group_;
  Patience patience_;
  const int rank_, size_;

  // The running number of the last message per peer and lane: sent, acknowledged as last seen, received.
  std::vector<std::array<uint64_t, kMaxLanes>> sent_, acked_, received_;
  std::vector<uint64_t> slot_reader_;  // the number of the message that last used a slot, per reader
  std::vector<uint32_t> slot_turn_;    // messages put into slots, per lane and connection
  std::vector<uint8_t> pointed_;       // peers that may still read our buffers
  std::vector<Source> sources_;
  std::vector<Source> arrived_;  // what is left of the messages of an instruction
  std::vector<std::byte> work_, scratch_;
  std::vector<std::byte> fetched_;  // blocks of messages that are read in the senders' memory
  Mapping staging_;                 // messages of whole blocks that cannot be read in the caller's arrays
  size_t staged_ = 0;               // bytes of it in use
  std::vector<Region> regions_;
  std::array<Lane, kMaxLanes> lanes_;
  uint32_t nlanes_ = 0;

  // of the running call
  const Prepared* prepared_ = nullptr;
  const Flow* flow_ = nullptr;
  const Plan* last_plan_ = nullptr;
  uint32_t last_lanes_ = 0, last_slots_ = 0;
  size_t last_slot_bytes_ = 0;
  size_t mapped_slots_ = 0;  // bytes of every pool
  bool settled_ = true;      // nobody reads slots that were laid out for an earlier call
  std::vector<std::array<uint64_t, kMaxLanes>> unsettled_;  // what was sent before
  std::shared_ptr<const Plan> keep_plan_;
  const Call* call_ = nullptr;
  uint64_t fingerprint_ = 0;
  uint64_t waiting_since_ = 0, looked_ = 0, warning_due_ = 0;
  OwnCore core_;
  int agreed_ = 0, blocking_ = -1;  // blocking_: who has not acknowledged what a lane must not overwrite
  bool any_pointed_ = false, in_place_ = false;
  bool whole_ = false;           // cut for single copy
  bool arrays_readable_ = true;  // known only where single copy is tried
  AgreedCuts cuts_;
  uint64_t whole_calls_ = 0;
  bool all_readable_ = false;  // by all; false: perhaps not yet
  Way way_ = Way::as_usual;
  bool stream_results_ = false;
  bool has_streamed_ = false;
  uint64_t begun_ = 0;  // ticks, where there is a contest
  std::array<std::byte*, kPlaces> base_{};
  std::array<size_t, kPlaces>
      unit_{};  // bytes from one element's place to the next: work memory has room for wide ones
  StorePath stores_;
  bool streamed_ = false;  // a fence is due before others are told
  alignas(kLine) std::byte inlined_[kInline];
  alignas(kLine) std::byte block_[2][kBlock];  // what is computed before it is streamed to its place

  static inline bool (*interrupted_)() = nullptr;
  static inline bool (*warn_)(const std::string&) = nullptr;
  static inline uint64_t warn_after_ns_ = 0;
};

}  // namespace pc
