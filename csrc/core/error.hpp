// One exception type for the C++ side; the bindings translate it into the Python family.
#pragma once

#include <stdexcept>
#include <string>

namespace pc {

enum class ErrorKind : int {
  invalid_argument,
  unsupported,
  mismatch,
  bootstrap,
  transport,
  peer,
  timeout,
  aborted,
  schedule,
  interrupted,
  device
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& text, int peer = -1)
      : std::runtime_error(text), kind_(kind), peer_(peer) {}
  ErrorKind kind() const { return kind_; }
  int peer() const { return peer_; }  // the rank that the error is about, or -1

  // Where it happened; filled in by whoever knows.
  int rank = -1;
  int verb = -1;
  unsigned long long sequence = 0;

 private:
  ErrorKind kind_;
  int peer_;
};

}  // namespace pc
