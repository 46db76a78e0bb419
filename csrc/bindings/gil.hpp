// The interpreter's lock: given back while a thread waits, taken by threads of the library's own.
//
// As those of pybind11, but for the end of the interpreter. CPython ends a thread that wants the lock then by pthread_exit, whose
// unwinding may not leave a destructor or the first function of a thread (std::terminate). Such a thread rests here
// until the process has ended, as it does in CPython itself from 3.14 on.
#pragma once

#include <Python.h>
#include <unistd.h>

namespace pc {

template <class Take>
auto take_gil(Take take) {
  try {
    return take();
  } catch (...) {  // the unwinding of pthread_exit: CPython throws nothing else
    for (;;) pause();
  }
}

class ReleasedGil {
 public:
  ReleasedGil() : state_(PyEval_SaveThread()) {}
  ~ReleasedGil() {
    take_gil([this] { PyEval_RestoreThread(state_); });
  }
  ReleasedGil(const ReleasedGil&) = delete;
  ReleasedGil& operator=(const ReleasedGil&) = delete;

 private:
  PyThreadState* state_;
};

// Deletes what waits at its end, and that perhaps for calls that other threads are about to make.
struct WithoutGil {
  template <class T>
  void operator()(T* what) const {
    const ReleasedGil release;
    delete what;
  }
};

class HeldGil {
 public:
  HeldGil() : state_(take_gil([] { return PyGILState_Ensure(); })) {}
  ~HeldGil() { PyGILState_Release(state_); }
  HeldGil(const HeldGil&) = delete;
  HeldGil& operator=(const HeldGil&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace pc
