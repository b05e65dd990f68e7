#!/usr/bin/env bash
# Fails when code outside of common/security makes gRPC credentials or TLS contexts itself: a port or a channel without the
# checks of GrpcCredentials would serve or call anybody.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
forbidden='\b((Insecure|Ssl|Tls|Local|Google[A-Za-z]*|Alts|Composite)(Channel|Server)?Credentials|XdsCredentials'
forbidden+='|XdsServerCredentials|ServerCredentialsFromWrapper|SSL_CTX_new(_ex)?)\('
if grep -rnE "$forbidden" --include='*.h' --include='*.cc' common model client server worker scheduler cli bench |
    grep -v '^common/security/'; then
  echo "the lines above make credentials: take them from GrpcCredentials or TlsServer (common/security)" >&2
  exit 1
fi
# The check itself must still know what the factory uses.
grep -qrE "$forbidden" common/security || { echo "common/security makes no credentials: correct this check" >&2; exit 1; }
