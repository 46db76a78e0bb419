// Damaged plans. Most are refused; what passes is executed, on arrays of exactly the bytes it asks for.
#include <cstdio>

#include "commands.hpp"
#include "ranks.hpp"

namespace pc::test {
namespace {

constexpr uint64_t kMostData = 1 << 20;

template <class Number>
void damage(std::vector<Number>& numbers, Dice& dice) {
  if (numbers.empty()) return;
  const size_t at = dice(numbers.size());
  Number& value = numbers[at];
  switch (dice(9)) {
    case 0:
      value = 0;
      return;
    case 1:
      value = static_cast<Number>(-1);
      return;
    case 2:
      value = static_cast<Number>(dice(~uint64_t{0}));
      return;
    case 3:
      value = static_cast<Number>(value ^ Number{1} << dice(8 * sizeof(Number)));
      return;
    case 4:
      value = static_cast<Number>(value + Number{1});
      return;
    case 5:
      value = numbers[dice(numbers.size())];
      return;
    case 6:
      value = static_cast<Number>(dice(16));
      return;
    case 7:
      numbers.erase(numbers.begin() + static_cast<std::ptrdiff_t>(at));
      return;
    default:
      numbers.insert(numbers.begin() + static_cast<std::ptrdiff_t>(at), value);
      return;
  }
}

// Some fields have a length of their own, which is the file's matter, not the plan's.
template <class Number>
void damage_in_place(std::vector<Number>& numbers, Dice& dice) {
  const size_t size = numbers.size();
  damage(numbers, dice);
  numbers.resize(size);
}

void damage(Part& part, Dice& dice) {
  switch (dice(16)) {
    case 0:
      return damage_in_place(part.plan, dice);
    case 1:
      return damage_in_place(part.kind, dice);
    case 2:
      return damage_in_place(part.held, dice);
    case 3:
      return damage(part.blocks, dice);
    case 4:
      return damage(part.sent, dice);
    case 5:
      return damage(part.taken, dice);
    default:
      return damage(part.tables[dice(7)], dice);
  }
}

// True if the damaged call was executed, with whatever result.
bool execute(const Case& one, int damaged, const std::shared_ptr<Prepared>& prepared, uint64_t seed) {
  const Plan& plan = *prepared->plan;
  if (plan.size != one.size() || plan.rank != damaged ||
      prepared->in_bytes + prepared->out_bytes > kMostData ||
      prepared->work_bytes + prepared->scratch_bytes > kMostData)
    return false;
  World world(one.size());
  on_ranks(one.size(), seed, [&](int rank) {
    const Part& part = one.parts[static_cast<size_t>(rank)];
    const auto mine = rank == damaged ? prepared : part.prepare();
    std::vector<std::byte> in(mine->in_bytes), out(mine->out_bytes);
    try {
      world.ends[static_cast<size_t>(rank)]->run(Call{mine.get(), in.data(), out.data(), 0, kSecond / 100});
    } catch (const Error&) {
    }
  });
  return true;
}

}  // namespace

void fuzz_plans(const std::vector<Case>& cases, uint64_t seed, int times) {
  int refused = 0, executed = 0;
  for (int i = 0; i < times; ++i) {
    Dice dice(seed + static_cast<uint64_t>(i));
    const Case& one = cases[dice(cases.size())];
    const auto rank = static_cast<int>(dice(static_cast<uint64_t>(one.size())));
    Part part = one.parts[static_cast<size_t>(rank)];
    for (uint64_t n = dice(3) + 1; n > 0; --n) damage(part, dice);
    try {
      const auto prepared = part.prepare();
      executed += dice(8) == 0 && execute(one, rank, prepared, seed + static_cast<uint64_t>(i));
    } catch (const Error&) {
      ++refused;
    }
  }
  std::printf("  %d damaged plans: %d refused, %d executed\n", times, refused, executed);
  require(refused > times / 10, "the decoder refuses nothing");
}

}  // namespace pc::test
