// A device on the CPU: every CUDA thread is a fibre, and one OS thread runs them all by a seeded random schedule.
//
// Fibres change at barriers, at warp operations, at polls, in the middle of LL lines, and after one store of a flag in four; now
// and then all threads of a block are starved for a while. Stores of lines stay in a buffer of the block for a while, and are seen
// in any order, unless a release follows. So ranks, blocks and threads interleave as a GPU's may, each seed gives one interleaving,
// and the same seed gives the same one again.
//
//     emulation/fibre.hpp     a stack to run on
//     emulation/machine.hpp   what kernels call, and how they are started
//     emulation/scheduler.hpp blocks, warps, whose turn it is; meetings.cpp: barriers; lines.cpp: stores that are seen later
//     emulation/multicast.cpp memory that is reached by two addresses; driver.cpp: how it is made
//     emulation/device.hpp    the functions of kernels/ptx.cuh on top
//     emulation/runtime.hpp   memory, streams and launches: the part of the CUDA runtime that the host side uses
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace pc::emulation {

struct Dimension {
  unsigned x, y = 1, z = 1;
};

// What a running CUDA thread knows of itself.
struct Self {
  Dimension thread, block, threads, blocks;
};

enum class Scope : uint8_t { gpu, system };

// -- for kernels, through device.hpp -----------------------------------------------------------------------------------------

const Self& self();
char* shared_memory();
bool barrier(bool predicate);  // is it true for any thread of the block?
void warp_barrier(unsigned mask);
uint64_t exchange(unsigned mask, uint64_t value,
                  unsigned source);  // a shuffle: orders no memory, as on a GPU
unsigned ballot(unsigned mask, bool predicate);
// Stores and loads of lines: of 8 bytes, which are whole, and of 16 bytes by each lane of a warp, whole to 128 bytes.
void post(void* address, uint64_t value);
uint64_t peek(const void* address);
void post_warp(void* address, const uint64_t (&value)[2]);
void peek_warp(const void* address, uint64_t (&value)[2]);
// Multicast addresses (multicast.cpp). `at` stands for a place in each replica; threads that use it see the views of the replicas, and
// what was stored by one kind of address is seen by the other kind behind a fence only.
constexpr unsigned kMostReplicas = 8;
unsigned replicas(const void* at);
void* replica(const void* at, unsigned which);  // where its owner has it
void* view(const void* at, unsigned which);
void peek_replica(const void* at, unsigned which, void* vector);  // 16 bytes
void post_replica(void* at, unsigned which, const void* vector);
void fence_aliases();
unsigned pick(unsigned count);
void on_acquire(const void* address);
void on_release(const void* address, Scope scope);
void after_store();
unsigned coin();
void tear();
void spin(const char* what, int peer, uint64_t number);
void note(uint32_t instruction, uint32_t slice);
int mutant_in_use();

// -- for runtime.cpp -----------------------------------------------------------------------------------------------------------

struct Options {
  uint64_t seed = 1;
  uint64_t patience = 400000;  // polls in vain, of all threads together, before the run is called a hang
  bool starve = true;
  unsigned processors = 132,
           resident_threads = 512;  // of a device; that a processor holds, whatever their blocks
  void (*pause)() = nullptr;        // now and then while nothing moves: kernels wait for another process
};

struct Statistics {
  uint64_t switches = 0, scope_errors = 0;
  uint64_t torn = 0, starved = 0;  // others ran between the halves of a line; instead of a block that starves
};

// A grid to run. `rank`, as if on a GPU of its own: memory that another one wrote takes a release to the system. Blocks begin when
// there is room on `device`; those of a cooperative grid all at once.
struct Grid {
  int rank = 0, device = 0;
  std::vector<int> ranks;  // of a grid for several: `share` blocks each
  unsigned share = 1;
  bool cooperative = false;
  unsigned blocks = 1, threads = 32;
  size_t shared_bytes = 0;
  std::function<void()> kernel;
  std::function<void()> done;  // when all its threads have ended; may start further grids
};

class Machine {
 public:
  static Machine& instance();

  void start(Grid grid);            // from outside a run, or from a `done`
  std::string run(const Options&);  // until nothing is left. Returns what hangs, or an empty string.
  const Statistics& statistics() const;
  void reset();  // forget the statistics
};

void set_mutant(int which);

}  // namespace pc::emulation
