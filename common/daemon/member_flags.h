// The flags of a member of the cluster, a pserver or a worker. See daemon_flags.h. `rank` is
// defined by the main.cc, as its meaning differs; -1: not given.
#pragma once

#include <gflags/gflags.h>

#include "common/daemon/identity.h"

DECLARE_int32(rank);
DEFINE_string(scheduler, "", "host:port of the scheduler (SLUICE_SCHEDULER)");

namespace sluice {

inline void ReadMemberFlags(IdentityFlags* flags) {
  flags->rank = FLAGS_rank;
  flags->scheduler = FLAGS_scheduler;
}

}  // namespace sluice
