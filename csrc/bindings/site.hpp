// Call sites: recorded as (code object, instruction) in a few nanoseconds, put into words only for an error.
#pragma once

#include <Python.h>

#include <array>
#include <cstdint>

#include "shm/layout.hpp"

namespace pc {

struct Site {
  uint64_t code;
  int32_t instruction;
};

// Holds the code objects of the last calls, so that their sites can still be resolved.
class Sites {
 public:
  ~Sites();
  Site here();  // the first frame outside the package; needs the GIL

 private:
  std::array<PyObject*, 2 * kRecords> codes_{};
  size_t next_ = 0;
};

void install_site_resolver();

}  // namespace pc
