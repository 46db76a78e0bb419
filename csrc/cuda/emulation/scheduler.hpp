// Whose turn it is: the threads, warps and blocks that are on the device, and the random schedule. For emulation/*.cpp only.
//
// Nothing here is instrumented by ThreadSanitizer, and no fibre allocates or locks: both would be seen as synchronisation.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/emulation/fibre.hpp"
#include "cuda/emulation/machine.hpp"

#ifdef PC_EMULATION_TSAN
extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#else
#define __tsan_acquire(address) static_cast<void>(address)
#define __tsan_release(address) static_cast<void>(address)
#endif

namespace pc::emulation {

constexpr unsigned kWarp = 32;
constexpr int kDevices = 8;
constexpr size_t kPending = 128;  // lines that a block has stored and others do not see yet

struct Block;

enum class Meeting : uint8_t { none, barrier, exchange, vote, load, store };

struct Warp {
  unsigned arrived = 0;
  Meeting meeting = Meeting::none;
  uint64_t value[kWarp];
  uint64_t (*lines[kWarp])[2];
  void* address[kWarp];
  char edge[2];
};

// A store of a line that others do not see yet. Those of one `line` (LL128) become visible together.
struct Pending {
  uint64_t* address;
  uint64_t value;
  uint32_t line;
  uint64_t* alias;   // of a multicast store: where the owner has it
  uint64_t* synced;  // and what both had last
  bool fenced;       // it goes there, too
};

struct Thread {
  Self self;
  Block* block = nullptr;
  Warp* warp = nullptr;
  Fibre* fibre = nullptr;
  unsigned barriers = 0, warp_barriers = 0;
  int place = -1;  // among the ready ones
  // for the dump of a hang
  const char* doing = "starts";
  int peer = -1;
  uint64_t number = 0;
  uint32_t instruction = 0, slice = 0;
  bool ended = false;
};

struct Run;

struct Block {
  Run* run;
  int rank = 0;
  bool begun = false;
  unsigned live, arrived = 0;
  char edge[2];
  bool any[2] = {};
  uint64_t frozen_until = 0;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<Thread*> waiting;
  std::vector<Pending> pending;
  std::unique_ptr<char[]> shared;
};

struct Run {  // a grid that is on the device, or waits for room there
  Grid grid;
  unsigned live = 0, begun = 0;  // threads; blocks
  std::vector<std::unique_ptr<Block>> blocks;
};

class Scheduler {
 public:
  std::vector<Thread*> ready;
  std::vector<std::unique_ptr<Run>> runs;
  std::vector<Run*> over;
  std::vector<std::unique_ptr<Fibre>> spare;
  Fibre main;
  Thread* current = nullptr;
  Options options;
  Statistics statistics;
  uint64_t random = 1, idle = 0;
  unsigned resident[kDevices] = {};    // threads
  bool crowded = false, left = false;  // blocks wait for room; some has been made
  std::string trouble;

  uint64_t draw() {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    return random;
  }
  void progress() { idle = 0; }

  void add(Thread* thread);
  void remove(Thread* thread);
  void next();                    // some other ready thread runs, or the same one
  void sleep(const char* doing);  // the current thread leaves the ready ones until somebody adds it again
  Thread* pick();
  void hang(const char* why);

 private:
  void to_main();
};

Scheduler& scheduler();

// -- meetings.cpp ------------------------------------------------------------------------------------------------------------

void open_barrier(Block& block);
bool meet(unsigned mask, Meeting meeting);  // has the last lane arrived?
void open(unsigned mask);                   // the others go on

// -- lines.cpp ---------------------------------------------------------------------------------------------------------------

void commit_some(Block& block);
void commit_all(Block& block);
void post(Pending pending);

}  // namespace pc::emulation
