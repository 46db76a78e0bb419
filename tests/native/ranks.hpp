// Ranks as threads of one process that share one mapping of each segment, so that a sanitizer sees both ends.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/chaos.hpp"
#include "shm/communicator.hpp"

namespace pc::test {

inline constexpr size_t kPool = size_t{1} << 17;  // as in export.py
inline constexpr uint64_t kSecond = 1'000'000'000;

// Rather sleepy, so that all ways of waiting are taken.
inline Patience patience() { return {20, 20, register_membarrier()}; }

struct World {
  explicit World(int size) {
    for (int rank = 0; rank < size; ++rank)
      ends.push_back(std::make_unique<Communicator>(rank, size, kPool, patience(), Stores::automatic, true));
    for (auto& end : ends)
      for (auto& other : ends)
        if (end != other) end->group().attach(other->group().rank(), other->group());
  }
  ~World() {  // all leave before any memory goes
    for (auto& end : ends) end->close();
  }
  int size() const { return static_cast<int>(ends.size()); }
  std::vector<std::unique_ptr<Communicator>> ends;
};

// `body(rank)` in a thread for each rank; rethrows what the lowest rank threw.
inline void on_ranks(int size, uint64_t seed, const std::function<void(int)>& body) {
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      seed_chaos(seed * 64 + static_cast<uint64_t>(rank));
      try {
        body(rank);
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  for (auto& thread : threads) thread.join();
  for (auto& error : errors)
    if (error) std::rethrow_exception(error);
}

inline void require(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}

// The same numbers on all ranks.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}
  uint64_t operator()(uint64_t below) {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) % below;
  }

 private:
  uint64_t state_;
};

}  // namespace pc::test
