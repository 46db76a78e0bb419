// The file that export.py writes: plans, sizes, inputs and right results of many calls.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shm/prepare.hpp"

namespace pc::test {

// One rank's part of a call, before it is decoded.
struct Part {
  std::vector<int32_t> tables[7];
  std::vector<uint64_t> plan;  // the numbers of a plan
  std::vector<uint64_t> kind, held, blocks, sent, taken;
  std::vector<std::byte> input, wanted;

  // What bindings/plan.cpp does with the same numbers. Throws Error.
  std::shared_ptr<Prepared> prepare() const;
};

struct Case {
  std::string name;
  std::vector<Part> parts;  // by rank
  int size() const { return static_cast<int>(parts.size()); }
};

std::vector<Case> read_cases(const std::string& path);

}  // namespace pc::test
