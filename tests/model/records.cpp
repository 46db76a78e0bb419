// Records: a rank writes one per call into a ring of few (here: one), others compare fingerprints with their own
// (Group::enter, Executor::agreed, Group::fingerprint_of). The texts that records name are kept in the same way (Table).
#include "models.hpp"

namespace model {
namespace {

constexpr int fingerprint(int call, bool other) { return (other ? 20 : 10) + call; }

// The owner goes on to later calls without waiting, as after a broadcast; the reader is in call 1 or 2.
System reuse(const std::string& name, int calls, const std::string& mutant) {
  System system;
  system.name = name;
  const int sequence = system.atomic("sequence"), mark = system.atomic("fingerprint");
  Thread owner{"owner", {}};
  for (int call = 1; call <= calls; ++call) {
    if (mutant != "sequence not cleared") owner.store(sequence, 0, Order::relaxed);
    if (mutant != "no release fence") owner.add({Kind::fence_release});
    owner.store(mark, fingerprint(call, false), Order::relaxed);
    owner.store(sequence, call, mutant == "sequence stored relaxed" ? Order::relaxed : Order::release);
  }
  owner.add({Kind::done});
  system.threads.push_back(std::move(owner));
  for (int call = 1; call <= 2; ++call) {
    Thread reader{"reader in call " + std::to_string(call), {}};
    reader.await_least(sequence, call, mutant == "sequence loaded relaxed" ? Order::relaxed : Order::acquire);
    reader.load(0, sequence, mutant == "sequence loaded relaxed" ? Order::relaxed : Order::acquire);
    const int same = reader.add({Kind::jump_if, 0, call});
    const int past = reader.add({Kind::jump});
    reader.jump_to_here(same);
    reader.load(1, mark, Order::relaxed);
    int changed = -1;
    if (mutant != "no second look") {
      if (mutant != "no acquire fence") reader.add({Kind::fence_acquire});
      reader.load(0, sequence, Order::relaxed);
      const int still = reader.add({Kind::jump_if, 0, call});
      changed = reader.add({Kind::jump});
      reader.jump_to_here(still);
    }
    reader.add({Kind::check, 0, fingerprint(call, false), Order::relaxed, 1});
    reader.jump_to_here(past);
    if (changed >= 0) reader.jump_to_here(changed);
    reader.add({Kind::done});
    system.threads.push_back(std::move(reader));
  }
  return system;
}

// Ranks enter a call, one of them another one: nobody may write its output.
System agreement(const std::string& name, int ranks, const std::string& mutant) {
  System system;
  system.name = name;
  std::vector<int> sequence, mark;
  for (int r = 0; r < ranks; ++r) {
    sequence.push_back(system.atomic("sequence" + std::to_string(r)));
    mark.push_back(system.atomic("fingerprint" + std::to_string(r)));
  }
  for (int me = 0; me < ranks; ++me) {
    Thread t{"rank " + std::to_string(me), {}};
    const bool odd = me == ranks - 1;
    std::vector<int> raises, skips;
    t.store(mark[static_cast<size_t>(me)], fingerprint(1, odd), Order::relaxed);
    t.store(sequence[static_cast<size_t>(me)], 1, Order::release);
    for (size_t peer = 0; peer < static_cast<size_t>(ranks); ++peer) {
      if (static_cast<int>(peer) == me) continue;
      if (mutant == "looks at who is there only") {
        t.load(0, sequence[peer], Order::acquire);
        skips.push_back(t.add({Kind::jump_if, 0, 0}));
      } else if (mutant == "one neighbour only") {
        if (static_cast<int>(peer) != (me + 1) % ranks) continue;
        t.await_least(sequence[peer], 1, Order::acquire);
      } else {
        t.await_least(sequence[peer], 1,
                      mutant == "sequence loaded relaxed" ? Order::relaxed : Order::acquire);
      }
      t.load(0, mark[peer], Order::relaxed);
      const int same = t.add({Kind::jump_if, 0, fingerprint(1, odd)});
      raises.push_back(t.add({Kind::jump}));
      t.jump_to_here(same);
      for (int skip : skips) t.jump_to_here(skip);
      skips.clear();
    }
    t.load(2, mark[static_cast<size_t>(me)], Order::relaxed);
    t.add({Kind::check, 0, 0, Order::relaxed, 2});  // the output is written: wrong, since there is an odd one
    for (int raise : raises) t.jump_to_here(raise);
    t.add({Kind::done});
    system.threads.push_back(std::move(t));
  }
  return system;
}

}  // namespace

std::vector<Model> record_models() {
  using namespace std::placeholders;
  return {
      {"records are reused",
       {"sequence not cleared", "no release fence", "sequence stored relaxed", "no acquire fence",
        "no second look"},
       std::bind(reuse, "records are reused", 3, _1)},
      {"two ranks disagree",
       {"looks at who is there only"},
       std::bind(agreement, "two ranks disagree", 2, _1)},
      {"one of three disagrees",
       {"looks at who is there only", "one neighbour only"},
       std::bind(agreement, "one of three disagrees", 3, _1)},
  };
}

}  // namespace model
