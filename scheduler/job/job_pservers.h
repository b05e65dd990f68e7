// The pservers of one job: who serves which part of its shards, who is lost, and who keeps copies.
//
// A job's pservers have an index, which counts from 0, and a rank, which is the one in the cluster.
//
// Invariants: a vacancy lasts from the loss of a pserver until another process serves its shards
// and every rank has reached that (ShardTakeover).
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/job/follower_plan.h"

namespace sluice {

// A pserver that is lost, and how far its successor has come. ShardTakeover writes it.
struct PserverVacancy {
  absl::Time since;           // of its loss, or of the newest progress of its successor
  std::string why;            // names the lost one
  bool opened = false;        // the successor has opened the tables
  uint64_t loaded_bytes = 0;  // HostedJob.loaded_bytes of the successor
  uint64_t lost_before = 0;   // Recovery.updates_lost before this loss
  bool copies = false;        // the successor is to read copies, which are not void yet
  bool had_copies = false;    // it continues from copies, as far as is known
};

class JobPservers {
 public:
  // Ids, by index; 0: lost, see vacant(), or of an adopted attempt and not back yet.
  const std::vector<uint64_t>& members() const { return members_; }
  const std::map<uint32_t, PserverVacancy>& vacant() const { return vacant_; }  // by index
  // By index, of the present or the next attempt.
  const std::vector<uint32_t>& ranks() const { return ranks_; }
  // Ranks, by index in the route of the attempt's specification.
  const std::vector<uint32_t>& placed_on() const { return placed_on_; }
  // The job also keeps pservers that drain, because the others lack the room.
  bool kept() const { return kept_; }
  // Null: the job has no replicas.
  FollowerPlan* followers() { return followers_ ? &*followers_ : nullptr; }
  const FollowerPlan* followers() const { return followers_ ? &*followers_ : nullptr; }
  // Which of the pservers the member is.
  std::optional<uint32_t> IndexOf(uint64_t member_id) const;

  // The next attempt uses these.
  void Choose(std::vector<uint32_t> ranks) { ranks_ = std::move(ranks); }
  void SetKept(bool kept) { kept_ = kept; }
  // The route names the chosen ones.
  void Placed() { placed_on_ = ranks_; }
  // An attempt begins.
  void Serve(std::vector<uint64_t> members) { members_ = std::move(members); }
  // Continues the attempt of an earlier scheduler, whose pservers have to come back.
  void Await();
  void TakeBack(uint32_t index, uint64_t member_id) { members_[index] = member_id; }
  // The attempt is over.
  void EndAttempt() { vacant_.clear(); }

  // Makes the place vacant, also when its successor is lost.
  void Lose(uint32_t index, PserverVacancy vacancy);
  // REQUIRES: the place is vacant.
  PserverVacancy& vacancy(uint32_t index) { return vacant_.at(index); }
  // Another process gets the vacant place.
  void Replace(uint32_t index, uint64_t member_id) { members_[index] = member_id; }
  // The place is no longer vacant.
  void Fill(uint32_t index) { vacant_.erase(index); }

  void Follow(FollowerPlan plan) { followers_ = std::move(plan); }
  void DropFollowers() { followers_.reset(); }
  // Returns since when copies are incomplete; InfiniteFuture when they are complete.
  absl::Time NoteCopies(bool complete, absl::Time now);

  void Archive() { members_ = {}; }

 private:
  std::vector<uint64_t> members_;
  std::map<uint32_t, PserverVacancy> vacant_;
  std::vector<uint32_t> ranks_;
  std::vector<uint32_t> placed_on_;
  bool kept_ = false;
  std::optional<FollowerPlan> followers_;
  absl::Time copies_missing_since_ = absl::InfiniteFuture();
};

}  // namespace sluice
