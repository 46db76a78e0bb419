// Calls on streams: Rank's part that puts them there, alone or for a launch with other ranks.
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>

#include "cuda/host/on_device.hpp"
#include "cuda/host/rank.hpp"

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

namespace {

bool overlaps(const DirectCall& call, const DirectLayout& layout) {
  return call.in < call.out + layout.out_bytes && call.out < call.in + layout.in_bytes;
}

}  // namespace

// The stream to launch on. Calls run in the order of their issue, whatever their streams; one that is captured has its place in the
// order where its graph is launched.
cudaStream_t Rank::begin(cudaStream_t stream) {
  if (!open_) throw Error(ErrorKind::bootstrap, "the communicator is not open");
  raise_failure();
  if (!stream) stream = stream_;
  if (stream == stream_ && (last_stream_ == stream_ || fused_)) return stream;
  captured_ = is_captured(stream);
  if (fused_) {
#ifdef PC_EMULATED
    emulation::belong(stream, stream_);
#endif
    return stream;
  }
  if (captured_) return stream;
  if (stream != stream_ && here_ > 1) claim(stream);
  if (last_stream_ && last_stream_ != stream) order_->hold(stream);
  last_stream_ = stream;
  return stream;
}

bool Rank::is_captured(cudaStream_t stream) const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "asking for a capture");
  if (fused_ && status != cudaStreamCaptureStatusNone)
    throw Error(ErrorKind::unsupported,
                "the ranks of this process share one launch on their device, which no graph of a single rank "
                "can capture");
  return status != cudaStreamCaptureStatusNone;
}

// The caller may destroy his stream: where it stands is recorded now.
void Rank::end(cudaStream_t stream) {
  if (stream == stream_ || !captured_) order_->record(stream);
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

void Rank::give_claims() {
  const std::scoped_lock lock(claims().mutex);
  std::erase_if(claims().owner, [this](const auto& claim) { return claim.second == this; });
}

void Rank::start(const Kernel& kernel, const CallOptions& options, uint32_t blocks, const void* call,
                 size_t bytes, size_t shared, cudaStream_t stream) {
  if (fused_) return hand_in(kernel, options, blocks, call, bytes, shared, stream);
  if (blocks == 0) return end(stream);
  const dim3 grid(blocks), block(options.threads);
#ifdef PC_EMULATED
  check(
      emulation::launch({kernel.function, kernel.invoke}, grid, block, call, bytes, shared, stream, stream_),
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
  one.by_user = options.user != nullptr;
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
  // The handle of the thread's own stream means another one on the thread that launches. So that stream waits in `settle`.
  if (stream == cudaStreamPerThread) one.stream = stream_;
  const auto over = one.over = std::make_shared<Event>(true);
  handed_in_ = fusion_->hand_in(rank_, std::move(one));
  held_ = stream != cudaStreamPerThread;
  const std::scoped_lock lock(last_mutex_);
  last_ = over;
}

bool Rank::settle(uint64_t call, double seconds) {
  if (!fusion_) return true;
  if (!fusion_->wait(rank_, call, seconds)) return false;
  if (!std::exchange(held_, true)) {
    const On on(device_);
    last()->hold(cudaStreamPerThread);
  }
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

// Arrays in bound memory are used where they are, if their vectors are whole ones, and nobody writes what others still read.
void Rank::place_on_switch(DirectCall& call, const PreparedDirect& prepared) const {
  const DirectLayout& layout = prepared.layout;
  const auto whole = [&](const char* at, uint32_t blocks) {
    return reinterpret_cast<uintptr_t>(at) % kVectorBytes == 0 &&
           (blocks == 1 || call.stride % kVectorBytes == 0);  // in bytes
  };
  const bool apart = !overlaps(call, layout);
  const char* own = call.out + (call.in_blocks < call.out_blocks ? call.out_block * call.stride : 0);
  if (call.takes_all && whole(call.in, call.in_blocks) && (apart || (call.stores_all && call.in == call.out)))
    call.in_everywhere = regions_->everywhere(call.in, layout.in_bytes);
  if (call.stores_all && whole(call.out, call.out_blocks) && (apart || call.in == own))
    call.out_everywhere = regions_->everywhere(call.out, layout.out_bytes);
  if (call.in_everywhere) call.in_place = place_of(call.in, layout.in_bytes);
  if (call.out_everywhere) call.out_place = place_of(call.out, layout.out_bytes);
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
  const bool overlap = overlaps(call, layout);
  if (prepared.by_switch) {
    if (!prepared.always_stage) place_on_switch(call, prepared);
  } else if (!prepared.always_stage) {
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
  if (!host_copies_)
    throw Error(ErrorKind::invalid_argument, "this rank was not made for arrays in host memory");
  const char* from = static_cast<const char*>(in);
  char* to = static_cast<char*>(out);
  const bool overlap = in_bytes && out_bytes && from < to + out_bytes && to < from + in_bytes;
  const auto skew = [](const char* p) { return reinterpret_cast<uintptr_t>(p) % kAlign; };
  const char* first = overlap ? std::min<const char*>(from, to) : from;
  const uint64_t in_at = skew(first) + static_cast<uint64_t>(from - first);
  const uint64_t out_at = overlap ? skew(first) + static_cast<uint64_t>(to - first)
                                  : (in_at + in_bytes + kAlign - 1) / kAlign * kAlign + skew(to);
  reserve(stage_, std::max(in_at + in_bytes, out_at + out_bytes) + kAlign);
  char *stage_in = stage_.data() + in_at, *stage_out = stage_.data() + out_at;
  const uint64_t taken = out ? out_bytes : 0;
  HostCopies& copies = *host_copies_;
  const cudaStream_t stream = stream_;
  const auto copy_in = [=, &copies] {
    copies.to_device(stage_out, to, taken, stream);
    copies.to_device(stage_in, from, in_bytes, stream);
  };
  const auto copy_out = [=, &copies] { copies.to_host(to, stage_out, taken, stream); };
  if (fused_) {
    before_ = copy_in;
    after_ = copy_out;
    return call(stage_in, out ? stage_out : nullptr);
  }
  copy_in();
  call(stage_in, out ? stage_out : nullptr);
  copy_out();
}

void Rank::follow(cudaStream_t stream) {
  const On on(device_);
  if (is_captured(stream))
    throw Error(
        ErrorKind::unsupported,
        "an asynchronous call runs on a stream of its own, which a capture does not hold: in a capture, "
        "call without async_op");
  if (fused_) {
    // the own stream may be behind: what was handed in is not there yet
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
  if (std::shared_ptr<Event> one = last()) return one;
  auto event = std::make_shared<Event>();
  event->record(stream_);
  return event;
}

}  // namespace pc::cuda
