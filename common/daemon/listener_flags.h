// The flags of a daemon that others connect to: the scheduler or a pserver.
//
// The header defines flags; see daemon_flags.h.
#pragma once

#include <gflags/gflags.h>

#include "common/daemon/identity.h"

DEFINE_string(bind, "",
              "host:port to listen on; port 0 picks a free one (SLUICE_BIND); default: the address "
              "that the cluster file gives this process");
DEFINE_string(
    advertise, "",
    "host:port that others connect to (SLUICE_ADVERTISE); default: the address in the cluster "
    "file, else --bind");

namespace sluice {

inline void ReadListenerFlags(IdentityFlags* flags) {
  flags->bind = FLAGS_bind;
  flags->advertise = FLAGS_advertise;
}

}  // namespace sluice
