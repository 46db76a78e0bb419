// Asynchronous sends and receives, and the thread that serves them while no caller does.
#include <sched.h>

#include <string>
#include <system_error>

#include "shm/messages.hpp"

namespace pc {

void Messages::submit(const std::shared_ptr<Request>& request) {
  refuse_after_fork();
  request->started_ns = now_ns();
  try {
    if (group_.poisoned()) [[unlikely]]
      group_.raise_poison(0);
    const Lock lock(*this);
    request->self = request;
    open_.fetch_add(1);
    issue(*request);
    if (request->done.load(std::memory_order_relaxed)) return;
    if (!server_.joinable()) server_ = std::thread([this] { serve(); });
    to_serve_->notify_one();
  } catch (const Error& error) {
    withdraw(*request, error);
    raise(error, *request);
  } catch (const std::system_error& error) {  // no thread
    const Error failed(ErrorKind::transport,
                       std::string("cannot start a thread for asynchronous messages: ") + error.what());
    withdraw(*request, failed);
    raise(failed, *request);
  }
}

void Messages::wait(Request& request, uint64_t timeout_ns) {
  refuse_after_fork();
  bool ended = true;
  try {
    ended = await(request, timeout_ns);  // at once if it is done
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) throw;
    withdraw(request, error);
  }
  if (!ended)
    raise(Error(ErrorKind::timeout, std::string("wait timed out; the ") + (request.sends ? "send" : "recv") +
                                        " is still under way"),
          request);
  if (request.error) raise(*request.error, request);
}

bool Messages::test(Request& request) {
  if (request.done.load(std::memory_order_acquire)) return true;
  refuse_after_fork();
  try {
    if (const std::unique_lock lock(mutex_, std::try_to_lock); lock.owns_lock() && !closed_)
      progress(&request);
    if (request.done.load(std::memory_order_acquire)) return true;
    const uint64_t now = now_ns();
    if (now - request.looked_ns.load(std::memory_order_relaxed) < 1'000'000) return false;
    request.looked_ns.store(now, std::memory_order_relaxed);
    look(request);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) throw;
    withdraw(request, error);
  }
  return request.done.load(std::memory_order_acquire);
}

// The thread that serves asynchronous requests while no caller does. It has no core of its own to spin on.
void Messages::serve() {
  const Patience sleepy{0, 0, patience_.membarrier, patience_.nap_us};
  std::unique_lock lock(mutex_);
  const auto needed = [this] { return open_.load() > 0 && callers_.load() == 0 && !group_.poisoned(); };
  try {
    for (;;) {
      to_serve_->wait(lock, [&] { return closed_.load() || needed(); });
      if (closed_) return;
      Waiter waiter(group_.control(rank_), sleepy);
      while (!closed_ && needed()) {
        const bool moved = progress(nullptr);
        lock.unlock();
        if (moved)
          waiter.progress();
        else
          waiter.pause();
        if (moved && wanting_.load(std::memory_order_relaxed)) sched_yield();
        lock.lock();
      }
    }
  } catch (const Error&) {  // the communicator is poisoned: everybody raises
  }
}

void Messages::close() {
  if (!to_serve_) return;
  {
    const Lock lock(*this);
    if (closed_.exchange(true)) return;
  }
  to_serve_->notify_all();
  wake(group_.control(rank_));
  if (server_.joinable()) server_.join();
}

void Messages::forget() {
  if (server_.joinable()) server_.detach();
  static_cast<void>(
      to_serve_.release());  // its end would wait for a thread that does not exist in this process
}

}  // namespace pc
