// One rank's end of a communicator: its group, its executor, and the order of its calls.
//
// Calls run one at a time in the order of their issue. A blocking call runs in its caller. An asynchronous
// one waits in the queue until the progress thread, a later blocking call, or somebody's wait() runs it,
// whoever comes first. A task takes one place in that order and makes several calls there.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "shm/busy.hpp"
#include "shm/executor.hpp"
#include "shm/group.hpp"
#include "shm/survivors.hpp"

namespace pc {

struct Job {
  std::shared_ptr<const Prepared> prepared;  // what to call; null for a task:
  std::function<void()> task;                // calls run() by itself; may throw Error
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  uint64_t timeout_ns = 0, site = 0;
  std::atomic<bool> done{false};
  std::optional<Error> error;
};

class Communicator {
 public:
  Communicator(int rank, int size, size_t pool_bytes, Patience patience, Stores stores = Stores::automatic,
               bool single_copy = false);
  ~Communicator();
  Communicator(const Communicator&) = delete;

  Group& group() { return group_; }
  size_t pool_bytes() const { return group_.pool_bytes(); }
  uint64_t whole_calls() const { return executor_.whole_calls(); }
  uint64_t sequence() const { return sequence_; }
  void set_sequence(uint64_t next);  // all ranks alike; for tests of the counters

  // Both throw Error. `call.sequence` is filled in here.
  void run(Call call);
  void wait(const std::shared_ptr<Job>& job, uint64_t timeout_ns, bool interruptible);
  void submit(const std::shared_ptr<Job>& job);

  void add_region(Region region);
  void remove_region(uint32_t id);
  // Ends what is pending, then finds out who is left.
  Survivors survivors(uint64_t timeout_ns);
  uint64_t begin_shrink();  // the same, where the ranks are on several hosts and agree by other means
  void check();             // throws what has made the communicator unusable
  // From any thread: wakes everyone with AbortedError; with PeerError if the caller was interrupted.
  void abort(bool interrupted = false);
  void close();   // never waits for peers
  void forget();  // in a forked child: no memory, no thread, no lock can be used any more

 private:
  void refuse_after_fork() const;
  std::unique_lock<BusyLock> acquire(bool interruptible);
  void end_if_interrupted();
  void end_pending();
  void run_locked(Call& call);
  void run_queue_locked(bool interruptible, const Job* until);
  void run_job_locked(Job& job, bool interruptible);
  void run_task_locked(Job& job);
  bool in_task() const { return task_thread_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }
  std::shared_ptr<Job> take();
  void progress();

  Group group_;
  Executor executor_;
  Patience patience_;
  BusyLock busy_;              // held by whoever executes
  const Job* task_ = nullptr;  // that is executed
  std::atomic<std::thread::id> task_thread_{};
  uint64_t sequence_ = 0;
  bool closed_ = false, forgotten_ = false;
  std::optional<Error> failure_;

  std::mutex queue_mutex_;
  std::condition_variable queued_;
  std::deque<std::shared_ptr<Job>> queue_;
  std::atomic<uint32_t> pending_{0};
  bool stop_ = false;
  std::thread progress_;
};

}  // namespace pc
