// Opens a job on this pserver: checks its route and the memory, makes its shards, and fills them
// from its initial model, or from the checkpoint that it resumes or starts from. Shards that take
// over from a lost pserver (JobSpec.takeover) continue from copies at its follower, or from the
// newest checkpoint.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/table/table_layout.h"
#include "proto/scheduler.pb.h"
#include "server/requests/job_view.h"
#include "server/shards/shard.h"

namespace sluice {

class AuditLog;
class CutWriter;
class LoadProgress;
class ShardThreads;
class Transport;

// Resources of the process that its jobs share. Clock, env and available_memory must be set.
struct JobResources {
  Clock* clock = nullptr;  // outlives the jobs
  Env* env = nullptr;      // reads and writes saved models; outlives the jobs
  // Bytes that this process can still get. A job is not opened if its dense shards, with the
  // gradients that their updates buffer and the state of its ranks in all shards, or its rows of a
  // saved model need more. What a rank may buffer also follows from it.
  std::function<uint64_t()> available_memory;
  // Limit of one message in bytes. An answer with a longer part could not be sent.
  uint64_t max_message_bytes = uint64_t{64} << 20;
  // Bounds the rows of all jobs. Null: there is no bound.
  std::shared_ptr<RowMemory> row_memory;
  // Threads that fill a job's tables from a saved model. 0: one for each processor, at most 4.
  uint32_t load_threads = 0;
  // Writes checkpoints; outlives the jobs. Null: each job has its own.
  CutWriter* cut_writer = nullptr;
  // Helps to close large steps; outlives the jobs. Null: each request does all of its work itself.
  ShardThreads* shard_threads = nullptr;
  // Opens the streams of copies (proto/replica.proto); outlives the jobs. Null: copies are neither
  // sent nor read.
  Transport* replica_transport = nullptr;
  // A follower that confirms nothing for so long is given up.
  absl::Duration follower_patience = absl::Seconds(5);
  AuditLog* audit = nullptr;  // gets what streams refuse; may be null; outlives the jobs
  // Called on any thread when the job's report has news that should not wait: of a checkpoint, or
  // that every rank has reached shards that were taken over. May be null.
  std::function<void()> on_report_changed;
};

struct OpenedJob {
  TableLayouts layouts;
  UpdatePolicy policy;
  std::shared_ptr<const JobView> view;
  uint64_t closed = 0;  // sync: steps already in the shards
};

// Returns true if the job reads its tables from files or copies before it is open. `address` is
// the address of this pserver.
bool HasTablesToLoad(const JobSpec& spec, const std::string& address);
// Returns true if shards that are taken over continue from copies at the lost pserver's follower.
bool ReadsCopies(const JobSpec& spec, const std::string& address);
// Returns the source of the tables in words, such as "initial_model DIR".
std::string SourceOfTables(const JobSpec& spec, const std::string& address);

// INVALID_ARGUMENT: the lives of ranks or the followers of pservers, where the spec has any, are
// not one for each of the job's `workers` and of the route's pservers, or a follower is not in the
// route.
absl::Status CheckMembers(const JobSpec& spec, size_t workers);

// `progress` follows the load of the initial model or checkpoint, and can cancel it.
// INVALID_ARGUMENT, DATA_LOSS and NOT_FOUND say what is wrong with the spec or the model.
// RESOURCE_EXHAUSTED: the tables do not fit in memory. CANCELLED: progress->Cancel() was called.
absl::StatusOr<OpenedJob> OpenJob(const JobSpec& spec, const std::string& address,
                                  const JobResources& resources, LoadProgress* progress);

}  // namespace sluice
