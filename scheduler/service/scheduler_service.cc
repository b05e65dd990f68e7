#include "scheduler/service/scheduler_service.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/bounded_parse.h"
#include "common/base/mutex.h"
#include "common/daemon/control_plane.h"
#include "common/daemon/role_name.h"
#include "common/transport/grpc_stream_server.h"
#include "proto/scheduler.pb.h"
#include "scheduler/service/status_bound.h"

namespace sluice {
namespace {

using Call = std::shared_ptr<UnaryCall>;
using UnaryThread = GrpcStreamServer::UnaryThread;

// Of requests that have not been handled yet.
constexpr size_t kMaxReceivedBytes = size_t{1} << 30;
// Calls that read files, which may be slow. The threads of the others are for members that renew
// their leases, too.
constexpr int kSubmissionThreads = 4;
constexpr size_t kMaxWaitingSubmissions = 16;

// The most that a request may have on the wire, and may take once it is parsed.
struct RequestBound {
  size_t wire, parsed;
};
constexpr size_t kKiB = 1 << 10, kMiB = 1 << 20;
constexpr RequestBound kIds = {64 * kKiB, 128 * kKiB};  // and numbers
constexpr RequestBound kSentence = {256 * kKiB, 512 * kKiB};
// A member that returns to a restarted scheduler names its jobs (kMaxListed) with their passes.
constexpr RequestBound kRegistration = {2 * kMiB, 4 * kMiB};
// What a pserver hosts (kMaxHostedBytes), spans of traces, and parts of a checkpoint.
constexpr RequestBound kReport = {48 * kMiB, 128 * kMiB};
// The sums of an evaluation (2 x 2^20 bins), or 100,000 data files with long names.
constexpr RequestBound kPhaseReport = {kMaxControlMessageBytes, 192 * kMiB};
// What a rank gives the others (RankGathers::kMaxCallBytes).
constexpr RequestBound kGathered = {kMiB + 64 * kKiB, 2 * kMiB + 128 * kKiB};
// Keys of rows, whose tag and length may come for each.
constexpr RequestBound kKeys = {kMaxDeletedKeys * 9 + 64 * kKiB, 32 * kMiB};
constexpr RequestBound kJob = {kMaxJobBytes, kMaxJobParsedBytes};

template <class Reply>
Done<Reply> AnswerTo(const Call& call) {
  return [call](absl::StatusOr<Reply> answer) {
    call->Reply(answer.ok() ? absl::StatusOr<std::string>(answer->SerializeAsString())
                            : answer.status());
  };
}
// For methods whose replies are empty.
void Finish(const Call& call, const absl::Status& status) {
  call->Reply(status.ok() ? absl::StatusOr<std::string>("") : status);
}

std::string MemberName(Role role, uint32_t rank) { return absl::StrCat(RoleName(role), " ", rank); }
AuditedCaller CallerOfCall(const Call& call) {
  return CallerOf(call->peer(), call->peer().address);
}
// Whom waiting calls are counted for: a certificate's role and name on one host.
std::string CallerNameOf(const Call& call) { return PeerOn(CallerOfCall(call)); }

// Remembers the texts that it was asked about last.
//
// Thread safety: safe from any thread.
class NewestTexts {
 public:
  bool IsNew(const std::string& text) {
    MutexLock lock(&mutex_);
    if (!texts_.insert(text).second) return false;
    by_age_.push_back(text);
    if (by_age_.size() > kMaxTexts) {
      texts_.erase(by_age_.front());
      by_age_.pop_front();
    }
    return true;
  }

 private:
  static constexpr size_t kMaxTexts = 4096;

  Mutex mutex_;
  std::set<std::string> texts_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> by_age_ ABSL_GUARDED_BY(mutex_);
};

class Service {
 public:
  Service(const GrpcCredentials& credentials, RequestIntake* intake, AuditLog* audit)
      : credentials_(credentials), intake_(intake), audit_(audit) {}

  void ServeOn(GrpcStreamServer* port) {
    Serve(port, "Register", kRegistration, &Service::Register);
    Serve(port, "Poll", kReport, &Service::Poll);
    Serve(port, "Leave", kSentence, &Service::Leave);
    Serve(port, "MemberEnded", kSentence, &Service::MemberEnded);
    Serve(port, "NextPhase", kPhaseReport, &Service::NextPhase);
    Serve(port, "NextTask", kIds, &Service::NextTask);
    Serve(port, "GetRoute", kIds, &Service::GetRoute);
    Serve(port, "FailJob", kSentence, &Service::FailJob);
    Serve(port, "Gather", kGathered, &Service::Gather);
    Serve(port, "EndJob", kIds, &Service::EndJob);
    Serve(port, "SubmitJob", kJob, &Service::SubmitJob, UnaryThread::kOfItsOwn);
    Serve(port, "WatchJob", kIds, &Service::WatchJob);
    Serve(port, "CheckpointJob", kIds, &Service::CheckpointJob);
    Serve(port, "DeleteRows", kKeys, &Service::DeleteRows);
    Serve(port, "CancelJob", kSentence, &Service::CancelJob);
    Serve(port, "ScaleJob", kIds, &Service::ScaleJob);
    Serve(port, "DrainPserver", kIds, &Service::DrainPserver);
    Serve(port, "GetStatus", kIds, &Service::GetStatus);
    Serve(port, "Shutdown", kIds, &Service::Shutdown);
  }

 private:
  template <class Request>
  void Serve(GrpcStreamServer* port, const char* method, const RequestBound& bound,
             void (Service::*handle)(const Call&, const Request&),
             UnaryThread thread = UnaryThread::kOfStreams) {
    const auto parse = [this, bound, handle](const Call& call, const std::string& wire) {
      Request request;
      absl::Status parsed = ParseWithin(MaxParsedBytes(bound.parsed, wire.size()), wire, &request);
      if (!parsed.ok()) {
        parsed = absl::InvalidArgumentError(absl::StrCat(call->method(), ": ", parsed.message()));
        Refused(call, parsed);
        return call->Reply(parsed);
      }
      (this->*handle)(call, request);
    };
    port->RegisterCall(absl::StrCat("/sluice.Scheduler/", method), parse, thread, bound.wire);
  }

  void Register(const Call& call, const RegisterRequest& request) {
    if (!MayBe(call, {request.role(), request.rank()})) return;
    // Many processes may have a certificate without a rank, and each could say that the process of
    // another one has ended.
    const bool believed = !credentials_.tls() || call->peer().name == absl::StrCat(request.rank());
    RegisterNotes notes;
    absl::StatusOr<RegisterReply> answer = intake_->Register(request, believed, &notes);
    NoteRegistration(call, request, notes, answer.status());
    const bool held = answer.ok() && answer->has_incumbent();
    if (held && !believed) NoteHeldRank(call, request, notes.disbelieved);
    AnswerTo<RegisterReply>(call)(std::move(answer));
  }
  void Poll(const Call& call, const PollRequest& request) {
    if (!MayBe(call, request.member_id())) return;
    // Also called when the member has given the call up, or its deadline has passed. A member that
    // lives reports again then.
    call->OnCancel([intake = intake_, id = request.member_id(), secret = request.secret()] {
      intake->ConnectionBroke(id, secret);
    });
    intake_->Poll(&request, Audited(call, RefusalReason::kSecret, AnswerTo<PollReply>(call)),
                  CallerNameOf(call));
  }
  void Leave(const Call& call, const LeaveRequest& request) {
    if (!MayBe(call, request.member_id())) return;
    const absl::Status status = intake_->Leave(request);
    AuditRefusal(call, RefusalReason::kSecret, status);
    Finish(call, status);
  }
  void MemberEnded(const Call& call, const MemberEndedRequest& request) {
    const absl::Status status = intake_->MemberEnded(request);
    Acted(call, AuditedAction::kMemberEnded, MemberName(request.role(), request.rank()), status,
          absl::StrCat("pid ", request.pid(), ": ", request.reason()));
    Finish(call, status);
  }
  void NextPhase(const Call& call, const NextPhaseRequest& request) {
    intake_->NextPhase(&request,
                       Audited(call, RefusalReason::kPass, AnswerTo<NextPhaseReply>(call)),
                       CallerNameOf(call));
  }
  void NextTask(const Call& call, const NextTaskRequest& request) {
    intake_->NextTask(request, Audited(call, RefusalReason::kPass, AnswerTo<NextTaskReply>(call)));
  }
  void GetRoute(const Call& call, const GetRouteRequest& request) {
    absl::StatusOr<GetRouteReply> answer = intake_->GetRoute(request);
    AuditRefusal(call, RefusalReason::kPass, answer.status());
    AnswerTo<GetRouteReply>(call)(std::move(answer));
  }
  void FailJob(const Call& call, const FailJobRequest& request) {
    if (!MayBe(call, request.member_id())) return;
    intake_->FailJob(request, [this, call](const absl::Status& status) {
      AuditRefusal(call, RefusalReason::kSecret, status);
      Finish(call, status);
    });
  }
  void Gather(const Call& call, const GatherRequest& request) {
    intake_->Gather(&request, Audited(call, RefusalReason::kPass, AnswerTo<GatherReply>(call)),
                    CallerNameOf(call));
  }
  void EndJob(const Call& call, const EndJobRequest& request) {
    if (!MayBe(call, request.member_id())) return;
    intake_->EndJob(request, [this, call](const absl::Status& status) {
      AuditRefusal(call, RefusalReason::kSecret, status);
      Finish(call, status);
    });
  }
  void SubmitJob(const Call& call, const SubmitJobRequest& request) {
    if (call->cancelled()) return call->Reply(absl::CancelledError());
    absl::StatusOr<SubmitJobReply> answer =
        intake_->SubmitJob(request, call->Metadata(kRequestIdKey));
    Acted(call, AuditedAction::kSubmit, answer.ok() ? answer->job_id() : "", answer.status());
    AnswerTo<SubmitJobReply>(call)(std::move(answer));
  }
  void WatchJob(const Call& call, const WatchJobRequest& request) {
    intake_->WatchJob(&request, Audited(call, RefusalReason::kOther, AnswerTo<WatchJobReply>(call)),
                      CallerNameOf(call));
  }
  void CheckpointJob(const Call& call, const CheckpointJobRequest& request) {
    Done<CheckpointJobReply> done = AnswerTo<CheckpointJobReply>(call);
    // A call with a number only keeps waiting for the checkpoint that an earlier one asked for.
    if (request.number() != 0) {
      done = Audited(call, RefusalReason::kOther, std::move(done));
    } else {
      done = [this, call, job = request.job_id(),
              done = std::move(done)](absl::StatusOr<CheckpointJobReply> answer) {
        Acted(call, AuditedAction::kCheckpoint, job, answer.status());
        done(std::move(answer));
      };
    }
    intake_->CheckpointJob(&request, std::move(done), CallerNameOf(call));
  }
  void DeleteRows(const Call& call, const DeleteRowsRequest& request) {
    Done<DeleteRowsReply> done = AnswerTo<DeleteRowsReply>(call);
    // As of a checkpoint, a call with a number only keeps waiting.
    if (request.deletion() != 0) {
      done = Audited(call, RefusalReason::kOther, std::move(done));
    } else {
      done = [this, call, job = request.job_id(),
              what = absl::StrCat(request.keys_size(), " keys of table '", request.table(), "'"),
              done = std::move(done)](absl::StatusOr<DeleteRowsReply> answer) {
        Acted(call, AuditedAction::kDeleteRows, job, answer.status(), what);
        done(std::move(answer));
      };
    }
    intake_->DeleteRows(&request, std::move(done), CallerNameOf(call));
  }
  void CancelJob(const Call& call, const CancelJobRequest& request) {
    intake_->CancelJob(
        request, FinishAction(call, AuditedAction::kCancel, request.job_id(), request.failure()));
  }
  void ScaleJob(const Call& call, const ScaleJobRequest& request) {
    intake_->ScaleJob(request, FinishAction(call, AuditedAction::kScale, request.job_id(),
                                            absl::StrCat("worker_num ", request.worker_num())));
  }
  void DrainPserver(const Call& call, const DrainPserverRequest& request) {
    if (!MayDrain(call, request)) return;
    const auto audited = [this, call, request, answer = AnswerTo<DrainPserverReply>(call)](
                             absl::StatusOr<DrainPserverReply> given) {
      NoteDrain(call, request, given.status());
      answer(std::move(given));
    };
    intake_->DrainPserver(request, audited);
  }
  void GetStatus(const Call& call, const GetStatusRequest&) {
    ClusterStatus status = intake_->GetStatus();
    BoundStatus(kMaxControlMessageBytes, &status);
    AnswerTo<ClusterStatus>(call)(std::move(status));
  }
  void Shutdown(const Call& call, const ShutdownRequest&) {
    intake_->Shutdown(FinishAction(call, AuditedAction::kShutdown, "", ""));
  }

  // False after the refusal of a caller whose certificate is not for this role and rank.
  bool MayBe(const Call& call, const std::pair<Role, uint32_t>& member) {
    const PeerRole role = member.first == ROLE_PSERVER ? PeerRole::kPserver : PeerRole::kWorker;
    return Allow(call, CheckPeer(call->peer(), role, member.second));
  }
  // The same for a member that gives its id. The intake answers those that it does not know.
  bool MayBe(const Call& call, uint64_t member_id) {
    if (!credentials_.tls()) return true;
    const auto member = intake_->RoleAndRankOf(member_id);
    return !member.has_value() || MayBe(call, *member);
  }
  // Operators may drain every pserver, and a pserver only itself.
  bool MayDrain(const Call& call, const DrainPserverRequest& request) {
    const PeerIdentity& peer = call->peer();
    if (!peer.verified || peer.role == PeerRole::kOperator) return true;
    absl::Status allowed = CheckPeer(peer, PeerRole::kPserver, request.rank());
    if (allowed.ok() && request.member_id() == 0)
      allowed = absl::PermissionDeniedError("a pserver may drain only itself: give its member_id");
    return Allow(call, allowed);
  }
  bool Allow(const Call& call, const absl::Status& allowed) {
    if (allowed.ok()) return true;
    Refused(call, Because(RefusalReason::kRank, allowed));
    call->Reply(allowed);
    return false;
  }

  // Records what a call that was refused says about its caller. `denied`: what the caller
  // lacks if it is PERMISSION_DENIED.
  void AuditRefusal(const Call& call, RefusalReason denied, const absl::Status& status) const {
    if (status.ok()) return;
    // The report of a dead member may still wait when another process takes its place.
    if (absl::IsAborted(status) && call->cancelled()) return;
    Refused(call, absl::IsPermissionDenied(status) ? Because(denied, status) : status);
  }
  template <class Reply>
  Done<Reply> Audited(const Call& call, RefusalReason denied, Done<Reply> answer) {
    return [this, call, denied, answer = std::move(answer)](absl::StatusOr<Reply> given) {
      AuditRefusal(call, denied, given.status());
      answer(std::move(given));
    };
  }
  DoneStatus FinishAction(const Call& call, AuditedAction action, const std::string& target,
                          const std::string& detail) {
    return [this, call, action, target, detail](const absl::Status& status) {
      Acted(call, action, target, status, detail);
      Finish(call, status);
    };
  }
  void NoteRegistration(const Call& call, const RegisterRequest& request,
                        const RegisterNotes& notes, const absl::Status& outcome) const {
    AuditRefusal(call, RefusalReason::kSecret, outcome);
    if (!notes.refused_holds.empty()) {
      Refused(call,
              Because(RefusalReason::kPass, absl::PermissionDeniedError(absl::StrCat(
                                                "the caller says without a pass that it serves ",
                                                absl::StrJoin(notes.refused_holds, ", ")))));
    }
    if (!notes.replaced.empty()) {
      Acted(call, AuditedAction::kTakeover, MemberName(request.role(), request.rank()),
            absl::OkStatus(), absl::StrCat("replaces ", notes.replaced));
    }
  }
  // Records that a caller whose certificate has no rank asks for that of a living member. A process
  // asks again and again while it waits for the rank, so each of its lives gets one line, and one
  // more if it says that the member's process has ended.
  void NoteHeldRank(const Call& call, const RegisterRequest& request, bool says_ended) {
    const std::string member = MemberName(request.role(), request.rank());
    const std::string attempt =
        absl::StrCat(CallerNameOf(call), " ", member, " ", request.life(), " ", says_ended);
    if (!attempts_.IsNew(attempt)) return;
    const char* const claim =
        says_ended ? "; that its process has ended, only a certificate of the rank may say" : "";
    Refused(call, Because(RefusalReason::kRank,
                          absl::PermissionDeniedError(absl::StrCat(
                              "the caller registers as ", member, ", which is alive", claim))));
  }
  void NoteDrain(const Call& call, const DrainPserverRequest& request,
                 const absl::Status& outcome) {
    if (request.member_id() != 0) AuditRefusal(call, RefusalReason::kSecret, outcome);
    if (!IsNews(call, request, outcome)) return;
    Acted(call, AuditedAction::kDrain, absl::StrCat("pserver ", request.rank()), outcome,
          request.cancel() ? "cancel" : "");
  }
  void Refused(const Call& call, const absl::Status& refusal) const {
    if (audit_ != nullptr) audit_->Refused(CallerOfCall(call), call->method(), refusal);
  }
  // Recorded before the answer leaves.
  void Acted(const Call& call, AuditedAction action, absl::string_view target,
             const absl::Status& outcome, absl::string_view detail = "") const {
    if (audit_ != nullptr) audit_->Acted(CallerOfCall(call), action, target, outcome, detail);
  }
  // A drain is asked for again and again, to learn how far it is. False when the same caller has
  // asked for it last, with the same outcome. Its port may be another one.
  bool IsNews(const Call& call, const DrainPserverRequest& request, const absl::Status& outcome) {
    std::string drain =
        absl::StrCat(CallerNameOf(call), " ", request.SerializeAsString(), " ", outcome.ToString());
    MutexLock lock(&mutex_);
    if (drain == last_drain_) return false;
    last_drain_ = std::move(drain);
    return true;
  }

  const GrpcCredentials credentials_;
  RequestIntake* const intake_;
  AuditLog* const audit_;  // may be null
  Mutex mutex_;
  std::string last_drain_ ABSL_GUARDED_BY(mutex_);
  NewestTexts attempts_;  // that NoteHeldRank has recorded
};

class GrpcListener : public SchedulerListener {
 public:
  GrpcListener(const std::string& bind, const GrpcCredentials& credentials, RequestIntake* intake,
               AuditLog* audit, const ConnectionBounds& connections, const CallRoom& room)
      : intake_(intake),
        service_(credentials, intake, audit),
        server_(OptionsFor(bind, credentials, audit, connections, room), nullptr) {
    service_.ServeOn(&server_);
  }
  ~GrpcListener() override { Stop(); }

  absl::Status Listen() { return server_.Start(); }
  int port() const override { return server_.port(); }
  void Stop() override {
    intake_->StopWaiting();
    server_.Shutdown();
  }

 private:
  static GrpcStreamServer::Options OptionsFor(const std::string& bind,
                                              const GrpcCredentials& credentials, AuditLog* audit,
                                              const ConnectionBounds& connections,
                                              const CallRoom& room) {
    GrpcStreamServer::Options options;
    options.bind_address = bind;
    options.credentials = credentials;
    options.audit = audit;
    options.connections = connections;
    options.call_bounds.max_streams = static_cast<int>(room.open);
    options.call_bounds.max_streams_per_peer = room.open_per_caller;
    options.threads = 4;
    options.unary_threads = kSubmissionThreads;
    options.max_waiting_unary = kMaxWaitingSubmissions;
    options.max_waiting_unary_per_peer = kSubmissionThreads + kMaxWaitingSubmissions;
    options.max_message_bytes = kMaxControlMessageBytes;
    options.max_received_bytes = kMaxReceivedBytes;
    options.keepalive_timeout = absl::Seconds(5);
    options.shutdown_timeout = absl::Seconds(1);
    return options;
  }

  RequestIntake* const intake_;
  Service service_;
  GrpcStreamServer server_;  // last, because its calls use the others
};

}  // namespace

absl::StatusOr<std::unique_ptr<SchedulerListener>> SchedulerListener::Start(
    const std::string& bind, const GrpcCredentials& credentials, RequestIntake* intake,
    AuditLog* audit, const ConnectionBounds& connections, const CallRoom& room) {
  auto listener =
      std::make_unique<GrpcListener>(bind, credentials, intake, audit, connections, room);
  const absl::Status status = listener->Listen();
  if (!status.ok()) return status;
  return std::unique_ptr<SchedulerListener>(std::move(listener));
}

}  // namespace sluice
