// A native communicator as Python holds it.
#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstdint>

#include "bindings/gil.hpp"
#include "bindings/site.hpp"
#include "shm/communicator.hpp"

namespace pc {

struct Handle : Communicator {
  using Communicator::Communicator;
  ~Handle() {  // the progress thread may need the interpreter to end
    const ReleasedGil release;
    close();
  }
  void forget() {
    sites.forget();
    Communicator::forget();
  }
  Sites sites{group().recorder(group().rank())};
};

inline uint64_t nanoseconds(double seconds) {
  return seconds >= 1e9 ? ~uint64_t{0} / 2 : static_cast<uint64_t>(std::max(0.0, seconds) * 1e9);
}

}  // namespace pc
