#include "common/daemon/tls_advice.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"

namespace sluice {
namespace {

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
