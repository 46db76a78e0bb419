// Streams of point-to-point messages: a ring of bytes between two ranks that both walk round (stream.hpp). Here the ring has two
// bytes; a frame is several bytes and is published piece by piece.
#include "models.hpp"

namespace model {
namespace {

constexpr int kCapacity = 2;

// `total` bytes, `piece` at a time.
System build(const std::string& name, int total, int piece, const std::string& mutant) {
  System system;
  system.name = name;
  const int sent = system.atomic("sent"), taken = system.atomic("taken");
  int ring[kCapacity];
  for (int i = 0; i < kCapacity; ++i) ring[i] = system.data("byte" + std::to_string(i));
  const bool overfull = mutant == "one byte too many";
  Thread sender{"sender", {}}, receiver{"receiver", {}};
  for (int at = 0; at < total; at += piece) {
    if (mutant != "no look at taken")
      sender.await_least(taken, at + piece - kCapacity - overfull,
                         mutant == "taken loaded relaxed" ? Order::relaxed : Order::acquire);
    const Order order = mutant == "sent stored relaxed" ? Order::relaxed : Order::release;
    if (mutant == "published before written") sender.store(sent, at + piece, order);
    for (int i = at; i < at + piece; ++i) sender.write(ring[i % kCapacity], i + 1);
    if (mutant != "published before written") sender.store(sent, at + piece, order);
  }
  for (int at = 0; at < total; ++at) {
    receiver.await_least(sent, at + 1, mutant == "sent loaded relaxed" ? Order::relaxed : Order::acquire);
    const Order order = mutant == "taken stored relaxed" ? Order::relaxed : Order::release;
    if (mutant == "released before read") receiver.store(taken, at + 1, order);
    receiver.read(ring[at % kCapacity], at + 1);
    if (mutant != "released before read") receiver.store(taken, at + 1, order);
  }
  for (Thread* thread : {&sender, &receiver}) {
    thread->add({Kind::done});
    system.threads.push_back(std::move(*thread));
  }
  return system;
}

}  // namespace

std::vector<Model> stream_models() {
  const auto made = [](const char* name, int total, int piece) {
    return Model{
        name,
        {"no look at taken", "one byte too many", "published before written", "released before read",
         "sent stored relaxed", "sent loaded relaxed", "taken stored relaxed", "taken loaded relaxed"},
        [=](const std::string& mutant) { return build(name, total, piece, mutant); }};
  };
  return {made("a stream, byte by byte", 6, 1), made("a stream, two bytes at once", 8, 2)};
}

}  // namespace model
