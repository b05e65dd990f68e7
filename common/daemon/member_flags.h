// The flags of a member of the cluster: a pserver or a worker.
//
// The header defines flags; see daemon_flags.h. Each main.cc defines --rank, whose help differs; -1
// means that it is not given.
#pragma once

#include <gflags/gflags.h>

#include "common/daemon/identity.h"

DECLARE_int32(rank);
DEFINE_string(scheduler, "",
              "host:port of the scheduler, or of all that may lead, with commas between "
              "(SLUICE_SCHEDULER)");

namespace sluice {

inline void ReadMemberFlags(IdentityFlags* flags) {
  flags->rank = FLAGS_rank;
  flags->scheduler = FLAGS_scheduler;
}

}  // namespace sluice
