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

DEFINE_string(transport, "",
              "how workers and pservers reach each other: auto (shared memory on one host, gRPC "
              "elsewhere), grpc, or shm, which fails where shared memory cannot be used "
              "(SLUICE_TRANSPORT); default: transport of the cluster file, else auto");

namespace sluice {

inline void ReadMemberFlags(IdentityFlags* flags) {
  flags->rank = FLAGS_rank;
  flags->transport = FLAGS_transport;
  flags->scheduler = FLAGS_scheduler;
}

}  // namespace sluice
