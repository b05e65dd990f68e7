#include "scheduler/recovery/deletion_lifecycle.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/config/mode.h"
#include "common/daemon/control_plane.h"
#include "scheduler/recovery/checkpoint_lifecycle.h"

namespace sluice {
namespace {

absl::StatusOr<uint32_t> SparseTable(const Job& job, const std::string& name) {
  std::vector<std::string> names;
  for (int t = 0; t < job.spec().tables_size(); ++t) {
    const TableConfig& table = job.spec().tables(t);
    if (table.kind() != TableConfig::SPARSE) continue;
    if (table.name() == name) return static_cast<uint32_t>(t);
    names.push_back(table.name());
  }
  if (names.empty()) {
    return absl::NotFoundError(
        absl::StrCat("job ", job.id(), " has no sparse table, so it has no rows to delete"));
  }
  return absl::NotFoundError(absl::StrCat("job ", job.id(), " has no sparse table '",
                                          PrintableLine(name), "'; give one of ",
                                          absl::StrJoin(names, ", ")));
}

absl::Status CheckKeys(size_t keys) {
  if (keys == 0)
    return absl::InvalidArgumentError("no keys are given, so there is nothing to delete");
  if (keys <= static_cast<size_t>(kMaxDeletedKeys)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(keys, " keys are more than the ", kMaxDeletedKeys,
                   " that go at one time; give them in several files, one after the other"));
}

}  // namespace

absl::StatusOr<DeleteRowsReply> DeletionLifecycle::Begin(Job* job, const std::string& table,
                                                         std::vector<uint64_t> keys,
                                                         absl::Time now) {
  SLUICE_RETURN_IF_ERROR(CheckKeys(keys.size()));
  SLUICE_RETURN_IF_ERROR(CheckpointLifecycle::CheckMakes(*job));
  if (ModeOf(job->config().strategy()) == Mode::kGeo) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", job->id(), " trains in Geo, whose workers keep rows of their own and would bring ",
        "deleted ones back; delete from its checkpoints and models: sluice table delete FOLDER"));
  }
  if (job->config().checkpoint().save() == CheckpointConfig::BEST) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", job->id(), " has checkpoint.save: BEST, so that its model may become that of an ",
        "earlier epoch, which has the rows; delete from that model at the end of the job: ",
        "sluice table delete FOLDER"));
  }
  RowDeletion::Rows rows;
  SLUICE_ASSIGN_OR_RETURN(rows.table, SparseTable(*job, table));
  rows.keys = std::move(keys);
  DeleteRowsReply reply;
  if (job->deletion.under_way()) {
    if (!(job->deletion.rows() == rows)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "other rows of job ", job->id(),
          " are being deleted; ask again when that is done, after its next checkpoint"));
    }
    // The call is repeated.
    reply.set_deletion(job->deletion.id());
    return reply;
  }
  reply.set_deletion(next_id_++);
  parts_.effects->Log(*job, absl::StrCat("deletes the rows of ", rows.keys.size(),
                                         " keys of table '", table, "' with its next checkpoint"));
  job->deletion.Begin(reply.deletion(), std::move(rows),
                      static_cast<uint32_t>(job->pservers.members().size()),
                      job->ledger.most_told(), job->config().has_export_(), now);
  Tell(job);
  return reply;
}

absl::StatusOr<DeleteRowsReply> DeletionLifecycle::Outcome(const Job& job, uint64_t id) {
  if (const DeleteRowsReply* const outcome = job.deletion.OutcomeOf(id)) return *outcome;
  if (job.deletion.id() != id || !job.deletion.under_way()) {
    return absl::NotFoundError(absl::StrCat("deletion ", id, " of job ", job.id(),
                                            " is not known to this scheduler; ask for it again"));
  }
  DeleteRowsReply reply;
  reply.set_deletion(id);
  return reply;
}

void DeletionLifecycle::TakeHosted(const Member& pserver, const HostedJob& hosted, Job* job,
                                   absl::Time now) {
  const auto index = job->pservers.IndexOf(pserver.id);
  if (index && job->deletion.TakeHosted(*index, hosted, now)) Tell(job);
}

void DeletionLifecycle::RunBegins(Job* job, absl::Time now) {
  const auto pservers = static_cast<uint32_t>(job->pservers.members().size());
  if (job->deletion.Restart(pservers, now)) Tell(job);
}

void DeletionLifecycle::Advance(Job* job, absl::Time now) {
  if (!job->deletion.under_way() || job->over() || !job->run() || !job->checkpoints()) return;
  const uint64_t id = job->deletion.id();
  bool news = job->deletion.Advance(job->checkpoints(), now);
  if (parts_.pauses->Since(job->deletion.progressed_at(), now) >= wait_) {
    news = job->deletion.GiveUp(absl::StrCat("no answer within ", absl::FormatDuration(wait_),
                                             " (limits.wait_s) from ", job->deletion.Missing()));
  }
  if (!news) return;
  Note(*job, id);
  Tell(job);
}

void DeletionLifecycle::End(Job* job) {
  const uint64_t id = job->deletion.id();
  if (!job->deletion.GiveUp("the job ended before a checkpoint without the rows was complete"))
    return;
  Note(*job, id);
  parts_.effects->StatusChanged(job);
}

void DeletionLifecycle::Note(const Job& job, uint64_t id) {
  const DeleteRowsReply* const outcome = job.deletion.OutcomeOf(id);
  if (outcome == nullptr) return;
  parts_.effects->Log(job,
                      outcome->error().empty()
                          ? absl::StrCat(outcome->rows(), " rows were deleted; ", outcome->dir(),
                                         " is the first checkpoint without them")
                          : absl::StrCat("no checkpoint without the rows to delete is complete: ",
                                         outcome->error()));
}

void DeletionLifecycle::Tell(Job* job) {
  const auto look = [this](uint64_t id) {
    if (Member* const member = parts_.members->ById(id)) parts_.effects->DesiredChanged(member);
  };
  for (const uint64_t id : job->pservers.members()) look(id);
  for (const RankSlot& slot : job->ranks.slots()) look(slot.member_id());
  parts_.effects->StatusChanged(job);
}

}  // namespace sluice
