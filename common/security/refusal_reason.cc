#include "common/security/refusal_reason.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace sluice {
namespace {

constexpr char kMark[] = "sluice/refusal_reason";
constexpr RefusalReason kReasons[] = {
    RefusalReason::kNoRule,      RefusalReason::kRole,      RefusalReason::kRank,
    RefusalReason::kCertificate, RefusalReason::kHandshake, RefusalReason::kUser,
    RefusalReason::kPass,        RefusalReason::kToken,     RefusalReason::kSecret,
    RefusalReason::kFenced,      RefusalReason::kInvalid,   RefusalReason::kJob,
    RefusalReason::kPath,        RefusalReason::kRoom,      RefusalReason::kOther};

}  // namespace

const char* RefusalReasonName(RefusalReason reason) {
  switch (reason) {
    case RefusalReason::kNoRule:
      return "no_rule";
    case RefusalReason::kRole:
      return "role";
    case RefusalReason::kRank:
      return "rank";
    case RefusalReason::kCertificate:
      return "certificate";
    case RefusalReason::kHandshake:
      return "handshake";
    case RefusalReason::kUser:
      return "user";
    case RefusalReason::kPass:
      return "pass";
    case RefusalReason::kToken:
      return "token";
    case RefusalReason::kSecret:
      return "secret";
    case RefusalReason::kFenced:
      return "fenced";
    case RefusalReason::kInvalid:
      return "invalid";
    case RefusalReason::kJob:
      return "job";
    case RefusalReason::kPath:
      return "path";
    case RefusalReason::kRoom:
      return "room";
    case RefusalReason::kOther:
      return "other";
  }
  return "unknown";
}

absl::Status Because(RefusalReason reason, absl::Status refusal) {
  if (refusal.ok() || refusal.GetPayload(kMark).has_value()) return refusal;
  refusal.SetPayload(kMark, absl::Cord(RefusalReasonName(reason)));
  return refusal;
}

RefusalReason ReasonOf(const absl::Status& refusal) {
  const auto mark = refusal.GetPayload(kMark);
  if (!mark.has_value()) return RefusalReason::kOther;
  for (const RefusalReason reason : kReasons) {
    if (*mark == RefusalReasonName(reason)) return reason;
  }
  return RefusalReason::kOther;
}

std::optional<RefusalReason> CauseOf(const absl::Status& refusal) {
  if (refusal.ok()) return std::nullopt;
  if (refusal.GetPayload(kMark).has_value()) return ReasonOf(refusal);
  switch (refusal.code()) {
    case absl::StatusCode::kPermissionDenied:
      return RefusalReason::kOther;
    case absl::StatusCode::kInvalidArgument:
      return RefusalReason::kInvalid;
    case absl::StatusCode::kUnimplemented:
      return RefusalReason::kNoRule;
    default:
      return std::nullopt;
  }
}

}  // namespace sluice
