// Real plans on ranks that are threads.
#include <algorithm>
#include <map>

#include "commands.hpp"
#include "ranks.hpp"

namespace pc::test {
namespace {

using Bytes = std::vector<std::byte>;
constexpr size_t kRepeated = 6;  // kinds of calls

// A rank's symmetric memory: the input in its first half, the output in the second.
struct Symmetric {
  Symmetric(World& world, size_t half) : half(half) {
    for (int rank = 0; rank < world.size(); ++rank) memory.push_back(Mapping::alone(2 * half));
    Region region{7, {}, 2 * half};
    for (auto& each : memory) region.base.push_back(each.data());
    for (auto& end : world.ends) end->add_region(region);
  }
  std::vector<Mapping> memory;
  size_t half;
};

void one_call(Communicator& end, const Part& part, const std::shared_ptr<Prepared>& prepared, const Case& one,
              Symmetric* symmetric, bool submit) {
  const auto rank = static_cast<size_t>(end.group().rank());
  Bytes own_in = part.input, own_out(prepared->out_bytes, std::byte{0x5a});
  require(own_in.size() >= prepared->in_bytes, "the input of " + one.name + " is too short");
  std::byte *in = own_in.data(), *out = own_out.data();
  if (symmetric && std::max(own_in.size(), own_out.size()) <= symmetric->half) {
    in = symmetric->memory[rank].data();
    out = in + symmetric->half;
    std::copy(own_in.begin(), own_in.end(), in);
    std::copy(own_out.begin(), own_out.end(), out);
  }
  if (submit) {
    const auto job = std::make_shared<Job>();
    job->prepared = prepared;
    job->in = in;
    job->out = out;
    job->timeout_ns = 60 * kSecond;
    end.submit(job);
    end.wait(job, 60 * kSecond, false);
  } else {
    end.run(Call{prepared.get(), in, out, 0, 60 * kSecond});
  }
  if (!part.wanted.empty())
    require(std::equal(part.wanted.begin(), part.wanted.end(), out, out + prepared->out_bytes),
            "rank " + std::to_string(rank) + " has a wrong result of " + one.name);
  require(std::equal(own_in.begin(), own_in.end(), in), "the input has changed in " + one.name);
}

}  // namespace

void run_plans(const std::vector<Case>& cases, uint64_t seed, int times) {
  std::map<int, std::vector<const Case*>> by_size;
  for (const Case& one : cases) by_size[one.size()].push_back(&one);
  for (auto& [size, mine] : by_size) {
    World world(size);
    Symmetric symmetric(world, 1 << 16);
    on_ranks(size, seed, [&, &mine = mine](int rank) {
      Communicator& end = *world.ends[static_cast<size_t>(rank)];
      Dice dice(seed);
      std::vector<std::shared_ptr<Prepared>> prepared;
      for (const Case* one : mine) prepared.push_back(one->parts[static_cast<size_t>(rank)].prepare());
      for (int round = 0; round < times; ++round)
        for (size_t i = 0; i < mine.size(); ++i) {
          const size_t which = dice(mine.size());
          const bool shared = dice(3) == 0, submit = dice(4) == 0;
          one_call(end, mine[which]->parts[static_cast<size_t>(rank)], prepared[which], *mine[which],
                   shared ? &symmetric : nullptr, submit);
        }
      // Enough calls of a few kinds for all ways of their messages to be tried, whole blocks among them.
      std::vector<size_t> whole;
      for (size_t i = 0; i < mine.size(); ++i)
        if (prepared[i]->whole.slices) whole.push_back(i);
      for (int turn = 0; turn < 60 * times && !whole.empty(); ++turn) {
        if (turn % 60 == 0)
          for (size_t i = 0; i < kRepeated && i < whole.size(); ++i)
            std::swap(whole[i], whole[i + dice(whole.size() - i)]);
        for (size_t i = 0; i < kRepeated && i < whole.size(); ++i)
          one_call(end, mine[whole[i]]->parts[static_cast<size_t>(rank)], prepared[whole[i]], *mine[whole[i]],
                   dice(8) == 0 ? &symmetric : nullptr, false);
      }
      // Nobody may leave while another one still looks at its records.
      end.run(Call{prepared[0].get(), mine[0]->parts[static_cast<size_t>(rank)].input.data(),
                   Bytes(prepared[0]->out_bytes).data(), 0, 60 * kSecond});
    });
  }
}

}  // namespace pc::test
