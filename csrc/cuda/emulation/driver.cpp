#include "cuda/emulation/driver.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <set>

#include "cuda/emulation/multicast.hpp"

namespace {

using namespace pc::emulation;

constexpr size_t kGranularity = 4096;

// What a handle stands for: memory of a device, or a multicast object.
struct Thing {
  int references = 1;
  size_t bytes = 0;
  int device = -1;
  char* mapped = nullptr;
  std::unique_ptr<MulticastObject> object;
  unsigned wanted = 0;
  std::map<CUdevice, char*> bound;  // of those that have been added
};

// Not taken apart at the end: what is left then would look for the multicast objects of another file, which may be gone.
auto& things = *new std::map<CUmemGenericAllocationHandle, std::unique_ptr<Thing>>;
std::set<CUdeviceptr> windows;
CUmemGenericAllocationHandle last = 0x1000;

char* pointer(CUdeviceptr address) { return reinterpret_cast<char*>(address); }

Thing* thing(CUmemGenericAllocationHandle handle) {
  const auto found = things.find(handle);
  return found == things.end() ? nullptr : found->second.get();
}

// One call of the driver at a time, and none while kernels run.
template <class F>
CUresult alone(F&& f) {
  CUresult result = CUDA_SUCCESS;
  between_runs([&] { result = f(); });
  return result;
}

}  // namespace

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long, cudaDriverEntryPointQueryResult* result) {
#define PC_ENTRY(name)                    \
  {                                       \
    #name, reinterpret_cast<void*>(&name) \
  }
  static const std::map<std::string, void*> known{
      PC_ENTRY(cuGetErrorString),
      PC_ENTRY(cuDeviceGet),
      PC_ENTRY(cuDeviceGetAttribute),
      PC_ENTRY(cuMemCreate),
      PC_ENTRY(cuMemRelease),
      PC_ENTRY(cuMemExportToShareableHandle),
      PC_ENTRY(cuMemImportFromShareableHandle),
      PC_ENTRY(cuMemAddressReserve),
      PC_ENTRY(cuMemAddressFree),
      PC_ENTRY(cuMemMap),
      PC_ENTRY(cuMemUnmap),
      PC_ENTRY(cuMemSetAccess),
      PC_ENTRY(cuMemGetAllocationGranularity),
      PC_ENTRY(cuMulticastCreate),
      PC_ENTRY(cuMulticastAddDevice),
      PC_ENTRY(cuMulticastBindMem),
      PC_ENTRY(cuMulticastUnbind),
      PC_ENTRY(cuMulticastGetGranularity),
  };
#undef PC_ENTRY
  const auto found = known.find(symbol);
  *function = found == known.end() ? nullptr : found->second;
  *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_INVALID_VALUE    ? "invalid argument"
          : error == CUDA_ERROR_OUT_OF_MEMORY  ? "out of memory"
          : error == CUDA_ERROR_INVALID_DEVICE ? "invalid device ordinal"
                                               : "the operation cannot be performed in the present state";
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute, CUdevice) {
  *value = 1;
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long) {
  if (bytes == 0 || bytes % kGranularity) return CUDA_ERROR_INVALID_VALUE;
  return alone([&] {
    auto one = std::make_unique<Thing>();
    one->bytes = bytes;
    one->device = properties->location.id;
    things[*handle = ++last] = std::move(one);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return alone([&] {
    Thing* one = thing(handle);
    if (!one) return CUDA_ERROR_INVALID_VALUE;
    if (--one->references == 0) things.erase(handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType, unsigned long long) {
  const int fd = memfd_create("emulated", MFD_CLOEXEC);
  if (fd < 0 || pwrite(fd, &handle, sizeof handle, 0) != sizeof handle) return CUDA_ERROR_OUT_OF_MEMORY;
  std::memcpy(shareable, &fd, sizeof fd);
  return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                        CUmemAllocationHandleType) {
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(shareable));
  if (pread(fd, handle, sizeof *handle, 0) != sizeof *handle) return CUDA_ERROR_INVALID_VALUE;
  return alone([&] {
    Thing* one = thing(*handle);
    if (!one) return CUDA_ERROR_INVALID_VALUE;
    ++one->references;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  void* memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  return munmap(pointer(address), bytes) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long) {
  return alone([&] {
    Thing* one = thing(handle);
    if (!one || offset || bytes != one->bytes) return CUDA_ERROR_INVALID_VALUE;
    if (one->object) {
      open_window(pointer(address), one->object.get());
      windows.insert(address);
      return CUDA_SUCCESS;
    }
    one->mapped = pointer(address);
    if (mprotect(one->mapped, bytes, PROT_READ | PROT_WRITE) != 0) return CUDA_ERROR_INVALID_VALUE;
    std::memset(one->mapped, 0x5a, bytes);  // as on a GPU, it holds anything
    return CUDA_SUCCESS;
  });
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  return alone([&] {
    if (windows.erase(address)) close_window(pointer(address));
    return mprotect(pointer(address), bytes, PROT_NONE) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) { return CUDA_SUCCESS; }

CUresult cuMulticastCreate(CUmemGenericAllocationHandle* handle, const CUmulticastObjectProp* properties) {
  if (properties->size == 0 || properties->size % kGranularity || properties->numDevices < 2)
    return CUDA_ERROR_INVALID_VALUE;
  return alone([&] {
    auto one = std::make_unique<Thing>();
    one->bytes = properties->size;
    one->object = std::make_unique<MulticastObject>(properties->size);
    one->wanted = properties->numDevices;
    things[*handle = ++last] = std::move(one);
    return CUDA_SUCCESS;
  });
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice device) {
  return alone([&] {
    Thing* one = thing(handle);
    if (!one || !one->object || one->bound.size() == one->wanted) return CUDA_ERROR_INVALID_VALUE;
    return one->bound.emplace(device, nullptr).second ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
  });
}

// A device waits here until all have been added; the emulated one does not let it come to that.
CUresult cuMulticastBindMem(CUmemGenericAllocationHandle object, size_t object_offset,
                            CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
                            unsigned long long) {
  return alone([&] {
    Thing *one = thing(object), *bound = thing(memory);
    if (!one || !one->object || !bound || !bound->mapped || object_offset || memory_offset ||
        bytes != one->bytes || bytes != bound->bytes)
      return CUDA_ERROR_INVALID_VALUE;
    if (one->bound.size() != one->wanted) return CUDA_ERROR_ILLEGAL_STATE;
    const auto found = one->bound.find(bound->device);
    if (found == one->bound.end()) return CUDA_ERROR_INVALID_DEVICE;
    found->second = bound->mapped;
    one->object->bind(bound->mapped);
    return CUDA_SUCCESS;
  });
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle object, CUdevice device, size_t, size_t) {
  return alone([&] {
    Thing* one = thing(object);
    if (!one || !one->bound.contains(device)) return CUDA_ERROR_INVALID_VALUE;
    one->object->unbind(one->bound[device]);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  *bytes = kGranularity;
  return CUDA_SUCCESS;
}

CUresult cuMulticastGetGranularity(size_t* bytes, const CUmulticastObjectProp*,
                                   CUmulticastGranularity_flags) {
  *bytes = kGranularity;
  return CUDA_SUCCESS;
}
