// The table of interpreters: which kernel runs a protocol, a dtype and an operator.
#pragma once

#include "core/dtype.hpp"
#include "core/reduce.hpp"
#include "cuda/kernels/layout.hpp"
#include "cuda/kernels/multimem.hpp"

namespace pc::cuda {

// `function` takes one argument by value, a Call or a DirectCall where nothing else is said. Where the kernels run on the CPU it is called through `invoke`.
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

// The direct algorithms by the switch, which combines in `form`. It takes a DirectCall.
Kernel find_multicast(Multimem form);

// The interpreters and the native kernels for several ranks in one grid: those that decide at run time only. They take a FusedCall.
Kernel find_fused(const Wanted& wanted);
Kernel find_fused_direct(const Wanted& wanted);

// Writes a Parcel, by one block.
Kernel find_delivery();

Kernel find_simple(const Wanted& wanted);
Kernel find_ll(const Wanted& wanted);
Kernel find_ll128(const Wanted& wanted);

}  // namespace pc::cuda
