// Who is left (csrc/shm/survivors.cpp): each rank says that it takes part, waits for the others or finds them late, writes its
// list down, and tries to put its number into one word, unless somebody has done so. All must read the same, complete list.
#include "models.hpp"

namespace model {
namespace {

System build(const std::string& name, int ranks, const std::string& mutant) {
  System system;
  system.name = name;
  const int word = system.atomic("word");
  std::vector<int> here, list;
  for (int r = 0; r < ranks; ++r) {
    here.push_back(system.atomic("here" + std::to_string(r)));
    list.push_back(system.atomic("list" + std::to_string(r)));
  }
  for (int me = 0; me < ranks; ++me) {
    const auto own = static_cast<size_t>(me);
    Thread t{"rank " + std::to_string(me), {}};
    t.store(here[own], 1, Order::release);
    const int waits =
        me ? t.add({Kind::either}) : -1;  // sees the decision of another one, which there must be
    for (size_t peer = 0; peer < static_cast<size_t>(ranks); ++peer) {
      if (peer == own) continue;
      const int late = t.add({Kind::either});
      t.await_least(here[peer], 1, Order::acquire);
      t.jump_to_here(late);
    }
    if (mutant != "list after the word") t.store(list[own], 10 + me, Order::relaxed);
    const Order order = mutant == "word stored relaxed" ? Order::acquire : Order::acq_rel;
    if (mutant == "no compare-exchange")
      t.store(word, me + 1, Order::release);
    else
      t.add({Kind::claim, word, me + 1, order, 0});
    if (mutant == "list after the word") t.store(list[own], 10 + me, Order::relaxed);
    if (waits >= 0) t.jump_to_here(waits);
    t.await_least(word, 1, mutant == "word loaded relaxed" ? Order::relaxed : Order::acquire);
    t.load(0, word, mutant == "word loaded relaxed" ? Order::relaxed : Order::acquire);
    std::vector<int> reads, ends;
    for (int winner = 0; winner < ranks; ++winner) reads.push_back(t.add({Kind::jump_if, 0, winner + 1}));
    for (size_t winner = 0; winner < static_cast<size_t>(ranks); ++winner) {
      t.jump_to_here(reads[winner]);
      t.load(1, list[winner], Order::relaxed);
      t.add({Kind::check, 0, 10 + static_cast<int>(winner), Order::relaxed, 1});
      t.load(1, word, Order::relaxed);  // a decision is for good
      t.add({Kind::check, 0, static_cast<int>(winner) + 1, Order::relaxed, 1});
      ends.push_back(t.add({Kind::jump}));
    }
    for (int each : ends) t.jump_to_here(each);
    t.add({Kind::done});
    system.threads.push_back(std::move(t));
  }
  return system;
}

}  // namespace

std::vector<Model> survivor_models() {
  using namespace std::placeholders;
  const std::vector<std::string> mutants = {"list after the word", "word stored relaxed",
                                            "word loaded relaxed", "no compare-exchange"};
  return {
      {"two ranks agree who is left", mutants, std::bind(build, "two ranks agree who is left", 2, _1)},
      {"three ranks agree who is left", mutants, std::bind(build, "three ranks agree who is left", 3, _1)}};
}

}  // namespace model
