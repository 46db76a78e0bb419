#include "machine.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <unordered_map>

namespace model {
namespace {

using Bits = unsigned __int128;

// `seen[a]`: the first store of atomic a that may be read. `knows`: bit p: the last write of plain p came before; bit
// kPlain * (1 + t) + p: so did all reads of it by thread t.
struct View {
  std::array<uint8_t, kAtomics> seen{};
  Bits knows = 0;

  void join(const View& other) {
    for (size_t a = 0; a < seen.size(); ++a) seen[a] = std::max(seen[a], other.seen[a]);
    knows |= other.knows;
  }
};
static_assert(kPlain * (1 + kThreads) <= 128);
constexpr Bits all_known = ~Bits{0};
constexpr Bits write_bit(int plain) { return Bits{1} << plain; }
constexpr Bits read_bit(int plain, int thread) { return Bits{1} << (kPlain * (1 + thread) + plain); }

struct Store {
  uint8_t value = 0;
  View view;
};

struct Runner {
  uint8_t pc = 0, blocked = 0;  // blocked: in futex_wait on atomic blocked - 1
  std::array<uint8_t, kRegisters> regs{};
  View view, loaded,
      released;  // loaded: what relaxed loads have brought; released: at the last release fence
};

struct State {
  std::vector<std::vector<Store>> history;
  std::vector<uint8_t> plain;
  std::vector<Runner> threads;

  template <class Change>
  void each_view(Change change) {
    for (auto& stores : history)
      for (Store& store : stores) change(store.view);
    for (Runner& runner : threads) change(runner.view), change(runner.loaded), change(runner.released);
  }

  // Drops stores that nobody can read any more.
  void tidy() {
    for (size_t a = 0; a < history.size(); ++a) {
      uint8_t oldest = 255;
      for (const Runner& runner : threads) oldest = std::min(oldest, runner.view.seen[a]);
      if (oldest == 0) continue;
      history[a].erase(history[a].begin(), history[a].begin() + oldest);
      each_view([&](View& view) {
        view.seen[a] = static_cast<uint8_t>(view.seen[a] - std::min(view.seen[a], oldest));
      });
    }
  }

  std::string packed() const {
    std::string text;
    const auto put = [&](const auto& value) {
      text.append(reinterpret_cast<const char*>(&value), sizeof value);
    };
    const auto put_view = [&](const View& view) {
      text.append(reinterpret_cast<const char*>(view.seen.data()), history.size());
      put(view.knows);
    };
    for (const auto& stores : history) {
      put(static_cast<uint8_t>(stores.size()));
      for (const Store& store : stores) put(store.value), put_view(store.view);
    }
    text.append(plain.begin(), plain.end());
    for (const Runner& runner : threads) {
      put(runner.pc), put(runner.blocked), put(runner.regs);
      put_view(runner.view), put_view(runner.loaded), put_view(runner.released);
    }
    return text;
  }
};

struct Violation {
  std::string text;
};

class Search {
 public:
  Search(const System& system, size_t most) : system_(system), most_(most) {
    if (system.atomics.size() > kAtomics || system.plain.size() > kPlain || system.threads.size() > kThreads)
      throw std::runtime_error(system.name + " is too large for the machine");
  }

  Outcome run() {
    State first;
    first.history.resize(system_.atomics.size(), std::vector<Store>(1));
    first.plain.resize(system_.plain.size());
    first.threads.resize(system_.threads.size());
    first.each_view([](View& view) { view.knows = all_known; });
    Outcome outcome;
    try {
      visit(std::move(first), -1, "");
      for (size_t next = 0; next < queue_.size(); ++next) {
        const State state = std::move(queue_[next]);
        queue_[next] = State{};
        step_all(state, static_cast<int>(next));
      }
    } catch (const Violation& found) {
      outcome.violation = found.text;
      for (int at = current_; at >= 0; at = parents_[static_cast<size_t>(at)])
        if (!labels_[static_cast<size_t>(at)].empty())
          outcome.trace.push_back(labels_[static_cast<size_t>(at)]);
      std::reverse(outcome.trace.begin(), outcome.trace.end());
    }
    outcome.states = queue_.size();
    return outcome;
  }

 private:
  const Instruction& at(const State& state, int t) const {
    return system_.threads[static_cast<size_t>(t)].code[state.threads[static_cast<size_t>(t)].pc];
  }

  void step_all(const State& state, int from) {
    current_ = from;
    bool moved = false, finished = true;
    for (int t = 0; t < static_cast<int>(state.threads.size()); ++t) {
      const Instruction& in = at(state, t);
      finished &= in.kind == Kind::done;
      if (in.kind == Kind::done || state.threads[static_cast<size_t>(t)].blocked) continue;
      moved |= step(state, t, in, from);
    }
    if (moved || finished) return;
    std::string who;
    for (size_t t = 0; t < state.threads.size(); ++t)
      if (at(state, static_cast<int>(t)).kind != Kind::done)
        who += (who.empty() ? "" : ", ") + system_.threads[t].name + " " +
               describe(at(state, static_cast<int>(t)));
    throw Violation{"deadlock: " + who};
  }

  // All that the thread may do next; false if nothing.
  bool step(const State& state, int t, const Instruction& in, int from) {
    const auto where = static_cast<size_t>(in.where);
    const auto go = [&](State next, std::string note = "") {
      ++next.threads[static_cast<size_t>(t)].pc;
      visit(std::move(next), from, system_.threads[static_cast<size_t>(t)].name + ": " + describe(in) + note);
    };
    switch (in.kind) {
      case Kind::load:
      case Kind::await_equal:
      case Kind::await_least: {
        const auto& stores = state.history[where];
        bool moved = false;
        for (size_t i = state.threads[static_cast<size_t>(t)].view.seen[where]; i < stores.size(); ++i) {
          const int value = stores[i].value;
          if (in.kind == Kind::await_equal && value != in.value) continue;
          if (in.kind == Kind::await_least && value < in.value) continue;
          State next = state;
          Runner& runner = next.threads[static_cast<size_t>(t)];
          runner.view.seen[where] = static_cast<uint8_t>(i);
          (acquires(in.order) ? runner.view : runner.loaded).join(stores[i].view);
          if (in.kind == Kind::load) runner.regs[static_cast<size_t>(in.reg)] = static_cast<uint8_t>(value);
          go(std::move(next), " -> " + std::to_string(value));
          moved = true;
        }
        return moved;
      }
      case Kind::store: {
        State next = state;
        append(next, t, where, in.value, in.order, {});
        go(std::move(next));
        return true;
      }
      case Kind::add:
      case Kind::claim: {
        State next = state;
        Runner& runner = next.threads[static_cast<size_t>(t)];
        const Store last = next.history[where].back();
        runner.view.seen[where] = static_cast<uint8_t>(next.history[where].size() - 1);
        (acquires(in.order) ? runner.view : runner.loaded).join(last.view);
        runner.regs[static_cast<size_t>(in.reg)] = last.value;
        if (in.kind == Kind::add)
          append(next, t, where, last.value + in.value, in.order, last.view);
        else if (last.value == 0)
          append(next, t, where, in.value, in.order, last.view);
        go(std::move(next), " was " + std::to_string(last.value));
        return true;
      }
      case Kind::membarrier: {
        State next = state;
        const View mine = next.threads[static_cast<size_t>(t)].view;
        View all = mine;
        for (Runner& runner : next.threads) {
          all.join(runner.view);
          all.join(runner.loaded);
        }
        for (Runner& runner : next.threads) {
          runner.view.join(runner.loaded);
          runner.view.join(mine);
          runner.released = runner.view;
        }
        next.threads[static_cast<size_t>(t)].view = next.threads[static_cast<size_t>(t)].released = all;
        go(std::move(next));
        return true;
      }
      case Kind::futex_wait: {
        State next = state;
        Runner& runner = next.threads[static_cast<size_t>(t)];
        const bool same = next.history[where].back().value == runner.regs[static_cast<size_t>(in.reg)];
        if (same) runner.blocked = static_cast<uint8_t>(where + 1);
        go(std::move(next), same ? " sleeps" : " returns");
        return true;
      }
      case Kind::futex_wake:
      case Kind::wake_one: {
        bool any = false;
        for (size_t u = 0; u < state.threads.size() && in.kind == Kind::wake_one; ++u) {
          if (state.threads[u].blocked != where + 1) continue;
          State next = state;
          next.threads[u].blocked = 0;
          go(std::move(next), " wakes " + system_.threads[u].name);
          any = true;
        }
        if (any) return true;
        State next = state;
        for (Runner& runner : next.threads)
          if (runner.blocked == where + 1) runner.blocked = 0;
        go(std::move(next));
        return true;
      }
      case Kind::either: {
        go(state, " goes on");
        State next = state;
        next.threads[static_cast<size_t>(t)].pc = static_cast<uint8_t>(in.target - 1);
        go(std::move(next), " turns off");
        return true;
      }
      default:
        throw std::runtime_error("an instruction was left over");
    }
  }

  void append(State& state, int t, size_t where, int value, Order order, const View& continued) {
    Runner& runner = state.threads[static_cast<size_t>(t)];
    auto& stores = state.history[where];
    runner.view.seen[where] = static_cast<uint8_t>(stores.size());
    Store store{static_cast<uint8_t>(value), releases(order) ? runner.view : runner.released};
    store.view.join(continued);  // a read-modify-write continues the release sequence of what it reads
    store.view.seen[where] = static_cast<uint8_t>(stores.size());
    stores.push_back(store);
  }

  // Makes at once what only concerns the thread itself: plain accesses, fences, jumps. They commute with what the others do.
  void settle(State& state) {
    for (int t = 0; t < static_cast<int>(state.threads.size()); ++t)
      while (!state.threads[static_cast<size_t>(t)].blocked && local(state, t, at(state, t))) continue;
  }

  bool local(State& state, int t, const Instruction& in) {
    Runner& runner = state.threads[static_cast<size_t>(t)];
    const int reg = runner.regs[static_cast<size_t>(in.reg)];
    switch (in.kind) {
      case Kind::read:
        access(state, t, in, false);
        if (in.value >= 0 && state.plain[static_cast<size_t>(in.where)] != in.value)
          fail(t, in, "wrong data: " + std::to_string(state.plain[static_cast<size_t>(in.where)]));
        state.each_view([&](View& view) { view.knows &= ~read_bit(in.where, t); });
        runner.view.knows |= read_bit(in.where, t);
        break;
      case Kind::write:
        access(state, t, in, true);
        state.plain[static_cast<size_t>(in.where)] = static_cast<uint8_t>(in.value);
        state.each_view([&](View& view) { view.knows &= ~write_bit(in.where); });
        runner.view.knows |= write_bit(in.where);
        break;
      case Kind::fence_acquire:
        runner.view.join(runner.loaded);
        break;
      case Kind::fence_release:
        runner.released = runner.view;
        break;
      case Kind::check:
        if (reg != in.value) fail(t, in, "wrong value " + std::to_string(reg));
        break;
      case Kind::jump:
      case Kind::jump_if:
      case Kind::jump_unless: {
        const bool jumps =
            in.kind == Kind::jump || (in.kind == Kind::jump_if ? reg == in.value : reg < in.value);
        runner.pc = jumps ? static_cast<uint8_t>(in.target) : static_cast<uint8_t>(runner.pc + 1);
        return true;
      }
      default:
        return false;
    }
    ++runner.pc;
    return true;
  }

  void access(const State& state, int t, const Instruction& in, bool writes) const {
    const Bits knows = state.threads[static_cast<size_t>(t)].view.knows;
    if (!(knows & write_bit(in.where))) fail(t, in, "race with a write");
    for (int u = 0; writes && u < static_cast<int>(state.threads.size()); ++u)
      if (u != t && !(knows & read_bit(in.where, u))) fail(t, in, "race with a read");
  }

  [[noreturn]] void fail(int t, const Instruction& in, const std::string& what) const {
    throw Violation{what + ": " + system_.threads[static_cast<size_t>(t)].name + " " + describe(in)};
  }

  void visit(State state, int from, std::string label) {
    labels_.push_back(std::move(label));
    parents_.push_back(from);
    queue_.emplace_back();
    current_ = static_cast<int>(queue_.size()) - 1;
    settle(state);
    state.tidy();
    if (!known_.emplace(state.packed(), 0).second) {
      labels_.pop_back();
      parents_.pop_back();
      queue_.pop_back();
    } else {
      queue_.back() = std::move(state);
      if (queue_.size() > most_) throw std::runtime_error(system_.name + " has too many states");
    }
    current_ = from;
  }

  std::string describe(const Instruction& in) const {
    static constexpr const char* names[] = {
        "load",          "await ==",   "await >=",    "store",      "add",      "claim", "acquire fence",
        "release fence", "membarrier", "futex_wait",  "futex_wake", "wake_one", "read",  "write",
        "jump",          "jump_if",    "jump_unless", "either",     "check",    "done"};
    std::string text = names[static_cast<size_t>(in.kind)];
    const bool plain = in.kind == Kind::read || in.kind == Kind::write;
    const auto& list = plain ? system_.plain : system_.atomics;
    if (plain || in.kind <= Kind::claim || (in.kind >= Kind::futex_wait && in.kind <= Kind::wake_one))
      text += " " + list[static_cast<size_t>(in.where)] + " " + std::to_string(in.value);
    return text;
  }

  const System& system_;
  size_t most_;
  std::unordered_map<std::string, char> known_;
  std::vector<State> queue_;
  std::vector<int> parents_;
  std::vector<std::string> labels_;
  int current_ = -1;
};

}  // namespace

Outcome explore(const System& system, size_t most) { return Search(system, most).run(); }

}  // namespace model
