#include "python/core/program_worker.h"

#include <grpc/support/log.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/base/status_macros.h"
#include "common/config/address.h"
#include "common/config/own_data.h"
#include "common/daemon/control_plane.h"
#include "common/daemon/endpoint_list.h"
#include "common/wire/frame.h"
#include "model/net/dense_net.h"
#include "model/program/program_spec.h"

namespace sluice {
namespace {

// Keeps gRPC from writing to stderr, like QuietGrpc of the daemons: failures come as a Status. The
// environment belongs to the program, so this sets nothing there.
void QuietGrpcOfThisModule() {
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function([](gpr_log_func_args*) {});
}

}  // namespace

static_assert(ProgramNet::kMaxStateBytes < kMaxNetStateBytes, "peers take a program's state");
static_assert(ProgramNet::kMaxStateBytes < kMaxHeaderBytes / 2, "so do the headers of frames");

absl::StatusOr<std::unique_ptr<ProgramWorker>> ProgramWorker::Start(JobConfig declared,
                                                                    uint64_t epoch_steps) {
  QuietGrpcOfThisModule();
  // Without flags: every value comes from the environment or the cluster file.
  SLUICE_ASSIGN_OR_RETURN(Identity identity, ResolveIdentity(ROLE_WORKER, IdentityFlags()));
  std::unique_ptr<ProgramWorker> worker(
      new ProgramWorker(std::move(identity), std::move(declared), epoch_steps));
  SLUICE_RETURN_IF_ERROR(worker->Init());
  return worker;
}

absl::Status ProgramWorker::Init() {
  if (identity_.device.kind != DeviceRequest::kCpu) {
    return absl::InvalidArgumentError(
        "SLUICE_DEVICE: a program chooses its device itself, and CUDA devices have no test with "
        "programs yet; unset it");
  }
  SLUICE_RETURN_IF_ERROR(CreateLogFolder(identity_.log_dir));
  SLUICE_ASSIGN_OR_RETURN(
      log_,
      LogFile::Open(absl::StrCat(identity_.log_dir, "/", LogFileName(ROLE_WORKER, identity_.rank)),
                    LogFile::BytesOf(LogLimits())));
  const auto log = [this](const std::string& line) { Log(line); };
  ModelEntry entry = ProgramModel();
  entry.create_net = [this](const ModelSpec& spec, const NetOptions& options) {
    return MakeNet(spec, options);
  };
  models_ = std::make_unique<ModelList>(std::vector<ModelEntry>{std::move(entry)});
  data_plane_ = std::make_unique<DataPlane>(identity_, log);
  sockets_ = std::make_unique<ClusterSockets>(data_plane_->transport());
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Address> schedulers,
                          ParseAddressList(identity_.scheduler));
  for (const Address& scheduler : schedulers) sockets_->Note(ToText(scheduler));
  places_ = PlacesEnv::Real(8, WebDataProblem(identity_));
  WorkerServer::Options options;
  options.identity = identity_;
  options.models = models_.get();
  options.program = declared_.model().program().digest();
  if (ProgramGivesData(declared_)) options.own_data = &own_data_;
  options.transport = sockets_.get();
  options.clock = Clock::Real();
  options.env = places_.get();
  options.places = places_->use();
  options.stop_reads = [this] { places_->Stop(); };
  options.log = log;
  options.on_job_start = [this](const WorkerAssignment& assignment) { JobStarts(assignment); };
  options.on_job_end = [this](const WorkerAssignment&, const absl::Status& status) {
    JobEnded(status);
  };
  options.on_end = [this](const absl::Status& status) { Ended(status); };
  SLUICE_ASSIGN_OR_RETURN(server_, WorkerServer::Start(std::move(options)));
  ProgramGroup::Options group;
  group.ask = [this](const GatherRequest& request) {
    return server_->scheduler()->Gather(request);
  };
  group.self = [this] {
    MutexLock lock(&mutex_);
    return self_;
  };
  group.clock = Clock::Real();
  group_ = std::make_unique<ProgramGroup>(std::move(group));
  return absl::OkStatus();
}

ProgramWorker::~ProgramWorker() {
  // The program's thread is here, so it uses no step's memory any more. A step that it has taken
  // and not answered would keep the server waiting.
  exchange_.Fail(absl::CancelledError("the program has left the job"));
  sources_->End();
  group_.reset();
  server_.reset();
}

absl::StatusOr<std::unique_ptr<DenseNet>> ProgramWorker::MakeNet(const ModelSpec& spec,
                                                                 const NetOptions&) {
  const auto& program = static_cast<const ProgramSpec&>(spec);
  bool async = false;
  {
    MutexLock lock(&mutex_);
    place_->shape = std::make_shared<const ProgramShape>(program.shape());
    async = place_->async();
  }
  return std::make_unique<ProgramNet>(program.shape(), &exchange_, async ? nullptr : &newest_);
}

void ProgramWorker::Log(const std::string& line) {
  log_->Write(absl::StrCat(
      absl::FormatTime("%Y-%m-%d %H:%M:%E3S ", Clock::Real()->WallNow(), absl::LocalTimeZone()),
      line, "\n"));
}

void ProgramWorker::JobStarts(const WorkerAssignment& assignment) {
  run_end_.Starts();
  MutexLock lock(&mutex_);
  // Another attempt of the same job goes on.
  if (place_.has_value() && place_->job_id != assignment.job().job_id()) newest_ = {};
  place_.emplace();
  place_->job_id = assignment.job().job_id();
  place_->rank = assignment.rank();
  place_->world_size = assignment.job().worker_num();
  place_->mode = ModeOf(assignment.job().config().strategy());
  place_->epochs = assignment.job().config().train().epochs();
  place_->output_dir = assignment.job().config().output_dir();
  self_.emplace();
  self_->set_job_id(assignment.job().job_id());
  self_->set_rank(assignment.rank());
  self_->set_incarnation(assignment.incarnation());
  self_->set_pass(assignment.pass());
}

void ProgramWorker::JobEnded(const absl::Status& status) {
  if (std::optional<absl::Status> how = run_end_.Ended(status)) exchange_.End(*std::move(how));
}

void ProgramWorker::Ended(const absl::Status& status) {
  if (std::optional<absl::Status> how = run_end_.Stopped(status)) exchange_.End(*std::move(how));
}

std::optional<ProgramWorker::Place> ProgramWorker::place() {
  MutexLock lock(&mutex_);
  return place_;
}

absl::StatusOr<std::optional<ProgramGroup::Given>> ProgramWorker::AwaitGather(
    absl::Duration at_most) {
  auto given = group_->Await(at_most);
  if (!given.ok() || given->has_value()) return given;
  const absl::Status may_wait = exchange_.MayWait();
  if (may_wait.ok()) return std::nullopt;
  group_->Drop();
  return absl::IsAborted(may_wait) ? may_wait : absl::CancelledError(may_wait.message());
}

void ProgramWorker::Fail(const std::string& why) {
  const absl::Status status = absl::UnknownError(why);
  // In this order: a step that ends because of the exchange reports the same reason.
  exchange_.Fail(status);
  sources_->Fail(status);
  server_->FailJob(status);
}

void ProgramWorker::FailSource(const std::string& why) {
  const absl::Status status = absl::UnknownError(why);
  sources_->Fail(status);
  server_->FailJob(status);
}

}  // namespace sluice
