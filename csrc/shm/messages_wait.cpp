// Blocking sends and receives, and all that may end a wait. The asynchronous ones are in messages_async.cpp.
#include <sched.h>

#include <utility>

#include "core/dtype.hpp"
#include "core/verbs.hpp"
#include "shm/executor.hpp"
#include "shm/messages.hpp"
#include "shm/survivors.hpp"

namespace pc {

// A thread that waits, and so moves everybody's data; the serving thread rests meanwhile.
class Messages::Caller {
 public:
  explicit Caller(Messages& messages) : messages_(messages) { messages_.callers_.fetch_add(1); }
  ~Caller() {
    if (messages_.callers_.fetch_sub(1) > 1 || messages_.open_.load() == 0) return;
    const std::lock_guard lock(messages_.mutex_);
    messages_.to_serve_->notify_one();
  }
  Caller(const Caller&) = delete;

 private:
  Messages& messages_;
};

Messages::~Messages() {
  close();
  while (unexpected_.first) {
    const MessagePtr drop(unexpected_.first);
    unexpected_.unlink(&unexpected_.first);
  }
}

void Messages::raise(Error error, const Request& request) const {
  error.rank = rank_;
  error.verb = request.sends ? kSend : kRecv;
  throw error;
}

void Messages::refuse_after_fork() const {
  if (!to_serve_)
    throw Error(
        ErrorKind::bootstrap,
        "this communicator was made before a fork; the child process cannot use it: call pc.init() there");
}

// Under the lock.
void Messages::issue(Request& request) {
  if (closed_.load(std::memory_order_relaxed)) throw Error(ErrorKind::aborted, "the communicator is closed");
  if (!request.sends) {
    take(request, &request);
    if (!request.done.load(std::memory_order_relaxed)) progress(&request);
  } else if (request.peer == rank_) {
    deliver_here(request, &request);
  } else {
    if (group_.control(request.peer).presence.load(std::memory_order_acquire) == Presence::departed)
      throw Error(ErrorKind::peer, group_.gone(request.peer), request.peer);
    outgoing_[static_cast<size_t>(request.peer)].queue.push(&request);
    push(request.peer, &request);
    if (group_.remote(request.peer)) group_.progress_all();  // what fits into the stream is MPI's affair now
  }
}

void Messages::start(Request& request) {
  refuse_after_fork();
  try {
    if (group_.poisoned()) [[unlikely]]
      group_.raise_poison(0);
    const Lock lock(*this);
    issue(request);
  } catch (const Error& error) {
    withdraw(request, error);
    raise(error, request);
  }
}

void Messages::finish(Request& request) {
  if (!request.done.load(std::memory_order_acquire)) {
    try {
      await(request, ~uint64_t{0});
    } catch (const Error& error) {  // if the request is done after all, that counts
      if (!withdraw(request, error) && error.kind() == ErrorKind::interrupted) throw;
    }
  }
  if (request.error) raise(*request.error, request);
}

void Messages::exchange(Request& outgoing, Request& incoming) {
  start(incoming);
  try {
    start(outgoing);
    finish(outgoing);
  } catch (const Error& error) {
    withdraw(incoming, error);
    throw;
  }
  finish(incoming);
}

// A long wait is noted in the recorder, for those who ask where this rank is.
class Messages::Noted {
 public:
  Noted(Recorder& recorder, std::mutex& mutex) : recorder_(recorder), mutex_(mutex) {}
  ~Noted() {
    uint64_t mine = number_;
    if (mine) recorder_.waits_for.compare_exchange_strong(mine, 0, std::memory_order_release);
  }
  Noted(const Noted&) = delete;
  void note(const std::string& text) {
    if (number_) return;
    CallSite entry{};
    copy_text(entry.text, text);
    const std::lock_guard lock(mutex_);  // threads may wait for several messages
    number_ = recorder_.waits.add(entry);
    recorder_.waits_for.store(number_, std::memory_order_release);
  }

 private:
  Recorder& recorder_;
  std::mutex& mutex_;
  uint64_t number_ = 0;
};

// Waits until `request` is done; false if `timeout_ns` pass before. Throws what makes it impossible.
bool Messages::await(Request& request, uint64_t timeout_ns) {
  const Caller caller(*this);
  Waiter waiter(group_.control(rank_), patience_);
  Noted noted(group_.recorder(rank_), mutex_);
  uint64_t since = 0, looked = 0;
  for (uint32_t busy = 0; !request.done.load(std::memory_order_acquire);) {
    bool moved = false;
    {
      std::unique_lock lock(mutex_, std::defer_lock);
      // Before it sleeps, this thread must have seen for itself that there is nothing to do: the holder of the lock may have
      // passed a stream just before something came.
      waiter.armed() ? lock.lock() : static_cast<void>(lock.try_lock());
      if (lock.owns_lock() && !closed_.load(std::memory_order_relaxed)) moved = progress(&request);
    }
    if (moved) {
      waiter.progress();
      if (wanting_.load(std::memory_order_relaxed)) sched_yield();
      if (++busy % 256) continue;  // whatever moves, time passes
    } else if (!waiter.pause() && !group_.poisoned()) {
      continue;
    }
    if (request.done.load(std::memory_order_acquire)) break;
    const uint64_t now = now_ns();
    if (since == 0) since = now;
    if (request.started_ns == 0) request.started_ns = now;
    if (looked && now - looked > kLongestNap) {  // this process was stopped: that does not count
      since += now - looked;
      request.started_ns += now - looked;
    }
    looked = now;
    look(request);
    if (now - since > timeout_ns) return false;
    if (now - since > kCompareAfter) noted.note(waiting_text(request));
  }
  return true;
}

// The slow look at everything that may end the wait.
void Messages::look(Request& request) {
  if (group_.poisoned()) group_.raise_poison(0);
  if (closed_.load(std::memory_order_relaxed)) throw Error(ErrorKind::aborted, "the communicator is closed");
  look_at_peers(request);
  if (request.done.load(std::memory_order_acquire)) return;
  const uint64_t waited = now_ns() - request.started_ns;
  if (waited > request.timeout_ns) throw Error(ErrorKind::timeout, timeout_text(request), request.peer);
  if (!request.interruptible) return;
  if (!request.warning_due_ns) request.warning_due_ns = Executor::warn_after_ns();
  if (request.warning_due_ns && waited > request.warning_due_ns)
    Executor::warn(waited, request.warning_due_ns,
                   "rank " + std::to_string(rank_) + " waits in " + waiting_text(request) + " for " +
                       in_seconds(waited));
  if (Executor::interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
}

void Messages::look_at_peers(Request& request) {
  int lost = 0;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_ || (request.peer != kAny && request.peer != peer)) continue;
    std::string what = group_.gone(peer);
    const bool shrinks = what.empty() && shrinking(group_, peer);
    if (shrinks && now_ns() - request.started_ns > kCompareAfter)
      what = "rank " + std::to_string(peer) + " shrinks the communicator";
    if (what.empty()) continue;
    {  // what it had sent before is still in the stream
      const Lock lock(*this);
      while (!request.done.load(std::memory_order_relaxed) && pull(peer, &request)) continue;
    }
    if (request.done.load(std::memory_order_acquire)) return;
    ++lost;
    // From any source: ranks may leave when they have sent their share, as long as one is left.
    const bool left = group_.control(peer).presence.load(std::memory_order_acquire) == Presence::departed;
    if (request.peer == peer || !left) throw Error(ErrorKind::peer, what, peer);
  }
  if (request.peer == kAny && lost > 0 && lost == size_ - 1)
    throw Error(ErrorKind::peer, "recv from any source: all other ranks have left the communicator");
}

std::string Messages::waiting_text(const Request& request) {
  const auto number = [](int32_t value) {
    return value == kAny ? std::string("any") : std::to_string(value);
  };
  return (request.sends ? "send(dest=" : "recv(source=") + number(request.peer) +
         ", tag=" + number(request.tag) + ")";
}

std::string Messages::timeout_text(const Request& request) {
  std::string text = waiting_text(request) + " timed out after " + in_seconds(request.timeout_ns);
  if (request.sends) return text + ": rank " + std::to_string(request.peer) + " does not receive";
  const Lock lock(*this);
  int shown = 0, waiting = 0;
  for (const Message* message = unexpected_.first; message; message = message->next) {
    if (++waiting > 4) continue;
    text += shown++ ? ", " : "; waiting here: ";
    text += "tag " + std::to_string(message->envelope.tag) + " from rank " + std::to_string(message->source);
  }
  if (waiting > shown) text += " and " + std::to_string(waiting - shown) + " more";
  return waiting ? text : text + "; no message is here";
}

// Ends a request with an error; false if it is done already.
bool Messages::withdraw(Request& request, const Error& error) {
  const Lock lock(*this);
  if (request.done.load(std::memory_order_relaxed)) return false;
  if (request.sends) {
    Outgoing& out = outgoing_[static_cast<size_t>(request.peer)];
    out.queue.remove(&request);
    if (request.begun) {
      out.broken = true;
      if (error.kind() != ErrorKind::peer) group_.poison(error.kind(), error.peer());
    }
  } else if (!posted_.remove(&request)) {
    for (int peer = 0; peer < size_; ++peer) {
      Incoming& in = incoming_[static_cast<size_t>(peer)];
      if (!in.open || in.request != &request) continue;
      if (request.error)
        in.request = nullptr;  // the message does not fit: its bytes run past all the same
      else
        keep(peer, in);
    }
  }
  request.message.reset();
  if (!request.error || error.kind() == ErrorKind::interrupted) request.error = error;
  complete(request, &request);
  return true;
}

}  // namespace pc
