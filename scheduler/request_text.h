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
inline constexpr int kMaxDataFiles = 100'000;  // of each list of files; expand_files.h
// IndexReport.card; kMaxCardBytes in common/collective/rank_card.h.
inline constexpr size_t kMaxReportedCardBytes = 64 << 10;
// Of PollRequest.hosted, which the scheduler keeps until the next report.
inline constexpr size_t kMaxHostedBytes = size_t{32} << 20;

// INVALID_ARGUMENT names the field that is too long.
absl::Status CheckBounds(const RegisterRequest& request);
absl::Status CheckBounds(const PollRequest& request);
absl::Status CheckBounds(const LeaveRequest& request);
absl::Status CheckBounds(const FailJobRequest& request);
absl::Status CheckBounds(const MemberEndedRequest& request);
absl::Status CheckBounds(const NextPhaseRequest& request);
absl::Status CheckBounds(const NextTaskRequest& request);

// `text` as one printable line, cut when it is longer than a sentence may be.
std::string Sentence(absl::string_view text);

// True when CleanText would change nothing.
bool HasCleanText(const google::protobuf::Message& request);
// Cuts sentences, and escapes all text.
void CleanText(google::protobuf::Message* request);

// Returns the request with clean text: a copy of its own when it is not clean already. The result
// refers to `request` otherwise.
template <typename Request>
absl::StatusOr<std::shared_ptr<const Request>> TakeIn(const Request& request) {
  absl::Status status = CheckBounds(request);
  if (!status.ok()) return status;
  // Nobody owns it: the caller keeps the request.
  if (HasCleanText(request))
    return std::shared_ptr<const Request>(std::shared_ptr<const Request>(), &request);
  auto clean = std::make_shared<Request>(request);
  CleanText(clean.get());
  return std::shared_ptr<const Request>(std::move(clean));
}

}  // namespace sluice
