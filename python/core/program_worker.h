// A worker daemon inside the process of a program.
//
// The process is a member of the cluster like sluice-worker, whose SLUICE_* variables it reads, and
// runs the jobs of its program that it is assigned, in practice one. Their steps go through the
// exchange to the thread that runs the program.
//
// Thread safety: safe from any thread, except where said.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/config/mode.h"
#include "common/daemon/identity.h"
#include "common/daemon/log_file.h"
#include "common/places/places_env.h"
#include "model/model_list.h"
#include "model/program/program_shape.h"
#include "proto/config.pb.h"
#include "python/core/cluster_sockets.h"
#include "python/core/program_exchange.h"
#include "python/core/program_group.h"
#include "python/core/program_net.h"
#include "python/core/program_source.h"
#include "python/core/run_end.h"
#include "python/core/source_exchange.h"
#include "worker/service/worker_server.h"

namespace sluice {

// A program's place in the job that its process runs, or has run last.
struct ProgramPlace {
  std::string job_id;
  uint32_t rank = 0;
  uint32_t world_size = 0;
  Mode mode = Mode::kAsync;
  bool async() const { return mode == Mode::kAsync; }  // each worker's push is applied by itself
  uint32_t epochs = 1;
  std::string output_dir;                     // on the scheduler's host
  std::shared_ptr<const ProgramShape> shape;  // null until its network is made
};

class ProgramWorker {
 public:
  // Registers in the background. `declared`: the job with its digest (declaration.h).
  // `epoch_steps`: OwnData::epoch_steps, when the program gives the data. INVALID_ARGUMENT names a
  // variable that is missing or wrong.
  static absl::StatusOr<std::unique_ptr<ProgramWorker>> Start(JobConfig declared,
                                                              uint64_t epoch_steps = 0);
  // Leaves the cluster. On the program's thread: a step that it has taken ends here.
  ~ProgramWorker();

  ProgramExchange* exchange() { return &exchange_; }
  // Shared, because the thread that serves it may outlive the worker.
  std::shared_ptr<SourceExchange> sources() { return sources_; }
  std::shared_ptr<SourceStates> source_states() { return source_states_; }

  using Place = ProgramPlace;
  // Nothing before the first assignment.
  std::optional<Place> place();

  // WorkerServer::Acknowledged.
  std::optional<uint64_t> Acknowledged() { return server_->Acknowledged(); }
  // OK while the job is not over: the program may go on waiting. Else as ProgramExchange::Take.
  absl::Status MayWait() { return exchange_.MayWait(); }

  // ---- Calls of all ranks, on the program's thread.

  // See ProgramGroup.
  void BeginGather(ProgramGroup::Call call) { group_->Begin(std::move(call)); }
  void PassGather(ProgramGroup::Call call) { group_->Pass(std::move(call)); }
  // As ProgramGroup::Await. ABORTED also when the open turn is withdrawn. CANCELLED: the job has
  // ended, with its message.
  absl::StatusOr<std::optional<ProgramGroup::Given>> AwaitGather(absl::Duration at_most);

  // The program has left its loop before the job was over: training ends for all workers after the
  // steps that it has made. The program goes on to take turns, of evaluations, until the job has
  // ended.
  void Leave() { exchange_.Leave(); }
  // The user has interrupted the program: cancels the job.
  absl::Status Cancel() { return server_->CancelJob(); }
  // The program cannot go on: the job fails with `why`, such as a traceback. Before the first
  // assignment there is no job that could fail: see place().
  void Fail(const std::string& why);
  // The same from the thread that reads the program's source: a step that the program has taken
  // ends by itself, since its memory is in use.
  void FailSource(const std::string& why);

  // In a forked child, which has no other thread: the log file with its lock and the connections
  // must end with the parent, or a worker that is started again would wait for the child. The
  // object is of no use any more, and is never destroyed.
  void CloseInForkedChild() {
    log_.reset();
    sockets_->CloseInForkedChild();
  }

 private:
  ProgramWorker(Identity identity, JobConfig declared, uint64_t epoch_steps)
      : identity_(std::move(identity)),
        declared_(std::move(declared)),
        own_data_(sources_.get(), source_states_.get(), epoch_steps) {}
  absl::Status Init();
  absl::StatusOr<std::unique_ptr<DenseNet>> MakeNet(const ModelSpec& spec,
                                                    const NetOptions& options);
  void Log(const std::string& line);
  void JobStarts(const WorkerAssignment& assignment);
  void JobEnded(const absl::Status& status);
  void Ended(const absl::Status& status);

  const Identity identity_;
  const JobConfig declared_;
  std::unique_ptr<LogFile> log_;
  ProgramExchange exchange_;
  const std::shared_ptr<SourceExchange> sources_ = std::make_shared<SourceExchange>();
  const std::shared_ptr<SourceStates> source_states_ = std::make_shared<SourceStates>();
  ProgramData own_data_;
  std::unique_ptr<ModelList> models_;
  std::unique_ptr<DataPlane> data_plane_;
  std::unique_ptr<ClusterSockets> sockets_;  // to the cluster; uses data_plane_
  std::unique_ptr<PlacesEnv> places_;

  ProgramNet::Newest newest_;  // used by the job thread alone
  RunEnd run_end_;

  Mutex mutex_;
  std::optional<Place> place_ ABSL_GUARDED_BY(mutex_);
  std::optional<GatherRequest> self_ ABSL_GUARDED_BY(mutex_);  // ProgramGroup::Options
  // Its threads use all of the above.
  std::unique_ptr<WorkerServer> server_;
  std::unique_ptr<ProgramGroup> group_;  // last: it asks through the server
};

}  // namespace sluice
