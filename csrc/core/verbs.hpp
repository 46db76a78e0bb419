// The collectives by number, as they stand in fingerprints and records.
#pragma once

#include <array>
#include <cstdint>

namespace pc {

inline constexpr std::array kVerbs = {"all_reduce", "reduce", "reduce_scatter", "all_gather", "broadcast",
                                      "barrier",    "gather", "scatter",        "all_to_all", "scan",
                                      "exscan",     "empty",  "split",          "send",       "recv"};
inline constexpr uint16_t kBarrier = 5;       // has no data
inline constexpr uint16_t kAllToAll = 8;      // each block has one reader
inline constexpr int kSend = 13, kRecv = 14;  // for errors: messages have no fingerprints and no records

// The operators as the public interface names them: those of ReduceOp in its order, then the two derived from
// sum.
inline constexpr std::array kOpNames = {"sum",  "prod", "min", "max",  "band", "bor",
                                        "bxor", "land", "lor", "lxor", "avg",  "scaled_sum"};
inline constexpr uint8_t kUserOp = 254;  // RecordedKind::user_op has the name
inline constexpr uint8_t kNoOp = 255;

inline const char* verb_name(uint16_t verb) { return verb < kVerbs.size() ? kVerbs[verb] : "?"; }

}  // namespace pc
