// What a test does to this rank in the middle of a call. The executor asks for it where it would record a trace: after an
// instruction, before the messages that it has consumed are acknowledged. Without a fault that costs nothing.
#pragma once

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "core/error.hpp"

namespace pc {

struct Fault {
  enum class Action : int { none, kill, stop, raise, interrupt, delay, jitter };

  Action action = Action::none;
  std::atomic<uint64_t> left{0};  // instructions of this process until it happens
  std::atomic<uint64_t> random{1};
  uint64_t nanoseconds = 0;  // of a delay; the longest one of a jitter, which delays every instruction

  void step() {
    if (action == Action::jitter) return sleep(next() % (nanoseconds + 1));
    if (left.load(std::memory_order_relaxed) == 0 || left.fetch_sub(1, std::memory_order_relaxed) != 1)
      return;
    switch (action) {
      case Action::kill:
        ::kill(getpid(), SIGKILL);
        pause();
        break;
      case Action::stop:
        ::kill(getpid(), SIGSTOP);
        break;
      case Action::raise:
        throw Error(ErrorKind::transport, "an injected fault");
      case Action::interrupt:
        ::kill(getpid(), SIGINT);
        break;
      case Action::delay:
        sleep(nanoseconds);
        break;
      default:
        break;
    }
  }

 private:
  static void sleep(uint64_t ns) {
    const timespec time{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
    nanosleep(&time, nullptr);
  }
  uint64_t next() {  // a linear congruential generator: the high bits are good
    uint64_t before = random.load(std::memory_order_relaxed);
    random.store(before = before * 6364136223846793005u + 1442695040888963407u, std::memory_order_relaxed);
    return before >> 33;
  }
};

}  // namespace pc
