#include "shm/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "core/error.hpp"

namespace pc {
namespace {

// The number that follows `key` in a file of the proc file system, or `fallback`.
size_t read_number(const char* path, const char* key, size_t fallback) {
  FILE* file = std::fopen(path, "re");
  if (!file) return fallback;
  size_t value = fallback;
  char line[256];
  while (std::fgets(line, sizeof line, file)) {
    if (std::strncmp(line, key, std::strlen(key)) != 0) continue;
    const char* digits = line + std::strlen(key);
    char* end = nullptr;
    const unsigned long long number = std::strtoull(digits, &end, 10);
    if (end != digits) value = number;
    break;
  }
  std::fclose(file);
  return value;
}

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();

// What the control group `path` in the hierarchy at `root`, and those around it, leave: the least room of all.
// Files that only keep the cache warm do not count as used. A path from outside a container is not found, but its root is.
size_t group_room(const std::string& root, std::string path, const char* limit, const char* usage,
                  const char* idle) {
  size_t room = kUnlimited;
  for (;;) {
    const std::string folder = root + (path == "/" ? "" : path) + "/";
    const size_t most =
        read_number((folder + limit).c_str(), "", kUnlimited);  // "max" has no digits: unlimited
    if (most != kUnlimited) {
      const size_t used = read_number((folder + usage).c_str(), "", 0);
      const size_t cache = read_number((folder + "memory.stat").c_str(), idle, 0);
      room = std::min(room, most - std::min(most, used - std::min(used, cache)));
    }
    if (path.empty() || path == "/") return room;
    path.resize(path.rfind('/'));
  }
}

// What the control groups of this process leave; both versions of them, wherever they are usually mounted.
size_t control_group_room() {
  FILE* file = std::fopen("/proc/self/cgroup", "re");
  if (!file) return kUnlimited;
  size_t room = kUnlimited;
  char line[4096];
  while (std::fgets(line, sizeof line, file)) {
    char* controllers = std::strchr(line, ':');
    char* path = controllers ? std::strchr(controllers + 1, ':') : nullptr;
    if (!path) continue;
    *path++ = '\0';
    path[std::strcspn(path, "\n")] = '\0';
    if (!*++controllers) {
      for (const char* root : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"})
        room = std::min(room, group_room(root, path, "memory.max", "memory.current", "inactive_file "));
    } else if (std::strstr(controllers, "memory")) {
      room = std::min(room, group_room("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes",
                                       "memory.usage_in_bytes", "total_inactive_file "));
    }
  }
  std::fclose(file);
  return room;
}

// What `ulimit -v` leaves of the address space.
size_t address_space_room() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  const size_t used = read_number("/proc/self/status", "VmSize:", 0) * 1024;
  return limit.rlim_cur - std::min<size_t>(limit.rlim_cur, used);
}

[[noreturn]] void refuse(size_t bytes, const std::string& what, const std::string& why) {
  throw Error(ErrorKind::transport, "no memory for " + what + ": needs " + std::to_string(bytes) +
                                        " bytes, " + std::to_string(available_memory()) + " are available" +
                                        why);
}

std::byte* map(int fd, size_t bytes, const char* what) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) refuse(bytes, what, std::string(" (mmap: ") + std::strerror(errno) + ")");
  madvise(address, bytes, MADV_DONTFORK);
  return static_cast<std::byte*>(address);
}

}  // namespace

void map_pages(std::byte* first, size_t bytes, bool to_write) {
#ifdef MADV_POPULATE_READ
  static_cast<void>(::madvise(first, bytes, to_write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ));
#endif
}

size_t available_memory() {
  const size_t kib = read_number("/proc/meminfo", "MemAvailable:", kUnlimited);
  return std::min({kib == kUnlimited ? kib : kib * 1024, control_group_room(), address_space_room()});
}

Mapping::Mapping(std::byte* data, size_t bytes) : data_(data), size_(bytes), process_(getpid()) {}

Mapping::Mapping(Mapping&& other) noexcept { *this = std::move(other); }

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
  std::swap(process_, other.process_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ && process_ == getpid()) munmap(data_, size_);
  close_fd();
}

void Mapping::close_fd() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Mapping Mapping::create(size_t bytes, const char* name) {
  if (bytes > available_memory()) refuse(bytes, name, "");
  Mapping made;
  made.fd_ = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (made.fd_ < 0) throw Error(ErrorKind::transport, std::string("memfd_create: ") + std::strerror(errno));
  // fallocate, not ftruncate alone: the pages are there now, or never; a later SIGBUS is impossible.
  int status;
  do {
    status = fallocate(made.fd_, 0, 0, static_cast<off_t>(bytes));
  } while (status != 0 && errno == EINTR);
  if (status != 0) refuse(bytes, name, std::string(" (") + std::strerror(errno) + ")");
  // Nobody who gets the descriptor can take the pages away.
  if (fcntl(made.fd_, F_ADD_SEALS, kSeals) != 0)
    throw Error(ErrorKind::transport, std::string("sealing of shared memory: ") + std::strerror(errno));
  Mapping mapped(map(made.fd_, bytes, name), bytes);
  mapped.fd_ = std::exchange(made.fd_, -1);
  return mapped;
}

Mapping Mapping::alone(size_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED)
    refuse(bytes, "pycollectives", std::string(" (mmap: ") + std::strerror(errno) + ")");
  return Mapping(static_cast<std::byte*>(address), bytes);
}

Mapping Mapping::attach(int fd, size_t bytes) {
  struct stat status{};
  if (fstat(fd, &status) != 0 || static_cast<size_t>(status.st_size) < bytes)
    throw Error(ErrorKind::transport, "a peer's shared memory is smaller than agreed");
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals)
    throw Error(ErrorKind::transport,
                "a peer's shared memory is not sealed: it might be cut while it is used");
  return Mapping(map(fd, bytes, "a peer's shared memory"), bytes);
}

}  // namespace pc
