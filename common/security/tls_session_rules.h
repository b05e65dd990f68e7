// Rules for TLS sessions that gRPC does not let its users set.
//
// - No session is resumed, neither from a ticket nor from a server's memory. OpenSSL would take the
//   client's certificate, and that it was valid, from the earlier session. So whoever has a ticket
//   would be let in without the key, and after the certificate has expired.
// - TLS 1.3 prefers AES-128-GCM. gRPC asks for it first, but its call to OpenSSL sets the ciphers
//   of TLS 1.2 only, and OpenSSL's order begins with AES-256-GCM. Both are secure; the larger key
//   costs about a sixth more processor time a byte, and the cipher is most of what TLS costs a job.
//
// Thread safety: safe from any thread.
#pragma once

namespace sluice {

// From now on, all new sessions of this process follow the rules. Ciphers that the administrator
// has set in OpenSSL's configuration file stay as they are.
void SetTlsSessionRules();

}  // namespace sluice
