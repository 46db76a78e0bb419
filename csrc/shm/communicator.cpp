#include "shm/communicator.hpp"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

namespace pc {

Communicator::Communicator(int rank, int size, size_t pool_bytes, Patience patience, Stores stores,
                           bool single_copy)
    : group_(rank, size, pool_bytes, single_copy), executor_(group_, patience, stores), patience_(patience) {}

Communicator::~Communicator() { close(); }

void Communicator::forget() {
  forgotten_ = true;
  group_.forget();
  if (progress_.joinable()) progress_.detach();
  // Other threads of the parent may have held or awaited these; destroying them as they are would hang.
  new (&busy_) BusyLock;
  new (&queue_mutex_) std::mutex;
  new (&queued_) std::condition_variable;
}

void Communicator::refuse_after_fork() const {
  if (forgotten_)
    throw Error(
        ErrorKind::bootstrap,
        "this communicator was made before a fork; the child process cannot use it: call pc.init() there");
}

void Communicator::close() {
  if (forgotten_) return;
  {
    std::lock_guard lock(queue_mutex_);
    stop_ = true;
  }
  queued_.notify_all();
  group_.depart();
  {
    // A call that has not ended cannot be completed any more: this rank is at fault. One that has ended is complete for
    // the others too.
    std::unique_lock idle(busy_, std::try_to_lock);
    if (!idle.owns_lock() || pending_.load(std::memory_order_acquire))
      group_.poison(ErrorKind::peer, group_.rank());
  }
  if (progress_.joinable()) progress_.join();
  closed_ = true;
  while (auto job = take()) {
    job->error = Error(ErrorKind::aborted, "the communicator was closed before this call ran");
    job->task = nullptr;
    job->done.store(true, std::memory_order_release);
  }
}

void Communicator::set_sequence(uint64_t next) {
  std::lock_guard lock(busy_);
  sequence_ = next;
}

// The lock of the executor; a wait for it can be interrupted. A task's thread holds it already: not owned.
std::unique_lock<BusyLock> Communicator::acquire(bool interruptible) {
  std::unique_lock lock(busy_, std::try_to_lock);
  if (!lock.owns_lock() && in_task()) return lock;
  while (!lock.owns_lock())
    if (!lock.try_lock_for(std::chrono::milliseconds(50)) && interruptible) end_if_interrupted();
  return lock;
}

// Ctrl-C while another thread of this rank executes: that call holds the communicator and has to end too.
void Communicator::end_if_interrupted() {
  if (!Executor::interrupted()) return;
  group_.poison(ErrorKind::interrupted, group_.rank());
  throw Error(ErrorKind::interrupted, "interrupted");
}

void Communicator::run_locked(Call& call) {
  if (closed_) throw Error(ErrorKind::aborted, "the communicator is closed");
  if (failure_) {
    Error again(failure_->kind() == ErrorKind::interrupted ? ErrorKind::aborted : failure_->kind(),
                std::string("the communicator is unusable since call ") + std::to_string(failure_->sequence) +
                    " failed: " + failure_->what(),
                failure_->peer());
    again.rank = failure_->rank;
    again.verb = failure_->verb;
    again.sequence = failure_->sequence;
    throw again;
  }
  try {
    executor_.reserve(*call.prepared);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::transport,
                "no memory for the work buffers: needs " +
                    std::to_string(call.prepared->work_bytes + call.prepared->scratch_bytes) + " bytes");
  }
  call.sequence = ++sequence_;
  Probe probe;
  if (Executor::fault.action != Fault::Action::none) [[unlikely]] {
    if (call.probe) probe = *call.probe;
    probe.fault = &Executor::fault;
    call.probe = &probe;
  }
  try {
    executor_.run(call);
  } catch (const Error& error) {
    failure_ = error;
    throw;
  }
}

void Communicator::run(Call call) {
  refuse_after_fork();
  const auto lock = acquire(call.interruptible);
  if (!lock.owns_lock()) [[unlikely]] {  // a call of a task, which was issued where that was
    call.site = task_->site;
  } else if (pending_.load(std::memory_order_acquire)) [[unlikely]] {
    run_queue_locked(call.interruptible, nullptr);
  }
  run_locked(call);
}

std::shared_ptr<Job> Communicator::take() {
  std::lock_guard lock(queue_mutex_);
  if (queue_.empty()) return nullptr;
  auto job = std::move(queue_.front());
  queue_.pop_front();
  pending_.store(static_cast<uint32_t>(queue_.size()), std::memory_order_release);
  return job;
}

void Communicator::run_task_locked(Job& job) {
  const auto task = std::move(job.task);  // what it holds must not outlive it
  task_ = &job;
  task_thread_ = std::this_thread::get_id();
  try {
    task();
  } catch (...) {
    task_thread_ = std::thread::id();
    throw;
  }
  task_thread_ = std::thread::id();
}

void Communicator::run_job_locked(Job& job, bool interruptible) {
  try {
    if (job.prepared) {
      Call call{job.prepared.get(), job.in, job.out, 0, job.timeout_ns, interruptible, job.site, nullptr};
      run_locked(call);
    } else {
      run_task_locked(job);
    }
  } catch (const Error& error) {
    job.error = error;
  }
  job.done.store(true, std::memory_order_release);
}

void Communicator::run_queue_locked(bool interruptible, const Job* until) {
  while (auto job = take()) {
    run_job_locked(*job, interruptible);
    if (job->error && job->error->kind() == ErrorKind::interrupted)
      throw *job->error;  // Ctrl-C ends the wait, too
    if (job.get() == until) return;
  }
}

void Communicator::submit(const std::shared_ptr<Job>& job) {
  refuse_after_fork();
  {
    std::lock_guard lock(queue_mutex_);
    if (stop_) throw Error(ErrorKind::aborted, "the communicator is closed");
    queue_.push_back(job);
    pending_.store(static_cast<uint32_t>(queue_.size()), std::memory_order_release);
    if (!progress_.joinable()) progress_ = std::thread([this] { progress(); });
  }
  queued_.notify_one();
}

void Communicator::progress() {
  for (;;) {
    {
      std::unique_lock lock(queue_mutex_);
      queued_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (stop_) return;
    }
    std::lock_guard lock(busy_);
    if (auto job = take()) {
      const Patience sleepy{0, 0, patience_.membarrier, patience_.nap_us,
                            false};  // this thread has no core of its own to spin on
      executor_.set_patience(sleepy);
      run_job_locked(*job, false);
      executor_.set_patience(patience_);
    }
  }
}

void Communicator::wait(const std::shared_ptr<Job>& job, uint64_t timeout_ns, bool interruptible) {
  refuse_after_fork();
  const uint64_t start = now_ns();
  uint64_t warning_due = Executor::warn_after_ns();
  const bool helps = timeout_ns >= job->timeout_ns;  // else it may have to give up, which a call cannot
  for (auto nap = std::chrono::microseconds(20); !job->done.load(std::memory_order_acquire);
       nap = std::min(2 * nap, std::chrono::microseconds(2000))) {
    std::unique_lock lock(busy_, std::defer_lock);
    if (!helps)
      std::this_thread::sleep_for(nap);
    else if (!lock.try_lock())
      lock.try_lock_for(std::chrono::milliseconds(20));
    if (lock.owns_lock()) {
      if (!job->done.load(std::memory_order_acquire)) run_queue_locked(interruptible, job.get());
      continue;
    }
    if (interruptible) end_if_interrupted();
    if (const uint64_t waited = now_ns() - start; interruptible && warning_due && waited > warning_due) {
      const uint64_t running = last_sequence(group_.recorder(group_.rank()));
      Executor::warn(waited, warning_due,
                     "rank " + std::to_string(group_.rank()) + " waits for an asynchronous call for " +
                         in_seconds(waited) + ", now in " + group_.own_call(running) + ": for " +
                         group_.awaited(running).text);
    }
    // The call's own error says more: it may be about to come.
    if (now_ns() - start > timeout_ns + (helps ? 1'000'000'000 : 0)) {
      const Group::Awaited whom = group_.awaited(last_sequence(group_.recorder(group_.rank())));
      throw Error(ErrorKind::timeout,
                  "wait timed out after " + in_seconds(timeout_ns) +
                      "; the call is still running, and waits for " + whom.text,
                  whom.first);
    }
  }
  if (job->error) throw *job->error;
}

void Communicator::add_region(Region region) {
  std::lock_guard lock(busy_);
  executor_.add_region(std::move(region));
}

void Communicator::remove_region(uint32_t id) {
  std::lock_guard lock(busy_);
  executor_.remove_region(id);
}

void Communicator::end_pending() {
  refuse_after_fork();
  auto lock = acquire(true);
  run_queue_locked(true, nullptr);
  if (closed_) throw Error(ErrorKind::aborted, "the communicator is closed");
}

Survivors Communicator::survivors(uint64_t timeout_ns) {
  end_pending();
  return agree_on_survivors(group_, timeout_ns, &Executor::interrupted);
}

uint64_t Communicator::begin_shrink() {
  end_pending();
  return pc::begin_shrink(group_);
}

void Communicator::check() {
  if (forgotten_ || !group_.poisoned()) return;
  try {
    group_.raise_poison(0);
  } catch (Error& error) {
    error.rank = group_.rank();
    throw;
  }
}

void Communicator::abort(bool interrupted) {
  if (forgotten_) return;
  if (interrupted)
    group_.poison(ErrorKind::interrupted, group_.rank());
  else
    group_.poison(ErrorKind::aborted);
}

}  // namespace pc
