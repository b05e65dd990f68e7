// Deletes rows of a running job for an operator: gives the pservers the keys, has a checkpoint made
// before whose cut they drop the rows, and follows it until it is over.
//
//   telling   the pservers are told the keys and the number of that checkpoint, `at`; nobody else
//             is told of it
//   cutting   every pserver has confirmed both: a checkpoint is demanded until `at` is over
//   over      `at` is complete, or no checkpoint could be
//
// When `at` has failed, another number takes its place, and the pservers are told again. There is
// one deletion at a time.
//
// Invariants:
// - No member is told of checkpoint `at` before every pserver has confirmed it, nor of a later one
//   while the deletion is under way. So all pservers drop the rows at the same cut; in sync, after
//   the same step.
//
// Memory: the keys, while the deletion is under way, then the outcomes of the newest ones.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "scheduler/job/job_checkpoints.h"

namespace sluice {

class RowDeletion {
 public:
  // The rows: a table, as an index in JobSpec.tables, and keys, ascending and each once.
  struct Rows {
    uint32_t table = 0;
    std::vector<uint64_t> keys;
    bool operator==(const Rows& o) const { return table == o.table && keys == o.keys; }
  };

  bool under_way() const { return id_ != 0; }
  uint64_t id() const { return id_; }
  const Rows& rows() const { return rows_; }
  // Begins a deletion. Members may have been told of checkpoints up to number `told`. With
  // `exports` the odd numbers alone are checkpoints (ExportTurns). REQUIRES: none is under way;
  // id is above 0 and no other one of the cluster has had it.
  void Begin(uint64_t id, Rows rows, uint32_t pserver_num, uint64_t told, bool exports,
             absl::Time now);
  // False: nobody may be told of this checkpoint yet.
  bool MayTell(uint64_t number) const;
  // Adds what this pserver is told.
  void AddTo(uint32_t pserver, CutOrder* order) const;

  // Another process takes over the shards of the pserver.
  void PserverLost(uint32_t pserver, absl::Time now);

  // The functions below return true when members are to be told something else than before.

  // A report of the pserver.
  bool TakeHosted(uint32_t pserver, const HostedJob& hosted, absl::Time now);
  // The job's next attempt begins. Its pservers open the tables anew.
  bool Restart(uint32_t pserver_num, absl::Time now);
  // Does what can be done now. Call it often while a deletion is under way.
  bool Advance(JobCheckpoints* checkpoints, absl::Time now);
  // Ends the deletion that is under way, if there is one.
  bool GiveUp(const std::string& why);

  // The newest time at which a pserver confirmed something; InfiniteFuture: none has to.
  absl::Time progressed_at() const;
  // The pservers that have not confirmed yet, for messages: "pserver 1, pserver 4".
  std::string Missing() const;
  // Null: it is under way, or nothing is known of it any more. The reply is `done`.
  const DeleteRowsReply* OutcomeOf(uint64_t id) const;

 private:
  struct Place {
    bool has_keys = false;
    uint64_t at = 0;       // that it has confirmed, with the keys; 0: none
    uint64_t deleted = 0;  // rows; the most of all tries
  };
  bool all_confirmed() const;
  // The first number of a checkpoint above `number`.
  uint64_t After(uint64_t number) const;
  // Another number takes the place of `at`: the next one above `number`.
  void MoveBehind(uint64_t number, absl::Time now);
  void End(DeleteRowsReply reply);

  uint64_t id_ = 0;  // 0: none is under way
  Rows rows_;
  bool exports_ = false;
  uint64_t at_ = 0;
  uint64_t demanded_ = 0;  // the newest number that was demanded
  uint32_t failures_ = 0;  // of checkpoints
  bool missed_ = false;    // a pserver has made its cut of `at` with the rows
  absl::Time progressed_at_;
  std::vector<Place> places_;              // by pserver
  std::vector<DeleteRowsReply> outcomes_;  // the newest
};

}  // namespace sluice
