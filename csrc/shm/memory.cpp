#include "shm/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
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

std::byte* map(int fd, size_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED)
    throw Error(ErrorKind::transport, std::string("mmap of shared memory: ") + std::strerror(errno));
  madvise(address, bytes, MADV_DONTFORK);
  return static_cast<std::byte*>(address);
}

}  // namespace

size_t available_memory() {
  constexpr size_t unlimited = std::numeric_limits<size_t>::max();
  const size_t kib = read_number("/proc/meminfo", "MemAvailable:", unlimited);
  size_t available = kib == unlimited ? kib : kib * 1024;
  const size_t limit =
      read_number("/sys/fs/cgroup/memory.max", "", unlimited);  // "max" has no digits: unlimited
  const size_t used = read_number("/sys/fs/cgroup/memory.current", "", 0);
  if (limit != unlimited) available = std::min(available, limit > used ? limit - used : 0);
  return available;
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
  const size_t available = available_memory();
  const auto refuse = [&](const char* why) {
    throw Error(ErrorKind::transport, std::string("no memory for ") + name + ": needs " +
                                          std::to_string(bytes) + " bytes, " + std::to_string(available) +
                                          " are available" + why);
  };
  if (bytes > available) refuse("");
  Mapping made;
  made.fd_ = memfd_create(name, MFD_CLOEXEC);
  if (made.fd_ < 0) throw Error(ErrorKind::transport, std::string("memfd_create: ") + std::strerror(errno));
  // fallocate, not ftruncate alone: the pages are there now, or never; a later SIGBUS is impossible.
  int status;
  do {
    status = fallocate(made.fd_, 0, 0, static_cast<off_t>(bytes));
  } while (status != 0 && errno == EINTR);
  if (status != 0) refuse((std::string(" (") + std::strerror(errno) + ")").c_str());
  Mapping mapped(map(made.fd_, bytes), bytes);
  mapped.fd_ = std::exchange(made.fd_, -1);
  return mapped;
}

Mapping Mapping::alone(size_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) throw Error(ErrorKind::transport, std::string("mmap: ") + std::strerror(errno));
  return Mapping(static_cast<std::byte*>(address), bytes);
}

Mapping Mapping::attach(int fd, size_t bytes) {
  struct stat status{};
  if (fstat(fd, &status) != 0 || static_cast<size_t>(status.st_size) < bytes)
    throw Error(ErrorKind::transport, "a peer's shared memory is smaller than agreed");
  return Mapping(map(fd, bytes), bytes);
}

}  // namespace pc
