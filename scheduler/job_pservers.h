// The pservers of one job: who serves which part of its shards, who is lost, and who keeps copies.
//
// A job's pservers have an index, which counts from 0, and a rank, which is the one in the cluster.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/follower_plan.h"

namespace sluice {

// A pserver that is lost, until another process serves its shards and every rank has reached that
// (ShardTakeover).
struct PserverVacancy {
  absl::Time since;           // of its loss, or of the newest progress of its successor
  std::string why;            // names the lost one
  bool opened = false;        // the successor has opened the tables
  uint64_t loaded_bytes = 0;  // HostedJob.loaded_bytes of the successor
  uint64_t lost_before = 0;   // Recovery.updates_lost before this loss
  bool copies = false;        // the successor is to read copies, which are not void yet
  bool had_copies = false;    // it continues from copies, as far as is known
};

struct JobPservers {
  std::vector<uint64_t> members;              // ids, by index; 0: lost, see `vacant`
  std::map<uint32_t, PserverVacancy> vacant;  // by index
  std::vector<uint32_t> ranks;                // by index, of the present or the next attempt
  std::vector<uint32_t> placed_on;            // ranks, by index in the spec's route
  bool kept = false;                          // also draining ones: others lack the room
  std::optional<FollowerPlan> followers;      // of a job with replicas
  absl::Time copies_missing_since = absl::InfiniteFuture();
};

}  // namespace sluice
