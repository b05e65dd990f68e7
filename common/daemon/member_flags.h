// The flags of a member of the cluster, a pserver or a worker. See daemon_flags.h.
#pragma once

#include <gflags/gflags.h>

#include "common/daemon/identity.h"

DEFINE_int32(rank, -1,
             "rank among the pservers, or worker slot in the cluster, from 0 (SLUICE_RANK)");
DEFINE_string(scheduler, "", "host:port of the scheduler (SLUICE_SCHEDULER)");

namespace sluice {

inline void ReadMemberFlags(IdentityFlags* flags) {
  flags->rank = FLAGS_rank;
  flags->scheduler = FLAGS_scheduler;
}

}  // namespace sluice
