#include "cuda/host/multicast.hpp"

#ifdef PC_EMULATED
#include "cuda/emulation/driver.hpp"
#else
#include <cuda.h>
#endif

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

MulticastMemory::MulticastMemory(int device, uint32_t size, size_t bytes)
    : device_(device), size_(size), bytes_(bytes) {
  const CUmulticastObjectProp properties = object_properties(size, bytes);
  size_t grain = 1;
  check(driver().cuMulticastGetGranularity(&grain, &properties, CU_MULTICAST_GRANULARITY_MINIMUM),
        "asking for the granularity of multicast memory");
  bytes_ = (bytes + grain - 1) / grain * grain;
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

void MulticastMemory::bind(cudaStream_t stream) {
  const Driver& d = driver();
  const CUmemAllocationProp properties = properties_on(device_);
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check(d.cuMemCreate(&memory_, bytes_, &properties, 0), "allocating multicast memory");
  check(d.cuMemAddressReserve(&local_, bytes_, 0, 0, 0), "reserving addresses");
  check(d.cuMemMap(local_, bytes_, 0, memory_, 0), "mapping multicast memory");
  local_mapped_ = true;
  check(d.cuMemSetAccess(local_, bytes_, &access, 1), "mapping multicast memory");
  // Its counters begin at 0, on all ranks before any of them can use it: they meet after this.
  check(cudaMemsetAsync(local(), 0, bytes_, stream), "clearing multicast memory");
  check(cudaStreamSynchronize(stream), "clearing multicast memory");
  check(d.cuMulticastBindMem(object_, 0, memory_, 0, bytes_, 0), "binding multicast memory");
  bound_ = true;
  check(d.cuMemAddressReserve(&everywhere_, bytes_, 0, 0, 0), "reserving addresses");
  check(d.cuMemMap(everywhere_, bytes_, 0, object_, 0), "mapping a multicast object");
  everywhere_mapped_ = true;
  check(d.cuMemSetAccess(everywhere_, bytes_, &access, 1), "mapping a multicast object");
}

}  // namespace pc::cuda
