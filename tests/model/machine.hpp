// A small machine with the weak memory of C++: threads of a few instructions, explored exhaustively.
//
// Every atomic location keeps the history of its stores. A thread has a *view*, the oldest store of each location that it
// may still read; a load may read any store from there on, so nothing is as strong as x86. A release store carries its
// thread's view, an acquire load takes over what it reads. (The operational release-acquire model of Kang et al., "A
// Promising Semantics for Relaxed-Memory Concurrency", POPL 2017, without promises.)
//
// Plain locations are not atomic: a read that is not ordered after the last write, or a write that is not ordered after all
// reads and the last write, is a race and ends the search. That also stands for loads that a processor delays past a
// later store, which the machine itself does not do.
//
// `membarrier` makes all threads order their accesses: the caller's view takes in everybody's, and theirs the caller's. A
// thread in `futex_wait` runs again only when the word had changed before or another one calls `futex_wake`: time-outs
// are left out, so that a lost wake-up is a deadlock.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace model {

enum class Order : uint8_t { relaxed, acquire, release, acq_rel };
constexpr bool acquires(Order order) { return order == Order::acquire || order == Order::acq_rel; }
constexpr bool releases(Order order) { return order == Order::release || order == Order::acq_rel; }

enum class Kind : uint8_t {
  load,         // reg = atomic
  await_equal,  // waits until the atomic can be read as value
  await_least,  // waits until it can be read as value or more
  store,
  add,    // atomic += value; reg = what was there
  claim,  // compare-exchange from 0 to value; succeeds or not
  fence_acquire,
  fence_release,
  membarrier,
  futex_wait,   // on an atomic, if it still is what reg says
  futex_wake,   // everyone who waits on an atomic
  wake_one,     // a single one
  read,         // plain; must give value (any, if it is negative)
  write,        // plain
  jump,         // to target
  jump_if,      // reg == value
  jump_unless,  // reg >= value fails
  either,       // goes on, or jumps to target
  check,        // reg must be value
  done,
};

struct Instruction {
  Kind kind;
  int where = 0, value = 0;
  Order order = Order::relaxed;
  int reg = 0, target = 0;
};

inline constexpr int kAtomics = 20, kPlain = 16, kThreads = 4, kRegisters = 3;

struct Thread {
  std::string name;
  std::vector<Instruction> code;

  int here() const { return static_cast<int>(code.size()); }
  int add(Instruction instruction) { return code.push_back(instruction), here() - 1; }
  void load(int reg, int at, Order order) { add({Kind::load, at, 0, order, reg}); }
  void await_equal(int at, int value, Order order) { add({Kind::await_equal, at, value, order}); }
  void await_least(int at, int value, Order order) {
    if (value > 0) add({Kind::await_least, at, value, order});
  }
  void store(int at, int value, Order order) { add({Kind::store, at, value, order}); }
  void read(int at, int value) { add({Kind::read, at, value}); }
  void write(int at, int value) { add({Kind::write, at, value}); }
  void jump_to_here(int from) { code[static_cast<size_t>(from)].target = here(); }
};

struct System {
  std::string name;
  std::vector<std::string> atomics, plain;
  std::vector<Thread> threads;

  int atomic(std::string text) {
    return atomics.push_back(std::move(text)), static_cast<int>(atomics.size()) - 1;
  }
  int data(std::string text) { return plain.push_back(std::move(text)), static_cast<int>(plain.size()) - 1; }
};

struct Outcome {
  size_t states = 0;
  std::string violation;           // empty: none
  std::vector<std::string> trace;  // the shortest way to it
};

// Visits every state that can be reached, nearest first. Throws std::runtime_error above `most` states.
Outcome explore(const System& system, size_t most = 20'000'000);

}  // namespace model
