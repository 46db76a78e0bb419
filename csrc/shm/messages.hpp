// Point-to-point messages of one rank: send and receive by (peer, tag), beside the collectives and independent of them.
//
// A message is a frame in the stream (stream.hpp) of its pair: the envelope, the shape, the dtype's text, the data. It may be
// longer than the ring; then it flows through. Sends to one peer leave in the order of their issue.
//
//      send --> queue per peer --> ring --> frame begins: which receive takes it?
//                                             | the first posted one that fits (source, tag)  --> straight into its array
//                                             | none --> unexpected: kept in memory of its own until a receive asks for it
//      recv --> the first unexpected message that fits, else posted
//
// So messages of one pair and tag are received in the order of sending, and a receive from any source takes what came first.
//
// Whoever waits here moves everything that can be moved, of all threads of the rank, in both directions. Therefore ranks that
// all send first and receive later cannot block each other, whatever the sizes: the messages wait as unexpected ones. (A rank
// that waits elsewhere, for example in a collective, moves nothing: a send above `eager_bytes` needs its receiver's help.)
// After the first asynchronous request a thread does the same while no caller waits and requests are open.
//
// One lock guards all state. It is never held while waiting. Nothing is allocated but for unexpected messages, receives that
// leave the memory to us, and asynchronous requests.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/error.hpp"
#include "shm/group.hpp"
#include "shm/stream.hpp"

namespace pc {

inline constexpr int32_t kAny = -1;         // any source, any tag
inline constexpr uint8_t kDescribed = 255;  // a dtype without a number: a text describes it
inline constexpr size_t kMaxText = 1024;    // of a dtype
inline constexpr size_t kMaxAxes = 64;

struct Envelope {
  uint64_t bytes = 0;   // of the data
  uint64_t number = 0;  // of the message among those of its pair
  int32_t tag = 0;
  uint8_t dtype = 0;  // DType, or kDescribed
  uint8_t axes = 0;   // 64-bit lengths that follow
  uint16_t text = 0;  // bytes that follow these: the dtype, where it has no number

  size_t extras() const { return axes * sizeof(uint64_t) + text; }
};

// What a dtype is to the ranks.
struct Element {
  uint8_t dtype;
  std::string text;  // its name, or what it is made of
};

// A message in memory of its own: this, the extras, the data.
struct Message {
  Envelope envelope;
  int32_t source;
  bool complete = false;
  Message* next = nullptr;

  uint64_t* shape() { return reinterpret_cast<uint64_t*>(this + 1); }
  char* text() { return reinterpret_cast<char*>(shape() + envelope.axes); }
  std::byte* data() { return reinterpret_cast<std::byte*>(this) + data_offset(envelope); }

  static size_t data_offset(const Envelope& envelope) {
    return (sizeof(Message) + envelope.extras() + kLine - 1) / kLine * kLine;
  }
  static Message* make(const Envelope& envelope, int32_t source) noexcept;  // nullptr: no memory
  struct Free {
    void operator()(Message* message) const noexcept;
  };
};
using MessagePtr = std::unique_ptr<Message, Message::Free>;

struct Request {
  bool sends = false;
  int32_t peer = kAny, tag = kAny;
  std::byte* data = nullptr;  // of a receive: nullptr where the message brings its memory
  uint64_t bytes = 0, count = 0;
  const Element* element = nullptr;  // of `data`
  uint64_t timeout_ns = ~uint64_t{0};
  bool interruptible = false;
  uint8_t axes = 0;  // of a send, with its shape
  uint64_t shape[kMaxAxes];

  std::atomic<bool> done{false};
  int32_t source = kAny, received_tag = kAny;
  MessagePtr message;          // received
  std::optional<Error> error;  // why it will never be, or is not what it should be

  Request() {}  // leaves `shape` as it is

 private:
  friend class Messages;
  template <class T>
  friend struct Queue;
  bool begun = false;
  uint64_t moved = 0, started_ns = 0, warning_due_ns = 0;
  std::atomic<uint64_t> looked_ns{0};
  Request* next = nullptr;
  std::shared_ptr<Request> self;  // of an asynchronous one, until it is done
};

// A singly linked queue of what has a `next`.
template <class T>
struct Queue {
  T *first = nullptr, **end = &first;

  Queue() = default;
  Queue(const Queue&) = delete;

  void push(T* item) {
    item->next = nullptr;
    *end = item;
    end = &item->next;
  }
  void unlink(T** at) {
    T* item = *at;
    *at = item->next;
    if (end == &item->next) end = at;
  }
  template <class Fits>
  T* take(Fits fits) {  // the first that fits, or nullptr
    for (T** at = &first; T* item = *at; at = &item->next)
      if (fits(*item)) return unlink(at), item;
    return nullptr;
  }
  bool remove(const T* item) {
    return take([item](const T& other) { return &other == item; }) != nullptr;
  }
};

class Messages {
 public:
  Messages(Group& group, const Patience& patience);
  ~Messages();
  Messages(const Messages&) = delete;

  // A message of so many bytes of data, a number for a dtype and no more axes than eight is sent without its receiver's help
  // if nothing else is under way.
  size_t eager_bytes() const;

  // Blocking: throw Error. A receive that raises loses no message (but for one that does not fit), and a send that has not begun
  // leaves nothing behind; a send that is given up in its middle makes the communicator unusable.
  void send(Request& request) { start(request), finish(request); }
  void receive(Request& request) { start(request), finish(request); }
  void exchange(Request& outgoing, Request& incoming);

  // Asynchronous: `request`, and what it points to, must stay until it is done.
  void submit(const std::shared_ptr<Request>& request);
  bool test(Request& request);  // never blocks
  void wait(Request& request, uint64_t timeout_ns);

  int size() const { return size_; }
  void close();   // waiting threads raise; nothing moves any more
  void forget();  // in a forked child: leaves thread and locks alone

 private:
  struct Outgoing {
    explicit Outgoing(Outlet outlet) : stream(outlet) {}
    Outlet stream;
    Queue<Request> queue;
    uint64_t messages = 0;
    bool broken = false;  // a message stopped in its middle
  };
  struct Incoming {
    explicit Incoming(Inlet inlet) : stream(inlet) {}
    Inlet stream;
    uint64_t messages = 0;
    bool open = false;  // in the middle of a message:
    Envelope envelope;
    uint64_t arrived = 0;         //   bytes so far
    std::byte* target = nullptr;  //   where they go; nullptr: nowhere
    Request* request = nullptr;   //   who takes it
    Message* message = nullptr;   //   its own memory, if it has any
    std::byte extras[kMaxAxes * sizeof(uint64_t) + kMaxText];

    std::string text() const {
      return {reinterpret_cast<const char*>(extras) + envelope.axes * sizeof(uint64_t), envelope.text};
    }
  };
  class Lock {  // for those who come anew: who moves data in a loop lets them in
   public:
    explicit Lock(Messages& messages) : mutex_(messages.mutex_) {
      messages.wanting_.fetch_add(1, std::memory_order_relaxed);
      mutex_.lock();
      messages.wanting_.fetch_sub(1, std::memory_order_relaxed);
    }
    ~Lock() { mutex_.unlock(); }
    Lock(const Lock&) = delete;

   private:
    std::mutex& mutex_;
  };
  class Caller;
  class Noted;

  // messages.cpp; under the lock
  bool progress(const Request* own);
  bool push(int peer, const Request* own);
  bool pull(int peer, const Request* own);
  bool begin(int peer, Incoming& in);
  void take(Request& request, const Request* own);
  void deliver_here(Request& request, const Request* own);
  bool fits(Request& request, const Envelope& envelope, const std::string& text, int32_t source);
  void keep(int peer, Incoming& in);
  void complete(Request& request, const Request* own);

  // messages_wait.cpp
  void refuse_after_fork() const;
  void issue(Request& request);
  void start(Request& request);
  void finish(Request& request);
  bool await(Request& request, uint64_t timeout_ns);
  void look(Request& request);
  void look_at_peers(Request& request);
  bool withdraw(Request& request, const Error& error);
  [[noreturn]] void raise(Error error, const Request& request) const;
  std::string timeout_text(const Request& request);
  std::string waiting_text(const Request& request);

  void serve();  // messages_async.cpp

  Group& group_;
  Patience patience_;
  const int rank_, size_;
  const size_t piece_;  // bytes that are copied before the other end may go on

  std::mutex mutex_;
  std::atomic<uint32_t> wanting_{0};  // threads that are about to lock
  std::atomic<uint32_t> callers_{0};  // threads that wait for a request
  std::atomic<uint32_t> open_{0};     // asynchronous requests that are not done
  std::deque<Outgoing> outgoing_;
  std::deque<Incoming> incoming_;
  Queue<Request> posted_;
  Queue<Message> unexpected_;
  std::atomic<bool> closed_{false};

  std::unique_ptr<std::condition_variable> to_serve_;
  std::thread server_;
};

}  // namespace pc
