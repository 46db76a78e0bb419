#include "cuda/host/rank.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace pc::cuda {
namespace {

struct Handle {
  cudaIpcMemHandle_t memory;
  uint64_t address;
  int32_t pid, device;
};

// The device of the calling thread, for a while.
class On {
 public:
  explicit On(int device) {
    check(cudaGetDevice(&before_), "asking for the current device");
    if (before_ != device) check(cudaSetDevice(device), "choosing the device");
  }
  ~On() { static_cast<void>(cudaSetDevice(before_)); }

 private:
  int before_ = 0;
};

}  // namespace

Rank::Rank(const std::string& name, int rank, int device, const SegmentOptions& options)
    : rank_(rank),
      size_(static_cast<int>(options.size)),
      device_(device),
      segment_(divide(options)),
      segments_(options.size, nullptr) {
  const On on(device_);
  memory_ = DeviceMemory(segment_.bytes);
  check(cudaMemset(memory_.data(), 0, segment_.bytes), "clearing device memory");
  void* status;
  check(cudaHostAlloc(&status, sizeof(Status), cudaHostAllocDefault), "allocating pinned memory");
  status_ = static_cast<Status*>(status);
  std::memset(status_, 0, sizeof(Status));
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event");
  segments_[static_cast<size_t>(rank_)] = memory_.data();
#ifdef PC_EMULATED
  emulation::join(stream_, name, rank_, size_);
#else
  static_cast<void>(name);
#endif
}

Rank::~Rank() {
  if (stream_) static_cast<void>(cudaStreamDestroy(stream_));
  if (event_) static_cast<void>(cudaEventDestroy(event_));
  for (void* memory : opened_) static_cast<void>(cudaIpcCloseMemHandle(memory));
  if (status_) static_cast<void>(cudaFreeHost(status_));
}

std::string Rank::handle() const {
  Handle handle{};
  check(cudaIpcGetMemHandle(&handle.memory, memory_.data()), "exporting device memory");
  handle.address = reinterpret_cast<uint64_t>(memory_.data());
  handle.pid = getpid();
  handle.device = device_;
  return {reinterpret_cast<const char*>(&handle), sizeof handle};
}

void Rank::attach(int peer, const std::string& text) {
  Handle handle;
  if (text.size() != sizeof handle)
    throw Error(ErrorKind::bootstrap, "rank " + std::to_string(peer) + " sent no handle of its memory", peer);
  std::memcpy(&handle, text.data(), sizeof handle);
  const On on(device_);
  if (handle.device != device_) {
    int can = 0;
    check(cudaDeviceCanAccessPeer(&can, device_, handle.device), "asking for peer access");
    if (!can)
      throw Error(ErrorKind::unsupported,
                  "device " + std::to_string(device_) + " cannot reach the memory of device " +
                      std::to_string(handle.device),
                  peer);
  }
  void* memory = reinterpret_cast<void*>(handle.address);
  if (handle.pid == getpid()) {
    if (handle.device != device_) {
      const cudaError_t error = cudaDeviceEnablePeerAccess(handle.device, 0);
      if (error == cudaErrorPeerAccessAlreadyEnabled)
        static_cast<void>(cudaGetLastError());
      else
        check(error, "enabling peer access");
    }
  } else {
    check(cudaIpcOpenMemHandle(&memory, handle.memory, cudaIpcMemLazyEnablePeerAccess),
          "opening a peer's device memory");
    opened_.push_back(memory);
    one_process_ = false;
  }
  segments_[static_cast<size_t>(peer)] = static_cast<char*>(memory);
}

void Rank::open() {
  if (std::find(segments_.begin(), segments_.end(), nullptr) != segments_.end())
    throw Error(ErrorKind::bootstrap, "not all ranks are attached");
  const On on(device_);
  table_ = DeviceMemory(segments_.size() * sizeof(char*));
  check(cudaMemcpy(table_.data(), segments_.data(), table_.bytes(), cudaMemcpyHostToDevice),
        "copying to the device");
  std::vector<char*> regions(2 * segments_.size(), nullptr);  // region 0 is the address space, 1 the segments
  std::copy(segments_.begin(), segments_.end(), regions.begin() + size_);
  regions_ = DeviceMemory(regions.size() * sizeof(char*));
  check(cudaMemcpy(regions_.data(), regions.data(), regions_.bytes(), cudaMemcpyHostToDevice),
        "copying to the device");
  open_ = true;
}

std::shared_ptr<PreparedCall> Rank::prepare(std::shared_ptr<const Plan> plan, const Extent& extent,
                                            CallOptions options) {
  const On on(device_);
  DevicePlan layout(*plan, extent, options, segment_);
  const Kernel kernel =
      find_kernel({options.protocol, options.dtype, options.op, options.moves, options.any});
  options.threads = std::min(options.threads, kMostThreads[static_cast<uint32_t>(options.protocol)]);
  auto call = std::make_shared<PreparedCall>(
      PreparedCall{std::move(plan), options, std::move(layout), kernel, DeviceMemory()});
  call->tables = DeviceMemory(call->layout.bytes.size());
  check(cudaMemcpy(call->tables.data(), call->layout.bytes.data(), call->tables.bytes(),
                   cudaMemcpyHostToDevice),
        "copying a plan to the device");
  reserve(work_, call->layout.work_bytes);
  reserve(scratch_, call->layout.scratch_bytes);
  return call;
}

void Rank::reserve(DeviceMemory& memory, size_t bytes) {
  if (memory.bytes() >= bytes) return;
  DeviceMemory larger(std::max(bytes, memory.bytes() * 2));
  retired_.push_back(std::exchange(memory, std::move(larger)));
}

std::shared_ptr<PreparedDirect> Rank::prepare_direct(const DirectOptions& direct, const CallOptions& options,
                                                     bool always_stage) {
  DirectLayout layout(direct, options, segment_, static_cast<uint32_t>(rank_), static_cast<uint32_t>(size_));
  const Kernel kernel =
      find_direct({options.protocol, options.dtype, options.op, options.moves, options.any});
  return std::make_shared<PreparedDirect>(
      PreparedDirect{options, layout, kernel, direct.algorithm == Direct::one_shot, always_stage});
}

// The stream to launch on. Calls run in the order of their issue, whatever their streams.
cudaStream_t Rank::begin(cudaStream_t stream) {
  if (!open_) throw Error(ErrorKind::bootstrap, "the communicator is not open");
  raise_failure();
  if (!stream) stream = stream_;
  if (last_stream_ && last_stream_ != stream) {
    check(cudaEventRecord(event_, last_stream_), "recording an event");
    check(cudaStreamWaitEvent(stream, event_, 0), "waiting for an event");
  }
  last_stream_ = stream;
  return stream;
}

void Rank::start(const Kernel& kernel, uint32_t blocks, uint32_t threads, const void* call, size_t bytes,
                 size_t shared, cudaStream_t stream) {
  const dim3 grid(blocks), block(threads);
#ifdef PC_EMULATED
  check(emulation::launch(kernel.invoke, grid, block, call, bytes, shared, stream), "launching a kernel");
#else
  static_cast<void>(bytes);
  void* arguments[] = {const_cast<void*>(call)};
  check(cudaLaunchKernel(kernel.function, grid, block, arguments, shared, stream), "launching a kernel");
#endif
}

void Rank::launch(const PreparedCall& prepared, const void* in, void* out, cudaStream_t stream) {
  const On on(device_);
  stream = begin(stream);
  const DevicePlan& layout = prepared.layout;
  const char* tables = prepared.tables.data();
  char *from = static_cast<char*>(const_cast<void*>(in)), *to = static_cast<char*>(out);
  Call call{};
  char* const base[kPlaces] = {from, to, work_.data(), from, to, scratch_.data()};
  std::copy_n(base, kPlaces, call.base);
  call.segments = reinterpret_cast<char* const*>(table_.data());
  call.status = status_;
  call.instructions = reinterpret_cast<const Instruction*>(tables + layout.instructions);
  call.operands = reinterpret_cast<const Operand*>(tables + layout.operands);
  call.refs = reinterpret_cast<const DeviceRef*>(tables + layout.refs);
  call.connections = reinterpret_cast<const Connection*>(tables + layout.connections);
  call.peers = reinterpret_cast<const int32_t*>(tables + layout.peers);
  call.channels = reinterpret_cast<const Channel*>(tables + layout.channels);
  call.segment = segment_;
  call.fingerprint = prepared.options.fingerprint;
  call.factor = prepared.options.epilogue.factor;
  call.epilogue = prepared.options.epilogue.kind;
  call.rank = static_cast<uint32_t>(rank_);
  call.size = static_cast<uint32_t>(size_);
  call.lanes = layout.lanes;
  call.slices = layout.slices;
  call.slice_elements = layout.slice_elements;
  call.dtype = static_cast<uint32_t>(prepared.options.dtype);
  call.op = static_cast<uint32_t>(prepared.options.op);
  if (layout.nchannels == 0) return;
  start(prepared.kernel, layout.nchannels * layout.lanes, prepared.options.threads, &call, sizeof call,
        shared_bytes(call.size), stream);
}

// Where peers find this memory; 0 if they cannot reach it.
uint64_t Rank::place_of(const void* memory) const {
  return one_process_ ? reinterpret_cast<uint64_t>(memory) : 0;
}

void Rank::launch_direct(const PreparedDirect& prepared, const void* in, void* out, cudaStream_t stream) {
  const On on(device_);
  stream = begin(stream);
  const DirectLayout& layout = prepared.layout;
  DirectCall call = layout.call;
  call.in = static_cast<char*>(const_cast<void*>(in));
  call.out = static_cast<char*>(out);
  call.segments = reinterpret_cast<char* const*>(table_.data());
  call.regions = reinterpret_cast<char* const*>(regions_.data());
  call.status = status_;
  const bool overlap = call.in < call.out + layout.out_bytes && call.out < call.in + layout.in_bytes;
  if (!prepared.always_stage) {
    call.in_place = prepared.overwrites && overlap ? 0 : place_of(in);
    call.out_place = place_of(out);
  }
  start(prepared.kernel, layout.blocks, prepared.options.threads, &call, sizeof call,
        call.size * sizeof(Arrays), stream);
}

void Rank::synchronize() {
  const cudaError_t error = cudaStreamSynchronize(stream_);
#ifdef PC_EMULATED
  if (error == cudaErrorLaunchFailure)
    throw Error(ErrorKind::device, "the emulated device hangs: " + emulation::last_trouble());
#endif
  check(error, "waiting for a stream");
  raise_failure();
}

bool Rank::done() { return cudaStreamQuery(stream_) == cudaSuccess; }

void Rank::abort() {
  std::atomic_ref(status_->abort).store(1, std::memory_order_release);
#ifdef PC_EMULATED
  emulation::abandon(stream_);
#endif
}

void Rank::raise_failure() {
  const uint64_t failure = std::atomic_ref(status_->failure).load(std::memory_order_acquire);
  const int peer = static_cast<int>(failure >> 32);
  if (static_cast<Failure>(failure & 0xffffffffu) == Failure::mismatch) {
    Error error(
        ErrorKind::mismatch,
        "rank " + std::to_string(peer) + " called another collective, or the same one with other arguments",
        peer);
    error.rank = rank_;
    throw error;
  }
  if (failure || std::atomic_ref(status_->abort).load(std::memory_order_acquire))
    throw Error(ErrorKind::aborted, "the communicator was aborted");
}

}  // namespace pc::cuda
