#include "worker/service/job_member.h"

#include "absl/strings/str_cat.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "worker/context/job_context.h"

namespace sluice {
namespace {

// Fills in the fields by which the scheduler knows that a request comes from the rank.
template <typename Request>
Request FromRank(const JobMember& member) {
  Request request;
  request.set_job_id(member.job_id());
  request.set_rank(member.rank());
  request.set_incarnation(member.incarnation());
  request.set_pass(member.assignment().pass());
  return request;
}

}  // namespace

FailJobRequest FailureOfProcess(const std::string& job_id, const MemberKey& key,
                                const absl::Status& why) {
  FailJobRequest request;
  request.set_job_id(job_id);
  // The key proves that this process is the member, so that nobody else can fail the job.
  request.set_member_id(key.id);
  request.set_secret(key.secret);
  request.set_message(Printable(why.message()));
  return request;
}

absl::Status JobMember::Check() const {
  if (rank() < spec().worker_num()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the scheduler assigns rank ", rank(), " of ", spec().worker_num(), " workers"));
}

absl::StatusOr<ParameterClient::Options> JobMember::ClientOptions() const {
  const TrainConfig& train = config().train();
  ParameterClient::Options options;
  options.job_id = job_id();
  options.instance = spec().instance();
  options.rank = rank();
  options.incarnation = incarnation();
  options.pass = assignment().pass();
  SLUICE_ASSIGN_OR_RETURN(options.tables, CreateTableLayouts(spec().tables(), train.seed()));
  options.route = spec().route();
  options.pipeline_depth = train.pipeline_depth();
  options.limits.timeout = StepPatience(config());
  options.limits.max_message_bytes = options_.max_message_bytes;
  options.transport = options_.transport;
  options.clock = clock();
  options.get_route = [this]() -> absl::StatusOr<Route> {
    SLUICE_ASSIGN_OR_RETURN(GetRouteReply reply, scheduler()->GetRoute(RouteRequest()));
    return reply.route();
  };
  return options;
}

GetRouteRequest JobMember::RouteRequest() const { return FromRank<GetRouteRequest>(*this); }

NextPhaseRequest JobMember::PhaseRequest() const { return FromRank<NextPhaseRequest>(*this); }

void JobMember::Describe(HeldJob* held) const {
  held->set_job_id(job_id());
  held->set_instance(spec().instance());
  held->set_rank(rank());
  held->set_incarnation(incarnation());
  held->set_pass(assignment().pass());
}

absl::Status JobMember::Fail(const absl::Status& why, const WorkerProgress& progress,
                             bool of_process) const {
  FailJobRequest request = FailureOfProcess(job_id(), key(), why);
  if (!of_process) request.set_incarnation(incarnation());
  *request.mutable_progress() = progress;
  return scheduler()->FailJob(request);
}

}  // namespace sluice
