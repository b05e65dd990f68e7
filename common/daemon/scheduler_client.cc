#include "common/daemon/scheduler_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/mutex.h"
#include "common/daemon/control_plane.h"
#include "common/daemon/scheduler_choice.h"
#include "common/daemon/scheduler_wait.h"
#include "common/security/grpc_credentials.h"
#include "common/transport/grpc_convert.h"
#include "common/transport/retry.h"
#include "common/transport/server_channel.h"
#include "proto/scheduler.grpc.pb.h"

namespace sluice {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(10);
constexpr absl::Duration kResumeTimeout = absl::Hours(1);
// A process that is about to end waits only briefly for the answer to its last call.
constexpr absl::Duration kFarewellTimeout = absl::Seconds(2);
constexpr absl::Duration kConnectWait = absl::Milliseconds(300);
// How long a process that says why it waits may wait for the attempt to connect to fail.
constexpr absl::Duration kExplainWait = absl::Milliseconds(500);
constexpr absl::Duration kNamePeersEvery = absl::Seconds(3);
// How long an answer may be late before a client of several schedulers looks for another one.
constexpr absl::Duration kOverdue = absl::Seconds(1);
constexpr absl::Duration kLookEvery = absl::Milliseconds(50);

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(kMaxControlMessageBytes);
  args.SetInt(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);  // gRPC would inflate without bound
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
  // A channel that replaces another one must not take over its broken connection.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A proxy from the environment must not come between the parts of one cluster.
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return args;
}

// One scheduler.
class Peer {
 public:
  Peer(const std::string& address, const GrpcCredentials& credentials)
      : address_(address),
        tls_(credentials.tls()),
        channel_(address, credentials, PeerRole::kScheduler, std::nullopt, Arguments()) {}

  const std::string& address() const { return address_; }
  ServerChannel* channel() { return &channel_; }
  // `failed`, with the fix where TLS is the cause; or why another user of this host who serves
  // there is not called.
  absl::Status Explain(const absl::Status& failed) const {
    const absl::Status explained = channel_.Explain(failed);
    const std::string advice = TlsAdvice(explained.message(), tls_);
    if (advice.empty()) return explained;
    return absl::Status(explained.code(), absl::StrCat(explained.message(), "; ", advice));
  }

 private:
  const std::string address_;
  const bool tls_;
  ServerChannel channel_;
};

class GrpcSchedulerClient : public SchedulerClient {
 public:
  GrpcSchedulerClient(const std::string& addresses, Clock* clock,
                      const GrpcCredentials& credentials)
      : addresses_(addresses), clock_(clock) {
    for (const absl::string_view address : absl::StrSplit(addresses, ','))
      peers_.push_back(std::make_unique<Peer>(std::string(address), credentials));
    choice_.emplace(peers_.size());
  }

  const std::string& address() const override { return addresses_; }

  absl::Status WaitReady(absl::Duration wait,
                         const std::function<void(const std::string&)>& log) override {
    const absl::Time begin = clock_->Now(), end = begin + wait;
    WaitingLines lines(this, wait);
    for (absl::Time next = begin + kNamePeersEvery;; next += kNamePeersEvery) {
      if (AwaitConnection(std::min(next, end) - clock_->Now())) return absl::OkStatus();
      if (clock_->Now() >= end) break;
      if (log) log(lines.Next(clock_->Now() - begin));
    }
    return SchedulerDidNotAnswer(this, wait);
  }

  std::string WhyNotReady() override {
    Peer& peer = *peers_[0];
    const absl::Time end = clock_->Now() + kExplainWait;
    for (;;) {
      const ServerChannel::State state = peer.channel()->Look();
      if (state == ServerChannel::State::kFailed) break;
      const absl::Duration left = end - clock_->Now();
      if (state == ServerChannel::State::kReady || left <= absl::ZeroDuration()) return "";
      ServerChannel::AwaitChange({peer.channel()}, left);
    }
    const auto connection = peer.channel()->Get();
    if (!connection.ok()) return std::string(peer.Explain(connection.status()).message());
    // gRPC tells the reason only to a call. The call should not come through to a scheduler that
    // begins to serve now: the caller may be a member, which would be refused and recorded there.
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(end - clock_->Now()));
    ClusterStatus reply;
    const absl::Status failed =
        FromGrpcStatus(Scheduler::NewStub((*connection)->channel())
                           ->GetStatus(&context, GetStatusRequest(), &reply));
    return std::string(peer.Explain(failed).message());
  }

  std::string WhyRefused() override {
    for (const auto& peer : peers_) {
      const absl::Status status = peer->Explain(absl::UnavailableError(""));
      if (!status.message().empty()) return std::string(status.message());
    }
    return "";
  }

  absl::StatusOr<RegisterReply> Register(const RegisterRequest& request) override {
    return Call<RegisterReply>("Register", &Scheduler::Stub::AsyncRegister, request, kCallTimeout);
  }
  absl::StatusOr<PollReply> Poll(const PollRequest& request) override {
    return Call<PollReply>("Poll", &Scheduler::Stub::AsyncPoll, request, kCallTimeout,
                           Wait(request));
  }
  absl::Status Leave(const LeaveRequest& request) override {
    return Call<LeaveReply>("Leave", &Scheduler::Stub::AsyncLeave, request, kFarewellTimeout)
        .status();
  }
  absl::Status MemberEnded(const MemberEndedRequest& request) override {
    return Call<MemberEndedReply>("MemberEnded", &Scheduler::Stub::AsyncMemberEnded, request,
                                  kFarewellTimeout)
        .status();
  }
  absl::StatusOr<NextPhaseReply> NextPhase(const NextPhaseRequest& request) override {
    return Call<NextPhaseReply>("NextPhase", &Scheduler::Stub::AsyncNextPhase, request,
                                kCallTimeout, Wait(request));
  }
  absl::StatusOr<NextTaskReply> NextTask(const NextTaskRequest& request) override {
    return Call<NextTaskReply>("NextTask", &Scheduler::Stub::AsyncNextTask, request, kCallTimeout);
  }
  absl::StatusOr<GetRouteReply> GetRoute(const GetRouteRequest& request) override {
    return Call<GetRouteReply>("GetRoute", &Scheduler::Stub::AsyncGetRoute, request, kCallTimeout);
  }
  absl::Status FailJob(const FailJobRequest& request) override {
    return Call<FailJobReply>("FailJob", &Scheduler::Stub::AsyncFailJob, request, kCallTimeout)
        .status();
  }
  absl::StatusOr<GatherReply> Gather(const GatherRequest& request) override {
    return Call<GatherReply>("Gather", &Scheduler::Stub::AsyncGather, request, kCallTimeout,
                             Wait(request));
  }
  absl::Status EndJob(const EndJobRequest& request) override {
    return Call<EndJobReply>("EndJob", &Scheduler::Stub::AsyncEndJob, request, kCallTimeout)
        .status();
  }
  absl::StatusOr<SubmitJobReply> SubmitJob(const SubmitJobRequest& request) override {
    return SubmitJobAs("", request);
  }
  absl::StatusOr<SubmitJobReply> SubmitJobAs(const std::string& request_id,
                                             const SubmitJobRequest& request) override {
    // The scheduler may read whole checkpoints.
    return Call<SubmitJobReply>("SubmitJob", &Scheduler::Stub::AsyncSubmitJob, request,
                                request.resume() || !request.config().initial_checkpoint().empty()
                                    ? kResumeTimeout
                                    : kCallTimeout,
                                absl::ZeroDuration(), request_id);
  }
  absl::StatusOr<WatchJobReply> WatchJob(const WatchJobRequest& request) override {
    return Call<WatchJobReply>("WatchJob", &Scheduler::Stub::AsyncWatchJob, request, kCallTimeout,
                               Wait(request));
  }
  absl::StatusOr<CheckpointJobReply> CheckpointJob(const CheckpointJobRequest& request) override {
    return Call<CheckpointJobReply>("CheckpointJob", &Scheduler::Stub::AsyncCheckpointJob, request,
                                    kCallTimeout, Wait(request));
  }
  absl::StatusOr<DeleteRowsReply> DeleteRows(const DeleteRowsRequest& request) override {
    return Call<DeleteRowsReply>("DeleteRows", &Scheduler::Stub::AsyncDeleteRows, request,
                                 kCallTimeout, Wait(request));
  }
  absl::Status ScaleJob(const ScaleJobRequest& request) override {
    return Call<ScaleJobReply>("ScaleJob", &Scheduler::Stub::AsyncScaleJob, request, kCallTimeout)
        .status();
  }
  absl::StatusOr<DrainPserverReply> DrainPserver(const DrainPserverRequest& request) override {
    // A pserver that was told to end makes this call: it must not wait for a hung scheduler.
    return Call<DrainPserverReply>("DrainPserver", &Scheduler::Stub::AsyncDrainPserver, request,
                                   kFarewellTimeout);
  }
  absl::Status CancelJob(const CancelJobRequest& request) override {
    return Call<CancelJobReply>("CancelJob", &Scheduler::Stub::AsyncCancelJob, request,
                                kCallTimeout)
        .status();
  }
  absl::StatusOr<ClusterStatus> GetStatus() override {
    return Call<ClusterStatus>("GetStatus", &Scheduler::Stub::AsyncGetStatus, GetStatusRequest(),
                               kCallTimeout);
  }
  absl::Status Shutdown() override {
    return Call<ShutdownReply>("Shutdown", &Scheduler::Stub::AsyncShutdown, ShutdownRequest(),
                               kCallTimeout)
        .status();
  }

 private:
  template <class Request>
  static absl::Duration Wait(const Request& request) {
    return absl::Milliseconds(request.wait_ms());
  }

  // For each scheduler, whether there is a connection to it.
  std::vector<bool> Connected() const {
    std::vector<bool> connected;
    for (const auto& peer : peers_)
      connected.push_back(peer->channel()->Look() == ServerChannel::State::kReady);
    return connected;
  }

  // Waits until the state of each channel has changed, at most `at_most`.
  void AwaitChange(absl::Duration at_most) const {
    std::vector<ServerChannel*> channels;
    for (const auto& peer : peers_) channels.push_back(peer->channel());
    ServerChannel::AwaitChange(channels, at_most);
  }

  // Chooses a scheduler that has a connection, and waits for one at most `at_most`.
  bool AwaitConnection(absl::Duration at_most) {
    const absl::Time end = clock_->Now() + at_most;
    for (;;) {
      if (choice_->Choose(Connected()).has_value()) return true;
      const absl::Duration left = end - clock_->Now();
      if (left <= absl::ZeroDuration()) return false;
      AwaitChange(std::min(left, kLookEvery));
    }
  }

  // Waits for the only event of `queue`, the answer of `chosen` over `connection`. When it does not
  // come within `patience` and another scheduler takes a connection, that one leads, and the call
  // is cancelled.
  struct Answer {
    bool leads_no_longer = false;  // and so the call was cancelled
    bool parsed = false;           // gRPC leaves the status OK when it cannot parse a message
  };
  Answer AwaitAnswer(const ServerConnection& connection, grpc::CompletionQueue* queue,
                     grpc::ClientContext* context, size_t chosen, absl::Duration patience) {
    void* tag;
    Answer answer;
    if (peers_.size() > 1) {
      while (queue->AsyncNext(&tag, &answer.parsed, GrpcDeadline(patience)) ==
             grpc::CompletionQueue::TIMEOUT) {
        if (choice_->ChooseOther(chosen, Connected()).has_value()) {
          answer.leads_no_longer = true;
          context->TryCancel();
          break;
        }
        AwaitChange(kLookEvery);
        patience = kLookEvery;
      }
      if (!answer.leads_no_longer) return answer;
    }
    connection.Next(queue, &tag, &answer.parsed);
    return answer;
  }

  std::string Name(const Peer& peer) const {
    if (peers_.size() == 1) return absl::StrCat("scheduler at ", addresses_);
    return absl::StrCat("scheduler at ", peer.address(), ", of ", addresses_, ",");
  }

  absl::Status NoAnswer(size_t chosen, const char* name, const absl::Status& error) {
    choice_->NoAnswer(chosen);
    const Peer& peer = *peers_[chosen];
    return absl::UnavailableError(
        absl::StrCat(Name(peer), " did not answer ", name, ": ", peer.Explain(error).message()));
  }

  // `wait`: how long the scheduler may hold the call back.
  template <class Reply, class Method, class Request>
  absl::StatusOr<Reply> Call(const char* name, Method method, const Request& request,
                             absl::Duration timeout, absl::Duration wait = absl::ZeroDuration(),
                             const std::string& request_id = "") {
    grpc::ClientContext context;
    if (!request_id.empty()) context.AddMetadata(kRequestIdKey, request_id);
    context.set_deadline(GrpcDeadline(timeout + wait));
    AwaitConnection(kConnectWait);
    const size_t chosen = choice_->current();
    Peer& peer = *peers_[chosen];
    const auto connection = peer.channel()->Get();
    if (!connection.ok()) return NoAnswer(chosen, name, connection.status());
    Reply reply;
    grpc::Status status;
    grpc::CompletionQueue queue;
    const auto stub = Scheduler::NewStub((*connection)->channel());
    const auto call = (stub.get()->*method)(&context, request, &queue);
    call->Finish(&reply, &status, nullptr);
    const Answer answer = AwaitAnswer(**connection, &queue, &context, chosen, wait + kOverdue);
    if (status.ok() && answer.parsed) return reply;
    if (status.ok()) {
      return absl::InternalError(
          absl::StrCat(Name(peer), " answered ", name,
                       " with a message that is malformed or compressed; use the same version of "
                       "Sluice on all hosts"));
    }
    if (answer.leads_no_longer && status.error_code() == grpc::StatusCode::CANCELLED) {
      return absl::UnavailableError(absl::StrCat("scheduler at ", peer.address(),
                                                 " did not answer ", name, ", and another one of ",
                                                 addresses_, " leads now"));
    }
    const absl::Status error = FromGrpcStatus(status);
    if (GotNoAnswer(error) || WasCutOff(status)) {
      peer.channel()->Failed(*connection);
      return NoAnswer(chosen, name, error);
    }
    if (absl::IsUnimplemented(error)) {
      return absl::UnimplementedError(absl::StrCat(
          "the process at ", peer.address(), " is not a Sluice scheduler of this version (", name,
          ": ", error.message(), "); correct the scheduler's address"));
    }
    return error;
  }

  const std::string addresses_;
  Clock* const clock_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::optional<SchedulerChoice> choice_;
};

}  // namespace

std::unique_ptr<SchedulerClient> SchedulerClient::Create(const std::string& addresses, Clock* clock,
                                                         const GrpcCredentials& credentials) {
  return std::make_unique<GrpcSchedulerClient>(addresses, clock, credentials);
}

std::unique_ptr<SchedulerClient> SchedulerClient::Create(const std::string& addresses,
                                                         Clock* clock) {
  return Create(addresses, clock, GrpcCredentials());
}

}  // namespace sluice
