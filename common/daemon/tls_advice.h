// Says what to do when a connection to the scheduler fails because one side has no TLS, or because
// the two sides do not trust each other's certificates.
//
// Thread safety: safe from any thread.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace sluice {

// `error`: gRPC's text about the connection. `tls`: this process has TLS. Returns the cause with
// its fix, or "" when the text does not point to TLS.
std::string TlsAdvice(absl::string_view error, bool tls);

// Whether `message` ends with advice of TlsAdvice that is certain, so that no other is needed. A
// connection that was just closed may also be that of a scheduler that has died.
bool HasCertainTlsAdvice(absl::string_view message);

}  // namespace sluice
