// Messages: header lines, payload slots and acknowledgements, as in executor.cpp and executor_data.cpp.
//
//     layout.hpp                     here
//     kDepth = 4 headers per pair    `depth` = 2
//     slots of a connection          `slots` = 2, or none: the payload is in the header
//     Header                         flag (atomic), line (plain: fingerprint, place, payload)
//
// A rank is a list of instructions: messages taken, message published. Each one waits for all that it needs, then reads,
// writes, publishes and acknowledges, in the order of Executor::advance.
#include <map>
#include <tuple>

#include "models.hpp"

namespace model {
namespace {

struct Step {
  std::vector<int> sources, targets;
  bool drains = false;  // all messages so far must have been consumed; slots lie elsewhere from here on
};

class Builder {
 public:
  Builder(std::string name, int depth, int slots, std::string mutant)
      : depth_(depth), slots_(mutant == "one slot" ? 1 : slots), mutant_(std::move(mutant)) {
    system_.name = std::move(name);
  }

  void rank(const std::vector<Step>& steps) {
    const int me = static_cast<int>(system_.threads.size());
    Thread t{"rank " + std::to_string(me), {}};
    std::map<int, int> sent, received, used;  // per peer; used: the last message in a slot, by slot and peer
    int turn = 0, shift = 0;
    for (const Step& step : steps) {
      if (step.drains) {
        for (const auto& [peer, number] : sent)
          if (mutant_ != "no drain") t.await_least(ack(peer, me), number, acked());
        used.clear();
        turn = 0;
        shift = 1;
        continue;
      }
      for (int peer : step.sources) {
        const int n = received[peer] + 1;
        t.await_equal(flag(peer, me, n), n,
                      mutant_ == "flag loaded relaxed" ? Order::relaxed : Order::acquire);
        t.read(line(peer, me, n), n);  // the fingerprint
      }
      const int place = (turn + shift) % std::max(slots_, 1);
      for (int peer : step.targets) {
        const int n = sent[peer] + 1;
        int needed = mutant_ == "no header ack" ? 0 : n - depth_;
        const bool asks =
            mutant_ != "no slot ack" && (mutant_ != "first reader only" || peer == step.targets.front());
        if (slots_ && asks) needed = std::max(needed, used[place * 8 + peer]);
        t.await_least(ack(peer, me), needed, acked());
      }
      if (mutant_ == "ack before reading") acknowledge(t, me, step, received);
      if (slots_ && !step.targets.empty()) {
        take(t, me, step, received);
        t.write(slot(me, place), tag(me, sent[step.targets.front()] + 1));
      } else {
        take(t, me, step, received);
      }
      for (int peer : step.targets) {
        const int n = ++sent[peer];
        const Order order = mutant_ == "flag stored relaxed" ? Order::relaxed : Order::release;
        if (mutant_ == "flag before payload") t.store(flag(me, peer, n), n, order);
        t.write(line(me, peer, n), n);
        if (mutant_ != "flag before payload") t.store(flag(me, peer, n), n, order);
        if (slots_) used[place * 8 + peer] = n;
        place_of_[{me, peer, n}] = place;
      }
      if (!step.targets.empty()) ++turn;
      if (mutant_ == "ack before reading")
        for (int peer : step.sources) ++received[peer];
      else
        acknowledge(t, me, step, received);
    }
    t.add({Kind::done});
    system_.threads.push_back(std::move(t));
  }

  System finish() {
    // Where a message's payload lies is known when its sender has been built.
    for (const auto& [thread, index, from, n] : pending_) {
      const int me = static_cast<int>(thread);
      Instruction& in = system_.threads[thread].code[static_cast<size_t>(index)];
      in.where = slot(from, place_of_.at({from, me, n}));
      in.value = tag(from, n);
    }
    return system_;
  }

 private:
  static int tag(int rank, int n) { return 10 * (rank + 1) + n; }
  Order acked() const { return mutant_ == "ack loaded relaxed" ? Order::relaxed : Order::acquire; }

  void take(Thread& t, int me, const Step& step, std::map<int, int>& received) {
    for (int peer : step.sources) {
      if (!slots_) continue;  // the line was read already
      pending_.push_back({static_cast<size_t>(me), t.here(), peer, received[peer] + 1});
      t.read(0, -1);
    }
    if (slots_) return;
    for (int peer : step.sources) t.read(line(peer, me, received[peer] + 1), received[peer] + 1);
  }

  void acknowledge(Thread& t, int me, const Step& step, std::map<int, int>& received) {
    for (int peer : step.sources) {
      const int n = mutant_ == "ack before reading" ? received[peer] + 1 : ++received[peer];
      t.store(ack(me, peer), n, mutant_ == "ack stored relaxed" ? Order::relaxed : Order::release);
    }
  }

  int named(std::map<std::string, int>& known, const std::string& text, bool plain) {
    const auto found = known.find(text);
    if (found != known.end()) return found->second;
    return known[text] = plain ? system_.data(text) : system_.atomic(text);
  }
  static std::string pair(const char* what, int from, int to) {
    return what + std::to_string(from) + std::to_string(to);
  }
  int flag(int from, int to, int n) {
    return named(atomics_, pair("flag", from, to) + "." + std::to_string(n % depth_), false);
  }
  int line(int from, int to, int n) {
    return named(plain_, pair("line", from, to) + "." + std::to_string(n % depth_), true);
  }
  int ack(int reader, int sender) { return named(atomics_, pair("ack", reader, sender), false); }
  int slot(int rank, int place) { return named(plain_, pair("slot", rank, place), true); }

  System system_;
  int depth_, slots_;
  std::string mutant_;
  std::map<std::string, int> atomics_, plain_;
  std::map<std::tuple<int, int, int>, int> place_of_;
  std::vector<std::tuple<size_t, int, int, int>> pending_;
};

// The ring: a first message, then each one is sent on as it comes (fused), and a last one is taken.
System ring(const std::string& name, int ranks, int fused, int depth, int slots, const std::string& mutant) {
  Builder builder(name, depth, slots, mutant);
  for (int me = 0; me < ranks; ++me) {
    const int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    std::vector<Step> steps{{{}, {right}}};
    for (int i = 0; i < fused; ++i) steps.push_back({{left}, {right}});
    steps.push_back({{left}, {}});
    builder.rank(steps);
  }
  return builder.finish();
}

// The chain: messages go one way, so that nothing but the acknowledgements comes back.
System chain(const std::string& name, int ranks, int messages, int depth, int slots,
             const std::string& mutant) {
  Builder builder(name, depth, slots, mutant);
  for (int me = 0; me < ranks; ++me) {
    Step step;
    if (me > 0) step.sources = {me - 1};
    if (me + 1 < ranks) step.targets = {me + 1};
    builder.rank(std::vector<Step>(static_cast<size_t>(messages), step));
  }
  return builder.finish();
}

// One rank sends the same messages to all others: a slot has several readers.
System fan(const std::string& name, int ranks, int messages, bool drains, const std::string& mutant) {
  Builder builder(name, 3, 2, mutant);
  std::vector<int> others;
  for (int peer = 1; peer < ranks; ++peer) others.push_back(peer);
  std::vector<Step> steps;
  for (int i = 0; i < messages; ++i) {
    if (drains && i == messages / 2) steps.push_back({{}, {}, true});
    steps.push_back({{}, others});
  }
  builder.rank(steps);
  for (int me = 1; me < ranks; ++me)
    builder.rank(std::vector<Step>(static_cast<size_t>(messages), Step{{0}, {}}));
  return builder.finish();
}

// All ranks send to all and combine what comes, several times.
System exchange(const std::string& name, int ranks, int rounds, const std::string& mutant) {
  Builder builder(name, 2, 0, mutant);
  for (int me = 0; me < ranks; ++me) {
    std::vector<int> others;
    for (int peer = 0; peer < ranks; ++peer)
      if (peer != me) others.push_back(peer);
    std::vector<Step> steps;
    for (int i = 0; i < rounds; ++i) {
      steps.push_back({{}, others});
      steps.push_back({others, {}});
    }
    builder.rank(steps);
  }
  return builder.finish();
}

// What a message needs.
const std::vector<std::string> kFlags = {"flag stored relaxed", "flag loaded relaxed", "flag before payload"};

// What the reuse of its place needs. Where messages go both ways they imply each other's consumption.
std::vector<std::string> with_acks(std::vector<std::string> more) {
  more.insert(more.end(), kFlags.begin(), kFlags.end());
  more.insert(more.end(), {"ack stored relaxed", "ack loaded relaxed", "ack before reading"});
  return more;
}

std::vector<std::string> with_flags(std::vector<std::string> more) {
  more.insert(more.end(), kFlags.begin(), kFlags.end());
  return more;
}

template <class Build, class... Arguments>
Model made(const char* name, std::vector<std::string> mutants, bool slow, Build build,
           Arguments... arguments) {
  return {name, std::move(mutants),
          [=](const std::string& mutant) { return build(name, arguments..., mutant); }, slow};
}

}  // namespace

std::vector<Model> message_models() {
  return {
      made("chain of 2, payload in slots", with_acks({"no slot ack"}), false, chain, 2, 6, 3, 2),
      made("chain of 2, payload in headers", with_acks({"no header ack"}), false, chain, 2, 5, 2, 0),
      made("chain of 3, payload in slots", with_acks({"no slot ack"}), false, chain, 3, 5, 3, 2),
      made("ring of 2, payload in slots", with_flags({"one slot"}), false, ring, 2, 5, 3, 2),
      made("ring of 2, payload in headers", kFlags, false, ring, 2, 5, 2, 0),
      made("ring of 3, payload in slots", with_flags({"one slot", "no slot ack"}), false, ring, 3, 4, 3, 2),
      made("ring of 3, payload in headers", with_flags({"no header ack"}), false, ring, 3, 4, 2, 0),
      made("one to two, a slot for both", with_acks({"first reader only", "no slot ack"}), false, fan, 3, 5,
           false),
      made("one to two, slots elsewhere later", {"no drain"}, false, fan, 3, 6, true),
      made("all to all of 2", kFlags, false, exchange, 2, 4),
      made("all to all of 3", kFlags, false, exchange, 3, 3),
      made("ring of 3, longer", {}, true, ring, 3, 7, 3, 2),
      made("chain of 3, longer", {}, true, chain, 3, 9, 3, 2),
      made("all to all of 3, longer", {}, true, exchange, 3, 5),
      made("one to three", with_acks({"first reader only"}), true, fan, 4, 5, false),
  };
}

}  // namespace model
