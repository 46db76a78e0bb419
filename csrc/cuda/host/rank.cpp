#include "cuda/host/rank.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>

#include "cuda/host/on_device.hpp"

namespace pc::cuda {
namespace {

// Whose calls the caller's streams hold, where several ranks are in this process: a kernel that waits for another rank must not
// stand before that rank's in one stream.
struct Claims {
  std::mutex mutex;
  std::map<std::tuple<std::string, cudaStream_t, int>, const Rank*>
      owner;  // handles of default streams: of a device
};
Claims& claims() {
  static Claims one;
  return one;
}

}  // namespace

Rank::Rank(const std::string& name, int rank, int device, const SegmentOptions& options, bool fused)
    : name_(name),
      rank_(rank),
      size_(static_cast<int>(options.size)),
      device_(device),
      segment_(divide(options)),
      segments_(options.size, nullptr),
      fused_(fused) {
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
  fellows_.push_back(rank_);
}

Rank::~Rank() {
  {
    const std::scoped_lock lock(claims().mutex);
    std::erase_if(claims().owner, [this](const auto& claim) { return claim.second == this; });
  }
  abort();  // what still runs uses the memory
  if (fusion_) {
    const std::shared_ptr<Event> last = fusion_->last(rank_);
    fusion_->leave(rank_);
    if (last) last->wait();
  }
  order_->wait();
  static_cast<void>(cudaStreamSynchronize(stream_));
  kept_.clear();
  work_ = StreamMemory();
  scratch_ = StreamMemory();
  stage_ = StreamMemory();
  static_cast<void>(cudaStreamSynchronize(service_));
  regions_.reset();
  for (const PeerMemory& memory : attached_) close_memory(memory);
  multicast_.reset();
  give_segment(name_, memory_, shares_process_);
}

std::string Rank::handle() const { return export_memory(memory_.data, device_); }

void Rank::attach(int peer, const std::string& text) {
  const On on(device_);
  const PeerMemory memory = open_memory(text, peer, device_);
  const bool same_device = memory.link == Link::same_device;
  direct_ &= same_device && memory.same_process;  // what pools allocate need not be mapped on other devices
  whole_lines_ &= capability(device_) == capability(memory.device) &&
                  cuda::keeps_lines_whole(capability(device_), memory.link);
  if (same_device) ++on_device_;
  if (memory.same_process) {
    shares_process_ = true;
    if (same_device) fellows_.push_back(peer);
    ++here_;
  }
  attached_.push_back(memory);
  segments_[static_cast<size_t>(peer)] = memory.data;
}

void Rank::open() {
  if (std::find(segments_.begin(), segments_.end(), nullptr) != segments_.end())
    throw Error(ErrorKind::bootstrap, "not all ranks are attached");
  const On on(device_);
  load_kernels();
  table_ = upload(segments_.data(), segments_.size() * sizeof(char*));
  // Region 0 is the address space, 1 the segments.
  std::vector<char*> regions(Regions::kMost * segments_.size(), nullptr);
  std::copy(segments_.begin(), segments_.end(), regions.begin() + size_);
  region_table_ = upload(regions.data(), regions.size() * sizeof(char*));
  regions_ = std::make_unique<Regions>(rank_, size_, device_,
                                       reinterpret_cast<char**>(const_cast<char*>(region_table_)), service_);
#ifdef PC_EMULATED
  emulation::join(stream_, name_, rank_, here_, here_ < size_);
#endif
  if (fused_) {
    fusion_ = Fusion::find(name_, device_, fellows_);
    std::vector<uint64_t*> words;
    for (char* segment : segments_) words.push_back(reinterpret_cast<uint64_t*>(segment + segment_.abort));
    fusion_->join(rank_, {memory_.status, stream_, std::move(words)});
  }
  open_ = true;
}

int Rank::make_multicast() {
  const On on(device_);
  multicast_ =
      std::make_unique<MulticastMemory>(device_, static_cast<uint32_t>(size_), multicast_bytes(segment_));
  return multicast_->create();
}

void Rank::join_multicast(int descriptor) {
  const On on(device_);
  if (!multicast_)
    multicast_ =
        std::make_unique<MulticastMemory>(device_, static_cast<uint32_t>(size_), multicast_bytes(segment_));
  multicast_->add(descriptor);
}

void Rank::bind_multicast() {
  const On on(device_);
  multicast_->bind(service_);
}

void Rank::drop_multicast() { multicast_.reset(); }

std::shared_ptr<PreparedCall> Rank::prepare(std::shared_ptr<const Plan> plan, const Extent& extent,
                                            CallOptions options) {
  const On on(device_);
  const NotCaptured mode;
  DevicePlan layout(*plan, extent, options, segment_);
  const Wanted wanted{options.protocol, options.dtype, options.op, options.moves, options.any};
  if (fused_ && (options.hand || options.user))
    throw Error(
        ErrorKind::unsupported,
        "the hand-written ring and operators of the caller's are not launched for several ranks at once");
  const Kernel kernel = options.user   ? options.user->find(options.protocol)
                        : fused_       ? find_fused(wanted)
                        : options.hand ? find_ring()
                                       : find_kernel(wanted);
  options.threads = std::min(options.threads, kMostThreads[static_cast<uint32_t>(options.protocol)]);
  if (options.user) require_room(kernel, options.threads, shared_bytes(static_cast<uint32_t>(size_)));
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
                                                     bool always_stage, bool any_order) {
  const auto rank = static_cast<uint32_t>(rank_), size = static_cast<uint32_t>(size_);
  const Multimem form = multimem_of(options.dtype, options.op);
  const bool by_switch = multicast_ && any_order && !options.user && serves(direct.algorithm, options, form);
  if (by_switch) {
    DirectOptions bytes = direct;
    CallOptions moved = options;
    bytes.count *= item_size(options.dtype);
    moved.dtype = DType::uint8;
    DirectLayout layout(bytes, moved, segment_, rank, size);
    layout.call.local = multicast_->local();
    layout.call.multicast = multicast_->everywhere();
    return std::make_shared<PreparedDirect>(PreparedDirect{
        options, layout, find_multicast(layout.call.takes_all ? form : Multimem::none), false, true, true});
  }
  DirectLayout layout(direct, options, segment_, rank, size);
  const Wanted wanted{options.protocol, options.dtype, options.op, options.moves, options.any};
  if (options.user && (fused_ || !options.user->item().in_one_vector()))
    throw Error(ErrorKind::unsupported,
                "native kernels combine items that fill 16 bytes, and not several ranks' at once");
  const Kernel kernel = options.user ? options.user->direct()
                        : fused_     ? find_fused_direct(wanted)
                                     : find_direct(wanted);
  if (options.user) require_room(kernel, options.threads, size * sizeof(Arrays));
  return std::make_shared<PreparedDirect>(
      PreparedDirect{options, layout, kernel, direct.algorithm == Direct::one_shot, always_stage, false});
}

std::shared_ptr<const UserKernels> Rank::load(const std::string& image, const std::string& form,
                                              const UserItem& item) const {
  const On on(device_);
  const NotCaptured mode;
  return std::make_shared<const UserKernels>(image, form, item);
}

// Blocks wait for each other. How many registers an operator takes is known only when it is linked.
void Rank::require_room(const Kernel& kernel, uint32_t threads, size_t shared) const {
  int processors = 0, blocks = 0;
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device_),
        "asking for the device");
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel.function, static_cast<int>(threads),
                                                      shared),
        "asking how many blocks fit");
  if (static_cast<uint64_t>(processors) * static_cast<uint64_t>(blocks) <
      uint64_t{segment_.blocks} * on_device_)
    throw Error(
        ErrorKind::device,
        "the device cannot hold all blocks of its ranks at once, with the registers that this operator "
        "takes: use fewer blocks");
}

// The stream to launch on. Calls run in the order of their issue, whatever their streams; one that is captured has its place in the
// order where its graph is launched.
cudaStream_t Rank::begin(cudaStream_t stream) {
  if (!open_) throw Error(ErrorKind::bootstrap, "the communicator is not open");
  raise_failure();
  if (!stream) stream = stream_;
  if (stream == stream_ && (last_stream_ == stream_ || fused_)) return stream;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "asking for a capture");
  captured_ = status != cudaStreamCaptureStatusNone;
  if (fused_) {
    if (captured_)
      throw Error(
          ErrorKind::unsupported,
          "the ranks of this process share one launch on their device, which no graph of a single rank "
          "can capture");
#ifdef PC_EMULATED
    emulation::belong(stream, stream_);
#endif
    return stream;
  }
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
  const std::shared_ptr<Event> last = fusion_ ? fusion_->last(rank_) : nullptr;
  return last ? !last->done() : !order_->done();
}

void Rank::claim(cudaStream_t stream) {
  if (stream == cudaStreamPerThread) return;
  const std::scoped_lock lock(claims().mutex);
  const Rank*& owner = claims().owner[{name_, stream, device_}];
  if (owner && owner != this && owner->last_stream_ == stream && !owner->order_->done())
    throw Error(ErrorKind::invalid_argument,
                "the ranks " + std::to_string(owner->rank_) + " and " + std::to_string(rank_) +
                    " of one process call on the same stream, where each would wait for the other: give "
                    "every rank a stream",
                owner->rank_);
  owner = this;
}

void Rank::start(const Kernel& kernel, const CallOptions& options, uint32_t blocks, const void* call,
                 size_t bytes, size_t shared, cudaStream_t stream) {
  if (fused_) return hand_in(kernel, options, blocks, call, bytes, shared, stream);
  if (blocks == 0) return end(stream);
  const dim3 grid(blocks), block(options.threads);
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

void Rank::hand_in(const Kernel& kernel, const CallOptions& options, uint32_t blocks, const void* call,
                   size_t bytes, size_t shared, cudaStream_t stream) {
  HandedIn one;
  one.kernel = kernel;
  one.blocks = blocks;
  one.threads = options.threads;
  one.shared_bytes = shared;
  one.fingerprint = options.fingerprint;
  one.part.resize(kPartBytes / sizeof(uint64_t));
  const PartHead head{blocks};
  std::memcpy(one.part.data(), &head, sizeof head);
  std::memcpy(reinterpret_cast<char*>(one.part.data()) + sizeof head, call, bytes);
  one.stream = stream;
  one.before = std::exchange(before_, nullptr);
  one.after = std::exchange(after_, nullptr);
  one.arrival = std::exchange(followed_, nullptr);
  if (!one.arrival) {
    one.arrival = std::make_shared<Event>();
    one.arrival->record(stream);
  }
  one.over = std::make_shared<Event>(true);
  handed_in_ = fusion_->hand_in(rank_, std::move(one));
}

bool Rank::settle(uint64_t call, double seconds) {
  if (!fusion_) return true;
  if (!fusion_->wait(rank_, call, seconds)) return false;
  raise_failure();
  return true;
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
  call.op = prepared.options.packed_op();
  call.user = prepared.options.user ? prepared.options.user->function() : nullptr;
  start(prepared.kernel, prepared.options, layout.nchannels * layout.lanes, &call, sizeof call,
        shared_bytes(call.size), stream);
}

// Where peers find this memory; 0 if they cannot reach it.
uint64_t Rank::place_of(const void* memory, uint64_t bytes) const {
  if (direct_) return reinterpret_cast<uint64_t>(memory);
  return memory ? regions_->place_of(memory, bytes) : 0;
}

void Rank::launch(const PreparedDirect& prepared, const void* in, void* out, cudaStream_t stream) {
  const On on(device_);
  stream = begin(stream);
  const DirectLayout& layout = prepared.layout;
  DirectCall call = layout.call;
  call.in = static_cast<char*>(const_cast<void*>(in));
  call.out = static_cast<char*>(out);
  call.segments = reinterpret_cast<char* const*>(table_);
  call.regions = reinterpret_cast<char* const*>(region_table_);
  call.status = memory_.status;
  const bool overlap = call.in < call.out + layout.out_bytes && call.out < call.in + layout.in_bytes;
  if (!prepared.always_stage) {
    call.in_place = prepared.overwrites && overlap ? 0 : place_of(in, layout.in_bytes);
    call.out_place = place_of(out, layout.out_bytes);
  }
  start(prepared.kernel, prepared.options, layout.blocks, &call, sizeof call, call.size * sizeof(Arrays),
        stream);
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
  const auto copy = [this](void* target, const void* source, uint64_t bytes, cudaMemcpyKind kind) {
    if (bytes) check(cudaMemcpyAsync(target, source, bytes, kind, stream_), "copying to or from the device");
  };
  const auto copy_in = [=] {
    copy(stage_out, out, out ? out_bytes : 0, cudaMemcpyHostToDevice);
    copy(stage_in, in, in_bytes, cudaMemcpyHostToDevice);
  };
  const auto copy_out = [=] { copy(out, stage_out, out ? out_bytes : 0, cudaMemcpyDeviceToHost); };
  if (fused_) {
    before_ = copy_in;
    after_ = copy_out;
    return call(stage_in, out ? stage_out : nullptr);
  }
  copy_in();
  call(stage_in, out ? stage_out : nullptr);
  copy_out();
}

void Rank::drain() {
  const On on(device_);
  const NotCaptured mode;
  if (!last_stream_) return;
  order_->hold(stream_);
  synchronize();
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
  if (fused_) {  // the own stream may be behind: what was handed in is not there yet
#ifdef PC_EMULATED
    emulation::belong(stream, stream_);
#endif
    followed_ = std::make_shared<Event>();
    return followed_->record(stream);
  }
  arrival_->record(stream);
  arrival_->hold(stream_);
}

std::shared_ptr<Event> Rank::mark() {
  const On on(device_);
  if (handed_in_) return fusion_->last(rank_);
  auto event = std::make_shared<Event>();
  event->record(stream_);
  return event;
}

void Rank::abort() {
  std::atomic_ref(memory_.status->abort).store(1, std::memory_order_release);
  if (fusion_) fusion_->abort(rank_);
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

namespace {

// Calls `f(kernel, most threads of a block)` for every kernel that takes a call.
template <class F>
void each_kernel(F&& f) {
  f(find_ring(), kThreads);
  for (uint32_t form = 0; form <= static_cast<uint32_t>(Multimem::last); ++form)
    f(find_multicast(static_cast<Multimem>(form)), kThreads);
  for (int any = 0; any < 2; ++any) {
    for (int moves = 0; moves < 2; ++moves) {
      for (int type = 0; type < dtype_count; ++type) {
        for (int op = 0; op < reduce_op_count; ++op) {
          Wanted wanted{Protocol::ll, static_cast<DType>(type), static_cast<ReduceOp>(op), moves != 0,
                        any != 0};
          f(find_direct(wanted), kThreads);
          f(find_fused_direct(wanted), kThreads);
          for (uint32_t p = 0; p < kProtocols; ++p) {
            wanted.protocol = static_cast<Protocol>(p);
            f(find_kernel(wanted), kMostThreads[p]);
            f(find_fused(wanted), kMostThreads[p]);
          }
        }
      }
    }
  }
}

}  // namespace

void load_kernels() {
  const auto load = [](const Kernel& kernel, uint32_t) {
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, kernel.function), "loading a kernel");
  };
  each_kernel(load);
  load(find_delivery(), 0);
}

uint32_t capacity(int device, uint32_t threads, uint32_t size) {
  require_driver();
  const On on(device);
  int processors = 0;
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "asking for the device");
  const size_t shared = kCallBytes + std::max(shared_bytes(size), size * sizeof(Arrays));
  std::map<std::pair<const void*, uint32_t>, int> known;
  each_kernel([&](const Kernel& kernel, uint32_t most) {
    const uint32_t used = std::min(threads, most);
    const auto [one, is_new] = known.try_emplace({kernel.function, used}, 0);
    if (is_new)
      check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&one->second, kernel.function,
                                                          static_cast<int>(used), shared),
            "asking how many blocks fit");
  });
  const auto least = std::min_element(known.begin(), known.end(),
                                      [](const auto& a, const auto& b) { return a.second < b.second; });
  return static_cast<uint32_t>(processors * least->second);
}

}  // namespace pc::cuda
