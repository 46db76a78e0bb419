// Copies past the caches, for memory that this core will not read again soon.
//
// An ordinary store first fetches the line, from memory or out of the cache of the core that read it last, and keeps it.
// A streaming store sends whole lines away without having them: it saves the fetch, and a reader finds the data in memory.
#pragma once

#include <cstddef>

namespace pc {

// Like memcpy. Ordinary stores where the processor has no others.
void stream_copy(void* to, const void* from, size_t bytes);

// Streaming stores are not ordered by a release store: this comes between them and the store that tells of them.
void stream_fence();

}  // namespace pc
