// Point-to-point messages between ranks that are threads.
#include "commands.hpp"
#include "ranks.hpp"
#include "shm/messages.hpp"

namespace pc::test {
namespace {

const Element kBytes{static_cast<uint8_t>(DType::uint8), ""};

// The n-th message from one rank to another, the same for both.
std::vector<std::byte> content(int from, int to, int n) {
  Dice dice(static_cast<uint64_t>(from * 1009 + to * 31 + n));
  std::vector<std::byte> data(dice(3) == 0 ? dice(200'000) : dice(300));
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<std::byte>(i * 7 + static_cast<size_t>(from + n));
  return data;
}

std::shared_ptr<Request> to(int peer, int n, std::vector<std::byte>& data) {
  auto request = std::make_shared<Request>();
  request->sends = true;
  request->peer = peer;
  request->tag = n;
  request->data = data.data();
  request->bytes = request->count = data.size();
  request->element = &kBytes;
  request->axes = 1;
  request->shape[0] = data.size();
  request->timeout_ns = 60 * kSecond;
  return request;
}

void talk(Messages& messages, int rank, int size, int times, uint64_t seed) {
  Dice dice(seed * 100 + static_cast<uint64_t>(rank));
  std::vector<std::vector<std::byte>> data;
  std::vector<std::shared_ptr<Request>> sent;
  data.reserve(static_cast<size_t>(times * size));
  for (int n = 0; n < times; ++n) {
    for (int peer = 0; peer < size; ++peer) {
      data.push_back(content(rank, peer, n));
      auto request = to(peer, n, data.back());
      if (dice(2) || peer == rank) {
        messages.submit(request);
        sent.push_back(std::move(request));
      } else {
        messages.send(*request);
      }
    }
    for (int k = 0; k < size; ++k) {
      Request request;
      request.tag = n;
      request.peer = dice(2) ? kAny : -1;
      request.timeout_ns = 60 * kSecond;
      messages.receive(request);
      const auto want = content(request.source, rank, n);
      require(request.message && request.message->envelope.bytes == want.size() &&
                  std::equal(want.begin(), want.end(), request.message->data()),
              "a message has changed on its way");
    }
  }
  for (auto& request : sent) messages.wait(*request, 60 * kSecond);
}

}  // namespace

void run_messages(uint64_t seed, int times) {
  for (int size : {2, 3}) {
    World world(size);
    std::vector<std::unique_ptr<Messages>> ends;
    for (auto& end : world.ends) ends.push_back(std::make_unique<Messages>(end->group(), patience()));
    on_ranks(size, seed, [&](int rank) { talk(*ends[static_cast<size_t>(rank)], rank, size, times, seed); });
  }
}

}  // namespace pc::test
