#include "shm/recorder.hpp"

#include <algorithm>

#include "core/dtype.hpp"
#include "core/verbs.hpp"
#include "shm/wait.hpp"

namespace pc {

std::string RecordedCall::text() const {
  if (!kind) return "a call that is not known any more";
  std::string result = verb_name(kind->verb);
  result += "(";
  if (kind->verb != kBarrier) {
    result += kind->dtype < dtype_count ? name(static_cast<DType>(kind->dtype)) : "?";
    result += "[" + std::to_string(kind->count) + "]";
    if (kind->op < kOpNames.size()) result += std::string(", ") + kOpNames[kind->op];
    if (kind->op == kUserOp) result += std::string(", ") + kind->user_op;
    if (kind->root >= 0) result += ", root=" + std::to_string(kind->root);
    if (kind->deterministic) result += ", deterministic";
  }
  return result + ")";
}

std::optional<RecordedCall> read_call(const Recorder& recorder, uint64_t sequence) {
  const Record& record = recorder.records[sequence % kRecords];
  if (!sequence || record.sequence.load(std::memory_order_acquire) != sequence) return std::nullopt;
  RecordedCall call{sequence,
                    record.fingerprint.load(std::memory_order_relaxed),
                    record.started.load(std::memory_order_relaxed),
                    record.ended.load(std::memory_order_relaxed),
                    record.state.load(std::memory_order_acquire),
                    recorder.kinds.find(record.kind.load(std::memory_order_relaxed)),
                    {}};
  if (const auto site = recorder.sites.find(record.site.load(std::memory_order_relaxed)))
    call.site.assign(site->text, strnlen(site->text, sizeof site->text));
  std::atomic_thread_fence(std::memory_order_acquire);
  if (record.sequence.load(std::memory_order_relaxed) != sequence) return std::nullopt;
  if (call.kind) {  // whatever is in the memory of a rank that has gone wild
    call.kind->algorithm[sizeof call.kind->algorithm - 1] = '\0';
    call.kind->user_op[sizeof call.kind->user_op - 1] = '\0';
  }
  return call;
}

CallLetter pack_call(const Recorder& recorder, uint64_t sequence) {
  const Record& record = recorder.records[sequence % kRecords];
  CallLetter letter{};
  letter.sequence = record.sequence.load(std::memory_order_acquire);
  letter.fingerprint = record.fingerprint.load(std::memory_order_relaxed);
  letter.state = record.state.load(std::memory_order_relaxed);
  if (const auto kind = recorder.kinds.find(record.kind.load(std::memory_order_relaxed))) letter.kind = *kind;
  if (const auto site = recorder.sites.find(record.site.load(std::memory_order_relaxed))) letter.site = *site;
  return letter;
}

void unpack_call(Recorder& mirror, const CallLetter& letter) {
  Record& record = mirror.records[letter.sequence % kRecords];
  record.sequence.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  record.fingerprint.store(letter.fingerprint, std::memory_order_relaxed);
  record.kind.store(mirror.kinds.add(letter.kind), std::memory_order_relaxed);
  record.site.store(letter.site.text[0] ? mirror.sites.add(letter.site) : 0, std::memory_order_relaxed);
  record.started.store(ticks(), std::memory_order_relaxed);  // the clocks of two hosts have nothing in common
  record.ended.store(ticks(), std::memory_order_relaxed);
  record.state.store(letter.state, std::memory_order_relaxed);
  record.sequence.store(letter.sequence, std::memory_order_release);
}

std::string awaited_message(const Recorder& recorder) {
  const auto text = recorder.waits.find(recorder.waits_for.load(std::memory_order_acquire));
  return text ? std::string(text->text, strnlen(text->text, sizeof text->text)) : "";
}

uint64_t last_sequence(const Recorder& recorder) {
  uint64_t last = 0;
  for (const Record& record : recorder.records)
    last = std::max(last, record.sequence.load(std::memory_order_acquire));
  return last;
}

}  // namespace pc
