#include "cuda/host/user_kernels.hpp"

#include <cstring>
#include <numeric>

#include "cuda/host/loading.hpp"

#ifndef PC_EMULATED
extern "C" const char pc_user_image[], pc_user_image_end[];  // setup.py
#endif

namespace pc::cuda {
namespace {

constexpr uint32_t kMostVectors = 16;  // kernels/user.cu

std::string kernel_name(const std::string& way, const std::string& form, bool fused) {
  return std::string(fused ? "pc_user_fused_" : "pc_user_") + way + "_" + form;
}

}  // namespace

UserItem::UserItem(uint32_t bytes_, uint32_t accumulated_)
    : bytes(bytes_),
      accumulated(accumulated_),
      group(kVectorBytes / std::gcd(kVectorBytes, bytes)),
      vectors(accumulated * group / kVectorBytes) {
  const std::string size = std::to_string(bytes) + " bytes";
  if (accumulated != bytes && !in_one_vector())
    throw Error(ErrorKind::unsupported,
                "on a device, blocks of 16- or 8-bit floats have 2, 4, 8 or 16 bytes, not " + size +
                    ": pass host arrays, or float32");
  if (vectors > kMostVectors)
    throw Error(ErrorKind::unsupported,
                "blocks and records of " + size +
                    " are not combined on a device, but those whose multiple of 16 bytes has at most " +
                    std::to_string(16 * kMostVectors) + ": pass host arrays");
}

uint32_t UserItem::packed() const {
  uint32_t log = 0;
  while (1u << log < group) ++log;
  return log | vectors << 8;
}

std::string UserItem::form(const std::string& type) const {
  return accumulated != bytes ? type : in_one_vector() ? "items" : "blocks";
}

template <class Find>
void UserKernels::load_all(const std::string& form, bool fused, Find&& find) {
  for (uint32_t p = 0; p < kProtocols; ++p)
    load_kernel(interpreters_[p] = find(kernel_name(kProtocolNames[p], form, fused)));
  if (item_.in_one_vector()) load_kernel(direct_ = find(kernel_name("direct", form, fused)));
}

#ifdef PC_EMULATED

UserKernels::UserKernels(const std::string& image, const std::string& form, const UserItem& item, bool fused)
    : item_(item) {
  uintptr_t address = 0;
  if (image.size() != sizeof address) throw Error(ErrorKind::device, "this is no operator's address");
  std::memcpy(&address, image.data(), sizeof address);
  function_ = reinterpret_cast<const void*>(address);
  load_all(form, fused, &find_user);
}

#else

std::string_view user_image() {
  return {pc_user_image, static_cast<size_t>(pc_user_image_end - pc_user_image)};
}

UserKernels::UserKernels(const std::string& image, const std::string& form, const UserItem& item, bool fused)
    : item_(item) {
  cudaLibrary_t library;  // never unloaded: that would wait for kernels, too
  check(cudaLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
        "loading the kernels of an operator");
  const auto find = [&](const std::string& name) {
    cudaKernel_t kernel;
    check(cudaLibraryGetKernel(&kernel, library, name.c_str()), "looking for a kernel of an operator");
    return Kernel{reinterpret_cast<const void*>(kernel), nullptr, "user"};
  };
  load_all(form, fused, find);
}

#endif

}  // namespace pc::cuda
