// Moving messages; everything here runs under the lock. Waiting for them is in messages_wait.cpp.
#include "shm/messages.hpp"

#include <cstdlib>
#include <new>

#include "core/dtype.hpp"

namespace pc {
namespace {

Envelope envelope_of(const Request& request, uint64_t number) {
  Envelope envelope;
  envelope.bytes = request.bytes;
  envelope.number = number;
  envelope.tag = request.tag;
  envelope.dtype = request.element->dtype;
  envelope.axes = request.axes;
  envelope.text = static_cast<uint16_t>(request.element->text.size());
  return envelope;
}

bool matches(const Request& request, int32_t source, int32_t tag) {
  return (request.peer == kAny || request.peer == source) && (request.tag == kAny || request.tag == tag);
}

}  // namespace

Message* Message::make(const Envelope& envelope, int32_t source) noexcept {
  const size_t most = ~size_t{0} / 2, offset = data_offset(envelope);
  if (envelope.bytes > most) return nullptr;
  void* memory = std::aligned_alloc(kLine, (offset + envelope.bytes + kLine - 1) / kLine * kLine);
  return memory ? new (memory) Message{envelope, source} : nullptr;
}

void Message::Free::operator()(Message* message) const noexcept { std::free(message); }

Messages::Messages(Group& group, const Patience& patience)
    : group_(group),
      patience_(patience),
      rank_(group.rank()),
      size_(group.size()),
      piece_(group.stream_bytes() / 4),
      to_serve_(std::make_unique<std::condition_variable>()) {
  for (int peer = 0; peer < size_; ++peer) {
    outgoing_.emplace_back(Outlet(group.stream(rank_, peer), group.stream_bytes(),
                                  group.stream_sent(rank_, peer), group.stream_taken(rank_, peer)));
    incoming_.emplace_back(Inlet(group.stream(peer, rank_), group.stream_bytes(),
                                 group.stream_sent(peer, rank_), group.stream_taken(peer, rank_)));
  }
}

size_t Messages::eager_bytes() const {
  return size_ == 1 ? ~size_t{0} : group_.stream_bytes() - sizeof(Envelope) - 8 * sizeof(uint64_t);
}

// Moves what can be moved; false if nothing could. `own` is the request of the caller, which needs no doorbell.
bool Messages::progress(const Request* own) {
  bool moved = false;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    moved |= push(peer, own);
    moved |= pull(peer, own);
  }
  return group_.progress_all() || moved;
}

bool Messages::push(int peer, const Request* own) {
  Outgoing& out = outgoing_[static_cast<size_t>(peer)];
  bool moved = false;
  // At most a ring full at a time, here and in pull(): a fast peer must not keep the lock here for ever.
  for (size_t budget = group_.stream_bytes(); budget > 0 && out.queue.first && !out.broken;) {
    Request& request = *out.queue.first;
    if (!request.begun) {
      const Envelope envelope = envelope_of(request, out.messages + 1);
      if (!out.stream.has(sizeof envelope + envelope.extras())) break;
      out.stream.put(&envelope, sizeof envelope);
      out.stream.put(request.shape, envelope.axes * sizeof(uint64_t));
      out.stream.put(request.element->text.data(), envelope.text);
      ++out.messages;
      request.begun = true;
      budget -= std::min(budget, sizeof envelope);
    } else if (!out.stream.has(1)) {
      break;
    }
    out.stream.has(std::min(request.bytes - request.moved, piece_));
    const size_t bytes = std::min({request.bytes - request.moved, out.stream.space(), piece_});
    out.stream.put(request.data + request.moved, bytes);
    out.stream.publish();
    ring(group_.control(peer));
    moved = true;
    request.moved += bytes;
    budget -= std::min(budget, bytes);
    if (request.moved < request.bytes) continue;
    out.queue.unlink(&out.queue.first);
    complete(request, own);
  }
  return moved;
}

bool Messages::pull(int peer, const Request* own) {
  Incoming& in = incoming_[static_cast<size_t>(peer)];
  bool moved = false;
  for (size_t budget = group_.stream_bytes(); budget > 0 && in.stream.has(1);) {
    if (!in.open && !begin(peer, in)) break;
    in.stream.has(std::min(in.envelope.bytes - in.arrived, piece_));
    const size_t bytes = std::min({in.envelope.bytes - in.arrived, in.stream.available(), piece_});
    if (in.target) in.stream.peek(in.target + in.arrived, bytes);
    in.stream.skip(bytes);
    in.stream.release();
    ring(group_.control(peer));
    moved = true;
    in.arrived += bytes;
    budget -= std::min(budget, bytes + sizeof(Envelope));
    if (in.arrived < in.envelope.bytes) continue;
    in.open = false;
    if (in.message) in.message->complete = true;
    if (in.request) {
      in.request->message.reset(in.message);
      complete(*in.request, own);
    }
  }
  return moved;
}

// Opens the next message of a stream that has one: who takes it, and where do its bytes go?
bool Messages::begin(int peer, Incoming& in) {
  Envelope envelope;  // it and the extras were published at once
  in.stream.peek(&envelope, sizeof envelope);
  if (envelope.number != in.messages + 1 || envelope.extras() > sizeof in.extras) [[unlikely]] {
    group_.poison(ErrorKind::transport);
    throw Error(ErrorKind::transport,
                "the stream of messages from rank " + std::to_string(peer) + " is damaged", peer);
  }
  Request* request = posted_.take([&](const Request& r) { return matches(r, peer, envelope.tag); });
  const bool ready = request && request->data;
  in.message = ready ? nullptr : Message::make(envelope, peer);
  if (!in.message && !request)
    return false;  // no memory for an unexpected message: it stays in the stream for now
  in.stream.skip(sizeof envelope);
  in.stream.peek(in.extras, envelope.extras());
  in.stream.skip(envelope.extras());
  ++in.messages;
  in.open = true;
  in.envelope = envelope;
  in.arrived = 0;
  in.request = request;
  in.target = in.message ? in.message->data() : nullptr;
  if (in.message) std::memcpy(in.message->shape(), in.extras, envelope.extras());
  if (!request) {
    unexpected_.push(in.message);
    return true;
  }
  request->source = peer;
  request->received_tag = envelope.tag;
  if (ready && fits(*request, envelope, in.text(), peer)) in.target = request->data;
  if (!ready && !in.message)
    request->error.emplace(ErrorKind::transport,
                           "no memory for a message of " + std::to_string(envelope.bytes) +
                               " bytes from rank " + std::to_string(peer),
                           peer);
  // Where there is no target the bytes run past, and the receive ends with its error when they have: the sender
  // must not wait for somebody who has left.
  return true;
}

// Is the message what the receive has memory for? If not, that is its error.
bool Messages::fits(Request& request, const Envelope& envelope, const std::string& text, int32_t source) {
  const Element& element = *request.element;
  const bool same = envelope.dtype == element.dtype && text == element.text;
  if (same && envelope.bytes == request.bytes) return true;
  const auto dtype = [](uint8_t number, const std::string& described) {
    return number == kDescribed ? described : std::string(name(static_cast<DType>(number)));
  };
  const std::string mine = dtype(element.dtype, element.text), theirs = dtype(envelope.dtype, text);
  uint64_t unit = envelope.dtype == kDescribed ? 0 : item_size(static_cast<DType>(envelope.dtype));
  if (same && request.count) unit = request.bytes / request.count;
  const std::string size = unit ? "[" + std::to_string(envelope.bytes / unit) + "]"
                                : " of " + std::to_string(envelope.bytes) + " bytes";
  request.error.emplace(ErrorKind::mismatch,
                        "recv into " + mine + "[" + std::to_string(request.count) + "] got " + theirs + size +
                            " from rank " + std::to_string(source) + " with tag " +
                            std::to_string(envelope.tag) +
                            "; nothing was written, and the message is dropped",
                        source);
  return false;
}

// A new receive: gives it the first message that waits for one like it, or else lets it wait for a message.
void Messages::take(Request& request, const Request* own) {
  MessagePtr message(
      unexpected_.take([&](const Message& m) { return matches(request, m.source, m.envelope.tag); }));
  if (!message) return posted_.push(&request);
  const Envelope& envelope = message->envelope;
  request.source = message->source;
  request.received_tag = envelope.tag;
  Incoming* rest =
      message->complete ? nullptr : &incoming_[static_cast<size_t>(message->source)];  // of it is on its way
  if (!request.data) {
    if (rest) {
      rest->request = &request;
      static_cast<void>(message.release());  // still `rest->message`
    } else {
      request.message = std::move(message);
      complete(request, own);
    }
    return;
  }
  const bool fit = fits(request, envelope, std::string(message->text(), envelope.text), message->source);
  const size_t arrived = rest ? rest->arrived : envelope.bytes;
  if (fit && arrived) std::memcpy(request.data, message->data(), arrived);
  if (rest) {
    rest->message = nullptr;
    rest->target = fit ? request.data : nullptr;
    rest->request = &request;  // if it does not fit, until the rest has run past
  } else {
    complete(request, own);
  }
}

// A send to this rank itself.
void Messages::deliver_here(Request& request, const Request* own) {
  const Envelope envelope = envelope_of(request, 0);
  Request* taker = posted_.take([&](const Request& r) { return matches(r, rank_, envelope.tag); });
  if (taker) {
    taker->source = rank_;
    taker->received_tag = envelope.tag;
  }
  if (taker && taker->data) {
    if (fits(*taker, envelope, request.element->text, rank_) && envelope.bytes)
      std::memcpy(taker->data, request.data, envelope.bytes);
  } else {
    MessagePtr message(Message::make(envelope, rank_));
    const Error full(
        ErrorKind::transport,
        "no memory for a message of " + std::to_string(envelope.bytes) + " bytes to this rank itself", rank_);
    if (message) {
      std::copy_n(request.shape, envelope.axes, message->shape());
      std::copy_n(request.element->text.data(), envelope.text, message->text());
      if (envelope.bytes) std::memcpy(message->data(), request.data, envelope.bytes);
      message->complete = true;
    } else {
      request.error = full;
    }
    if (!taker)
      message ? unexpected_.push(message.release()) : void();
    else if (message)
      taker->message = std::move(message);
    else
      taker->error = full;
  }
  if (taker) complete(*taker, own);
  complete(request, own);
}

// The taker of a message gives it up: it becomes an unexpected one, the last of its stream.
void Messages::keep(int peer, Incoming& in) {
  in.request = nullptr;
  if (!in.message) {
    in.message = Message::make(in.envelope, peer);
    if (in.message) {
      std::memcpy(in.message->shape(), in.extras, in.envelope.extras());
      if (in.arrived) std::memcpy(in.message->data(), in.target, in.arrived);
    } else {
      group_.poison(ErrorKind::transport);  // a message is lost
    }
  }
  in.target = in.message ? in.message->data() : nullptr;
  if (in.message) unexpected_.push(in.message);
}

void Messages::complete(Request& request, const Request* own) {
  const bool others = &request != own;
  const std::shared_ptr<Request> self = std::move(request.self);
  if (self) open_.fetch_sub(1);
  request.done.store(true, std::memory_order_release);  // from here on its owner may have left with it
  if (others) ring(group_.control(rank_));
}

}  // namespace pc
