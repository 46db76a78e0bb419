// Call sites: recorded as (code object, instruction) in a few nanoseconds, put into words only for an error.
#pragma once

#include <Python.h>

#include <array>
#include <cstdint>
#include <unordered_set>

#include "shm/layout.hpp"

namespace pc {

struct Site {
  uint64_t code;
  int32_t instruction;
};

// Holds the code objects that calls came from, so that the sites can be resolved at any time: an asynchronous call may run
// long after its issue.
class Sites {
 public:
  ~Sites();
  Site here();  // the first frame outside the package; needs the GIL

 private:
  static constexpr size_t kMostCodes = 4096;  // a program that makes code without end is not followed further

  bool keep(PyObject* code);

  std::array<PyObject*, 64> recent_{};  // by address: known to be in codes_
  std::unordered_set<PyObject*> codes_;
};

void install_site_resolver();

}  // namespace pc
