#include "scheduler/scheduler_service.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/task_threads.h"
#include "common/daemon/control_plane.h"
#include "common/daemon/role_name.h"
#include "common/security/access_rules.h"
#include "common/security/handshake_watch.h"
#include "common/security/local_user_gate.h"
#include "common/security/peer_verifier.h"
#include "common/transport/connection_bounds.h"
#include "common/transport/grpc_convert.h"
#include "proto/scheduler.grpc.pb.h"
#include "scheduler/status_bound.h"

namespace sluice {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

// Of requests that have not been handled yet.
constexpr size_t kMaxReceivedBytes = size_t{1} << 30;

template <class Reply>
Done<Reply> AnswerTo(ServerUnaryReactor* reactor, Reply* reply) {
  return [reactor, reply](absl::StatusOr<Reply> answer) {
    if (answer.ok()) *reply = *std::move(answer);
    reactor->Finish(ToGrpcStatus(answer.status()));
  };
}

// A report that waits for news. gRPC tells here of a connection that has broken meanwhile.
class PollReactor : public ServerUnaryReactor {
 public:
  PollReactor(RequestIntake* intake, const PollRequest& request)
      : intake_(intake), member_id_(request.member_id()), secret_(request.secret()) {}

  // Also called when the member has given the call up, or its deadline has passed. A member that
  // lives reports again then.
  void OnCancel() override { intake_->ConnectionBroke(member_id_, secret_); }
  void OnDone() override { delete this; }

 private:
  RequestIntake* const intake_;
  const uint64_t member_id_;
  const std::string secret_;
};

// A submission, which another thread answers.
class SubmitReactor : public ServerUnaryReactor {
 public:
  // True when nobody waits for the answer any more.
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  void OnCancel() override { cancelled_.store(true, std::memory_order_relaxed); }
  void OnDone() override { delete this; }

 private:
  std::atomic<bool> cancelled_{false};  // relaxed: only spares work
};

class Service : public Scheduler::CallbackService {
 public:
  Service(const GrpcCredentials& credentials, RequestIntake* intake, AuditLog* audit)
      : credentials_(credentials), intake_(intake), verifier_(credentials), audit_(audit) {}

  ServerUnaryReactor* Register(CallbackServerContext* context, const RegisterRequest* request,
                               RegisterReply* reply) override {
    if (auto* const refusal =
            RefusalOfMember(context, "Register", std::make_pair(request->role(), request->rank())))
      return refusal;
    // Many processes may have a certificate without a rank, and each could say that the process of
    // another one has ended.
    const bool believed = !credentials_.tls() || NameOf(*context) == absl::StrCat(request->rank());
    RegisterNotes notes;
    absl::StatusOr<RegisterReply> answer = intake_->Register(*request, believed, &notes);
    NoteRegistration(*context, *request, notes, answer.status());
    return Finish(context, std::move(answer), reply);
  }
  ServerUnaryReactor* Poll(CallbackServerContext* context, const PollRequest* request,
                           PollReply* reply) override {
    if (auto* const refusal = RefusalOfMember(context, "Poll", request->member_id()))
      return refusal;
    auto* const reactor = new PollReactor(intake_, *request);
    intake_->Poll(request,
                  Audited(context, "Poll", RefusalReason::kSecret, AnswerTo(reactor, reply)),
                  CallerNameOf(*context));
    return reactor;
  }
  ServerUnaryReactor* Leave(CallbackServerContext* context, const LeaveRequest* request,
                            LeaveReply*) override {
    if (auto* const refusal = RefusalOfMember(context, "Leave", request->member_id()))
      return refusal;
    const absl::Status status = intake_->Leave(*request);
    AuditRefusal(*context, "Leave", RefusalReason::kSecret, status);
    return Finish(context, status);
  }
  ServerUnaryReactor* MemberEnded(CallbackServerContext* context, const MemberEndedRequest* request,
                                  MemberEndedReply*) override {
    if (auto* const refusal = Refusal(context, "MemberEnded")) return refusal;
    const absl::Status status = intake_->MemberEnded(*request);
    Acted(*context, AuditedAction::kMemberEnded, MemberName(request->role(), request->rank()),
          status, absl::StrCat("pid ", request->pid(), ": ", request->reason()));
    // Nothing is left to do for a member that is gone already.
    return Finish(context, absl::IsNotFound(status) ? absl::OkStatus() : status);
  }
  ServerUnaryReactor* NextPhase(CallbackServerContext* context, const NextPhaseRequest* request,
                                NextPhaseReply* reply) override {
    if (auto* const refusal = Refusal(context, "NextPhase")) return refusal;
    ServerUnaryReactor* reactor = context->DefaultReactor();
    intake_->NextPhase(request, AnswerToRank(context, "NextPhase", reply), CallerNameOf(*context));
    return reactor;
  }
  ServerUnaryReactor* NextTask(CallbackServerContext* context, const NextTaskRequest* request,
                               NextTaskReply* reply) override {
    if (auto* const refusal = Refusal(context, "NextTask")) return refusal;
    ServerUnaryReactor* reactor = context->DefaultReactor();
    intake_->NextTask(*request, AnswerToRank(context, "NextTask", reply));
    return reactor;
  }
  ServerUnaryReactor* GetRoute(CallbackServerContext* context, const GetRouteRequest* request,
                               GetRouteReply* reply) override {
    if (auto* const refusal = Refusal(context, "GetRoute")) return refusal;
    return Finish(context, intake_->GetRoute(*request), reply);
  }
  ServerUnaryReactor* FailJob(CallbackServerContext* context, const FailJobRequest* request,
                              FailJobReply*) override {
    if (auto* const refusal = RefusalOfMember(context, "FailJob", request->member_id()))
      return refusal;
    ServerUnaryReactor* reactor = context->DefaultReactor();
    intake_->FailJob(*request, [this, context, reactor](const absl::Status& status) {
      AuditRefusal(*context, "FailJob", RefusalReason::kSecret, status);
      reactor->Finish(ToGrpcStatus(status));
    });
    return reactor;
  }
  ServerUnaryReactor* SubmitJob(CallbackServerContext* context, const SubmitJobRequest* request,
                                SubmitJobReply* reply) override {
    if (auto* const refusal = Refusal(context, "SubmitJob")) return refusal;
    // A submission reads files and the folders of its data, which may be slow. gRPC has only a few
    // threads for all calls, those of members that renew their leases included.
    auto* const reactor = new SubmitReactor();
    const bool added = submissions_.Add([this, context, request, reply, reactor] {
      reactor->Finish(ToGrpcStatus(reactor->cancelled() ? absl::CancelledError()
                                                        : Submit(*context, *request, reply)));
    });
    if (!added) {
      reactor->Finish(ToGrpcStatus(absl::ResourceExhaustedError(
          absl::StrCat(kMaxWaitingSubmissions,
                       " submissions are waiting already, because their files are read slowly; "
                       "submit the job again in a minute"))));
    }
    return reactor;
  }
  ServerUnaryReactor* WatchJob(CallbackServerContext* context, const WatchJobRequest* request,
                               WatchJobReply* reply) override {
    if (auto* const refusal = Refusal(context, "WatchJob")) return refusal;
    ServerUnaryReactor* reactor = context->DefaultReactor();
    intake_->WatchJob(request, AnswerTo(reactor, reply), CallerNameOf(*context));
    return reactor;
  }
  ServerUnaryReactor* CheckpointJob(CallbackServerContext* context,
                                    const CheckpointJobRequest* request,
                                    CheckpointJobReply* reply) override {
    if (auto* const refusal = Refusal(context, "CheckpointJob")) return refusal;
    ServerUnaryReactor* reactor = context->DefaultReactor();
    Done<CheckpointJobReply> done = AnswerTo(reactor, reply);
    // A call with a number only keeps waiting for the checkpoint that an earlier one asked for.
    if (request->number() == 0) {
      done = [this, context, request, done](absl::StatusOr<CheckpointJobReply> answer) {
        Acted(*context, AuditedAction::kCheckpoint, request->job_id(), answer.status());
        done(std::move(answer));
      };
    }
    intake_->CheckpointJob(request, std::move(done), CallerNameOf(*context));
    return reactor;
  }
  ServerUnaryReactor* CancelJob(CallbackServerContext* context, const CancelJobRequest* request,
                                CancelJobReply*) override {
    if (auto* const refusal = Refusal(context, "CancelJob")) return refusal;
    ServerUnaryReactor* reactor = context->DefaultReactor();
    intake_->CancelJob(*request, [this, context, request, reactor](const absl::Status& status) {
      Acted(*context, AuditedAction::kCancel, request->job_id(), status, request->failure());
      reactor->Finish(ToGrpcStatus(status));
    });
    return reactor;
  }
  ServerUnaryReactor* ScaleJob(CallbackServerContext* context, const ScaleJobRequest* request,
                               ScaleJobReply*) override {
    if (auto* const refusal = Refusal(context, "ScaleJob")) return refusal;
    ServerUnaryReactor* reactor = context->DefaultReactor();
    intake_->ScaleJob(*request, [this, context, request, reactor](const absl::Status& status) {
      Acted(*context, AuditedAction::kScale, request->job_id(), status,
            absl::StrCat("worker_num ", request->worker_num()));
      reactor->Finish(ToGrpcStatus(status));
    });
    return reactor;
  }
  ServerUnaryReactor* DrainPserver(CallbackServerContext* context,
                                   const DrainPserverRequest* request,
                                   DrainPserverReply* reply) override {
    if (auto* const refusal = RefusalOfDrain(context, *request)) return refusal;
    ServerUnaryReactor* reactor = context->DefaultReactor();
    const auto audited = [this, context, request, answer = AnswerTo(reactor, reply)](
                             absl::StatusOr<DrainPserverReply> given) {
      NoteDrain(*context, *request, given.status());
      answer(std::move(given));
    };
    intake_->DrainPserver(*request, audited);
    return reactor;
  }
  ServerUnaryReactor* GetStatus(CallbackServerContext* context, const GetStatusRequest*,
                                ClusterStatus* reply) override {
    if (auto* const refusal = Refusal(context, "GetStatus")) return refusal;
    *reply = intake_->GetStatus();
    BoundStatus(kMaxControlMessageBytes, reply);
    return Finish(context, absl::OkStatus());
  }
  ServerUnaryReactor* Shutdown(CallbackServerContext* context, const ShutdownRequest*,
                               ShutdownReply*) override {
    if (auto* const refusal = Refusal(context, "Shutdown")) return refusal;
    ServerUnaryReactor* reactor = context->DefaultReactor();
    intake_->Shutdown([this, context, reactor](const absl::Status& status) {
      Acted(*context, AuditedAction::kShutdown, "", status);
      reactor->Finish(ToGrpcStatus(status));
    });
    return reactor;
  }

 private:
  static constexpr int kSubmissionThreads = 4;
  static constexpr size_t kMaxWaitingSubmissions = 16;

  absl::Status Submit(const CallbackServerContext& context, const SubmitJobRequest& request,
                      SubmitJobReply* reply) {
    const auto id = context.client_metadata().find(kRequestIdKey);
    const bool has_id = id != context.client_metadata().end();
    const std::string request_id =
        has_id ? std::string(id->second.data(), id->second.size()) : std::string();
    absl::StatusOr<SubmitJobReply> answer = intake_->SubmitJob(request, request_id);
    Acted(context, AuditedAction::kSubmit, answer.ok() ? answer->job_id() : "", answer.status());
    if (!answer.ok()) return answer.status();
    *reply = *std::move(answer);
    return absl::OkStatus();
  }
  // Null when the caller may make this call; else the reactor of a call that is refused.
  ServerUnaryReactor* Refusal(CallbackServerContext* context, const char* method) {
    const absl::Status allowed = Check(*context, method).status();
    return allowed.ok() ? nullptr : Finish(context, allowed);
  }
  // The same for a member that says that it has this role and rank.
  ServerUnaryReactor* RefusalOfMember(CallbackServerContext* context, const char* method,
                                      const std::pair<Role, uint32_t>& member) {
    const auto peer = Check(*context, method);
    if (!peer.ok()) return Finish(context, peer.status());
    const absl::Status allowed =
        CheckPeer(*peer, member.first == ROLE_PSERVER ? PeerRole::kPserver : PeerRole::kWorker,
                  member.second);
    if (allowed.ok()) return nullptr;
    Refused(*context, method, peer, RefusalReason::kRank, allowed);
    return Finish(context, allowed);
  }
  // The same for a member that gives its id. The intake answers those that it does not know.
  ServerUnaryReactor* RefusalOfMember(CallbackServerContext* context, const char* method,
                                      uint64_t member_id) {
    if (!credentials_.tls()) return Refusal(context, method);
    const auto member = intake_->RoleAndRankOf(member_id);
    return member.has_value() ? RefusalOfMember(context, method, *member)
                              : Refusal(context, method);
  }
  // Operators may drain every pserver, and a pserver only itself.
  ServerUnaryReactor* RefusalOfDrain(CallbackServerContext* context,
                                     const DrainPserverRequest& request) {
    const auto peer = Check(*context, "DrainPserver");
    if (!peer.ok()) return Finish(context, peer.status());
    if (!peer->verified || peer->role == PeerRole::kOperator) return nullptr;
    absl::Status allowed = CheckPeer(*peer, PeerRole::kPserver, request.rank());
    if (allowed.ok() && request.member_id() == 0)
      allowed = absl::PermissionDeniedError("a pserver may drain only itself: give its member_id");
    if (allowed.ok()) return nullptr;
    Refused(*context, "DrainPserver", peer, RefusalReason::kRank, allowed);
    return Finish(context, allowed);
  }
  absl::StatusOr<PeerIdentity> Check(const CallbackServerContext& context,
                                     const char* method) const {
    absl::StatusOr<PeerIdentity> peer = PeerOf(context);
    if (!peer.ok()) {
      Refused(context, method, peer, RefusalReason::kCertificate, peer.status());
      return peer;
    }
    const absl::Status allowed = CheckAccess(*peer, FullName(method));
    if (allowed.ok()) return peer;
    Refused(context, method, peer, RefusalReason::kRole, allowed);
    return allowed;
  }

  absl::StatusOr<PeerIdentity> PeerOf(const CallbackServerContext& context) const {
    return verifier_.PeerOf(*context.auth_context());
  }
  // Records what a call that was refused says about its caller. `denied`: what the caller
  // lacks if it is PERMISSION_DENIED.
  void AuditRefusal(const CallbackServerContext& context, const char* method, RefusalReason denied,
                    const absl::Status& status) const {
    RefusalReason reason = ReasonOf(status) == RefusalReason::kOther ? denied : ReasonOf(status);
    if (absl::IsAborted(status)) {
      reason = RefusalReason::kFenced;
    } else if (absl::IsInvalidArgument(status)) {
      reason = RefusalReason::kInvalid;
    } else if (!absl::IsPermissionDenied(status)) {
      return;
    }
    Refused(context, method, PeerOf(context), reason, status);
  }
  template <class Reply>
  Done<Reply> Audited(CallbackServerContext* context, const char* method, RefusalReason denied,
                      Done<Reply> answer) {
    return
        [this, context, method, denied, answer = std::move(answer)](absl::StatusOr<Reply> given) {
          AuditRefusal(*context, method, denied, given.status());
          answer(std::move(given));
        };
  }
  // AnswerTo for a call of a rank, which is refused when the caller lacks its pass.
  template <class Reply>
  Done<Reply> AnswerToRank(CallbackServerContext* context, const char* method, Reply* reply) {
    return Audited(context, method, RefusalReason::kPass,
                   AnswerTo(context->DefaultReactor(), reply));
  }
  void NoteRegistration(const CallbackServerContext& context, const RegisterRequest& request,
                        const RegisterNotes& notes, const absl::Status& outcome) const {
    AuditRefusal(context, "Register", RefusalReason::kSecret, outcome);
    if (notes.disbelieved) {
      Refused(context, "Register", PeerOf(context), RefusalReason::kRank,
              absl::PermissionDeniedError(
                  "the caller says that the process of the living member has ended, which only a "
                  "certificate that names the rank may say"));
    }
    if (!notes.refused_holds.empty()) {
      Refused(
          context, "Register", PeerOf(context), RefusalReason::kPass,
          absl::PermissionDeniedError(absl::StrCat("the caller says without a pass that it serves ",
                                                   absl::StrJoin(notes.refused_holds, ", "))));
    }
    if (!notes.replaced.empty()) {
      Acted(context, AuditedAction::kTakeover, MemberName(request.role(), request.rank()),
            absl::OkStatus(), absl::StrCat("replaces ", notes.replaced));
    }
  }
  void NoteDrain(const CallbackServerContext& context, const DrainPserverRequest& request,
                 const absl::Status& outcome) {
    if (request.member_id() != 0)
      AuditRefusal(context, "DrainPserver", RefusalReason::kSecret, outcome);
    if (!IsNews(context, request, outcome)) return;
    Acted(context, AuditedAction::kDrain, absl::StrCat("pserver ", request.rank()), outcome,
          request.cancel() ? "cancel" : "");
  }
  // The name in the caller's certificate; "" when it has none.
  std::string NameOf(const CallbackServerContext& context) const {
    const auto peer = PeerOf(context);
    return peer.ok() ? peer->name : "";
  }
  static std::string MemberName(Role role, uint32_t rank) {
    return absl::StrCat(RoleName(role), " ", rank);
  }

  // Whom waiting calls are counted for: a certificate's role and name on one host.
  std::string CallerNameOf(const CallbackServerContext& context) const {
    const std::string address = PeerAddress(context.peer());
    const AuditedCaller caller = CallerOf(PeerOf(context), address);
    return absl::StrCat(caller.role, " ", caller.name, "@", address.substr(0, address.rfind(':')));
  }
  static std::string FullName(const char* method) {
    return absl::StrCat("/sluice.Scheduler/", method);
  }
  void Refused(const CallbackServerContext& context, const char* method,
               const absl::StatusOr<PeerIdentity>& peer, RefusalReason reason,
               const absl::Status& refusal) const {
    if (audit_ == nullptr) return;
    audit_->Refused(CallerOf(peer, PeerAddress(context.peer())), FullName(method), reason,
                    refusal.message());
  }
  // Recorded before the answer leaves.
  void Acted(const CallbackServerContext& context, AuditedAction action, absl::string_view target,
             const absl::Status& outcome, absl::string_view detail = "") const {
    if (audit_ == nullptr) return;
    const auto peer = PeerOf(context);
    audit_->Acted(CallerOf(peer, PeerAddress(context.peer())), action, target, outcome, detail);
  }
  // A drain is asked for again and again, to learn how far it is. False when the same caller has
  // asked for it last, with the same outcome. Its port may be another one.
  bool IsNews(const CallbackServerContext& context, const DrainPserverRequest& request,
              const absl::Status& outcome) {
    const AuditedCaller caller = CallerOf(PeerOf(context), PeerAddress(context.peer()));
    std::string drain = absl::StrCat(caller.role, " ", caller.name, " ",
                                     caller.address.substr(0, caller.address.rfind(':')), " ",
                                     request.SerializeAsString(), " ", outcome.ToString());
    MutexLock lock(&mutex_);
    if (drain == last_drain_) return false;
    last_drain_ = std::move(drain);
    return true;
  }

  static ServerUnaryReactor* Finish(CallbackServerContext* context, const absl::Status& status) {
    ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpcStatus(status));
    return reactor;
  }
  template <class Reply>
  static ServerUnaryReactor* Finish(CallbackServerContext* context, absl::StatusOr<Reply> answer,
                                    Reply* reply) {
    ServerUnaryReactor* reactor = context->DefaultReactor();
    AnswerTo(reactor, reply)(std::move(answer));
    return reactor;
  }

  const GrpcCredentials credentials_;
  RequestIntake* const intake_;
  const PeerVerifier verifier_;
  AuditLog* const audit_;  // may be null
  Mutex mutex_;
  std::string last_drain_ ABSL_GUARDED_BY(mutex_);
  // Last, so that it ends first: a submission uses the other fields.
  TaskThreads submissions_{kSubmissionThreads, kMaxWaitingSubmissions};
};

class GrpcListener : public SchedulerListener {
 public:
  GrpcListener(const GrpcCredentials& credentials, RequestIntake* intake, AuditLog* audit)
      : credentials_(credentials),
        intake_(intake),
        audit_(audit),
        service_(credentials, intake, audit) {}
  ~GrpcListener() override { Stop(); }

  absl::Status Listen(const std::string& bind) {
    grpc::ServerBuilder builder;
    if (credentials_.tls() && audit_ != nullptr) {
      HandshakeWatch::NoteAddresses(&builder);
      failed_handshakes_ = AuditFailedHandshakes(audit_);
    }
    builder.AddListeningPort(bind, credentials_.ForServer(), &port_);
    builder.SetMaxReceiveMessageSize(kMaxControlMessageBytes);
    builder.SetMaxSendMessageSize(kMaxControlMessageBytes);
    BoundConnections(kMaxReceivedBytes, &builder);
    // Two schedulers must not share a port. Members may ping while the scheduler sends nothing.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
    builder.RegisterService(&service_);
    gate_ = std::make_unique<LocalUserGate>(credentials_, bind, audit_);
    SLUICE_ASSIGN_OR_RETURN(server_, gate_->Start(&builder));
    if (server_ != nullptr && port_ != 0) return absl::OkStatus();
    server_.reset();
    return absl::UnavailableError(absl::StrCat(
        "cannot listen on ", bind,
        ": the port is in use, or the address does not belong to this host; give another --bind"));
  }
  int port() const override { return port_; }
  void Stop() override {
    if (server_ == nullptr) return;
    failed_handshakes_.reset();  // those that the end of the server cuts are nobody's fault
    intake_->StopWaiting();
    server_->Shutdown(GrpcDeadline(absl::Seconds(1)));
    server_->Wait();
    server_.reset();
  }

 private:
  const GrpcCredentials credentials_;
  RequestIntake* const intake_;
  AuditLog* const audit_;  // may be null
  Service service_;
  int port_ = 0;
  std::unique_ptr<LocalUserGate> gate_;  // outlives the server
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<HandshakeWatch> failed_handshakes_;  // null: without TLS or an audit log
};

}  // namespace

absl::StatusOr<std::unique_ptr<SchedulerListener>> SchedulerListener::Start(
    const std::string& bind, const GrpcCredentials& credentials, RequestIntake* intake,
    AuditLog* audit) {
  auto listener = std::make_unique<GrpcListener>(credentials, intake, audit);
  const absl::Status status = listener->Listen(bind);
  if (!status.ok()) return status;
  return std::unique_ptr<SchedulerListener>(std::move(listener));
}

}  // namespace sluice
