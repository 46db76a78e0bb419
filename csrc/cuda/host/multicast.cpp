#include "cuda/host/multicast.hpp"

#ifdef PC_EMULATED
#include "cuda/emulation/driver.hpp"
#else
#include <cuda.h>
#endif

#include <algorithm>
#include <string>

namespace pc::cuda {
namespace {

// The driver's functions. Throws Error(device) where the driver has no such function.
struct Driver {
#define PC_FUNCTION(name) decltype(&::name) name = reinterpret_cast<decltype(&::name)>(find(#name))
  PC_FUNCTION(cuGetErrorString);
  PC_FUNCTION(cuDeviceGet);
  PC_FUNCTION(cuDeviceGetAttribute);
  PC_FUNCTION(cuMemCreate);
  PC_FUNCTION(cuMemRelease);
  PC_FUNCTION(cuMemExportToShareableHandle);
  PC_FUNCTION(cuMemImportFromShareableHandle);
  PC_FUNCTION(cuMemAddressReserve);
  PC_FUNCTION(cuMemAddressFree);
  PC_FUNCTION(cuMemMap);
  PC_FUNCTION(cuMemUnmap);
  PC_FUNCTION(cuMemSetAccess);
  PC_FUNCTION(cuMemGetAllocationGranularity);
  PC_FUNCTION(cuMulticastCreate);
  PC_FUNCTION(cuMulticastAddDevice);
  PC_FUNCTION(cuMulticastBindMem);
  PC_FUNCTION(cuMulticastUnbind);
  PC_FUNCTION(cuMulticastGetGranularity);
#undef PC_FUNCTION

  static void* find(const char* name) {
    constexpr unsigned since = 12010;  // that has them all
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result;
    check(cudaGetDriverEntryPointByVersion(name, &function, since, cudaEnableDefault, &result),
          "looking for a function of the driver");
    if (result != cudaDriverEntryPointSuccess || !function)
      throw Error(ErrorKind::device, std::string("the CUDA driver has no ") + name);
    return function;
  }
};

const Driver& driver() {
  static const Driver one;
  return one;
}

void check(CUresult error, const char* what) {
  if (error == CUDA_SUCCESS) return;
  const char* text = nullptr;
  driver().cuGetErrorString(error, &text);
  throw Error(ErrorKind::device, std::string(what) + ": " + (text ? text : "unknown error"));
}

CUdevice driver_device(int device) {
  CUdevice found;
  check(driver().cuDeviceGet(&found, device), "asking for a device");
  return found;
}

CUmemAllocationProp properties_on(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;  // bound objects ask for it
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = driver_device(device);
  return properties;
}

std::vector<CUmemAccessDesc> access_from(const std::vector<int>& devices) {
  std::vector<CUmemAccessDesc> all;
  for (const int device : devices) {
    CUmemAccessDesc one{};
    one.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    one.location.id = driver_device(device);
    one.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    all.push_back(one);
  }
  return all;
}

CUmulticastObjectProp object_properties(uint32_t size, size_t bytes) {
  CUmulticastObjectProp properties{};
  properties.numDevices = size;
  properties.size = bytes;
  properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

}  // namespace

bool has_multicast(int device) {
  int can = 0;
  try {
    check(driver().cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, driver_device(device)),
          "asking for multicast");
  } catch (const Error&) {  // a driver that is too old
    return false;
  }
  return can != 0;
}

MulticastMemory::MulticastMemory(int device, uint32_t size, size_t bytes) : device_(device), size_(size) {
  const CUmulticastObjectProp object = object_properties(size, bytes);
  const CUmemAllocationProp memory = properties_on(device);
  size_t one = 1, other = 1;
  check(driver().cuMulticastGetGranularity(&one, &object, CU_MULTICAST_GRANULARITY_MINIMUM),
        "asking for the granularity of multicast memory");
  check(driver().cuMemGetAllocationGranularity(&other, &memory, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "asking for the granularity of device memory");
  grain_ = std::max(one, other);
  bytes_ = (bytes + grain_ - 1) / grain_ * grain_;
}

MulticastMemory::~MulticastMemory() {
  const Driver& d = driver();
  if (everywhere_mapped_) static_cast<void>(d.cuMemUnmap(everywhere_, bytes_));
  if (everywhere_) static_cast<void>(d.cuMemAddressFree(everywhere_, bytes_));
  if (bound_) static_cast<void>(d.cuMulticastUnbind(object_, driver_device(device_), 0, bytes_));
  if (local_mapped_) static_cast<void>(d.cuMemUnmap(local_, bytes_));
  if (local_) static_cast<void>(d.cuMemAddressFree(local_, bytes_));
  if (memory_) static_cast<void>(d.cuMemRelease(memory_));
  if (object_) static_cast<void>(d.cuMemRelease(object_));
}

int MulticastMemory::create() {
  const CUmulticastObjectProp properties = object_properties(size_, bytes_);
  check(driver().cuMulticastCreate(&object_, &properties), "making a multicast object");
  int descriptor = -1;
  check(driver().cuMemExportToShareableHandle(&descriptor, object_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                              0),
        "exporting a multicast object");
  return descriptor;
}

void MulticastMemory::add(int descriptor) {
  if (!object_)
    check(driver().cuMemImportFromShareableHandle(&object_,
                                                  reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)),
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
          "opening a multicast object");
  check(driver().cuMulticastAddDevice(object_, driver_device(device_)),
        "adding a device to a multicast object");
}

int MulticastMemory::descriptor() const {
  int descriptor = -1;
  check(driver().cuMemExportToShareableHandle(&descriptor, memory_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                              0),
        "exporting multicast memory");
  return descriptor;
}

void MulticastMemory::bind(cudaStream_t stream, const std::vector<int>& devices) {
  const Driver& d = driver();
  const CUmemAllocationProp properties = properties_on(device_);
  check(d.cuMemCreate(&memory_, bytes_, &properties, 0), "allocating multicast memory");
  check(d.cuMemAddressReserve(&local_, bytes_, grain_, 0, 0), "reserving addresses");
  check(d.cuMemMap(local_, bytes_, 0, memory_, 0), "mapping multicast memory");
  local_mapped_ = true;
  const std::vector<CUmemAccessDesc> all = access_from(devices);
  check(d.cuMemSetAccess(local_, bytes_, all.data(), all.size()), "mapping multicast memory");
  // Its counters begin at 0, on all ranks before any of them can use it: they meet after this.
  check(cudaMemsetAsync(local(), 0, bytes_, stream), "clearing multicast memory");
  check(cudaStreamSynchronize(stream), "clearing multicast memory");
  check(d.cuMulticastBindMem(object_, 0, memory_, 0, bytes_, 0), "binding multicast memory");
  bound_ = true;
  check(d.cuMemAddressReserve(&everywhere_, bytes_, grain_, 0, 0), "reserving addresses");
  check(d.cuMemMap(everywhere_, bytes_, 0, object_, 0), "mapping a multicast object");
  everywhere_mapped_ = true;
  const std::vector<CUmemAccessDesc> own = access_from({device_});
  check(d.cuMemSetAccess(everywhere_, bytes_, own.data(), own.size()), "mapping a multicast object");
}

std::shared_ptr<void> map_shared(int descriptor, int device, size_t bytes) {
  const Driver& d = driver();
  CUmemGenericAllocationHandle memory = 0;
  check(d.cuMemImportFromShareableHandle(&memory, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)),
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        "opening a peer's device memory");
  CUdeviceptr address = 0;
  const CUresult reserved = d.cuMemAddressReserve(&address, bytes, 0, 0, 0);
  const CUresult mapped = reserved ? reserved : d.cuMemMap(address, bytes, 0, memory, 0);
  static_cast<void>(d.cuMemRelease(memory));  // the mapping keeps it
  if (mapped && !reserved) static_cast<void>(d.cuMemAddressFree(address, bytes));
  check(mapped, "mapping a peer's device memory");
  std::shared_ptr<void> one(reinterpret_cast<void*>(address), [bytes](void* at) {
    const auto here = reinterpret_cast<CUdeviceptr>(at);
    static_cast<void>(driver().cuMemUnmap(here, bytes));
    static_cast<void>(driver().cuMemAddressFree(here, bytes));
  });
  const std::vector<CUmemAccessDesc> own = access_from({device});
  check(d.cuMemSetAccess(address, bytes, own.data(), own.size()), "mapping a peer's device memory");
  return one;
}

}  // namespace pc::cuda
