// Going to sleep and being woken, as in wait.hpp and wait.cpp. The waker has no fence between its flag and its look at
// `asleep`: the sleeper's membarrier stands for both.
#include "models.hpp"

namespace model {
namespace {

struct Names {
  int asleep, doorbell;
};

// Publishes `message` with payload, then rings.
void wake(Thread& t, const Names& names, int flag, int payload, int message, const std::string& mutant) {
  const bool early = mutant == "looks before it publishes";
  if (early) t.load(0, names.asleep, Order::relaxed);
  t.write(payload, message);
  t.store(flag, message, Order::release);
  if (!early) t.load(0, names.asleep, Order::relaxed);
  const int skip = t.add({Kind::jump_if, 0, 0});
  if (mutant != "does not move the doorbell") t.add({Kind::add, names.doorbell, 1, Order::release, 1});
  if (mutant != "does not wake")
    t.add({mutant == "wakes one" ? Kind::wake_one : Kind::futex_wake, names.doorbell});
  t.jump_to_here(skip);
}

// Waits for `message` in `flag` with no patience at all, and takes the payload.
void wait(Thread& t, const Names& names, int flag, int payload, int message, const std::string& mutant) {
  const auto look = [&] {
    t.load(0, flag, Order::acquire);
    const int later = t.add({Kind::jump_unless, 0, message});
    const int found = t.add({Kind::jump});
    t.jump_to_here(later);
    return found;
  };
  const int awake = look();
  if (mutant != "doorbell read late") t.load(1, names.doorbell, Order::acquire);
  t.add({Kind::add, names.asleep, 1, Order::acq_rel, 2});
  if (mutant != "no membarrier") t.add({Kind::membarrier});
  const int again = t.here();
  const int slept = mutant == "no second look" ? -1 : look();
  if (mutant == "doorbell read late") t.load(1, names.doorbell, Order::acquire);
  t.add({Kind::futex_wait, names.doorbell, 0, Order::relaxed, 1});
  if (mutant != "doorbell read late") t.load(1, names.doorbell, Order::acquire);
  const int back = t.here();
  if (mutant == "no second look") {
    const int found = look();
    t.add({Kind::jump, 0, 0, Order::relaxed, 0, again});
    t.jump_to_here(found);
  } else {
    t.add({Kind::jump, 0, 0, Order::relaxed, 0, again});
    t.jump_to_here(slept);
  }
  static_cast<void>(back);
  if (mutant == "asleep set to 0")
    t.store(names.asleep, 0, Order::relaxed);
  else
    t.add({Kind::add, names.asleep, -1, Order::relaxed, 2});
  t.jump_to_here(awake);
  t.read(payload, message);
}

// `wakers` ranks send `messages` each; one rank waits for them, all in one thread or each sender in a thread of its own.
System build(const std::string& name, int wakers, int messages, bool threads, const std::string& mutant) {
  System system;
  system.name = name;
  const Names names{system.atomic("asleep"), system.atomic("doorbell")};
  std::vector<Thread> sleepers;
  for (int w = 0; w < wakers; ++w) {
    const int flag = system.atomic("flag" + std::to_string(w));
    Thread waker{"waker " + std::to_string(w), {}};
    if (sleepers.empty() || threads) sleepers.push_back({"sleeper " + std::to_string(w), {}});
    for (int n = 1; n <= messages; ++n) {
      const int payload = system.data("payload" + std::to_string(w) + "." + std::to_string(n));
      wake(waker, names, flag, payload, n, mutant);
      wait(sleepers.back(), names, flag, payload, n, mutant);
    }
    waker.add({Kind::done});
    system.threads.push_back(std::move(waker));
  }
  for (Thread& sleeper : sleepers) {
    sleeper.add({Kind::done});
    system.threads.push_back(std::move(sleeper));
  }
  return system;
}

const std::vector<std::string> kMutants = {
    "no membarrier", "looks before it publishes", "does not move the doorbell",
    "does not wake", "doorbell read late",        "no second look"};

}  // namespace

std::vector<Model> doorbell_models() {
  using namespace std::placeholders;
  return {
      {"a sleeper and a waker", kMutants, std::bind(build, "a sleeper and a waker", 1, 2, false, _1)},
      {"a sleeper and two wakers",
       {"no membarrier"},
       std::bind(build, "a sleeper and two wakers", 2, 1, false, _1)},
      {"two threads sleep, two ranks wake",
       {"wakes one", "asleep set to 0"},
       std::bind(build, "two threads sleep, two ranks wake", 2, 1, true, _1)},
      {"a sleeper and two wakers, longer",
       {},
       std::bind(build, "a sleeper and two wakers, longer", 2, 2, false, _1),
       true},
  };
}

}  // namespace model
