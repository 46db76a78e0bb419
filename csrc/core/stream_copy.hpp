// Copies of messages: past the caches, for memory that this core will not read again soon; and through them.
//
// An ordinary store first fetches the line, from memory or out of the cache of the core that read it last, and keeps it.
// A streaming store sends whole lines away without having them: it saves the fetch, and a reader finds the data in memory.
#pragma once

#include <cstddef>

namespace pc {

#if defined(__x86_64__)
inline constexpr bool kStreams = true;
#else
inline constexpr bool kStreams = false;  // stream_copy is memcpy, flush_line does nothing
#endif

// Like memcpy.
void stream_copy(void* to, const void* from, size_t bytes);

// Like memcpy, by vector registers at any length. memcpy takes `rep movsb` for long copies; a message that was read by it
// takes its writer twice as long to write the next time (AMD Zen 4, both cores on one last-level cache).
void vector_copy(void* to, const void* from, size_t bytes);

// The same for what a core that shares no cache with this one has written: four stretches in turns, since the processor
// fetches ahead within a page only, and so has more lines on their way.
void stream_copy_far(void* to, const void* from, size_t bytes);
void vector_copy_far(void* to, const void* from, size_t bytes);

// Streaming stores are not ordered by a release store: this comes between them and the store that tells of them.
void stream_fence();

// Sends the line at `address` from all caches to memory, and waits for it.
void flush_line(const void* address);

}  // namespace pc
