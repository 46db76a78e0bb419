#include "mpi/ping.hpp"

#include <sched.h>

#include "core/error.hpp"
#include "shm/group.hpp"

namespace pc {
namespace {

constexpr uint32_t kLane = kMaxLanes - 1;
constexpr uint32_t kPolls = 64;  // before a yield

void finish(const mpi::Library& library, mpi::Request& request) {
  for (uint32_t turn = 1;; ++turn) {
    const auto tested = library.test(request);
    if (tested.code) throw Error(ErrorKind::transport, "MPI_Test: " + library.error_text(tested.code));
    if (tested.index == 0) return;
    if (turn % kPolls == 0) sched_yield();
  }
}

}  // namespace

double mpi::round_trips(const Library& library, uint64_t comm, int rank, int peer, int tag, size_t bytes,
                        uint64_t turns) {
  std::vector<std::byte> out(bytes), in(bytes);
  Request request;
  const auto send = [&] {
    library.isend(out.data(), bytes, peer, tag, comm, request);
    finish(library, request);
  };
  const auto receive = [&] {
    library.irecv(in.data(), bytes, peer, tag, comm, request);
    finish(library, request);
  };
  const uint64_t start = now_ns();
  for (uint64_t turn = 0; turn < turns; ++turn) {
    if (rank < peer) send();
    receive();
    if (rank > peer) send();
  }
  return static_cast<double>(now_ns() - start) / 1e9;
}

MirrorPing::MirrorPing(Group& group, int peer) : group_(group), peer_(peer) {
  if (peer < 0 || peer >= group.size() || !group.remote(peer))
    throw Error(ErrorKind::invalid_argument, "rank " + std::to_string(peer) + " is not on another host");
}

void MirrorPing::send(size_t bytes) {
  const uint64_t number = ++sent_;
  Header& header = group_.header(group_.rank(), peer_, kLane, number);
  header.fingerprint = number;
  header.bytes = static_cast<uint32_t>(bytes);
  header.flag.store(number, std::memory_order_release);
  group_.mirror()->send(peer_, kLane, number, bytes <= kInline ? nullptr : payload_.data());
}

void MirrorPing::receive(uint64_t until) {
  const uint64_t number = ++received_;
  const Header& header = group_.header(peer_, group_.rank(), kLane, number);
  for (uint32_t turn = 1; header.flag.load(std::memory_order_acquire) != number; ++turn) {
    group_.progress();
    if (turn % kPolls) continue;
    sched_yield();
    if (now_ns() > until) throw Error(ErrorKind::timeout, "no answer from the peer", peer_);
  }
  group_.ack(group_.rank(), peer_, kLane).store(number, std::memory_order_release);
}

double MirrorPing::round_trips(size_t bytes, uint64_t turns, double timeout) {
  payload_.resize(bytes);
  group_.mirror()->listen_to_none();
  group_.mirror()->listen(peer_, kLane);
  const uint64_t start = now_ns(), until = start + static_cast<uint64_t>(timeout * 1e9);
  for (uint64_t turn = 0; turn < turns; ++turn) {
    if (group_.rank() < peer_) send(bytes);
    receive(until);
    if (group_.rank() > peer_) send(bytes);
  }
  while (group_.mirror()->sending() && now_ns() < until) group_.progress();
  return static_cast<double>(now_ns() - start) / 1e9;
}

}  // namespace pc
