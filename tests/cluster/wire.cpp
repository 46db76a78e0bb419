// A switch in user space whose cables have a delay, a rate and a loss, for kernels without netem.
//
//     wire DELAY_US MBIT_PER_S LOSS_PPM INTERFACE...          0: no delay, no limit, no loss
//
// It learns which address is behind which interface, as a switch does. A frame takes
//
//     the sender's cable     as soon as it is free, bytes / rate long; it waits without limit, as in its own host
//     the receiver's cable   likewise, at the same time (cut through); it is dropped if it had to wait longer than
//                            kLongestQueue
//     the delay
//
// Frames come as large as the hosts make them (up to 64 KiB, to be cut by a card that does not exist), so a loss takes
// more than one packet of 1500 bytes. The loss is pseudo-random from a fixed seed.
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/if_ether.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

namespace {

constexpr uint64_t kLongestQueue = 60'000'000;  // ns
constexpr int kAtOnce = 64;                     // frames from one port before the others' turn
constexpr size_t kLongestFrame = 80'000;
constexpr size_t kPreface =
    10;  // bytes of virtio_net_hdr, whose header is not C++: what a card has still to do

uint64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

struct Port {
  int socket;
  uint64_t in_free = 0, out_free = 0;  // when the cable from its host, and to it, is free again
};

struct Frame {
  uint64_t due, order;
  size_t port;
  std::shared_ptr<std::vector<char>> bytes;
  bool operator<(const Frame& other) const { return std::tie(due, order) > std::tie(other.due, other.order); }
};

void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

int open_port(const char* name) {
  const int made = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL));
  if (made < 0) fail("socket");
  const int on = 1, memory = 64 << 20;
  sockaddr_ll place{};
  place.sll_family = AF_PACKET;
  place.sll_protocol = htons(ETH_P_ALL);
  place.sll_ifindex = static_cast<int>(if_nametoindex(name));
  packet_mreq everything{};
  everything.mr_ifindex = place.sll_ifindex;
  everything.mr_type = PACKET_MR_PROMISC;
  if (!place.sll_ifindex || setsockopt(made, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) ||
      setsockopt(made, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) ||
      setsockopt(made, SOL_SOCKET, SO_RCVBUFFORCE, &memory, sizeof memory) ||
      setsockopt(made, SOL_SOCKET, SO_SNDBUFFORCE, &memory, sizeof memory) ||
      setsockopt(made, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &everything, sizeof everything) ||
      bind(made, reinterpret_cast<sockaddr*>(&place), sizeof place))
    fail(name);
  return made;
}

class Switch {
 public:
  Switch(uint64_t delay_ns, double ns_per_byte, uint32_t loss_ppm, std::vector<Port> ports)
      : delay_(delay_ns), ns_per_byte_(ns_per_byte), loss_ppm_(loss_ppm), ports_(std::move(ports)) {}

  [[noreturn]] void run() {
    std::vector<pollfd> watched;
    for (const Port& port : ports_) watched.push_back({port.socket, POLLIN, 0});
    for (;;) {
      deliver();
      timespec nap{1, 0};
      if (!waiting_.empty()) {
        const uint64_t now = now_ns(), due = waiting_.top().due, left = due > now ? due - now : 0;
        nap = {static_cast<time_t>(left / 1'000'000'000u), static_cast<long>(left % 1'000'000'000u)};
      }
      if (ppoll(watched.data(), watched.size(), &nap, nullptr) <= 0) continue;
      for (size_t i = 0; i < ports_.size(); ++i)
        if (watched[i].revents & POLLIN) take(i);
    }
  }

 private:
  void deliver() {
    for (const uint64_t now = now_ns(); !waiting_.empty() && waiting_.top().due <= now; waiting_.pop()) {
      const Frame& frame = waiting_.top();
      static_cast<void>(send(ports_[frame.port].socket, frame.bytes->data(), frame.bytes->size(), 0));
    }
  }

  void take(size_t from) {
    static char buffer[kLongestFrame];
    for (int i = 0; i < kAtOnce; ++i) {
      const ssize_t got = recv(ports_[from].socket, buffer, sizeof buffer, 0);
      if (got <= static_cast<ssize_t>(kPreface + 2 * ETH_ALEN)) return;
      if (loss_ppm_ && random_() % 1'000'000 < loss_ppm_) continue;
      uint64_t target = 0, source = 0;
      std::memcpy(&target, buffer + kPreface, ETH_ALEN);
      std::memcpy(&source, buffer + kPreface + ETH_ALEN, ETH_ALEN);
      behind_[source] = from;
      const auto known = behind_.find(target);
      const bool to_all = known == behind_.end() || buffer[kPreface] & 1;
      const auto bytes = std::make_shared<std::vector<char>>(buffer, buffer + got);
      const auto length = static_cast<uint64_t>(ns_per_byte_ * static_cast<double>(bytes->size() - kPreface));
      const uint64_t sent = ports_[from].in_free = std::max(now_ns(), ports_[from].in_free) + length;
      for (size_t to = 0; to < ports_.size(); ++to) {
        if (to == from || (!to_all && known->second != to)) continue;
        uint64_t& free = ports_[to].out_free;
        const uint64_t arrives = std::max(sent, free + length);
        if (arrives > sent + kLongestQueue) continue;  // dropped
        free = arrives;
        waiting_.push({arrives + delay_, order_++, to, bytes});
      }
    }
  }

  const uint64_t delay_;
  const double ns_per_byte_;
  const uint32_t loss_ppm_;
  std::vector<Port> ports_;
  std::map<uint64_t, size_t> behind_;  // the port behind which an address is
  std::priority_queue<Frame> waiting_;
  uint64_t order_ = 0;
  std::mt19937 random_{1};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: wire DELAY_US MBIT_PER_S LOSS_PPM INTERFACE...\n");
    return 2;
  }
  prctl(PR_SET_PDEATHSIG, 9);
  prctl(PR_SET_TIMERSLACK, 1);
  const double rate = std::atof(argv[2]);
  std::vector<Port> ports;
  for (int i = 4; i < argc; ++i) ports.push_back({open_port(argv[i])});
  std::printf("ready\n");
  std::fflush(stdout);
  Switch(std::strtoull(argv[1], nullptr, 10) * 1000, rate > 0 ? 8000 / rate : 0,
         static_cast<uint32_t>(std::strtoul(argv[3], nullptr, 10)), std::move(ports))
      .run();
}
