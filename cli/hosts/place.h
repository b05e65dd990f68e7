// The place of a process in a cluster, from the environment that a scheduler of machines gives it:
// TF_CONFIG of TensorFlow's jobs, the variables of Paddle's, and Slurm's.
//
// Thread safety: plain data and pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/daemon/role_name.h"
#include "proto/scheduler.pb.h"

namespace sluice::cli {

using Variables = std::map<std::string, std::string>;

struct Place {
  struct Daemon {
    Role role;
    uint32_t rank;

    bool operator==(const Daemon& other) const { return role == other.role && rank == other.rank; }
  };

  std::string origin;                 // the variable that says it
  std::string scheduler;              // host:port
  std::vector<std::string> pservers;  // host:port, by rank
  uint32_t worker_num = 0;
  // The daemons that this process runs, the scheduler first. Empty for an evaluator, because
  // workers evaluate.
  std::vector<Daemon> daemons;
  bool leads = false;  // it submits the job, and ends the cluster after it
};

// TF_CONFIG: chief and workers are workers, in this order. The chief, or without one worker 0, also
// runs the scheduler, at its own address, and leads. `ps` are pservers at their addresses.
//
// Paddle (TRAINING_ROLE): pserver 0 also runs the scheduler, at the port after its own, which
// PaddleJob keeps free; trainer 0 leads.
//
// Slurm (SLURM_PROCID): each task is a worker, and the first one of each node also a pserver. Task
// 0 also runs the scheduler and leads. `first_port` is the scheduler's port, and the next one that
// of the pservers; 0: from the job's number.
//
// NOT_FOUND: none of them is set. INVALID_ARGUMENT names the variable and what is wrong with it.
absl::StatusOr<Place> PlaceOf(const Variables& variables, uint32_t first_port);

// The hosts of a list as Slurm writes it: "gpu[01-03,7],login" are gpu01, gpu02, gpu03, gpu7 and
// login. INVALID_ARGUMENT: it is no such list, or has more than 10,000 hosts.
absl::StatusOr<std::vector<std::string>> ExpandHostList(const std::string& list);

}  // namespace sluice::cli
