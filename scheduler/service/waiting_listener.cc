#include "scheduler/service/waiting_listener.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/bounded_parse.h"
#include "common/base/status_macros.h"
#include "common/daemon/control_plane.h"
#include "common/transport/grpc_stream_server.h"
#include "proto/scheduler.pb.h"

namespace sluice {
namespace {

using WaitingCall = std::shared_ptr<UnaryCall>;

// Of requests that have not been handled yet. Those with reports may be as long as a scheduler
// takes them, but nothing of them is read.
constexpr size_t kMaxUnreadBytes = size_t{1} << 30;
constexpr size_t kMaxPollBytes = size_t{48} << 20;

class GrpcWaitingListener : public WaitingListener {
 public:
  explicit GrpcWaitingListener(const Options& options)
      : why_(options.why), server_(ServerOptions(options), nullptr) {
    RegisterReply registered;
    registered.set_waits_for(why_);
    Answer("Register", registered);
    NextPhaseReply phase;
    phase.set_waiting_for(absl::StrCat("the scheduler, which ", why_));
    Answer("NextPhase", phase);
    NextTaskReply task;
    task.set_kind(NextTaskReply::WAIT);
    task.set_same_number(true);
    Answer("NextTask", task);
    ClusterStatus status;
    status.set_name(options.cluster);
    MemberStatus* const self = status.add_members();
    self->set_role(ROLE_SCHEDULER);
    self->set_alive(true);
    self->set_doing(why_);
    Answer("GetStatus", status);
    Register("Poll", [](const WaitingCall& call, const std::string& wire) { NoNews(call, wire); });
    for (const char* method :
         {"Leave", "MemberEnded", "GetRoute", "FailJob", "EndJob", "SubmitJob", "WatchJob",
          "CheckpointJob", "DeleteRows", "CancelJob", "ScaleJob", "DrainPserver", "Shutdown"}) {
      Register(method, [why = why_](const WaitingCall& call, const std::string&) {
        call->Reply(absl::UnavailableError(absl::StrCat("the scheduler ", why)));
      });
    }
  }

  absl::Status Listen() { return server_.Start(); }
  int port() const override { return server_.port(); }

 private:
  static GrpcStreamServer::Options ServerOptions(const Options& options) {
    GrpcStreamServer::Options server;
    server.bind_address = options.bind;
    server.credentials = options.credentials;
    server.audit = options.audit;
    server.connections = options.connections;
    server.call_bounds.max_streams = static_cast<int>(options.room.open);
    server.call_bounds.max_streams_per_peer = options.room.open_per_caller;
    server.max_message_bytes = kMaxControlMessageBytes;
    server.max_received_bytes = kMaxUnreadBytes;
    server.keepalive_timeout = absl::Seconds(5);
    server.shutdown_timeout = absl::Seconds(1);
    return server;
  }

  void Register(const char* method, GrpcStreamServer::CallHandler handler) {
    server_.RegisterCall(absl::StrCat("/sluice.Scheduler/", method), std::move(handler),
                         GrpcStreamServer::UnaryThread::kOfStreams, kMaxControlMessageBytes);
  }
  template <class Reply>
  void Answer(const char* method, const Reply& reply) {
    Register(method, [wire = reply.SerializeAsString()](const WaitingCall& call,
                                                        const std::string&) { call->Reply(wire); });
  }
  // The version that the member knows already says that nothing has changed.
  static void NoNews(const WaitingCall& call, const std::string& wire) {
    PollRequest request;
    const absl::Status parsed = ParseWithin(2 * kMaxPollBytes, wire, &request);
    if (!parsed.ok()) return call->Reply(absl::InvalidArgumentError(parsed.message()));
    PollReply reply;
    reply.set_version(request.seen_version());
    call->Reply(reply.SerializeAsString());
  }

  const std::string why_;
  GrpcStreamServer server_;  // last, because its calls use the others
};

}  // namespace

absl::StatusOr<std::unique_ptr<WaitingListener>> WaitingListener::Start(const Options& options) {
  auto listener = std::make_unique<GrpcWaitingListener>(options);
  SLUICE_RETURN_IF_ERROR(listener->Listen());
  return std::unique_ptr<WaitingListener>(std::move(listener));
}

}  // namespace sluice
