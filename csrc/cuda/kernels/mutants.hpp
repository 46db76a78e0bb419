// Pieces of synchronisation that a test of the tests removes from the kernels on the emulated device, one at a time: each must be
// missed by some test (tests/emulator/test_mutants.py). For nvcc, mutant(x) is the constant false.
#pragma once

#include <iterator>

namespace pc::cuda {

enum Mutant : int {
  kNone,
  kNoCreditWait,         // a slot is overwritten before it was read
  kCreditNotAcquired,    // the sender's writes may overtake the credit
  kCreditNotReleased,    // the credit may overtake the receiver's reads
  kCreditNeverGiven,     // the sender waits for ever
  kCreditTooEarly,       // given before the data were read
  kCellNotReleased,      // the cell may overtake the data
  kCellNotAcquired,      // the receiver's reads may overtake the cell
  kCellGpuScope,         // released to the own device only
  kNoBarrierBeforeWork,  // threads start before the slot is there
  kNoBarrierAfterWork,   // the slot is published or given back while threads still work
  kCellConstant,         // the cell does not say which message it is
  kCellNotChecked,       // Simple: the fingerprint is not looked at
  kFirstFlagUnchecked,   // LL: half a line is trusted
  kSecondFlagUnchecked,
  kFlagConstant,       // LL, LL128: an old line passes for a new one
  kFlagWithoutCall,    // LL, LL128: the fingerprint is not looked at
  kNoWipe,             // LL: a line of an earlier lap passes for a new one
  kWipeNotReleased,    // LL: a wipe may overtake the next message
  kLineFlagUnchecked,  // LL128: the first line of the pair is trusted
  kNoVote,             // LL128: lanes do not wait for the flags of others
  kNoSplit,            // LL128: the vector between two lines is not put together
  kCountersNotSaved,   // the next call starts with old numbers
  kEndMovesOn,         // the ends of a connection go from thread to thread
  kGateBeforeWork,     // native kernels: a block comes to a gate while its threads still work
  kGateNotReleased,    // the gate may overtake what was written before it
  kGateNotAcquired,    // what is read behind it may overtake the gate
  kGateNotAwaited,     // nobody waits at the second gate
  kGateNotChecked,     // the fingerprint is not looked at
  kNoAliasFence,       // multicast: what was accessed by one address is not ordered for the other
  kPlacesNotCompared,  // multicast: each rank takes its own array's place for everybody's
  kGateNotOpenedAgain,  // multicast: places differ, and nobody waits for the copies of those who had hoped they would not
  kNoBarrierAtBegin,         // threads look for the numbers of messages before they are there
  kNoBarrierInWipe,          // LL: lines are cleared that others have not read
  kSecondLineFlagUnchecked,  // LL128: the second line of the pair is trusted
  kGateGpuScope,             // native kernels: a gate is released to the own device only
  kNoBarrierBehindGate,      // threads work before others have seen the gates that they look after
  kInputsComparedAlone,  // multicast: each thread decides by what it has seen itself whether inputs are at one place
  kOutputsComparedAlone,  // the same of outputs
  kNoBarrierBehindPart,   // several ranks in one grid: threads begin before their rank's call is there
  kAbortIgnored,          // nobody looks at the word by which ranks end each other
  kHostAbortIgnored,      // nor at the one by which the host ends its rank
  kMutants
};

inline constexpr const char* kMutantNames[] = {
    "none",
    "no_credit_wait",
    "credit_not_acquired",
    "credit_not_released",
    "credit_never_given",
    "credit_too_early",
    "cell_not_released",
    "cell_not_acquired",
    "cell_gpu_scope",
    "no_barrier_before_work",
    "no_barrier_after_work",
    "cell_constant",
    "cell_not_checked",
    "first_flag_unchecked",
    "second_flag_unchecked",
    "flag_constant",
    "flag_without_call",
    "no_wipe",
    "wipe_not_released",
    "line_flag_unchecked",
    "no_vote",
    "no_split",
    "counters_not_saved",
    "end_moves_on",
    "gate_before_work",
    "gate_not_released",
    "gate_not_acquired",
    "gate_not_awaited",
    "gate_not_checked",
    "no_alias_fence",
    "places_not_compared",
    "gate_not_opened_again",
    "no_barrier_at_begin",
    "no_barrier_in_wipe",
    "second_line_flag_unchecked",
    "gate_gpu_scope",
    "no_barrier_behind_gate",
    "inputs_compared_alone",
    "outputs_compared_alone",
    "no_barrier_behind_part",
    "abort_ignored",
    "host_abort_ignored",
};
static_assert(std::size(kMutantNames) == kMutants);

}  // namespace pc::cuda
