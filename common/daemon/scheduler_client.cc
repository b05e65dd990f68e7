#include "common/daemon/scheduler_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/daemon/control_plane.h"
#include "common/transport/grpc_convert.h"
#include "common/transport/grpc_deadline.h"
#include "common/transport/retry.h"
#include "proto/scheduler.grpc.pb.h"

namespace sluice {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(10);
constexpr absl::Duration kResumeTimeout = absl::Hours(1);
// A process that is about to end waits only briefly for the answer to its last call.
constexpr absl::Duration kFarewellTimeout = absl::Seconds(2);
constexpr absl::Duration kConnectWait = absl::Milliseconds(300);
constexpr absl::Duration kNamePeersEvery = absl::Seconds(3);

std::shared_ptr<grpc::Channel> OpenChannel(const std::string& address) {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(kMaxControlMessageBytes);
  args.SetMaxSendMessageSize(kMaxControlMessageBytes);
  // While a call is open, a peer that vanished silently is noticed within 15 s.
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Despite its name, this bounds one attempt to connect, up to the peer's first HTTP/2 settings. A
  // busy host may take a while; a port where nobody listens refuses at once.
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // A proxy from the environment must not come between the parts of one cluster.
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), args);
}

// A server that stops cuts off the calls that no handler has answered, and gRPC then knows nothing
// but the code. Every CANCELLED of a handler has a message.
bool IsCutOff(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::CANCELLED &&
         (status.error_message().empty() || status.error_message() == "CANCELLED");
}

class GrpcSchedulerClient : public SchedulerClient {
 public:
  explicit GrpcSchedulerClient(const std::string& address)
      : address_(address), channel_(OpenChannel(address)), stub_(Scheduler::NewStub(channel_)) {}

  const std::string& address() const override { return address_; }

  absl::Status WaitReady(absl::Duration wait,
                         const std::function<void(const std::string&)>& log) override {
    Clock* const clock = Clock::Real();
    const absl::Time begin = clock->Now(), end = begin + wait;
    for (absl::Time next = begin + kNamePeersEvery;; next += kNamePeersEvery) {
      const absl::Duration at_most = std::min(next, end) - clock->Now();
      if (channel_->WaitForConnected(GrpcDeadline(at_most))) return absl::OkStatus();
      if (clock->Now() >= end) break;
      if (log) {
        log(absl::StrCat("waiting for the scheduler at ", address_, " (",
                         absl::ToInt64Seconds(clock->Now() - begin), " of ",
                         absl::ToInt64Seconds(wait), " s)"));
      }
    }
    return absl::UnavailableError(absl::StrCat(
        "scheduler at ", address_, " did not answer within ", absl::FormatDuration(wait),
        "; start sluice-scheduler there, or correct the address (--scheduler, "
        "SLUICE_SCHEDULER, or `scheduler` in the cluster file)"));
  }

  absl::StatusOr<RegisterReply> Register(const RegisterRequest& request) override {
    return Call<RegisterReply>("Register", &Scheduler::Stub::Register, request, kCallTimeout);
  }
  absl::StatusOr<PollReply> Poll(const PollRequest& request) override {
    return Call<PollReply>("Poll", &Scheduler::Stub::Poll, request, Waiting(request));
  }
  absl::Status Leave(const LeaveRequest& request) override {
    return Call<LeaveReply>("Leave", &Scheduler::Stub::Leave, request, kFarewellTimeout).status();
  }
  absl::Status MemberEnded(const MemberEndedRequest& request) override {
    return Call<MemberEndedReply>("MemberEnded", &Scheduler::Stub::MemberEnded, request,
                                  kFarewellTimeout)
        .status();
  }
  absl::StatusOr<NextPhaseReply> NextPhase(const NextPhaseRequest& request) override {
    return Call<NextPhaseReply>("NextPhase", &Scheduler::Stub::NextPhase, request,
                                Waiting(request));
  }
  absl::StatusOr<NextTaskReply> NextTask(const NextTaskRequest& request) override {
    return Call<NextTaskReply>("NextTask", &Scheduler::Stub::NextTask, request, kCallTimeout);
  }
  absl::StatusOr<GetRouteReply> GetRoute(const GetRouteRequest& request) override {
    return Call<GetRouteReply>("GetRoute", &Scheduler::Stub::GetRoute, request, kCallTimeout);
  }
  absl::Status FailJob(const FailJobRequest& request) override {
    return Call<FailJobReply>("FailJob", &Scheduler::Stub::FailJob, request, kCallTimeout).status();
  }
  absl::StatusOr<SubmitJobReply> SubmitJob(const SubmitJobRequest& request) override {
    return SubmitJobAs("", request);
  }
  absl::StatusOr<SubmitJobReply> SubmitJobAs(const std::string& request_id,
                                             const SubmitJobRequest& request) override {
    // The scheduler may read whole checkpoints.
    return Call<SubmitJobReply>("SubmitJob", &Scheduler::Stub::SubmitJob, request,
                                request.resume() || !request.config().initial_checkpoint().empty()
                                    ? kResumeTimeout
                                    : kCallTimeout,
                                request_id);
  }
  absl::StatusOr<WatchJobReply> WatchJob(const WatchJobRequest& request) override {
    return Call<WatchJobReply>("WatchJob", &Scheduler::Stub::WatchJob, request, Waiting(request));
  }
  absl::StatusOr<CheckpointJobReply> CheckpointJob(const CheckpointJobRequest& request) override {
    return Call<CheckpointJobReply>("CheckpointJob", &Scheduler::Stub::CheckpointJob, request,
                                    Waiting(request));
  }
  absl::Status CancelJob(const CancelJobRequest& request) override {
    return Call<CancelJobReply>("CancelJob", &Scheduler::Stub::CancelJob, request, kCallTimeout)
        .status();
  }
  absl::StatusOr<ClusterStatus> GetStatus() override {
    return Call<ClusterStatus>("GetStatus", &Scheduler::Stub::GetStatus, GetStatusRequest(),
                               kCallTimeout);
  }
  absl::Status Shutdown() override {
    return Call<ShutdownReply>("Shutdown", &Scheduler::Stub::Shutdown, ShutdownRequest(),
                               kCallTimeout)
        .status();
  }

 private:
  // gRPC makes a connection only while some thread waits in it, or every 5 s. A call to a peer that
  // was gone fails at once, so that without this a caller that tries again would not help.
  void AwaitConnection() {
    if (channel_->GetState(/*try_to_connect=*/true) != GRPC_CHANNEL_READY)
      channel_->WaitForConnected(GrpcDeadline(kConnectWait));
  }

  template <class Request>
  static absl::Duration Waiting(const Request& request) {
    return kCallTimeout + absl::Milliseconds(request.wait_ms());
  }

  template <class Reply, class Method, class Request>
  absl::StatusOr<Reply> Call(const char* name, Method method, const Request& request,
                             absl::Duration timeout, const std::string& request_id = "") {
    grpc::ClientContext context;
    if (!request_id.empty()) context.AddMetadata(kRequestIdKey, request_id);
    context.set_deadline(GrpcDeadline(timeout));
    AwaitConnection();
    Reply reply;
    const grpc::Status status = (stub_.get()->*method)(&context, request, &reply);
    if (status.ok()) return reply;
    const absl::Status error = FromGrpcStatus(status);
    if (GotNoAnswer(error) || IsCutOff(status)) {
      return absl::UnavailableError(
          absl::StrCat("scheduler at ", address_, " did not answer ", name, ": ", error.message()));
    }
    if (absl::IsUnimplemented(error)) {
      return absl::UnimplementedError(
          absl::StrCat("the process at ", address_, " is not a Sluice scheduler of this version (",
                       name, ": ", error.message(), "); correct the scheduler's address"));
    }
    return error;
  }

  const std::string address_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<Scheduler::Stub> stub_;
};

}  // namespace

std::unique_ptr<SchedulerClient> SchedulerClient::Create(const std::string& address) {
  return std::make_unique<GrpcSchedulerClient>(address);
}

}  // namespace sluice
