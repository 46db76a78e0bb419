// An MPI library whose ranks are threads of one process, and which does what a test asks for: a message takes its time, a send
// is never seen to be complete. Handles are pointers; a communicator's is its rank there, plus one.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Request {
  bool send, done;
  void* to;
  int from, rank, tag;  // of a receive
};
struct Message {
  int from, to, tag;
  std::vector<char> data;
  Clock::time_point there;
};

std::mutex mutex;
std::list<Message> messages;
std::list<Request*> receives;
std::map<std::pair<int, int>, double> delays;  // by sender and tag, in seconds
std::map<std::pair<int, int>, bool> held;      // sends that do not end

int rank_of(void* comm) { return static_cast<int>(reinterpret_cast<intptr_t>(comm)) - 1; }

void move() {
  const auto now = Clock::now();
  for (auto message = messages.begin(); message != messages.end();) {
    const auto found = std::find_if(receives.begin(), receives.end(), [&](const Request* r) {
      return r->from == message->from && r->rank == message->to && r->tag == message->tag;
    });
    if (message->there > now || found == receives.end()) {
      ++message;
      continue;
    }
    std::memcpy((*found)->to, message->data.data(), message->data.size());
    (*found)->done = true;
    receives.erase(found);
    message = messages.erase(message);
  }
}

int take(void** handle) {
  auto* request = static_cast<Request*>(*handle);
  if (!request || !request->done) return 0;
  delete request;
  *handle = nullptr;
  return 1;
}

}  // namespace

extern "C" {

void loopback_delay(int from, int tag, double seconds) {
  const std::lock_guard lock(mutex);
  delays[{from, tag}] = seconds;
}

void loopback_hold(int from, int tag) {
  const std::lock_guard lock(mutex);
  held[{from, tag}] = true;
}

int MPI_Isend(const void* data, int bytes, void*, int to, int tag, void* comm, void** request) {
  const std::lock_guard lock(mutex);
  const int from = rank_of(comm);
  const auto* first = static_cast<const char*>(data);
  const auto delay =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(delays[{from, tag}]));
  messages.push_back({from, to, tag, {first, first + bytes}, Clock::now() + delay});
  *request = new Request{true, !held[{from, tag}], nullptr, from, to, tag};
  return 0;
}

int MPI_Irecv(void* data, int, void*, int from, int tag, void* comm, void** request) {
  const std::lock_guard lock(mutex);
  auto* made = new Request{false, false, data, from, rank_of(comm), tag};
  receives.push_back(made);
  *request = made;
  return 0;
}

int MPI_Testany(int count, void** requests, int* index, int* flag, void*) {
  const std::lock_guard lock(mutex);
  move();
  *flag = 0;
  *index = -1;
  for (int i = 0; i < count && !*flag; ++i)
    if (take(&requests[i])) *flag = 1, *index = i;
  return 0;
}

int MPI_Test(void** request, int* flag, void* status) {
  int index;
  return MPI_Testany(1, request, &index, flag, status);
}

int MPI_Cancel(void** request) {
  const std::lock_guard lock(mutex);
  auto* which = static_cast<Request*>(*request);
  receives.remove(which);
  which->done = true;
  return 0;
}

int MPI_Error_string(int, char* text, int* length) {
  text[0] = '\0';
  *length = 0;
  return 0;
}

int MPI_Finalized(int* flag) {
  *flag = 0;
  return 0;
}
}
