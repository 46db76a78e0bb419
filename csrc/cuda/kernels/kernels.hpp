// The table of interpreters: which kernel runs a protocol, a dtype and an operator.
#pragma once

#include "core/dtype.hpp"
#include "core/reduce.hpp"
#include "cuda/kernels/layout.hpp"

namespace pc::cuda {

// `function` takes one argument, a Call or a DirectCall by value. Where the kernels run on the CPU it is called through `invoke`.
struct Kernel {
  const void* function = nullptr;
  void (*invoke)(const void* call) = nullptr;
  const char* name = "";
};

// What a call asks of its kernel. `moves`: bytes, which are not combined. `any`: the kernel that decides at run time, also where
// there is one of its own.
struct Wanted {
  Protocol protocol;
  DType dtype;
  ReduceOp op;
  bool moves = false, any = false;
};

Kernel find_kernel(const Wanted& wanted);

// The native kernel of the direct algorithms for a dtype and an operator; `protocol` does not matter.
Kernel find_direct(const Wanted& wanted);

// The ring all-reduce that is written by hand: float32, sum.
Kernel find_ring();

Kernel find_simple(const Wanted& wanted);
Kernel find_ll(const Wanted& wanted);
Kernel find_ll128(const Wanted& wanted);

}  // namespace pc::cuda
