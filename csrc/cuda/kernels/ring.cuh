// A ring all-reduce written by hand over protocol Simple, to compare the interpreter with (bench/gpu): the same messages in the same
// order as the plan of the schedule `ring`, but nothing is looked up.
//
//     step 0              send my chunk to the right
//     1 ... P-2           add mine to the chunk from the left, pass it on
//     P-1                 add mine: that is the sum; keep it, pass it on
//     P ... 2P-3          keep the chunk from the left, pass it on
//     2P-2                keep it
//
// Block b does every blocks-th slice of all chunks, from the first step to the last.
#pragma once

#include "cuda/kernels/local.cuh"
#include "cuda/kernels/protocols.cuh"
#include "cuda/kernels/reducers.cuh"

namespace pc::cuda {

template <class R>
class Ring {
  static constexpr uint32_t kUnroll = R::kUnroll;

 public:
  PC_DEVICE explicit Ring(const Call& call)
      : call_(call), thread_(call), reducer_(call.dtype, call.op), rank_(call.rank), size_(call.size) {}

  PC_DEVICE void run() {
    right_ = (rank_ + 1) % size_;
    left_ = (rank_ + size_ - 1) % size_;
    sent_ = counters()[right_].sent;
    received_ = counters()[left_].received;
    stamp_ = (call_.fingerprint + *calls() * 0x9e3779b97f4a7c15u) * 0xd6e8feb86659fd93u;
    for (uint32_t slice = blockIdx.x; slice < call_.slices; slice += gridDim.x) {
      begin_ = uint64_t{slice} * call_.slice_elements;
      for (uint32_t step = 0; step < 2 * size_ - 1; ++step)
        if (!execute(step)) return;
    }
    if (threadIdx.x == 0 && !mutant(kCountersNotSaved)) {  // all have read them: there was a step
      counters()[right_].sent = sent_;
      counters()[left_].received = received_;
      ++*calls();
    }
  }

 private:
  // -- the memory of the two connections ---------------------------------------------------------------------------------

  PC_DEVICE const Mailbox& mailbox() const {
    return call_.segment.mailbox[static_cast<uint32_t>(Simple::kind)];
  }
  PC_DEVICE uint64_t index(uint32_t peer) const { return uint64_t{peer} * call_.segment.blocks + blockIdx.x; }
  PC_DEVICE char* slot(uint32_t owner, uint32_t source, uint64_t number) const {
    const uint64_t i = index(source) * call_.segment.depth + number % call_.segment.depth;
    return call_.segments[owner] + mailbox().slots + i * mailbox().slot_bytes;
  }
  PC_DEVICE uint64_t* cell(uint32_t owner, uint32_t source, uint64_t number) const {
    return reinterpret_cast<uint64_t*>(call_.segments[owner] + mailbox().cells + index(source) * kLineBytes) +
           number % call_.segment.depth;
  }
  PC_DEVICE uint64_t* credit(uint32_t owner, uint32_t reader) const {
    return reinterpret_cast<uint64_t*>(call_.segments[owner] + mailbox().credits +
                                       index(reader) * kLineBytes);
  }
  PC_DEVICE Counter* counters() const {
    return reinterpret_cast<Counter*>(call_.segments[rank_] + mailbox().counters) +
           uint64_t{blockIdx.x} * size_;
  }
  PC_DEVICE uint64_t* calls() const {
    return reinterpret_cast<uint64_t*>(call_.segments[rank_] + call_.segment.calls) + blockIdx.x;
  }

  // -- a step ------------------------------------------------------------------------------------------------------------

  // False when the communicator has been aborted.
  PC_DEVICE bool execute(uint32_t step) {
    const bool sends = step < 2 * size_ - 2, receives = step > 0;
    const bool adds = receives && step < size_, keeps = step >= size_ - 1;
    sent_ += sends;
    received_ += receives;
    if (sends && threadIdx.x == 0 && sent_ > call_.segment.depth && !mutant(kNoCreditWait)) {
      const uint64_t needed = sent_ - call_.segment.depth;
      while (Simple::credit(credit(rank_, right_)) < needed)
        if (!thread_.wait("credit", static_cast<int>(right_), needed)) break;
    }
    if (receives && threadIdx.x == blockDim.x - 1)
      Simple::await(thread_, cell(rank_, left_, received_), Simple::flag(call_, received_, stamp_),
                    static_cast<int>(left_));
    if (mutant(kNoBarrierBeforeWork) ? thread_.aborted : __syncthreads_or(thread_.aborted)) return false;
    work((rank_ + 2 * size_ - step) % size_, sends, receives, adds, keeps);
    if (mutant(kNoBarrierAfterWork) ? thread_.aborted : __syncthreads_or(thread_.aborted)) return false;
    if (sends && threadIdx.x == 0)
      Simple::publish(cell(right_, rank_, sent_), Simple::flag(call_, sent_, stamp_));
    if (receives && threadIdx.x == blockDim.x - 1 && !mutant(kCreditNeverGiven))
      Simple::give_credit(credit(left_, rank_), received_, false);
    return true;
  }

  PC_DEVICE void work(uint32_t chunk, bool sends, bool receives, bool adds, bool keeps) {
    const DeviceRef ref = call_.refs[chunk];
    const uint64_t left = ref.length > begin_ ? ref.length - begin_ : 0;
    const auto count = static_cast<uint32_t>(left < call_.slice_elements ? left : call_.slice_elements);
    const uint32_t item = kVectorBytes / R::kGroup, groups = (count + R::kGroup - 1) / R::kGroup;
    const char* in = call_.base[static_cast<uint32_t>(Where::data_in)] + ref.offset + begin_ * item;
    char* out = call_.base[static_cast<uint32_t>(Where::data_out)] + ref.offset + begin_ * item;
    char *to = slot(right_, rank_, sent_), *from = slot(rank_, left_, received_);
    const auto bytes_of = [&](uint32_t g) {
      return g >= groups ? 0 : g + 1 < groups ? kVectorBytes : (count - g * R::kGroup) * item;
    };
    PC_ROLL
    for (uint32_t first = threadIdx.x; first < groups; first += blockDim.x * kUnroll) {
      Vector v[kUnroll];
      PC_UNROLL
      for (uint32_t u = 0; u < kUnroll; ++u) {
        const uint32_t g = first + u * blockDim.x, bytes = bytes_of(g);
        if (!bytes) continue;
        v[u] = receives ? load_vector(from + uint64_t{g} * kVectorBytes)
                        : load_bytes(in + uint64_t{g} * kVectorBytes, bytes);
      }
      if (adds) {
        PC_UNROLL
        for (uint32_t u = 0; u < kUnroll; ++u) {
          const uint32_t g = first + u * blockDim.x, bytes = bytes_of(g);
          if (!bytes) continue;
          typename R::Acc acc;
          reducer_.read(acc, v[u], false, 0);
          reducer_.combine(acc, load_bytes(in + uint64_t{g} * kVectorBytes, bytes), false, 0);
          v[u] = reducer_.write(acc, false, 0);
        }
      }
      PC_UNROLL
      for (uint32_t u = 0; u < kUnroll; ++u) {
        const uint32_t g = first + u * blockDim.x, bytes = bytes_of(g);
        if (!bytes) continue;
        if (keeps) store_bytes(out + uint64_t{g} * kVectorBytes, v[u], bytes);
        if (sends) store_vector(to + uint64_t{g} * kVectorBytes, v[u]);
      }
    }
  }

  const Call& call_;
  Thread<Call> thread_;
  R reducer_;
  const uint32_t rank_, size_;
  uint32_t right_ = 0, left_ = 0;
  uint64_t sent_ = 0, received_ = 0, stamp_ = 0, begin_ = 0;
};

template <class R>
PC_KERNEL(kThreads)
void ring(PC_PARAMETER Call call) {
  Ring<R>(call).run();
}

}  // namespace pc::cuda
