#include "mpi/direct_exchange.hpp"

#include <sched.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "shm/group.hpp"

namespace pc {
namespace {

constexpr uint32_t kPolls = 64;              // before a yield
constexpr uint64_t kLook = 10'000'000;       // ns between two looks at the peers
constexpr uint64_t kOnTheWay = 500'000'000;  // ns for what a rank has sent before it left
constexpr uint64_t kPatience = 200'000'000;  // ns that the end of what was given up may take

}  // namespace

DirectExchange::DirectExchange(Group& group, std::shared_ptr<const mpi::Library> library, uint64_t comm,
                               std::vector<int> world, int tag)
    : group_(group),
      library_(std::move(library)),
      comm_(comm),
      world_(std::move(world)),
      tag_(tag),
      posted_(std::make_unique<std::deque<Posted>>()) {}

DirectExchange::~DirectExchange() { give_up(); }

void DirectExchange::give_up() noexcept {
  const auto under_way = [this] {
    return std::any_of(posted_->begin(), posted_->end(), [](const Posted& p) { return p.request.active(); });
  };
  if (!under_way()) return;
  if (!library_->finalized()) {
    for (Posted& posted : *posted_)
      if (!posted.sends) library_->cancel(posted.request);
    for (const uint64_t until = now_ns() + kPatience; under_way() && now_ns() < until; sched_yield()) {
      for (Posted& posted : *posted_) {
        try {
          if (posted.request.active()) library_->test(posted.request);
        } catch (const Error&) {
        }
      }
    }
  }
  if (!under_way()) return;
  static_cast<void>(posted_.release());  // MPI still owns some of it
  posted_ = std::make_unique<std::deque<Posted>>();
}

void DirectExchange::start(const std::vector<Message>& receives, const std::vector<Message>& sends) {
  posted_->clear();
  const auto post = [&](const Message& message, bool send) {
    if (message.bytes == 0) return;
    if (send) {  // what MPI libraries do with the dead has to be kept away from them: see mirror.cpp
      if (group_.poisoned()) group_.raise_poison(0);
      if (const std::string lost = group_.gone(message.peer); !lost.empty())
        throw Error(ErrorKind::peer, lost, message.peer);
    }
    const int rank = world_.at(static_cast<size_t>(message.peer));
    for (size_t first = 0; first < message.bytes; first += mpi::Library::kLongest) {
      Posted& posted = posted_->emplace_back();
      posted.peer = message.peer;
      posted.sends = send;
      const size_t bytes = std::min(message.bytes - first, mpi::Library::kLongest);
      auto* memory = reinterpret_cast<void*>(message.address + first);
      if (send)
        library_->isend(memory, bytes, rank, tag_, comm_, posted.request);
      else
        library_->irecv(memory, bytes, rank, tag_, comm_, posted.request);
    }
  };
  for (const Message& message : receives) post(message, false);
  for (const Message& message : sends) post(message, true);
}

bool DirectExchange::wait(uint64_t ns) {
  const uint64_t until = now_ns() + ns;
  uint64_t look = now_ns() + kLook;
  for (uint32_t turn = 1;; ++turn) {
    active_.clear();
    owners_.clear();
    for (Posted& posted : *posted_) {
      if (!posted.request.active()) continue;
      active_.push_back(&posted.request);
      owners_.push_back(&posted);
    }
    if (active_.empty()) return true;
    const auto [index, code] = library_->test_any(active_.data(), static_cast<int>(active_.size()));
    if (code) fail(*owners_[static_cast<size_t>(std::max(index, 0))], code);
    if (index >= 0) continue;
    group_.progress();
    if (turn % kPolls) continue;
    sched_yield();
    const uint64_t now = now_ns();
    if (now > look) {
      look = now + kLook;
      group_.progress_all();
      group_.check_peers(0, 0);
      for (const Posted* posted : owners_) {
        const std::string lost = group_.gone(posted->peer);
        if (lost.empty()) continue;
        if (lost_since_ == 0) lost_since_ = now;
        if (now - lost_since_ > kOnTheWay) throw Error(ErrorKind::peer, lost, posted->peer);
      }
    }
    if (now > until) return false;
  }
}

void DirectExchange::fail(const Posted& posted, int code) {
  const std::string text = std::string(posted.sends ? "MPI_Isend" : "MPI_Irecv") +
                           " on device memory: " + library_->error_text(code);
  const std::string lost = group_.gone(posted.peer);
  if (lost.empty()) throw Error(ErrorKind::transport, text, posted.peer);
  throw Error(ErrorKind::peer, lost + " (" + text + ")", posted.peer);
}

}  // namespace pc
