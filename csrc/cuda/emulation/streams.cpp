// Streams, events and captures of the emulated device: queues of jobs, which run when all ranks of a gang wait.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "cuda/emulation/runtime.hpp"

namespace pc::emulation {

namespace {

int current_device() {
  int device;
  static_cast<void>(cudaGetDevice(&device));
  return device;
}

}  // namespace

struct Gang {
  int size = 0;
  std::vector<Stream*> homes;
  bool broken = false, elsewhere = false;
  uint64_t runs = 0;
};

struct Progress {
  uint64_t issued = 0, ended = 0;  // jobs of a stream
};

// A kernel, something that the host does, or the wait for another stream.
struct Job {
  Grid grid;
  std::function<void()> act;
  std::shared_ptr<Progress> awaited;
  uint64_t position = 0;
  uint64_t meets =
      0;  // which one it is of its rank's kernels that wait for those of others; 0: none of these
};

struct Stream {
  Stream();
  ~Stream();

  std::deque<Job> queue;
  std::shared_ptr<Progress> progress = std::make_shared<Progress>();
  Stream* home = nullptr;       // of a caller's stream: that of the rank that works on it
  std::vector<Stream*> guests;  // of a rank's own stream: those of the caller
  std::shared_ptr<Gang> gang;   // the same
  std::string name;
  const int device = current_device();
  int rank = 0;
  bool running = false, broken = false, waits = false, capturing = false;
  std::vector<Job> captured;
  uint64_t launched = 0;   // of a rank's own stream: its kernels that wait for others
  std::thread::id thread;  // and the thread that launches them
};

struct Event {
  std::shared_ptr<Progress> progress;
  uint64_t position = 0;
  Stream* stream = nullptr;
  int device = current_device();
};

namespace {

std::mutex mutex_;
std::condition_variable changed;
auto& gangs =
    *new std::map<std::string, std::shared_ptr<Gang>>;  // memory is freed after the end of main, too
auto& alive = *new std::set<Stream*>;
Options options_;
std::string trouble_;
bool running = false;  // the machine
bool (*holds_all)() = [] { return false; };
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

// The handles 1 and 2 are the default streams of the current device: of all threads, and of each.
Stream* resolve(cudaStream_t stream) {
  static std::array<Stream*, kDevices> legacy;
  static thread_local std::array<Stream*, kDevices> own;
  const auto handle = reinterpret_cast<uintptr_t>(stream);
  if (handle != 1 && handle != 2) return stream;
  Stream*& one = (handle == 1 ? legacy : own)[static_cast<size_t>(current_device())];
  if (!one) one = new Stream;
  return one;
}

void forget(Stream& stream) {
  stream.queue.clear();
  stream.running = false;
  stream.progress->ended = stream.progress->issued;
}

void leave_home(Stream& stream) {
  if (stream.home) std::erase(stream.home->guests, &stream);
  stream.home = nullptr;
}

void adopt(Stream& stream, Stream& home) {
  if (&stream == &home || stream.home == &home || stream.gang) return;
  leave_home(stream);
  stream.home = &home;
  home.guests.push_back(&stream);
}

bool over(const Event& event) { return !event.progress || event.progress->ended >= event.position; }

Stream& home_of(Stream& stream) { return stream.home ? *stream.home : stream; }

void push(Stream& stream, Job job) {
  if (stream.capturing) return stream.captured.push_back(std::move(job));
  if (job.meets) job.meets = ++home_of(stream).launched;
  ++stream.progress->issued;
  stream.queue.push_back(std::move(job));
}

void advance(Gang& gang);

void finish(Stream& stream) {
  stream.queue.pop_front();
  ++stream.progress->ended;
}

bool step(Stream& stream);

// Can it go on although no other rank waits? A stream of nobody's, whose kernels are not for it to run; and one of a rank alone.
bool independent(Stream& stream) {
  if (stream.capturing || stream.queue.empty()) return false;
  const std::shared_ptr<Gang>& gang = home_of(stream).gang;
  return gang ? gang->size == 1 : !stream.queue.front().grid.kernel;
}

// Moves such streams: when somebody waits for one of them.
void help() {
  static bool helping = false;
  if (helping) return;
  helping = true;
  for (bool any = true; any;) {
    any = false;
    for (Stream* one : alive)
      if (independent(*one)) any |= step(*one);
  }
  helping = false;
}

bool blocked(const Stream& stream) {
  const Job& first = stream.queue.front();
  return first.awaited && first.awaited->ended < first.position;
}

// Begins what is at the head of a stream, if it can begin.
bool step(Stream& stream) {
  if (stream.running || stream.queue.empty()) return false;
  if (blocked(stream)) help();
  if (stream.running || stream.queue.empty()) return true;
  if (blocked(stream)) return false;
  Job& job = stream.queue.front();
  if (!job.grid.kernel) {
    if (job.act) job.act();
    finish(stream);
    return true;
  }
  stream.running = true;
  Grid grid = std::move(job.grid);
  grid.done = [&stream] {
    if (!stream.running) return;  // it was given up
    stream.running = false;
    finish(stream);
    advance(*home_of(stream).gang);
  };
  Machine::instance().start(std::move(grid));
  return true;
}

// Begins all that can begin. From outside a run, or when a grid has ended.
void advance(Gang& gang) {
  for (bool any = true; any;) {
    any = false;
    for (Stream* home : gang.homes) {
      any |= step(*home);
      for (Stream* guest : home->guests) any |= step(*guest);
    }
  }
}

void give_up(Gang& gang, std::string trouble) {
  trouble_ = std::move(trouble);
  gang.broken = true;
  for (Stream* home : gang.homes) {
    forget(*home);
    home->broken = true;
    for (Stream* guest : home->guests) forget(*guest);
  }
  changed.notify_all();
}

void run(Gang& gang) {
  Options options = options_;
  options.seed += 7919 * gang.runs++;
  if (gang.elsewhere) {
    options.patience = ~uint64_t{0};
    options.pause = [] {
      mutex_.unlock();
      usleep(20);
      mutex_.lock();
    };
  }
  for (Stream* home : gang.homes) home->waits = false;
  advance(gang);
  std::string trouble = Machine::instance().run(options);
  if (!trouble.empty()) give_up(gang, std::move(trouble));
}

// All ranks of the gang wait, or all that are left.
bool complete(const Gang& gang) {
  return (gang.broken || static_cast<int>(gang.homes.size()) == gang.size) &&
         std::all_of(gang.homes.begin(), gang.homes.end(), [](const Stream* s) { return s->waits; });
}

void abandon_locked(Stream& home) {
  if (!home.gang) return;
  home.gang->broken = true;  // those that are left no longer wait for all
  std::erase(home.gang->homes, &home);
  if (home.gang->homes.empty()) gangs.erase(home.name);
  home.gang.reset();
  forget(home);
  for (Stream* guest : home.guests) {
    forget(*guest);
    guest->home = nullptr;
  }
  home.guests.clear();
  changed.notify_all();
}

}  // namespace

Stream::Stream() { alive.insert(this); }
Stream::~Stream() {
  abandon_locked(*this);
  leave_home(*this);
  alive.erase(this);
}

namespace {

cudaError_t launch(const Function& function, dim3 grid, dim3 block, const void* argument, size_t bytes,
                   size_t shared_bytes, cudaStream_t on, cudaStream_t home, const std::vector<int>* ranks,
                   unsigned share, bool meets) {
  if (!is_loaded(function.address)) return cudaErrorNotLoaded;
  const int device = current_device();
  const auto copy = std::make_shared<std::vector<char>>(static_cast<const char*>(argument),
                                                        static_cast<const char*>(argument) + bytes);
  const std::scoped_lock lock(mutex_);
  Stream& stream = *resolve(on);
  if (home->broken) return cudaErrorLaunchFailure;
  adopt(stream, *home);
  home->thread = std::this_thread::get_id();
  Job job;
  job.meets = meets;
  job.grid.rank = home->rank;
  job.grid.device = device;
  if (ranks) {
    if (grid.x * block.x > options_.processors * options_.resident_threads)
      return cudaErrorCooperativeLaunchTooLarge;
    job.grid.cooperative = true;
    job.grid.ranks = *ranks;
    job.grid.share = share;
  }
  job.grid.blocks = grid.x;
  job.grid.threads = block.x;
  job.grid.shared_bytes = shared_bytes;
  job.grid.kernel = [invoke = function.invoke, copy] { invoke(copy->data()); };
  push(stream, std::move(job));
  return cudaSuccess;
}

}  // namespace

cudaError_t launch(const Function& function, dim3 grid, dim3 block, const void* argument, size_t bytes,
                   size_t shared_bytes, cudaStream_t on, cudaStream_t home, bool meets) {
  return launch(function, grid, block, argument, bytes, shared_bytes, on, home, nullptr, 1, meets);
}

cudaError_t launch_cooperative(const Function& function, dim3 grid, dim3 block, const void* argument,
                               size_t bytes, size_t shared_bytes, cudaStream_t on, cudaStream_t home,
                               const std::vector<int>& ranks, unsigned share) {
  return launch(function, grid, block, argument, bytes, shared_bytes, on, home, &ranks, share, false);
}

void ask_for_lock(bool (*holds)()) { holds_all = holds; }

cudaError_t wait_for_kernels(const char* act) {
  const int device = current_device();
  const bool all = holds_all();
  const auto self = std::this_thread::get_id();
  const std::scoped_lock lock(mutex_);
  for (Stream* stream : alive) {
    const std::shared_ptr<Gang> gang = home_of(*stream).gang;
    if (stream->device != device || !gang || gang->broken) continue;
    uint64_t last = 0;
    for (const Job& job : stream->queue) last = std::max(last, job.meets);
    for (const Stream* missing : gang->homes) {
      if (missing->launched >= last || (missing->thread != self && !all)) continue;
      give_up(*gang, std::string(act) + ": that waits for the kernel of rank " +
                         std::to_string(home_of(*stream).rank) + ", which waits for the one that rank " +
                         std::to_string(missing->rank) + " would launch later");
      return cudaErrorNeverReturns;
    }
  }
  return cudaSuccess;
}

void between_runs(const std::function<void()>& act) {
  const std::scoped_lock lock(mutex_);
  act();
}

void belong(cudaStream_t stream, cudaStream_t home) {
  const std::scoped_lock lock(mutex_);
  adopt(*resolve(stream), *home);
}

void join(cudaStream_t stream, const std::string& name, int rank, int size, bool elsewhere) {
  const std::scoped_lock lock(mutex_);
  auto& gang = gangs[name];
  if (!gang) gang = std::make_shared<Gang>();
  gang->size = size;
  gang->elsewhere = elsewhere;
  gang->homes.push_back(stream);
  stream->gang = gang;
  stream->name = name;
  stream->rank = rank;
  stream->broken = stream->waits = false;  // it may have been another communicator's
  stream->launched = 0;
  stream->thread = std::this_thread::get_id();
}

void abandon(cudaStream_t stream) {
  const std::scoped_lock lock(mutex_);
  abandon_locked(*stream);
}

void later(cudaStream_t stream, std::function<void()> act) {
  const std::scoped_lock lock(mutex_);
  Job job;
  job.act = std::move(act);
  push(*resolve(stream), std::move(job));
}

void begin_capture(cudaStream_t stream) {
  const std::scoped_lock lock(mutex_);
  resolve(stream)->capturing = true;
}

std::function<void(cudaStream_t)> end_capture(cudaStream_t stream) {
  const std::scoped_lock lock(mutex_);
  resolve(stream)->capturing = false;
  return [jobs = std::move(resolve(stream)->captured)](cudaStream_t on) {
    const std::scoped_lock inner(mutex_);
    for (const Job& job : jobs) push(*resolve(on), job);
  };
}

void set_options(const Options& options) {
  const std::scoped_lock lock(mutex_);
  options_ = options;
}

Options options() {
  const std::scoped_lock lock(mutex_);
  return options_;
}

Statistics statistics() {
  const std::scoped_lock lock(mutex_);
  return Machine::instance().statistics();
}

std::string last_trouble() {
  const std::scoped_lock lock(mutex_);
  return trouble_;
}

}  // namespace pc::emulation

using namespace pc::emulation;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const std::scoped_lock lock(mutex_);
  *stream = new Stream;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::scoped_lock lock(mutex_);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t which) {
  std::unique_lock lock(mutex_);
  Stream& stream = *resolve(which);
  Stream& home = home_of(stream);
  const std::shared_ptr<Gang> gang = home.gang;
  if (home.broken) return cudaErrorLaunchFailure;
  if (!gang) {
    while (step(stream)) {
    }
    return stream.queue.empty() ? cudaSuccess : cudaErrorLaunchFailure;
  }
  if (stream.queue.empty()) return cudaSuccess;
  home.waits = true;
  changed.wait(lock, [&] { return !home.waits || complete(*gang) || !home.gang || home.broken; });
  if (home.waits && !home.broken) {
    changed.wait(lock, [] { return !running; });  // one that waits for another process
    running = true;
    run(*gang);
    running = false;
    changed.notify_all();
  }
  home.waits = false;
  return home.broken ? cudaErrorLaunchFailure : cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  const int device = current_device();
  std::vector<Stream*> all;
  {
    const std::scoped_lock lock(mutex_);
    for (Stream* one : alive) {
      if (one->device != device) continue;
      if (one->capturing) return cudaErrorStreamCaptureUnsupported;
      if (!one->queue.empty()) all.push_back(one);
    }
  }
  for (Stream* one : all) {
    if (const std::scoped_lock lock(mutex_); !alive.contains(one)) continue;
    if (const cudaError_t error = cudaStreamSynchronize(one)) return error;
  }
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const std::scoped_lock lock(mutex_);
  *status = resolve(stream)->capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(capture_mode, *mode);
  return cudaSuccess;
}

// -- events ------------------------------------------------------------------------------------------------------------------

cudaError_t cudaStreamWaitEvent(cudaStream_t which, cudaEvent_t event, unsigned) {
  const std::scoped_lock lock(mutex_);
  Stream& stream = *resolve(which);
  if (!event->progress) return cudaSuccess;
  if (alive.contains(event->stream)) {  // streams that wait for each other belong to one rank
    Stream &own = home_of(stream), &other = home_of(*event->stream);
    const bool same_gang = own.gang && own.gang == other.gang;  // two ranks share a launch
    if (other.gang && !same_gang) adopt(stream, other);
    if (own.gang && !same_gang) adopt(*event->stream, own);
  }
  Job job;
  job.awaited = event->progress;
  job.position = event->position;
  push(stream, std::move(job));
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new Event;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::scoped_lock lock(mutex_);
  Stream& one = *resolve(stream);
  if (event->device != one.device) return cudaErrorInvalidResourceHandle;
  *event = {one.progress, one.progress->issued, &one, one.device};
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Stream* stream = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    if (event->progress && event->progress->ended < event->position && alive.contains(event->stream))
      stream = event->stream;
  }
  if (stream) static_cast<void>(cudaStreamSynchronize(stream));
  const std::scoped_lock lock(mutex_);
  return over(*event) ? cudaSuccess : cudaErrorLaunchFailure;
}
// Refused while anything is captured, unless the thread has said that it does not care.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::scoped_lock lock(mutex_);
  if (capture_mode != cudaStreamCaptureModeRelaxed &&
      std::any_of(alive.begin(), alive.end(), [](const Stream* one) { return one->capturing; }))
    return cudaErrorStreamCaptureUnsupported;
  return over(*event) ? cudaSuccess : cudaErrorNotReady;
}
