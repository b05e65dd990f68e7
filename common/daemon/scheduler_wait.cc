#include "common/daemon/scheduler_wait.h"

#include "absl/strings/str_cat.h"
#include "common/daemon/tls_advice.h"

namespace sluice {
namespace {
constexpr absl::Duration kRepeatEvery = absl::Seconds(30);
}  // namespace

std::string WaitingLines::Next(absl::Duration waited) {
  std::string why = scheduler_->WhyRefused();
  if (why.empty()) why = scheduler_->WhyNotReady();
  const bool says_why = !why.empty() && (why != said_ || waited - said_at_ >= kRepeatEvery);
  if (says_why) {
    said_ = why;
    said_at_ = waited;
  }
  return absl::StrCat("waiting for the scheduler at ", scheduler_->address(), " (",
                      absl::ToInt64Seconds(waited), " of ", absl::ToInt64Seconds(wait_), " s)",
                      says_why ? absl::StrCat(": ", why) : "");
}

absl::Status SchedulerDidNotAnswer(SchedulerClient* scheduler, absl::Duration waited) {
  const std::string begin = absl::StrCat("scheduler at ", scheduler->address(),
                                         " did not answer within ", absl::FormatDuration(waited));
  const std::string refused = scheduler->WhyRefused();
  if (!refused.empty()) return absl::UnavailableError(absl::StrCat(begin, ": ", refused));
  const std::string why = scheduler->WhyNotReady();
  if (HasCertainTlsAdvice(why)) return absl::UnavailableError(absl::StrCat(begin, ": ", why));
  return absl::UnavailableError(absl::StrCat(
      begin, why.empty() ? "" : absl::StrCat(" (", why, ")"),
      "; start sluice-scheduler there, or correct the address (--scheduler, SLUICE_SCHEDULER, or "
      "`scheduler` in the cluster file); if it runs, it may serve another user of this host only, "
      "one side may lack TLS, or may refuse the other's certificate (--tls_cert, --tls_key, "
      "--tls_ca)"));
}

}  // namespace sluice
