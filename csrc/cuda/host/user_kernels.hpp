// Kernels with an operator of the caller's linked in, and how its items lie in vectors (kernels/user.cuh).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cuda/host/runtime.hpp"
#include "cuda/kernels/kernels.hpp"

namespace pc::cuda {

struct UserItem {
  uint32_t bytes;        // of one item, as the caller has it
  uint32_t accumulated;  // of one while it is combined: more for 16- and 8-bit floats
  uint32_t group;        // items in the fewest whole vectors
  uint32_t vectors;      // of a group while it is combined

  UserItem(uint32_t bytes_, uint32_t accumulated_);  // throws Error(unsupported)
  bool in_one_vector() const { return bytes * group == kVectorBytes; }
  uint32_t packed() const;                          // as kernels take it
  std::string form(const std::string& type) const;  // which kernels of kernels/user.cu work on it
};

class UserKernels {
 public:
  // `image`: what nvJitLink made; on the emulated device the address of the function that combines on the CPU. `form`: of `item`.
  // `fused`: the kernels for several ranks in one grid, which take a FusedCall.
  // Loads the kernels, which waits for those that run on the device. Throws Error(device).
  UserKernels(const std::string& image, const std::string& form, const UserItem& item, bool fused);

  Kernel find(Protocol protocol) const { return interpreters_[static_cast<uint32_t>(protocol)]; }
  Kernel direct() const { return direct_; }  // none where items take several vectors
  const UserItem& item() const { return item_; }
  const void* function() const { return function_; }  // on the emulated device

 private:
  template <class Find>
  void load_all(const std::string& form, bool fused, Find&& find);  // `find` knows kernels by name

  UserItem item_;
  const void* function_ = nullptr;
  Kernel interpreters_[kProtocols], direct_;
};

#ifdef PC_EMULATED
Kernel find_user(const std::string& name);  // emulation/user_kernels.cpp
#else
std::string_view user_image();  // kernels/user.cu as LTO-IR, for all architectures of the extension
#endif

}  // namespace pc::cuda
