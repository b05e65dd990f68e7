// Limits and rules that both ends of the scheduler's calls agree on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace sluice {

// How long a scheduler may be silent before its members give up. A scheduler that was paused for a
// few leases loses no member.
inline absl::Duration SchedulerPatience(absl::Duration lease) {
  return std::max(absl::Seconds(20), 4 * lease);
}

// The begin of the line with which a process says that its start is over. The person who has
// started it is told what it logs until then.
inline constexpr char kReadyMark[] = "ready: ";

// Metadata of a SubmitJob call: a number that the caller has drawn at random. A call that is
// repeated with it, because its answer was lost, returns the job of the first one.
inline constexpr char kRequestIdKey[] = "sluice-request-id";

// The limit of one message in either direction. limits.max_message_mib does not apply here: it is
// for the data plane and may be small. The largest message carries the sums of an evaluation, at
// most 2 x 2^20 bins of 11 bytes.
inline constexpr int kMaxControlMessageBytes = 64 << 20;

// A submitted job: its bytes on the wire, and what they may take once they are parsed. Vocabularies
// may have hundreds of thousands of values.
inline constexpr size_t kMaxJobBytes = size_t{16} << 20;
inline constexpr size_t kMaxJobParsedBytes = size_t{96} << 20;
// A short request must not take all that a long one may. A list of numbers takes up to 16 times its
// bytes; few objects of any kind fit into the rest.
inline size_t MaxParsedBytes(size_t most, size_t wire) {
  return std::min(most, (size_t{8} << 20) + 16 * wire);
}
inline size_t MaxJobParsedBytes(size_t wire) { return MaxParsedBytes(kMaxJobParsedBytes, wire); }

// Keys of one DeleteRowsRequest: 8 MB, which the scheduler sends to each pserver once.
inline constexpr int kMaxDeletedKeys = 1'000'000;

// The most bytes of PollRequest.hosted, which the scheduler keeps until the next report.
inline constexpr size_t kMaxHostedBytes = size_t{32} << 20;
// A worker's net_state (DenseNet::SaveState), which pservers and the scheduler keep for each rank.
// In sync each commit carries it. The state of a program is the largest one.
inline constexpr size_t kMaxNetStateBytes = (size_t{64} << 10) + 64;
// Names that a program gives to its own metrics of an evaluation, and to values of a step.
inline constexpr int kMaxUserMetrics = 64, kMaxLoggedValues = 16;
inline constexpr size_t kMaxUserNameBytes = 64;

// A scheduler with a state store begins its member ids with its term, so they grow from one
// scheduler to the next. Without a store nothing orders them, and this bit says so.
inline constexpr uint64_t kUnorderedMemberId = uint64_t{1} << 63;
// True when the scheduler that gave `id` is older than the one that gave `known`.
inline bool IsOlderMemberId(uint64_t id, uint64_t known) {
  return ((id | known) & kUnorderedMemberId) == 0 && id < known;
}

}  // namespace sluice
