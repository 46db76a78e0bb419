// Messages by MPI alone, from and to memory that only MPI may touch: device memory, where the library takes its pointers.
//
// All messages of one exchange are posted at once; the ranks of a communicator make their exchanges in the same order, so one tag
// serves them all. Whoever waits also hears of failures: the mail of the mirror moves meanwhile.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "mpi/library.hpp"

namespace pc {

class Group;

class DirectExchange {
 public:
  struct Message {
    int peer;
    uint64_t address, bytes;
  };

  // `world[r]`: rank r's rank in the MPI communicator `comm`, in which `tag` is this group's.
  DirectExchange(Group& group, std::shared_ptr<const mpi::Library> library, uint64_t comm,
                 std::vector<int> world, int tag);
  ~DirectExchange();  // gives up
  DirectExchange(const DirectExchange&) = delete;

  // Posts them; all earlier ones are over. Empty messages are none. Throws Error(transport, peer).
  void start(const std::vector<Message>& receives, const std::vector<Message>& sends);
  // Moves them; false if some are still on their way after `ns`. Throws Error(transport, peer, and what has ended the group).
  bool wait(uint64_t ns);
  // Ends what is still on its way, after an error: what comes later finds no memory to be written to. Where MPI does not let go of
  // it in a fraction of a second, that memory has to stay.
  void give_up() noexcept;

 private:
  struct Posted {
    mpi::Request request;
    int peer;
    bool sends;
  };
  [[noreturn]] void fail(const Posted& posted, int code);

  Group& group_;
  const std::shared_ptr<const mpi::Library> library_;
  const uint64_t comm_;
  const std::vector<int> world_;
  const int tag_;
  std::unique_ptr<std::deque<Posted>> posted_;  // left behind where MPI does not let go of them
  uint64_t lost_since_ = 0;                     // when a rank that is needed was first seen to be gone
  std::vector<mpi::Request*> active_;
  std::vector<Posted*> owners_;
};

}  // namespace pc
