#include "common/daemon/scheduler_wait.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace sluice {
namespace {

constexpr absl::Duration kRepeatEvery = absl::Seconds(30);

constexpr char kGiveFlags[] =
    "if the scheduler has TLS, give --tls_cert, --tls_key and --tls_ca here";
constexpr char kNoTlsThere[] =
    "the scheduler has no TLS: leave --tls_cert, --tls_key and --tls_ca out here, or give them to "
    "the scheduler";
constexpr char kNotTrusted[] =
    "the scheduler's certificate is not of the CA in --tls_ca, or has expired";
constexpr char kRefused[] =
    "if the scheduler runs, it refuses the certificate in --tls_cert: that must be of the "
    "scheduler's CA, and not expired";

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

std::string TlsAdvice(absl::string_view error, bool tls) {
  // Some versions of OpenSSL write reasons as CERTIFICATE_VERIFY_FAILED.
  const std::string text = absl::StrReplaceAll(absl::AsciiStrToLower(error), {{"_", " "}});
  const bool closed =
      absl::StrContains(text, "socket closed") || absl::StrContains(text, "connection reset");
  if (!tls) return closed ? kGiveFlags : "";
  if (absl::StrContains(text, "certificate verify failed")) return kNotTrusted;
  if (absl::StrContains(text, "wrong version number")) return kNoTlsThere;
  return closed || absl::StrContains(text, " alert ") ? kRefused : "";
}

bool HasCertainTlsAdvice(absl::string_view message) {
  return absl::StrContains(message, kNoTlsThere) || absl::StrContains(message, kNotTrusted);
}

}  // namespace sluice
