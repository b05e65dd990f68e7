// sluice table stats --job and delete --job: count and delete rows of a job that trains.
#include <iostream>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/commands/table_commands.h"
#include "cli/jobs/checkpoint_request.h"
#include "cli/jobs/scheduler_access.h"
#include "cli/screen/format.h"
#include "cli/screen/stderr_lines.h"
#include "cli/screen/table_stats_text.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/config/closest_name.h"
#include "common/daemon/control_plane.h"
#include "common/daemon/scheduler_client.h"
#include "common/places/places_env.h"
#include "common/transport/retry.h"
#include "model/built_in_models.h"
#include "model/table_files/key_files.h"
#include "model/table_files/table_stats.h"

namespace sluice::cli {
namespace {

constexpr uint32_t kDeletionWaitMs = 5000;
constexpr absl::Duration kDeletionPause = absl::Milliseconds(300);  // between two questions

absl::Status CheckNoFolder(const ParsedCommand& command) {
  if (command.words.size() < 2) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("give a folder, or --job=ID of a job that trains, not both: '", command.words[1],
                   "' and '", command.Text("job"), "'"));
}

// INVALID_ARGUMENT: the job has no sparse table of this name. OK while not all of its pservers have
// opened their tables, and for an unknown job.
absl::Status CheckTable(const std::string& job, const std::string& table, SchedulerClient* client) {
  if (table.empty()) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const ClusterStatus cluster, client->GetStatus());
  std::set<std::string> names;
  for (const JobStatus& status : cluster.jobs()) {
    if (status.job_id() != job) continue;
    int opened = 0;
    for (const MemberStatus& member : cluster.members()) {
      for (const HostedJob& hosted : member.hosted()) {
        if (hosted.job_id() != job || hosted.generation() != status.route().generation()) continue;
        ++opened;
        for (const TableStatus& one : hosted.tables())
          if (one.kind() == TableConfig::SPARSE) names.insert(one.name());
      }
    }
    if (opened < status.route().pservers_size() || names.count(table) > 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("job ", job, " has no sparse table '", table, "'",
                     DidYouMeanOrAll(table, {names.begin(), names.end()})));
  }
  return absl::OkStatus();
}

absl::Status CheckWords(const ParsedCommand& command) {
  SLUICE_RETURN_IF_ERROR(CheckNoFolder(command));
  for (const char* flag : {"output", "dry_run"}) {
    if (command.Given(flag)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag,
                       " is for folders; a running job makes its next checkpoint without "
                       "the rows: leave it out"));
    }
  }
  return absl::OkStatus();
}

// A table of one shard with this name, with which the files are read.
absl::StatusOr<TableLayouts> LayoutOf(const std::string& name) {
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  TableConfig* const table = tables.Add();
  table->set_name(name);
  table->set_kind(TableConfig::SPARSE);
  table->set_num_shards(1);
  table->add_columns()->set_dim(1);
  table->mutable_columns(0)->mutable_optimizer()->mutable_sgd();
  table->mutable_columns(0)->mutable_optimizer()->set_learning_rate(1);
  return CreateTableLayouts(tables, /*seed=*/0);
}

// Asks until the deletion is over. A scheduler that does not know it, because it has been started
// since, is asked anew: rows that are gone already change nothing.
absl::StatusOr<DeleteRowsReply> Delete(SchedulerClient* client, const DeleteRowsRequest& asked,
                                       bool* anew) {
  DeleteRowsRequest waits;
  waits.set_job_id(asked.job_id());
  waits.set_wait_ms(kDeletionWaitMs);
  SilenceTimer silence;
  bool sent = false;  // a scheduler may have begun it
  for (;;) {
    const bool begins = waits.deletion() == 0;
    const auto reply = client->DeleteRows(begins ? asked : waits);
    const bool unknown = !begins && absl::IsNotFound(reply.status());
    if (reply.ok() || unknown) {
      silence.Answered();
      if (begins) *anew = sent;
      sent = true;
      if (reply.ok() && reply->done()) return reply;
      if (begins) {
        PrintOnStderr(absl::StrCat("the rows go with the next checkpoint of job ", asked.job_id(),
                                   "; waiting until it is complete"));
      }
      waits.set_deletion(unknown ? 0 : reply->deletion());
      continue;
    }
    const absl::Duration silent = silence.Unanswered(Clock::Real()->Now());
    if (!GotNoAnswer(reply.status()) || silent >= kRestartPatience) {
      if (!sent) return reply.status();
      return absl::Status(
          reply.status().code(),
          absl::StrCat(reply.status().message(), "; whether the rows are gone is not known: give ",
                       "the command again or, when the job is over, the folder of its newest ",
                       "checkpoint instead of --job; neither does harm"));
    }
    if (silent == absl::ZeroDuration()) {
      PrintOnStderr(
          "the scheduler does not answer, and may forget the deletion; waiting to ask again");
    }
    sent = true;
    Clock::Real()->Sleep(kDeletionPause);
  }
}

}  // namespace

absl::StatusOr<int> StatsOfRunningJob(const ParsedCommand& command) {
  SLUICE_RETURN_IF_ERROR(CheckNoFolder(command));
  const std::string job = command.Text("job");
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<SchedulerClient> client,
                          ConnectToScheduler(command, Clock::Real()));
  SLUICE_RETURN_IF_ERROR(CheckTable(job, command.Text("table"), client.get()));
  SLUICE_ASSIGN_OR_RETURN(const CheckpointJobReply made,
                          RequestCheckpoint(job, /*wait=*/true, client.get(), Clock::Real()));
  PrintOnStderr(absl::StrCat("job ", job, " at step ", made.step(), ", from ", made.dir()));
  const auto stats = StatTables(made.dir(), command.Text("table"), AllPlaces());
  if (absl::IsNotFound(stats.status())) {
    return absl::NotFoundError(absl::StrCat(
        "the checkpoint ", made.dir(), " was made just now, but is not here: this host does not ",
        "have its folder, or a newer one has taken its place; give the command on a host that has ",
        "the folder, or raise checkpoint.keep"));
  }
  SLUICE_RETURN_IF_ERROR(stats.status());
  std::cout << (command.Switch("json") ? TableStatsJson(made.dir(), *stats)
                                       : TableStatsText(made.dir(), *stats));
  return kDone;
}

absl::StatusOr<int> DeleteFromRunningJob(const ParsedCommand& command) {
  SLUICE_RETURN_IF_ERROR(CheckWords(command));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> paths, KeyFilesOf(command));
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<SchedulerClient> client,
                          ConnectToScheduler(command, Clock::Real()));
  DeleteRowsRequest request;
  request.set_job_id(command.Text("job"));
  WatchJobRequest watch;
  watch.set_job_id(request.job_id());
  SLUICE_ASSIGN_OR_RETURN(const WatchJobReply job, client->WatchJob(watch));
  KeyFiles files(job.status().config(), BuiltInSpecs(), command.Text("feature"), AllPlaces());
  std::string table = command.Text("table");
  if (table.empty()) {
    SLUICE_ASSIGN_OR_RETURN(table, files.Table());
  }
  if (table.empty()) {
    return absl::InvalidArgumentError(
        "no table is given; give --table=NAME, or --feature=NAME with the values of a feature");
  }
  SLUICE_ASSIGN_OR_RETURN(const TableLayouts layouts, LayoutOf(table));
  SLUICE_ASSIGN_OR_RETURN(const NamedKeys named, files.Read(paths, *layouts[0]));
  if (named.keys > static_cast<uint64_t>(kMaxDeletedKeys)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the files have ", WithCommas(named.keys), " keys, and ", WithCommas(kMaxDeletedKeys),
        " go at one time; give them in several files, one after the other"));
  }
  request.set_table(table);
  request.mutable_keys()->Assign(named.by_shard[0].begin(), named.by_shard[0].end());
  bool anew = false;
  SLUICE_ASSIGN_OR_RETURN(const DeleteRowsReply deleted, Delete(client.get(), request, &anew));
  if (!deleted.error().empty()) {
    return absl::InternalError(absl::StrCat(
        "no checkpoint of job ", request.job_id(), " without the rows could be completed: ",
        deleted.error(), "; ", Counted(deleted.rows(), "row"),
        " went from its tables so far, but a "
        "recovery from an earlier checkpoint brings them back: give the command again"));
  }
  PrintTableLine(absl::StrCat(Counted(deleted.rows(), "row"), " of ", Counted(named.keys, "key"),
                              " deleted from table ", table, " of job ", request.job_id()));
  if (anew) {
    PrintTableLine(
        "The scheduler was asked again: rows that had gone before that may not be counted.");
  }
  PrintKeyNotes(named, deleted.rows(), anew || !command.Text("feature").empty());
  PrintTableLine(absl::StrCat("the first checkpoint without them: step ", deleted.step(), ", ",
                              deleted.dir()));
  PrintTableLine(
      "Checkpoints, exports and models from before still have them until they are removed. A key "
      "that the training data still has comes back as a new row.");
  return kDone;
}

}  // namespace sluice::cli
