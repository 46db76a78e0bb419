#include "shm/group.hpp"

#include <unistd.h>

#include <utility>

#include "shm/single_copy.hpp"

namespace pc {

Group::Group(int rank, int size, size_t pool_bytes, bool single_copy)
    : rank_(rank),
      size_(size),
      pool_bytes_(pool_bytes),
      layout_(static_cast<uint32_t>(size), pool_bytes),
      own_(size == 1 ? Mapping::alone(layout_.bytes) : Mapping::create(layout_.bytes, "pycollectives")),
      peers_(static_cast<size_t>(size)),
      base_(static_cast<size_t>(size), nullptr),
      pidfd_(static_cast<size_t>(size), -1),
      pid_(static_cast<size_t>(size), 0),
      lifeline_(static_cast<size_t>(size), -1),
      remote_(static_cast<size_t>(size), false),
      single_copy_(single_copy && size > 1),
      secret_(random_number()),
      lost_since_(static_cast<size_t>(size)) {
  base_[static_cast<size_t>(rank)] = own_.data();
  control(rank).rank.store(rank, std::memory_order_relaxed);
  control(rank).size.store(size, std::memory_order_relaxed);
  control(rank).pid.store(getpid(), std::memory_order_relaxed);
  control(rank).core.store(-1, std::memory_order_relaxed);
  control(rank).secret.store(secret_, std::memory_order_relaxed);
  control(rank).secret_at.store(reinterpret_cast<uintptr_t>(&secret_), std::memory_order_relaxed);
  if (single_copy_) allow_siblings_to_read();
  control(rank).presence.store(Presence::present, std::memory_order_release);
}

Group::~Group() {
  if (!forgotten_)
    depart();
  else
    static_cast<void>(mirror_.release());  // MPI does not exist in a forked child
  mirror_.reset();                         // it looks at the lifelines
  for (int fd : lifeline_)
    if (fd >= 0) ::close(fd);
}

void Group::attach(int peer, int fd) {
  peers_.at(static_cast<size_t>(peer)) = Mapping::attach(fd, layout_.bytes);
  base_[static_cast<size_t>(peer)] = peers_[static_cast<size_t>(peer)].data();
  try_to_read(peer);
}

void Group::try_to_read(int peer) {
  if (!single_copy_) return;
  Control& theirs = control(peer);
  const int pid = theirs.pid.load(std::memory_order_relaxed);
  uint64_t found = 0;
  const auto* there = reinterpret_cast<const void*>(theirs.secret_at.load(std::memory_order_relaxed));
  if (read_memory(pid, there, &found, sizeof found) || found != theirs.secret.load(std::memory_order_relaxed))
    return;
  reads(rank_, peer).store(1, std::memory_order_relaxed);
}

void Group::watch(int peer, int pidfd, int pid) {
  pidfd_.at(static_cast<size_t>(peer)) = pidfd;
  pid_.at(static_cast<size_t>(peer)) = pid;
}

void Group::attach_remote(int peer, int lifeline) {
  const auto p = static_cast<size_t>(peer);
  peers_.at(p) = Mapping::alone(layout_.bytes);  // of which few pages are ever touched
  base_[p] = peers_[p].data();
  remote_[p] = true;
  lifeline_[p] = lifeline;
  control(peer).presence.store(Presence::present, std::memory_order_release);
}

void Group::connect(std::unique_ptr<Mirror> mirror) {
  for (int peer = 0; peer < size_; ++peer)
    if (remote_[static_cast<size_t>(peer)]) mirror->add(peer);
  mirror_ = std::move(mirror);
  mirror_->greet();
}

void Group::forget() {
  own_.close_fd();
  for (int& fd : lifeline_)
    if (fd >= 0) ::close(std::exchange(fd, -1));
  forgotten_ = true;
}

void Group::depart() {
  if (forgotten_) return;
  uint64_t never = 0;
  control(rank_).left.compare_exchange_strong(never, ticks(), std::memory_order_relaxed);
  if (control(rank_).presence.exchange(Presence::departed, std::memory_order_acq_rel) != Presence::present)
    return;
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_ && base_[static_cast<size_t>(peer)]) wake(control(peer));
  if (mirror_) mirror_->depart();
}

}  // namespace pc
