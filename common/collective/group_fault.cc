#include "common/collective/group_fault.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "common/collective/collective.h"

namespace sluice {
namespace {

// Names the timeout, and the options that set it.
std::string WithinTimeout(const CollectiveOptions& options) {
  const std::string length = absl::FormatDuration(options.timeout);
  if (options.timeout_options.empty()) return length;
  return absl::StrCat(length, " (", options.timeout_options, "; raise them if it is only slow)");
}

absl::Status Error(const GroupFault& fault, const std::string& what, const std::string& by,
                   const CollectiveOptions& options) {
  const std::string rank = absl::StrCat("rank ", fault.rank);
  const std::string see = absl::StrCat("; see the log of ", rank);
  constexpr char same_version[] = "; run the same version of sluice-worker on all hosts";
  switch (fault.kind) {
    case GroupFault::kSilent:
      return absl::DeadlineExceededError(absl::StrCat(rank, " has not taken part in ", what,
                                                      " within ", WithinTimeout(options), by, see));
    case GroupFault::kLeft:
      return absl::UnavailableError(
          absl::StrCat(rank, " has left the group; ", what, " cannot be completed", by, see));
    case GroupFault::kDisagreed:
      return absl::InvalidArgumentError(
          absl::StrCat("the ranks disagree about ", what, by, same_version));
    case GroupFault::kBroken:
      return absl::DataLossError(
          absl::StrCat(rank, " has broken the protocol of its group in ", what, by, same_version));
    default:
      return absl::UnavailableError(
          absl::StrCat(rank, " has ended or left; ", what, " cannot be completed", by, see));
  }
}

}  // namespace

const char kRankAtFaultPayload[] = "sluice/collective/rank_at_fault";

absl::Status ErrorOf(const GroupFault& fault, uint32_t self, const std::string& what,
                     const CollectiveOptions& options) {
  const std::string by =
      fault.reporter == self ? "" : absl::StrCat(" (rank ", fault.reporter, " has noticed it)");
  absl::Status status = Error(fault, what, by, options);
  // A disagreement is no single rank's fault, so nobody is replaced for it.
  if (fault.kind != GroupFault::kDisagreed)
    status.SetPayload(kRankAtFaultPayload, absl::Cord(absl::StrCat(fault.rank)));
  return status;
}

GroupFault FaultOf(const absl::Status& error, uint32_t self) {
  GroupFault fault;
  // An error that names no rank is this one's own: the others then learn who has left.
  fault.rank = RankAtFault(error).value_or(self);
  fault.reporter = self;
  switch (error.code()) {
    case absl::StatusCode::kDeadlineExceeded:
      fault.kind = GroupFault::kSilent;
      break;
    case absl::StatusCode::kInvalidArgument:
      fault.kind = GroupFault::kDisagreed;
      break;
    case absl::StatusCode::kDataLoss:
      fault.kind = GroupFault::kBroken;
      break;
    case absl::StatusCode::kUnavailable:
      fault.kind = RankAtFault(error).has_value() ? GroupFault::kEnded : GroupFault::kLeft;
      break;
    default:
      fault.kind = GroupFault::kLeft;
  }
  return fault;
}

}  // namespace sluice
