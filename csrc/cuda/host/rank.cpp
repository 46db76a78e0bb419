#include "cuda/host/rank.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "cuda/host/loading.hpp"
#include "cuda/host/on_device.hpp"

namespace pc::cuda {

Rank::Rank(const std::string& name, int rank, int device, const SegmentOptions& options, bool fused,
           bool stages_host)
    : name_(name),
      rank_(rank),
      size_(static_cast<int>(options.size)),
      device_(device),
      segment_(divide(options)),
      segments_(options.size, nullptr),
      fused_(fused) {
  require_driver();
  const On on(device_);
  const size_t bytes = mark_of(size_);
  memory_ = take_segment(name_, device_, bytes);
  std::memset(memory_.status, 0, sizeof(Status));
  stream_ = memory_.calls;
  service_ = memory_.service;
  check(cudaMemsetAsync(memory_.data, 0, bytes, service_), "clearing device memory");
  check(cudaStreamSynchronize(service_), "clearing device memory");
  if (stages_host) host_copies_ = std::make_unique<HostCopies>(memory_.status);
  order_ = std::make_unique<Event>();
  arrival_ = std::make_unique<Event>();
  segments_[static_cast<size_t>(rank_)] = memory_.data;
  fellows_.push_back(rank_);
  devices_.push_back(device_);
}

Rank::~Rank() {
  give_claims();
  abort(rank_);  // what still runs uses the memory
  if (fusion_) {
    fusion_->leave(rank_);
    if (last_) last_->wait();
  }
  order_->wait();
  static_cast<void>(cudaStreamSynchronize(stream_));
  kept_.clear();
  work_ = StreamMemory();
  scratch_ = StreamMemory();
  stage_ = StreamMemory();
  // Nothing of this rank's reaches the memory of other processes any more. Those that this one did not reach may have reached it.
  Remains remains{memory_, std::move(multicast_), {}, {}};
  static constexpr uint64_t kGone = 1;
  for (const int peer : elsewhere_) {
    static_cast<void>(cudaMemcpyAsync(segments_[static_cast<size_t>(peer)] + mark_of(rank_), &kGone,
                                      sizeof kGone, cudaMemcpyHostToDevice, service_));
    remains.marks.push_back(mark_of(peer));
  }
  for (const int peer : unreached_) remains.marks.push_back(mark_of(peer));
  static_cast<void>(cudaStreamSynchronize(service_));
  if (regions_) remains.pieces = regions_->close();
  for (const PeerMemory& memory : attached_) close_memory(memory);
  give_segment(name_, std::move(remains));
}

// The words behind a segment in which ranks of other processes say that they are gone.
size_t Rank::mark_of(int rank) const {
  return static_cast<size_t>(segment_.bytes) + static_cast<size_t>(rank) * sizeof(uint64_t);
}

std::string Rank::handle() const { return export_memory(memory_.data, device_); }

void Rank::attach(int peer, const std::string& text) {
  const On on(device_);
  unreached_.push_back(peer);
  const PeerMemory memory = open_memory(text, peer, device_);
  unreached_.pop_back();
  const bool same_device = memory.link == Link::same_device;
  direct_ &= same_device && memory.same_process;  // what pools allocate need not be mapped on other devices
  whole_lines_ &= capability(device_) == capability(memory.device) &&
                  cuda::keeps_lines_whole(capability(device_), memory.link);
  if (same_device) ++on_device_;
  if (memory.same_process) {
    if (same_device) fellows_.push_back(peer);
    if (std::find(devices_.begin(), devices_.end(), memory.device) == devices_.end())
      devices_.push_back(memory.device);
    ++here_;
  } else {
    elsewhere_.push_back(peer);
  }
  attached_.push_back(memory);
  segments_[static_cast<size_t>(peer)] = memory.data;
}

void Rank::open() {
  if (std::find(segments_.begin(), segments_.end(), nullptr) != segments_.end())
    throw Error(ErrorKind::bootstrap, "not all ranks are attached");
  const On on(device_);
  load_kernels(fused_);
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

int Rank::make_multicast(size_t bytes) {
  const On on(device_);
  new_multicast_ = std::make_shared<MulticastMemory>(device_, static_cast<uint32_t>(size_), bytes);
  return new_multicast_->create();
}

void Rank::join_multicast(int descriptor, size_t bytes) {
  const On on(device_);
  unmap_unused(device_);  // of other communicators
  if (!new_multicast_)
    new_multicast_ = std::make_shared<MulticastMemory>(device_, static_cast<uint32_t>(size_), bytes);
  new_multicast_->add(descriptor);
}

void Rank::bind_multicast() {
  const On on(device_);
  const NotCaptured mode;
  new_multicast_->bind(service_, devices_);
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

bool Rank::busy() const {
  const On on(device_);
  const NotCaptured mode;
  const std::shared_ptr<Event> one = last();
  return one ? !one->done() : !order_->done();
}

std::shared_ptr<Event> Rank::last() const {
  const std::scoped_lock lock(last_mutex_);
  return last_;
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

void Rank::abort(int lost) {
  std::atomic_ref(memory_.status->abort).store(1, std::memory_order_release);
  if (fusion_)
    fusion_->abort(rank_, lost);  // waits for a launch that is being made; its kernel sees the status
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

}  // namespace pc::cuda
