// The flags of a daemon that others connect to, the scheduler or a pserver. See daemon_flags.h.
#pragma once

#include <gflags/gflags.h>

#include "common/daemon/identity.h"

DEFINE_string(bind, "",
              "host:port to listen on, port 0: a free one (SLUICE_BIND); default: the cluster "
              "file's address of this process");
DEFINE_string(
    advertise, "",
    "host:port that others use (SLUICE_ADVERTISE); default: the cluster file's, else bind");

namespace sluice {

inline void ReadListenerFlags(IdentityFlags* flags) {
  flags->bind = FLAGS_bind;
  flags->advertise = FLAGS_advertise;
}

}  // namespace sluice
