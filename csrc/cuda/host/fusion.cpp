#include "cuda/host/fusion.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

namespace pc::cuda {
namespace {

std::mutex all_mutex;
std::map<std::pair<std::string, int>, std::weak_ptr<Fusion>> all;

void launch_kernel(const Kernel& kernel, uint32_t blocks, uint32_t threads, const void* argument,
                   [[maybe_unused]] size_t bytes, cudaStream_t stream) {
#ifdef PC_EMULATED
  check(emulation::launch({kernel.function, kernel.invoke}, blocks, threads, argument, bytes, 0, stream,
                          stream, false),
        "launching a kernel");
#else
  void* arguments[] = {const_cast<void*>(argument)};
  check(cudaLaunchKernel(kernel.function, blocks, threads, arguments, 0, stream), "launching a kernel");
#endif
}

}  // namespace

std::shared_ptr<Fusion> Fusion::find(const std::string& name, int device, const std::vector<int>& ranks) {
  const std::scoped_lock lock(all_mutex);
  std::erase_if(all, [](const auto& one) { return one.second.expired(); });
  std::weak_ptr<Fusion>& known = all[{name, device}];
  std::shared_ptr<Fusion> one = known.lock();
  if (!one) {
    known = one = std::make_shared<Fusion>();
    for (const int rank : ranks) one->members_[rank] = {};
  }
  return one;
}

void Fusion::join(int rank, Member member) {
  const std::scoped_lock lock(mutex_);
  member.here = true;
  members_.at(rank) = std::move(member);
  if (rank != members_.begin()->first) return;  // the stream of launches is this one's
  const cudaStream_t stream = members_.begin()->second.stream;
  parts_ = StreamMemory(members_.size() * kPartBytes, stream);
  check(cudaStreamSynchronize(stream), "allocating device memory");
  end_ = std::make_unique<Event>();
}

void Fusion::leave(int rank) {
  const std::scoped_lock lock(mutex_);
  Member& member = members_.at(rank);
  for (const HandedIn& call : member.calls) call.over->give_up();
  member.calls.clear();
  member.here = false;
  if (rank == members_.begin()->first) parts_ = StreamMemory();  // on its stream, which goes
  changed_.notify_all();
}

uint64_t Fusion::hand_in(int rank, HandedIn call) {
  const std::scoped_lock lock(mutex_);
  raise_trouble(rank);
  Member& member = members_.at(rank);
  member.calls.push_back(std::move(call));
  const uint64_t number = ++member.handed_in;
  try {
    while (!trouble_ && complete()) launch();
  } catch (const Error& error) {
    give_up(error);
  }
  changed_.notify_all();
  return number;
}

bool Fusion::wait(int rank, uint64_t number, double seconds) {
  std::unique_lock lock(mutex_);
  Member& member = members_.at(rank);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                    [&] { return trouble_ || member.launched >= number; });
  if (member.launched >= number) return true;
  raise_trouble(rank);
  return false;
}

void Fusion::raise_trouble(int rank) const {
  if (!trouble_) return;
  if (trouble_->kind() == ErrorKind::aborted && trouble_->peer() == rank)
    throw Error(ErrorKind::aborted, "the communicator was aborted");
  Error error = *trouble_;
  error.rank = rank;
  throw error;
}

void Fusion::abort(int rank, int lost) {
  const std::scoped_lock lock(mutex_);
  if (trouble_) return;
  const std::string what = "a call that ranks of this process launch together on their device";
  if (lost >= 0)
    give_up(Error(ErrorKind::peer, "rank " + std::to_string(lost) + " has left; needed by " + what, lost));
  else
    give_up(Error(ErrorKind::aborted, "rank " + std::to_string(rank) + " has given up " + what, rank));
  changed_.notify_all();
}

bool Fusion::complete() const {
  return std::all_of(members_.begin(), members_.end(),
                     [](const auto& one) { return one.second.here && !one.second.calls.empty(); });
}

void Fusion::give_up(const Error& why) {
  trouble_ = why;
  for (auto& [rank, member] : members_) {
    for (const HandedIn& call : member.calls) call.over->give_up();
    member.calls.clear();
  }
}

// Are these parts of the same call? If not, all ranks everywhere find out: those here by their status.
bool Fusion::agree() {
  const auto differs = [](const HandedIn& a, const HandedIn& b) {
    return a.fingerprint != b.fingerprint || a.threads != b.threads ||
           // each rank has loaded an operator of the caller's for itself, which the fingerprint tells apart
           (a.kernel.function != b.kernel.function && !(a.by_user && b.by_user));
  };
  bool all_alike = true;
  for (auto& [rank, member] : members_) {
    for (const auto& [peer, other] : members_) {
      if (!differs(member.calls.front(), other.calls.front())) continue;
      std::atomic_ref(member.status->failure)
          .store(static_cast<uint64_t>(Failure::mismatch) | static_cast<uint64_t>(peer) << 32,
                 std::memory_order_release);
      all_alike = false;
      break;
    }
  }
  return all_alike;
}

void Fusion::deliver(uint64_t* to, const uint64_t* words, size_t count) {
  const cudaStream_t stream = members_.begin()->second.stream;
  for (size_t at = 0; at < count; at += Parcel::kMost) {
    Parcel parcel;
    parcel.to = to + at;
    parcel.count = static_cast<uint32_t>(std::min<size_t>(Parcel::kMost, count - at));
    std::copy_n(words + at, parcel.count, parcel.word);
    launch_kernel(find_delivery(), 1, Parcel::kThreads, &parcel, sizeof parcel, stream);
  }
}

void Fusion::launch() {
  if (!agree()) {
    constexpr uint64_t one = 1;
    for (uint64_t* word : members_.begin()->second.abort_words) deliver(word, &one, 1);
    for (auto& [rank, member] : members_) {  // raised by what they do next
      for (const HandedIn& call : member.calls) call.over->give_up();
      member.calls.clear();
      member.launched = member.handed_in;
    }
    return;
  }
  const cudaStream_t stream = members_.begin()->second.stream;
  for (auto& [rank, member] : members_) {
    const HandedIn& call = member.calls.front();
    if (call.before) {
      call.before();
      call.arrival->record(call.stream);
    }
    call.arrival->hold(stream);
  }
  launch_grid();
  end_->record(stream);
  for (auto& [rank, member] : members_) {
    const HandedIn& call = member.calls.front();
    end_->hold(call.stream);
    if (call.after) call.after();
    call.over->record(call.stream);
    member.calls.pop_front();
    ++member.launched;
  }
}

void Fusion::launch_grid() {
  const HandedIn& first = members_.begin()->second.calls.front();
  const cudaStream_t stream = members_.begin()->second.stream;
  FusedCall fused{parts_.data(), 0};
  std::vector<uint64_t> parts;
  std::vector<int> ranks;
  size_t shared = 0;
  for (const auto& [rank, member] : members_) {
    const HandedIn& call = member.calls.front();
    fused.share = std::max(fused.share, call.blocks);
    shared = std::max(shared, call.shared_bytes);
    parts.insert(parts.end(), call.part.begin(), call.part.end());
    ranks.push_back(rank);
  }
  if (fused.share == 0) return;
  deliver(reinterpret_cast<uint64_t*>(parts_.data()), parts.data(), parts.size());
  const dim3 grid(fused.share * static_cast<uint32_t>(ranks.size())), block(first.threads);
  shared += kCallBytes;
#ifdef PC_EMULATED
  check(emulation::launch_cooperative({first.kernel.function, first.kernel.invoke}, grid, block, &fused,
                                      sizeof fused, shared, stream, stream, ranks, fused.share),
        "launching one grid for several ranks");
#else
  void* arguments[] = {&fused};
  check(cudaLaunchCooperativeKernel(first.kernel.function, grid, block, arguments, shared, stream),
        "launching one grid for several ranks");
#endif
}

}  // namespace pc::cuda
