// What goes wrong in a call: the others must end with an error, and the memory must stay sound.
#include "commands.hpp"
#include "ranks.hpp"

namespace pc::test {
namespace {

enum class Fault { disagrees, aborts, leaves, gives_up, count };

void one_fault(const Case& one, const Case& other, Fault fault, int culprit, uint64_t seed) {
  const int size = one.size();
  World world(size);
  std::vector<int> failed(static_cast<size_t>(size));
  on_ranks(size, seed, [&](int rank) {
    Communicator& end = *world.ends[static_cast<size_t>(rank)];
    const bool odd = rank == culprit;
    const Part& part = (odd && fault == Fault::disagrees ? other : one).parts[static_cast<size_t>(rank)];
    const auto prepared = part.prepare();
    std::vector<std::byte> out(prepared->out_bytes);
    Dice dice(seed);
    const uint64_t before = dice(4);
    try {
      // Some calls need nobody: the others of an abort go on until they have heard of it.
      for (uint64_t i = 0; i < before + 2 || fault == Fault::aborts; ++i) {
        if (odd && i == before && fault == Fault::aborts) end.abort();
        if (odd && i == before && fault == Fault::leaves) {
          end.close();
          return;
        }
        const uint64_t limit = odd && i == before && fault == Fault::gives_up ? 0 : 30 * kSecond;
        end.run(Call{prepared.get(), part.input.data(), out.data(), 0, limit});
      }
    } catch (const Error& error) {
      failed[static_cast<size_t>(rank)] = 1;
      const std::string text = error.what();
      const bool told = text.find("as rank " + std::to_string(culprit) + " noticed") != std::string::npos;
      require(error.kind() != ErrorKind::timeout || odd || told, "a rank hung: " + text);
    }
  });
  int raised = 0;
  for (int each : failed) raised += each;
  if (fault == Fault::aborts) require(raised == size, "not all ranks have heard of an abort in " + one.name);
}

}  // namespace

void run_faults(const std::vector<Case>& cases, uint64_t seed, int times) {
  Dice dice(seed);
  for (int i = 0; i < times; ++i) {
    const Case& one = cases[dice(cases.size())];
    const Case* other = &one;
    while (other == &one || other->size() != one.size()) other = &cases[dice(cases.size())];
    one_fault(one, *other, static_cast<Fault>(dice(static_cast<uint64_t>(Fault::count))),
              static_cast<int>(dice(static_cast<uint64_t>(one.size()))), seed + static_cast<uint64_t>(i));
  }
}

}  // namespace pc::test
