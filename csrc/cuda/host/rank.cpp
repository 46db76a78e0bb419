#include "cuda/host/rank.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>

#include "cuda/host/links.hpp"

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

// While a stream of this thread is being captured, CUDA refuses much that could belong to the capture; nothing below does.
class NotCaptured {
 public:
  NotCaptured() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~NotCaptured() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// Whose calls the caller's streams hold, where several ranks are in this process: a kernel that waits for another rank must not
// stand before that rank's in one stream.
struct Claims {
  std::mutex mutex;
  std::map<std::pair<std::string, cudaStream_t>, const Rank*> owner;
};
Claims& claims() {
  static Claims one;
  return one;
}

}  // namespace

Rank::Rank(const std::string& name, int rank, int device, const SegmentOptions& options)
    : name_(name),
      rank_(rank),
      size_(static_cast<int>(options.size)),
      device_(device),
      segment_(divide(options)),
      segments_(options.size, nullptr) {
  require_driver();
  const On on(device_);
  memory_ = take_segment(name_, device_, segment_.bytes);
  std::memset(memory_.status, 0, sizeof(Status));
  stream_ = memory_.calls;
  service_ = memory_.service;
  check(cudaMemsetAsync(memory_.data, 0, segment_.bytes, service_), "clearing device memory");
  check(cudaStreamSynchronize(service_), "clearing device memory");
  order_ = std::make_unique<Event>();
  arrival_ = std::make_unique<Event>();
  segments_[static_cast<size_t>(rank_)] = memory_.data;
#ifdef PC_EMULATED
  emulation::join(stream_, name_, rank_, size_);
#endif
}

Rank::~Rank() {
  {
    const std::scoped_lock lock(claims().mutex);
    std::erase_if(claims().owner, [this](const auto& claim) { return claim.second == this; });
  }
  abort();  // what still runs uses the memory
  order_->wait();
  static_cast<void>(cudaStreamSynchronize(stream_));
  kept_.clear();
  work_ = StreamMemory();
  scratch_ = StreamMemory();
  stage_ = StreamMemory();
  static_cast<void>(cudaStreamSynchronize(service_));
  for (void* memory : opened_) static_cast<void>(cudaIpcCloseMemHandle(memory));
  give_segment(name_, memory_, shares_process_);
}

std::string Rank::handle() const {
  Handle handle{};
  check(cudaIpcGetMemHandle(&handle.memory, memory_.data), "exporting device memory");
  handle.address = reinterpret_cast<uint64_t>(memory_.data);
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
  const Link link = link_between(device_, handle.device);
  direct_ &= link == Link::same_device;  // what pools allocate need not be mapped on other devices
  whole_lines_ &=
      capability(device_) == capability(handle.device) && cuda::keeps_lines_whole(capability(device_), link);
  void* memory = reinterpret_cast<void*>(handle.address);
  if (handle.pid == getpid()) {
    shares_process_ = true;
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
    direct_ = false;
  }
  segments_[static_cast<size_t>(peer)] = static_cast<char*>(memory);
}

void Rank::open() {
  if (std::find(segments_.begin(), segments_.end(), nullptr) != segments_.end())
    throw Error(ErrorKind::bootstrap, "not all ranks are attached");
  const On on(device_);
  load_kernels();
  table_ = upload(segments_.data(), segments_.size() * sizeof(char*));
  std::vector<char*> regions(2 * segments_.size(), nullptr);  // region 0 is the address space, 1 the segments
  std::copy(segments_.begin(), segments_.end(), regions.begin() + size_);
  regions_ = upload(regions.data(), regions.size() * sizeof(char*));
  open_ = true;
}

std::shared_ptr<PreparedCall> Rank::prepare(std::shared_ptr<const Plan> plan, const Extent& extent,
                                            CallOptions options) {
  const On on(device_);
  const NotCaptured mode;
  DevicePlan layout(*plan, extent, options, segment_);
  const Wanted wanted{options.protocol, options.dtype, options.op, options.moves, options.any};
  const Kernel kernel = options.hand ? find_ring() : find_kernel(wanted);
  options.threads = std::min(options.threads, kMostThreads[static_cast<uint32_t>(options.protocol)]);
  auto call = std::make_shared<PreparedCall>(
      PreparedCall{std::move(plan), options, std::move(layout), kernel, nullptr});
  call->tables = upload(call->layout.bytes.data(), call->layout.bytes.size());
  reserve(work_, call->layout.work_bytes);
  reserve(scratch_, call->layout.scratch_bytes);
  return call;
}

// On a stream that nothing else uses: what is copied there waits for no kernel, and is there for all streams.
const char* Rank::upload(const void* data, size_t bytes) {
  kept_.emplace_back(bytes, service_);
  check(cudaMemcpyAsync(kept_.back().data(), data, bytes, cudaMemcpyHostToDevice, service_),
        "copying to the device");
  check(cudaStreamSynchronize(service_), "copying to the device");
  return kept_.back().data();
}

void Rank::reserve(StreamMemory& memory, size_t bytes) {
  if (memory.bytes() >= bytes) return;
  StreamMemory larger(std::max(bytes, memory.bytes() * 2), service_);
  check(cudaStreamSynchronize(service_), "allocating device memory");
  kept_.push_back(std::exchange(memory, std::move(larger)));
}

std::shared_ptr<PreparedDirect> Rank::prepare_direct(const DirectOptions& direct, const CallOptions& options,
                                                     bool always_stage) {
  DirectLayout layout(direct, options, segment_, static_cast<uint32_t>(rank_), static_cast<uint32_t>(size_));
  const Kernel kernel =
      find_direct({options.protocol, options.dtype, options.op, options.moves, options.any});
  return std::make_shared<PreparedDirect>(
      PreparedDirect{options, layout, kernel, direct.algorithm == Direct::one_shot, always_stage});
}

// The stream to launch on. Calls run in the order of their issue, whatever their streams; one that is captured has its place in the
// order where its graph is launched.
cudaStream_t Rank::begin(cudaStream_t stream) {
  if (!open_) throw Error(ErrorKind::bootstrap, "the communicator is not open");
  raise_failure();
  if (!stream) stream = stream_;
  if (stream == stream_ && last_stream_ == stream_) return stream;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "asking for a capture");
  captured_ = status != cudaStreamCaptureStatusNone;
  if (captured_) return stream;
  if (stream != stream_ && shares_process_) claim(stream);
  if (last_stream_ && last_stream_ != stream) order_->hold(stream);
  last_stream_ = stream;
  return stream;
}

// The caller may destroy his stream: where it stands is recorded now.
void Rank::end(cudaStream_t stream) {
  if (stream == stream_ || !captured_) order_->record(stream);
}

bool Rank::busy() const {
  const On on(device_);
  const NotCaptured mode;
  return !order_->done();
}

void Rank::claim(cudaStream_t stream) {
  if (stream == cudaStreamPerThread) return;
  const std::scoped_lock lock(claims().mutex);
  const Rank*& owner = claims().owner[{name_, stream}];
  if (owner && owner != this && owner->last_stream_ == stream && !owner->order_->done())
    throw Error(ErrorKind::invalid_argument,
                "the ranks " + std::to_string(owner->rank_) + " and " + std::to_string(rank_) +
                    " of one process call on the same stream, where each would wait for the other: give "
                    "every rank a stream",
                owner->rank_);
  owner = this;
}

void Rank::start(const Kernel& kernel, uint32_t blocks, uint32_t threads, const void* call, size_t bytes,
                 size_t shared, cudaStream_t stream) {
  const dim3 grid(blocks), block(threads);
#ifdef PC_EMULATED
  check(emulation::launch(kernel.invoke, grid, block, call, bytes, shared, stream, stream_),
        "launching a kernel");
#else
  static_cast<void>(bytes);
  void* arguments[] = {const_cast<void*>(call)};
  check(cudaLaunchKernel(kernel.function, grid, block, arguments, shared, stream), "launching a kernel");
#endif
  end(stream);
}

void Rank::launch(const PreparedCall& prepared, const void* in, void* out, cudaStream_t stream) {
  const On on(device_);
  stream = begin(stream);
  const DevicePlan& layout = prepared.layout;
  const char* tables = prepared.tables;
  char *from = static_cast<char*>(const_cast<void*>(in)), *to = static_cast<char*>(out);
  Call call{};
  char* const base[kPlaces] = {from, to, work_.data(), from, to, scratch_.data()};
  std::copy_n(base, kPlaces, call.base);
  call.segments = reinterpret_cast<char* const*>(table_);
  call.status = memory_.status;
  call.instructions = reinterpret_cast<const Instruction*>(tables + layout.instructions);
  call.operands = reinterpret_cast<const Operand*>(tables + layout.operands);
  call.refs =
      reinterpret_cast<const DeviceRef*>(tables + (prepared.options.hand ? layout.chunks : layout.refs));
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
  if (layout.nchannels == 0) return end(stream);
  start(prepared.kernel, layout.nchannels * layout.lanes, prepared.options.threads, &call, sizeof call,
        shared_bytes(call.size), stream);
}

// Where peers find this memory; 0 if they cannot reach it.
uint64_t Rank::place_of(const void* memory) const { return direct_ ? reinterpret_cast<uint64_t>(memory) : 0; }

void Rank::launch(const PreparedDirect& prepared, const void* in, void* out, cudaStream_t stream) {
  const On on(device_);
  stream = begin(stream);
  const DirectLayout& layout = prepared.layout;
  DirectCall call = layout.call;
  call.in = static_cast<char*>(const_cast<void*>(in));
  call.out = static_cast<char*>(out);
  call.segments = reinterpret_cast<char* const*>(table_);
  call.regions = reinterpret_cast<char* const*>(regions_);
  call.status = memory_.status;
  const bool overlap = call.in < call.out + layout.out_bytes && call.out < call.in + layout.in_bytes;
  if (!prepared.always_stage) {
    call.in_place = prepared.overwrites && overlap ? 0 : place_of(in);
    call.out_place = place_of(out);
  }
  start(prepared.kernel, layout.blocks, prepared.options.threads, &call, sizeof call,
        call.size * sizeof(Arrays), stream);
}

// Input and output keep their distance where they overlap, and their alignment.
void Rank::launch_staged(const std::function<void(const void*, void*)>& call, const void* in,
                         uint64_t in_bytes, void* out, uint64_t out_bytes) {
  constexpr uint64_t kAlign = 256;
  const On on(device_);
  const NotCaptured mode;
  auto *from = static_cast<const char*>(in), *to = static_cast<const char*>(out);
  const bool overlap = in_bytes && out_bytes && from < to + out_bytes && to < from + in_bytes;
  const auto skew = [](const char* p) { return reinterpret_cast<uintptr_t>(p) % kAlign; };
  const char* first = overlap ? std::min(from, to) : from;
  const uint64_t in_at = skew(first) + static_cast<uint64_t>(from - first);
  const uint64_t out_at = overlap ? skew(first) + static_cast<uint64_t>(to - first)
                                  : (in_at + in_bytes + kAlign - 1) / kAlign * kAlign + skew(to);
  reserve(stage_, std::max(in_at + in_bytes, out_at + out_bytes) + kAlign);
  char *stage_in = stage_.data() + in_at, *stage_out = stage_.data() + out_at;
  const auto copy = [&](void* target, const void* source, uint64_t bytes, cudaMemcpyKind kind) {
    if (bytes) check(cudaMemcpyAsync(target, source, bytes, kind, stream_), "copying to or from the device");
  };
  copy(stage_out, out, out ? out_bytes : 0, cudaMemcpyHostToDevice);
  copy(stage_in, in, in_bytes, cudaMemcpyHostToDevice);
  call(stage_in, out ? stage_out : nullptr);
  copy(out, stage_out, out ? out_bytes : 0, cudaMemcpyDeviceToHost);
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

void Rank::follow(cudaStream_t stream) {
  const On on(device_);
  arrival_->record(stream);
  arrival_->hold(stream_);
}

std::shared_ptr<Event> Rank::mark() {
  const On on(device_);
  auto event = std::make_shared<Event>();
  event->record(stream_);
  return event;
}

void Rank::abort() {
  std::atomic_ref(memory_.status->abort).store(1, std::memory_order_release);
#ifdef PC_EMULATED
  emulation::abandon(stream_);
#endif
}

void Rank::raise_failure() {
  const uint64_t failure = std::atomic_ref(memory_.status->failure).load(std::memory_order_acquire);
  const int peer = static_cast<int>(failure >> 32);
  if (static_cast<Failure>(failure & 0xffffffffu) == Failure::mismatch) {
    Error error(
        ErrorKind::mismatch,
        "rank " + std::to_string(peer) + " called another collective, or the same one with other arguments",
        peer);
    error.rank = rank_;
    throw error;
  }
  if (failure || std::atomic_ref(memory_.status->abort).load(std::memory_order_acquire))
    throw Error(ErrorKind::aborted, "the communicator was aborted");
}

void load_kernels() {
  const auto load = [](const Kernel& kernel) {
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, kernel.function), "loading a kernel");
  };
  load(find_ring());
  for (int any = 0; any < 2; ++any) {
    for (int moves = 0; moves < 2; ++moves) {
      for (int type = 0; type < dtype_count; ++type) {
        for (int op = 0; op < reduce_op_count; ++op) {
          Wanted wanted{Protocol::ll, static_cast<DType>(type), static_cast<ReduceOp>(op), moves != 0,
                        any != 0};
          load(find_direct(wanted));
          for (uint32_t p = 0; p < kProtocols; ++p) {
            wanted.protocol = static_cast<Protocol>(p);
            load(find_kernel(wanted));
          }
        }
      }
    }
  }
}

uint32_t capacity(int device) {
  require_driver();
  const On on(device);
  int processors = 0;
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "asking for the device");
  return static_cast<uint32_t>(processors);  // of 512 threads with 128 registers, one block each
}

}  // namespace pc::cuda
