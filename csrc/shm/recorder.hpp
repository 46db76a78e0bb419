// The flight recorder: the last calls of a rank, in its own segment, where every rank and the launcher can read them, also when
// it has died.
//
//     Record[64]      one line for each call: when, in what state, and the numbers of two texts
//     Table of kinds  what was called: verb, dtype, elements, operator, root, algorithm
//     Table of sites  where: "train.py:88"
//     waits           the message that it waits for now, if it does so for long: "recv(source=1, tag=7)"
//
// The texts are written when a kind of call or a place in the program is first seen; a call stores their numbers only. A table
// is a ring. Its owner writes an entry anew when it has grown old, so what the records name is always there.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace pc {

inline constexpr uint32_t kRecords = 64;

enum class CallState : uint32_t { none, running, done, failed };

// `sequence` is stored last with release.
struct alignas(64) Record {
  std::atomic<uint64_t> sequence;
  std::atomic<uint64_t> fingerprint;
  std::atomic<uint64_t> kind, site;      // numbers of texts, 0: unknown
  std::atomic<uint64_t> started, ended;  // ticks (see wait.hpp)
  std::atomic<CallState> state;
};
static_assert(sizeof(Record) == 64);

// What is called.
struct RecordedKind {
  uint64_t count;  // elements
  int32_t root;
  uint16_t verb;
  uint8_t dtype, op, deterministic, pad[7];
  char algorithm[40];
  char user_op[48];  // the name of a user's operator
};

struct CallSite {
  char text[56];
};

template <size_t Bytes>
void copy_text(char (&to)[Bytes], std::string_view text) {
  to[text.copy(to, Bytes - 1)] = '\0';
}

// Entries with running numbers from 1 on, written by one thread at a time. Readers may come at any time.
template <class T, uint32_t kEntries>
class Table {
  static_assert(sizeof(T) % sizeof(uint64_t) == 0 && std::has_single_bit(kEntries));

 public:
  // Is the entry of this number young enough to be named in a new record?
  bool fresh(uint64_t number) const {
    return number && last_.load(std::memory_order_relaxed) - number < kEntries / 2;
  }
  uint64_t add(const T& value) {
    const uint64_t number = last_.load(std::memory_order_relaxed) + 1;
    Entry& entry = entries_[number % kEntries];
    entry.number.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    uint64_t words[kWords];
    std::memcpy(words, &value, sizeof value);
    for (size_t i = 0; i < kWords; ++i) entry.words[i].store(words[i], std::memory_order_relaxed);
    entry.number.store(number, std::memory_order_release);
    last_.store(number, std::memory_order_release);
    return number;
  }
  std::optional<T> find(uint64_t number) const {
    const Entry& entry = entries_[number % kEntries];
    if (!number || entry.number.load(std::memory_order_acquire) != number) return std::nullopt;
    uint64_t words[kWords];
    for (size_t i = 0; i < kWords; ++i) words[i] = entry.words[i].load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (entry.number.load(std::memory_order_relaxed) != number) return std::nullopt;
    T value;
    std::memcpy(&value, words, sizeof value);
    return value;
  }

 private:
  static constexpr size_t kWords = sizeof(T) / sizeof(uint64_t);
  struct Entry {
    std::atomic<uint64_t> number, words[kWords];
  };
  std::atomic<uint64_t> last_;
  Entry entries_[kEntries];
};

struct Recorder {
  Record records[kRecords];
  Table<RecordedKind, 2 * kRecords> kinds;  // twice: see Table::fresh
  Table<CallSite, 512> sites;               // more: asynchronous calls name theirs long before they run
  Table<CallSite, 4> waits;
  std::atomic<uint64_t> waits_for;  // number of a text there, or 0
};

// A call as it was read from a recorder; `kind` and `site` may be unknown.
struct RecordedCall {
  uint64_t sequence, fingerprint, started, ended;
  CallState state;
  std::optional<RecordedKind> kind;
  std::string site;

  std::string text() const;  // "all_reduce(float32[409600], sum)"
};

// Call `sequence`, if it is still there.
std::optional<RecordedCall> read_call(const Recorder& recorder, uint64_t sequence);
// A call with its texts, on the way to another host, where it is written into a mirror of the recorder.
struct CallLetter {
  uint64_t sequence, fingerprint;
  CallState state;
  uint32_t unused;
  RecordedKind kind;
  CallSite site;
};
CallLetter pack_call(const Recorder& recorder, uint64_t sequence);
void unpack_call(Recorder& mirror, const CallLetter& letter);

// The message that its owner waits for, or "".
std::string awaited_message(const Recorder& recorder);
// The number of the last call.
uint64_t last_sequence(const Recorder& recorder);

}  // namespace pc
