#include "common/security/audit_log.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/security/access_rules.h"

namespace sluice {
namespace {

constexpr char kNone[] = "none", kUnverified[] = "unverified";  // roles of callers
constexpr size_t kMaxWaitingRefusals = 256;                     // of an AuditQueue
constexpr size_t kMaxTextBytes = 400;  // of one value, before it is escaped
constexpr AuditedAction kActions[] = {
    AuditedAction::kSubmit,   AuditedAction::kCheckpoint,  AuditedAction::kDeleteRows,
    AuditedAction::kCancel,   AuditedAction::kScale,       AuditedAction::kDrain,
    AuditedAction::kShutdown, AuditedAction::kMemberEnded, AuditedAction::kTakeover};

std::string FileNumber(const std::string& path, int number) {
  return number == 0 ? path : absl::StrCat(path, ".", number);
}

// Whether the caller has named no method yet.
bool IsBeforeCalls(absl::string_view method) {
  return method == kHandshakeMethod || method == kConnectMethod || method == kRequestMethod;
}

// The method alone decides nothing for a caller with TLS: a stranger may name any.
bool IsStranger(const AuditedCaller& caller, absl::string_view method) {
  return caller.role == kNone || (caller.role == kUnverified && IsBeforeCalls(method));
}

// `key` is a name of our own.
void AddText(const char* key, absl::string_view text, std::string* line) {
  absl::StrAppend(line, ", \"", key, "\": ", JsonQuoted(Printable(text.substr(0, kMaxTextBytes))));
}

void AddCaller(const AuditedCaller& caller, absl::string_view detail, std::string* line) {
  AddText("role", caller.role, line);
  AddText("name", caller.name, line);
  AddText("address", caller.address, line);
  AddText("detail", detail, line);
  line->append("}\n");
}

}  // namespace

const char* AuditedActionName(AuditedAction action) {
  switch (action) {
    case AuditedAction::kSubmit:
      return "submit";
    case AuditedAction::kCheckpoint:
      return "checkpoint";
    case AuditedAction::kDeleteRows:
      return "delete_rows";
    case AuditedAction::kCancel:
      return "cancel";
    case AuditedAction::kScale:
      return "scale";
    case AuditedAction::kDrain:
      return "drain";
    case AuditedAction::kShutdown:
      return "shutdown";
    case AuditedAction::kMemberEnded:
      return "member_ended";
    case AuditedAction::kTakeover:
      return "takeover";
  }
  return "unknown";
}

AuditedCaller CallerOf(const absl::StatusOr<PeerIdentity>& peer, absl::string_view address) {
  AuditedCaller caller;
  caller.address = std::string(address);
  if (!peer.ok()) {
    caller.role = kNone;
  } else if (!peer->verified) {
    caller.role = kUnverified;
  } else {
    caller.role = PeerRoleName(peer->role);
    caller.name = peer->name;
  }
  return caller;
}

absl::StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(Options options) {
  // At the start, while somebody looks: later nobody would notice that there is no log.
  const absl::Status writable = options.env->AppendToFile(options.path, "");
  if (!writable.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot write the audit log: ", writable.message(), "; give a writable --log_dir"));
  }
  return std::unique_ptr<AuditLog>(new AuditLog(std::move(options)));
}

AuditLog::AuditLog(Options options) : options_(std::move(options)) {
  for (Allowance* allowance : {&refusals_, &actions_, &takeovers_})
    allowance->line_every = options_.line_every;
  strangers_.line_every = options_.stranger_line_every;
  // From 0, so that a rate over the first event is not lost in Prometheus.
  for (const AuditedAction action : kActions) counts_.actions[AuditedActionName(action)] = 0;
}

AuditLog::~AuditLog() { Flush(); }

void AuditLog::Refused(const AuditedCaller& caller, absl::string_view method, RefusalReason reason,
                       absl::string_view detail) {
  std::string lines;
  {
    MutexLock lock(&mutex_);
    if (!Take(Count(caller, method, &reason))) return;
    lines = TakeLeftOut();
  }
  // Written without the lock: a slow disk must not hold up threads that only count.
  lines += Begin("refusal");
  AddText("method", method, &lines);
  AddText("reason", RefusalReasonName(reason), &lines);
  AddCaller(caller, detail, &lines);
  Write(lines);
}

void AuditLog::Refused(const AuditedCaller& caller, absl::string_view method,
                       const absl::Status& refusal) {
  const std::optional<RefusalReason> cause = CauseOf(refusal);
  if (cause.has_value()) Refused(caller, method, *cause, refusal.message());
}

void AuditLog::LeftOut(const AuditedCaller& caller, absl::string_view method,
                       RefusalReason reason) {
  MutexLock lock(&mutex_);
  ++Count(caller, method, &reason)->left_out;
}

AuditLog::Allowance* AuditLog::Count(const AuditedCaller& caller, absl::string_view method,
                                     RefusalReason* reason) {
  const bool known = IsBeforeCalls(method) || HasAccessRule(method);
  if (!known && *reason == RefusalReason::kRole) *reason = RefusalReason::kNoRule;
  // A peer chooses the name of the method. Only known names become keys, so that it cannot fill the
  // memory or the metrics.
  ++counts_.refusals[{known ? std::string(method) : "other", RefusalReasonName(*reason)}];
  return IsStranger(caller, method) ? &strangers_ : &refusals_;
}

void AuditLog::Acted(const AuditedCaller& caller, AuditedAction action, absl::string_view target,
                     const absl::Status& outcome, absl::string_view detail) {
  std::string lines;
  {
    MutexLock lock(&mutex_);
    ++counts_.actions[AuditedActionName(action)];
    const bool order = action != AuditedAction::kTakeover;
    if (!Take(order ? &actions_ : &takeovers_)) return;
    lines = TakeLeftOut();
  }
  lines += Begin("action");
  AddText("action", AuditedActionName(action), &lines);
  AddText("target", target, &lines);
  AddText("outcome", absl::StatusCodeToString(outcome.code()), &lines);
  AddCaller(caller, outcome.ok() ? detail : outcome.message(), &lines);
  Write(lines);
}

void AuditLog::Flush() {
  std::string lines;
  {
    MutexLock lock(&mutex_);
    lines = TakeLeftOut();
  }
  if (!lines.empty()) Write(lines);
}

AuditLog::Counts AuditLog::counts() {
  MutexLock lock(&mutex_);
  return counts_;
}

bool AuditLog::Take(Allowance* allowance) {
  const absl::Time now = options_.clock->Now();
  const absl::Time full_at = std::max(allowance->full_at, now) + allowance->line_every;
  // A token bucket, as the time at which it is full again: it needs no timer.
  if (full_at - now > options_.burst * allowance->line_every) {
    ++allowance->left_out;
    return false;
  }
  allowance->full_at = full_at;
  return true;
}

std::string AuditLog::TakeLeftOut() {
  const uint64_t refusals = std::exchange(refusals_.left_out, 0);
  const uint64_t strangers = std::exchange(strangers_.left_out, 0);
  const uint64_t actions =
      std::exchange(actions_.left_out, 0) + std::exchange(takeovers_.left_out, 0);
  if (refusals == 0 && strangers == 0 && actions == 0) return "";
  return absl::StrCat(Begin("left_out"), ", \"refusals\": ", refusals,
                      ", \"strangers\": ", strangers, ", \"actions\": ", actions, "}\n");
}

std::string AuditLog::Begin(const char* event) const {
  const std::string time =
      absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", options_.clock->WallNow(), absl::UTCTimeZone());
  return absl::StrCat("{\"time\": \"", time, "\", \"daemon\": \"", options_.role, " ",
                      options_.rank, "\", \"event\": \"", event, "\"");
}

void AuditLog::Write(const std::string& lines) {
  absl::Status written;
  bool news = false;
  {
    MutexLock lock(&file_mutex_);
    written = Append(lines);
    // Told when it begins and when it ends, not for each line.
    news = failing_ == written.ok();
    failing_ = !written.ok();
  }
  if (!written.ok()) {
    MutexLock lock(&mutex_);
    counts_.lost_lines += std::count(lines.begin(), lines.end(), '\n');
  }
  if (news && options_.log) {
    options_.log(written.ok()
                     ? absl::StrCat("the audit log ", options_.path, " is written again")
                     : absl::StrCat("lines of the audit log are lost: ", written.message()));
  }
}

absl::Status AuditLog::Append(const std::string& lines) {
  // A write that failed may have left a part of its line, which must not run into the next one.
  const std::string bytes = absl::StrCat(failing_ ? "\n" : "", lines);
  SLUICE_RETURN_IF_ERROR(MakeRoom(bytes.size()));
  return options_.env->AppendToFile(options_.path, bytes);
}

absl::Status AuditLog::MakeRoom(uint64_t bytes) {
  // Asked each time, because others may move the file away.
  const absl::StatusOr<uint64_t> size = options_.env->FileSize(options_.path);
  if (absl::IsNotFound(size.status())) return absl::OkStatus();
  SLUICE_RETURN_IF_ERROR(size.status());
  if (*size == 0 || *size + bytes <= options_.max_file_bytes) return absl::OkStatus();
  if (options_.max_files < 2) return options_.env->RemoveFile(options_.path);
  // From the oldest, which the one before it replaces.
  for (int number = options_.max_files - 2; number >= 0; --number) {
    const std::string from = FileNumber(options_.path, number);
    if (!options_.env->Exists(from)) continue;
    SLUICE_RETURN_IF_ERROR(options_.env->RenameFile(from, FileNumber(options_.path, number + 1)));
  }
  return absl::OkStatus();
}

AuditQueue::AuditQueue(AuditLog* log) : log_(log), thread_(1, kMaxWaitingRefusals) {}

void AuditQueue::Refused(const AuditedCaller& caller, const std::string& method,
                         RefusalReason reason, std::string detail) {
  if (log_ == nullptr) return;
  const bool added = thread_.Add([log = log_, caller, method, reason, detail = std::move(detail)] {
    log->Refused(caller, method, reason, detail);
  });
  if (!added) log_->LeftOut(caller, method, reason);
}

}  // namespace sluice
