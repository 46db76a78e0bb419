// Zero copy: a rank reads in place what another one has published; that one may give up and let its caller change the
// array. Who raises poisons first; who reads looks at the poison after its last read (Executor::run, Group::poison).
//
// The array is atomic here: the race is meant, and what it has read counts only if there was no poison.
#include "models.hpp"

namespace model {
namespace {

System build(const std::string& name, int readers, const std::string& mutant) {
  System system;
  system.name = name;
  const int array = system.atomic("array");
  std::vector<int> flag, ack, poison;
  for (int r = 0; r < readers; ++r) {
    flag.push_back(system.atomic("flag" + std::to_string(r)));
    ack.push_back(system.atomic("ack" + std::to_string(r)));
    poison.push_back(system.atomic("poison" + std::to_string(r)));
  }
  Thread owner{"owner", {}};
  owner.store(array, 1, Order::relaxed);
  for (int at : flag) owner.store(at, 1, Order::release);
  const int gives_up = owner.add({Kind::either});
  for (int at : ack) owner.await_least(at, 1, Order::acquire);
  const int changes = owner.add({Kind::jump});
  owner.jump_to_here(gives_up);
  if (mutant != "changes first")
    for (int at : poison) owner.add({Kind::claim, at, 1, Order::acq_rel, 0});
  if (mutant != "no fence after the poison") owner.add({Kind::fence_release});
  owner.jump_to_here(changes);
  owner.store(array, 2, Order::relaxed);  // the caller's next step
  if (mutant == "changes first")
    for (int at : poison) owner.add({Kind::claim, at, 1, Order::acq_rel, 0});
  owner.add({Kind::done});
  system.threads.push_back(std::move(owner));
  for (size_t r = 0; r < static_cast<size_t>(readers); ++r) {
    Thread t{"reader " + std::to_string(r), {}};
    t.await_equal(flag[r], 1, Order::acquire);
    if (mutant == "looks before it reads") t.load(1, poison[r], Order::acquire);
    if (mutant == "ack before reading") t.store(ack[r], 1, Order::release);
    t.load(0, array, Order::relaxed);
    if (mutant != "ack before reading") t.store(ack[r], 1, Order::release);
    if (mutant != "no fence before the look") t.add({Kind::fence_acquire});
    if (mutant != "looks before it reads") t.load(1, poison[r], Order::acquire);
    const int clean = t.add({Kind::jump_if, 0, 0, Order::relaxed, 1});
    const int raises = t.add({Kind::jump});
    t.jump_to_here(clean);
    t.add({Kind::check, 0, 1, Order::relaxed, 0});
    t.jump_to_here(raises);
    t.add({Kind::done});
    system.threads.push_back(std::move(t));
  }
  return system;
}

const std::vector<std::string> kMutants = {"changes first", "no fence after the poison",
                                           "no fence before the look", "looks before it reads",
                                           "ack before reading"};

}  // namespace

std::vector<Model> poison_models() {
  using namespace std::placeholders;
  return {
      {"read in place by one", kMutants, std::bind(build, "read in place by one", 1, _1)},
      {"read in place by two", kMutants, std::bind(build, "read in place by two", 2, _1)},
  };
}

}  // namespace model
