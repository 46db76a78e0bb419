// Call sites: found in a few nanoseconds, put into words ("train.py:88") when a place in the program is first seen.
#pragma once

#include <Python.h>

#include <array>
#include <cstdint>

#include "shm/recorder.hpp"

namespace pc {

// The places that the calls of one communicator come from. All members need the GIL.
class Sites {
 public:
  explicit Sites(Recorder& recorder) : texts_(&recorder.sites) {}
  Sites(const Sites&) = delete;
  ~Sites();
  // The number of the text of the first frame outside the package; 0 without a frame.
  uint64_t here();
  void forget() { texts_ = nullptr; }  // in a forked child: the recorder is not mapped there

 private:
  struct Known {
    PyObject* code = nullptr;  // owned, so that no other code comes to its address
    int instruction = 0;
    uint64_t number = 0;
  };

  decltype(Recorder::sites)* texts_;
  std::array<Known, 256> known_{};
};

}  // namespace pc
