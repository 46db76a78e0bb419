// Single copy: a rank reads a message where it lies in the sender's own memory. The kernel copies it (process_vm_readv), so it
// is not written into a slot first:
//
//     through a slot      sender's array -> slot -> receiver's array      two copies, one by each
//     single copy         sender's array ---------> receiver's array      one, by the receiver; pages are looked up one by one
//
// Whether the kernel allows it is found out when ranks meet: each publishes where a secret lies, and the others read it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pc {

// Where a system asks for it (Yama), allows the processes that were started by the same parent to read this one's memory.
void allow_siblings_to_read();

// Copies bytes of another process. Returns 0, or the number of the error.
int read_memory(int pid, const void* there, void* here, size_t bytes);

uint64_t random_number();

}  // namespace pc
