// Bounds the requests of members, and makes their text safe to show.
//
// What a member says of itself is kept as long as it lives, and shown in logs, on terminals and on
// the scheduler's pages. So each string has a bound, and holds one printable line afterwards
// (PrintableLine). Identifiers that are too long are refused. Sentences, such as the reason of an
// error, are cut. Names of data files stay as they are, because they go back to members and are
// compared: whoever puts one into a sentence makes it printable there.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/scheduler.pb.h"

namespace sluice {

inline constexpr size_t kMaxIdentifierBytes = 256;
inline constexpr size_t kMaxSentenceBytes = 4096;  // also of a path
// Of each list of a request. Members have 4,096 steps to report at most (worker_stats.h), and no
// more jobs than the scheduler remembers.
inline constexpr int kMaxListed = 4096;
inline constexpr int kMaxDataFiles = 100'000;      // of each list of files; expand_files.h
inline constexpr int kMaxReportedRanks = 100'000;  // RankGroupReport.totals
// Of each list of a TraceBatch: the spans that a member keeps (TraceRecorder::kCapacity).
inline constexpr int kMaxReportedSpans = 65'536;
// Of each list of DataPieces. Readers make at most 2^18 pieces, and one of each file more.
inline constexpr int kMaxReportedPieces = 1 << 20;
inline constexpr int kMaxBins = 1 << 20;  // of each list of EvalSums; model/eval/eval_accumulator.h
// RankGroupReport.card; kMaxCardBytes in common/collective/rank_card.h.
inline constexpr size_t kMaxReportedCardBytes = 64 << 10;

// INVALID_ARGUMENT names the list, or the field of bytes, that is too long.
absl::Status CheckLists(const RegisterRequest& request);
absl::Status CheckLists(const PollRequest& request);
absl::Status CheckLists(const NextPhaseRequest& request);
absl::Status CheckLists(const GatherRequest& request);
// These have no lists.
inline absl::Status CheckLists(const LeaveRequest&) { return absl::OkStatus(); }
inline absl::Status CheckLists(const FailJobRequest&) { return absl::OkStatus(); }
inline absl::Status CheckLists(const EndJobRequest&) { return absl::OkStatus(); }
inline absl::Status CheckLists(const MemberEndedRequest&) { return absl::OkStatus(); }
inline absl::Status CheckLists(const NextTaskRequest&) { return absl::OkStatus(); }
inline absl::Status CheckLists(const GetRouteRequest&) { return absl::OkStatus(); }

// `text` as one printable line, cut when it is longer than a sentence may be.
std::string Sentence(absl::string_view text);
// The same, but keeps the ends of its lines: CleanText has indented those that a member wrote.
std::string SentenceWithLines(absl::string_view text);

// True when CleanText would change nothing. INVALID_ARGUMENT names the text that is too long. Reads
// each text once: a worker repeats its report of INDEX, with the names of all data files, while it
// waits for the next phase.
absl::StatusOr<bool> HasCleanText(const google::protobuf::Message& request);
// Cuts sentences, and escapes all text.
void CleanText(google::protobuf::Message* request);

// Returns the request with clean text: a copy of its own when it is not clean already. The result
// refers to `request` otherwise.
template <typename Request>
absl::StatusOr<std::shared_ptr<const Request>> TakeIn(const Request& request) {
  absl::Status status = CheckLists(request);
  if (!status.ok()) return status;
  const absl::StatusOr<bool> has_clean_text = HasCleanText(request);
  if (!has_clean_text.ok()) return has_clean_text.status();
  // Nobody owns it: the caller keeps the request.
  if (*has_clean_text)
    return std::shared_ptr<const Request>(std::shared_ptr<const Request>(), &request);
  auto clean = std::make_shared<Request>(request);
  CleanText(clean.get());
  return std::shared_ptr<const Request>(std::move(clean));
}

}  // namespace sluice
