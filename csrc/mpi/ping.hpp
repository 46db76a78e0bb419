// Ping-pong: the yardstick of the transport, and the transport itself. Rank `rank` < `peer` begins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "mpi/library.hpp"

namespace pc {

class Group;

namespace mpi {

// By MPI alone: MPI_Isend, MPI_Irecv and MPI_Test.
double round_trips(const Library& library, uint64_t comm, int rank, int peer, int tag, size_t bytes,
                   uint64_t turns);

}  // namespace mpi

// By a mirror, in the last lane, which no plan may use meanwhile. Both ranks measure in turn with the same arguments.
class MirrorPing {
 public:
  MirrorPing(Group& group, int peer);
  double round_trips(size_t bytes, uint64_t turns, double timeout);

 private:
  void send(size_t bytes);
  void receive(uint64_t until);

  Group& group_;
  const int peer_;
  uint64_t sent_ = 0, received_ = 0;
  std::vector<std::byte> payload_;
};

}  // namespace pc
