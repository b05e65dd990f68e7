// Calls of every role to a scheduler with TLS.
#include "scheduler/service/scheduler_service.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "common/daemon/control_plane.h"
#include "common/security/access_rules.h"
#include "common/transport/grpc_convert.h"
#include "proto/scheduler.grpc.pb.h"
#include "tests/common/base/hooked_env.h"
#include "tests/common/meta_store/fake_meta_store.h"
#include "tests/common/security/recorded_audit.h"
#include "tests/common/security/test_certificates.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

class SchedulerServiceTest : public testing::Test {
 protected:
  explicit SchedulerServiceTest(Env* env = Env::Real(), MetaStore* store = nullptr)
      : loop_(LoopOptions(env, store)), intake_(IntakeOptions(env)) {}

  void Serve(const TlsFiles& files) {
    const auto credentials = GrpcCredentials::Create(files);
    ASSERT_TRUE(credentials.ok()) << credentials.status();
    auto listener = SchedulerListener::Start("127.0.0.1:0", *credentials, &intake_, audit_.log());
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
  }
  // A connection of a client with these files.
  std::shared_ptr<grpc::Channel> ChannelOf(const TlsFiles& files) const {
    const auto credentials = GrpcCredentials::Create(files);
    EXPECT_TRUE(credentials.ok()) << credentials.status();
    return grpc::CreateChannel(absl::StrCat("127.0.0.1:", listener_->port()),
                               credentials->ForClientOf(PeerRole::kScheduler));
  }
  // The status of a call with these bytes. A call that waits at the scheduler is cut off.
  static grpc::StatusCode Call(const std::shared_ptr<grpc::Channel>& channel,
                               const std::string& method, const std::string& request = "") {
    grpc::GenericStub stub(channel);
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(absl::Seconds(request.empty() ? 2 : 30)));
    grpc::CompletionQueue queue;
    const grpc::Slice slice(request);
    const grpc::ByteBuffer bytes(&slice, 1);
    auto call = stub.PrepareUnaryCall(&context, method, bytes, &queue);
    call->StartCall();
    grpc::ByteBuffer reply;
    grpc::Status status;
    call->Finish(&reply, &status, nullptr);
    void* tag;
    bool ok;
    EXPECT_TRUE(queue.Next(&tag, &ok));
    return status.error_code();
  }
  static RegisterRequest Registration(Role role, uint32_t rank) {
    RegisterRequest request;
    request.set_protocol(1);
    request.set_role(role);
    request.set_rank(rank);
    request.set_address("127.0.0.1:1");
    request.set_pid(1);
    request.set_life(rank + 1);
    request.set_process_space("space");
    return request;
  }
  grpc::Status Register(const std::shared_ptr<grpc::Channel>& channel,
                        const RegisterRequest& request) {
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(absl::Seconds(60)));
    RegisterReply reply;
    const grpc::Status status = Scheduler::NewStub(channel)->Register(&context, request, &reply);
    if (status.ok()) members_.push_back(reply);
    return status;
  }
  grpc::Status Register(const std::shared_ptr<grpc::Channel>& channel, Role role, uint32_t rank) {
    return Register(channel, Registration(role, rank));
  }
  // Each makes a call as the member `id`.
  static grpc::StatusCode Leave(const std::shared_ptr<grpc::Channel>& channel, uint64_t id,
                                const std::string& secret) {
    return CallAs<LeaveRequest, LeaveReply>(channel, &Scheduler::Stub::Leave, id, secret);
  }
  static grpc::StatusCode Poll(const std::shared_ptr<grpc::Channel>& channel, uint64_t id,
                               const std::string& secret) {
    return CallAs<PollRequest, PollReply>(channel, &Scheduler::Stub::Poll, id, secret);
  }
  static grpc::StatusCode FailJob(const std::shared_ptr<grpc::Channel>& channel, uint64_t id,
                                  const std::string& secret) {
    return CallAs<FailJobRequest, FailJobReply>(channel, &Scheduler::Stub::FailJob, id, secret);
  }
  static grpc::StatusCode EndJob(const std::shared_ptr<grpc::Channel>& channel, uint64_t id,
                                 const std::string& secret) {
    return CallAs<EndJobRequest, EndJobReply>(channel, &Scheduler::Stub::EndJob, id, secret);
  }
  static grpc::StatusCode Drain(const std::shared_ptr<grpc::Channel>& channel, uint32_t rank,
                                uint64_t id, const std::string& secret) {
    DrainPserverRequest request;
    request.set_rank(rank);
    return CallAs<DrainPserverRequest, DrainPserverReply>(channel, &Scheduler::Stub::DrainPserver,
                                                          id, secret, request);
  }
  bool AllAlive() {
    const ClusterStatus status = loop_.GetStatus();
    return std::all_of(status.members().begin(), status.members().end(),
                       [](const MemberStatus& member) { return member.alive(); });
  }

  TestCertificates certificates_{"scheduler_service"};
  std::atomic<int> lines_{0};  // that the intake has logged
  RecordedAudit audit_{"scheduler"};
  SchedulerLoop loop_;
  RequestIntake intake_;
  std::unique_ptr<SchedulerListener> listener_;
  std::vector<RegisterReply> members_;  // the answers to registrations

 private:
  template <class Request, class Reply, class Method>
  static grpc::StatusCode CallAs(const std::shared_ptr<grpc::Channel>& channel, Method method,
                                 uint64_t id, const std::string& secret, Request request = {}) {
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(absl::Seconds(60)));
    request.set_member_id(id);
    request.set_secret(secret);
    Reply reply;
    const auto stub = Scheduler::NewStub(channel);
    return ((*stub).*method)(&context, request, &reply).error_code();
  }
  RequestIntake::Options IntakeOptions(Env* env) {
    RequestIntake::Options options;
    options.loop = &loop_;
    options.clock = Clock::Real();
    options.env = env;
    options.pserver_num = 2;
    options.log = [this](const std::string&) { ++lines_; };
    return options;
  }
  static SchedulerLoop::Options LoopOptions(Env* env, MetaStore* store) {
    SchedulerLoop::Options options;
    options.store = store;
    if (store != nullptr) options.term = *store->AcquireTerm();
    options.core.pserver_num = options.core.worker_num = 2;
    options.core.pass_key = std::string(32, 'k');
    options.clock = Clock::Real();
    options.env = env;
    options.host = "h";
    options.log = [](const std::string&) {};
    options.job_log = [](const std::string&, const std::string&) {};
    options.on_end = [] {};
    return options;
  }
};

TEST_F(SchedulerServiceTest, EveryMethodIsRefusedToTheRolesThatHaveNoRuleForIt) {
  Serve(certificates_.Of(PeerRole::kScheduler));
  const google::protobuf::ServiceDescriptor* const service =
      RegisterRequest::descriptor()->file()->FindServiceByName("Scheduler");
  ASSERT_NE(service, nullptr);
  ASSERT_GT(service->method_count(), 10);
  std::map<std::string, uint64_t> refused;  // by method
  for (const PeerRole role : kPeerRoles) {
    const auto channel = ChannelOf(certificates_.Of(role));
    for (int m = 0; m < service->method_count(); ++m) {
      const std::string method =
          absl::StrCat("/", service->full_name(), "/", service->method(m)->name());
      if (method == "/sluice.Scheduler/Shutdown" && role == PeerRole::kOperator) continue;
      // An empty registration is not one of a member; it has tests of its own.
      if (method == "/sluice.Scheduler/Register" && role != PeerRole::kOperator) continue;
      // The same holds for the drain of a pserver by itself.
      if (method == "/sluice.Scheduler/DrainPserver" && role == PeerRole::kPserver) continue;
      PeerIdentity peer;
      peer.verified = true;
      peer.role = role;
      EXPECT_EQ(Call(channel, method) == grpc::StatusCode::PERMISSION_DENIED,
                !CheckAccess(peer, method).ok())
          << method << " by a " << PeerRoleName(role);
      refused[method] += !CheckAccess(peer, method).ok();
    }
  }
  for (const auto& [method, n] : refused) EXPECT_EQ(audit_.Refusals(method, "role"), n) << method;
}

TEST_F(SchedulerServiceTest, AMemberRegistersOnlyAsWhatItsCertificateSays) {
  Serve(certificates_.Of(PeerRole::kScheduler));
  const auto worker = ChannelOf(certificates_.Of(PeerRole::kWorker, "1"));
  EXPECT_EQ(Register(worker, ROLE_WORKER, 0).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(Register(worker, ROLE_PSERVER, 1).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(loop_.GetStatus().members_size(), 0);
  EXPECT_EQ(audit_.Refusals("/sluice.Scheduler/Register", "rank"), 2);
  EXPECT_THAT(audit_.Text(), HasSubstr("\"method\": \"/sluice.Scheduler/Register\", \"reason\": "
                                       "\"rank\", \"role\": \"worker\", \"name\": \"1\", "
                                       "\"address\": \"127.0.0.1:"));
  const grpc::Status itself = Register(worker, ROLE_WORKER, 1);
  EXPECT_TRUE(itself.ok()) << itself.error_message();
  const auto any_pserver = ChannelOf(certificates_.Of(PeerRole::kPserver));
  EXPECT_EQ(Register(any_pserver, ROLE_WORKER, 0).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  const grpc::Status pserver = Register(any_pserver, ROLE_PSERVER, 1);
  EXPECT_TRUE(pserver.ok()) << pserver.error_message();
}

TEST_F(SchedulerServiceTest, AMemberReportsOnlyForItself) {
  Serve(certificates_.Of(PeerRole::kScheduler));
  const auto pserver = ChannelOf(certificates_.Of(PeerRole::kPserver, "0"));
  const auto worker = ChannelOf(certificates_.Of(PeerRole::kWorker, "1"));
  ASSERT_TRUE(Register(pserver, ROLE_PSERVER, 0).ok());
  ASSERT_TRUE(Register(worker, ROLE_WORKER, 1).ok());
  const RegisterReply of_pserver = members_[0], of_worker = members_[1];
  ASSERT_EQ(loop_.GetStatus().members_size(), 2);
  EXPECT_THAT(intake_.RoleAndRankOf(of_pserver.member_id()),
              testing::Optional(std::make_pair(ROLE_PSERVER, 0u)));
  // The certificates alone refuse these, even with the member's secret.
  constexpr grpc::StatusCode kDenied = grpc::StatusCode::PERMISSION_DENIED;
  EXPECT_EQ(Leave(worker, of_pserver.member_id(), of_pserver.secret()), kDenied);
  EXPECT_EQ(Poll(worker, of_pserver.member_id(), of_pserver.secret()), kDenied);
  EXPECT_EQ(Poll(pserver, of_worker.member_id(), of_worker.secret()), kDenied);
  EXPECT_EQ(FailJob(worker, of_pserver.member_id(), of_pserver.secret()), kDenied);
  EXPECT_EQ(EndJob(worker, of_pserver.member_id(), of_pserver.secret()), kDenied);
  EXPECT_EQ(Drain(pserver, 1, of_pserver.member_id(), of_pserver.secret()), kDenied);
  EXPECT_EQ(Drain(pserver, 0, 0, ""), kDenied);
  EXPECT_EQ(audit_.Refusals("/sluice.Scheduler/Leave", "rank"), 1);
  EXPECT_EQ(audit_.Refusals("/sluice.Scheduler/Poll", "rank"), 2);
  EXPECT_EQ(audit_.Refusals("/sluice.Scheduler/FailJob", "rank"), 1);
  EXPECT_EQ(audit_.Refusals("/sluice.Scheduler/EndJob", "rank"), 1);
  EXPECT_EQ(audit_.Refusals("/sluice.Scheduler/DrainPserver", "rank"), 2);
  EXPECT_TRUE(AllAlive());
  EXPECT_EQ(Poll(worker, of_worker.member_id(), of_worker.secret()), grpc::StatusCode::OK);
  EXPECT_NE(Drain(pserver, 0, of_pserver.member_id(), of_pserver.secret()), kDenied);
  EXPECT_EQ(Leave(worker, of_worker.member_id(), of_worker.secret()), grpc::StatusCode::OK);
}

TEST_F(SchedulerServiceTest, ACertificateWithoutARankNeedsTheSecretOfTheMember) {
  Serve(certificates_.Of(PeerRole::kScheduler));
  const auto worker = ChannelOf(certificates_.Of(PeerRole::kWorker));
  const auto pserver = ChannelOf(certificates_.Of(PeerRole::kPserver));
  ASSERT_TRUE(Register(worker, ROLE_WORKER, 0).ok());
  ASSERT_TRUE(Register(worker, ROLE_WORKER, 1).ok());
  ASSERT_TRUE(Register(pserver, ROLE_PSERVER, 0).ok());
  const uint64_t victim = members_[0].member_id(), drained = members_[2].member_id();
  ASSERT_GE(members_[0].secret().size(), 16u);
  constexpr grpc::StatusCode kDenied = grpc::StatusCode::PERMISSION_DENIED;
  for (const std::string& secret :
       {std::string(), members_[1].secret(), std::string(members_[0].secret().size(), '\0')}) {
    EXPECT_EQ(Poll(worker, victim, secret), kDenied);
    EXPECT_EQ(FailJob(worker, victim, secret), kDenied);
    EXPECT_EQ(Leave(worker, victim, secret), kDenied);
    EXPECT_EQ(Drain(pserver, 0, drained, secret), kDenied);
  }
  for (const char* method : {"Poll", "FailJob", "Leave", "DrainPserver"})
    EXPECT_EQ(audit_.Refusals(absl::StrCat("/sluice.Scheduler/", method), "secret"), 3) << method;
  EXPECT_TRUE(AllAlive());
  EXPECT_FALSE(loop_.GetStatus().members(0).draining());
  EXPECT_EQ(Poll(worker, victim, members_[0].secret()), grpc::StatusCode::OK);
  EXPECT_EQ(FailJob(worker, victim, members_[0].secret()), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Leave(worker, victim, members_[0].secret()), grpc::StatusCode::OK);
}

TEST_F(SchedulerServiceTest, OnlyACertificateOfTheRankMayTakeThePlaceOfALivingMember) {
  Serve(certificates_.Of(PeerRole::kScheduler));
  const auto any = ChannelOf(certificates_.Of(PeerRole::kWorker));
  ASSERT_TRUE(Register(any, ROLE_WORKER, 0).ok());
  RegisterRequest newcomer = Registration(ROLE_WORKER, 0);
  newcomer.set_life(77);
  newcomer.set_pid(2);
  newcomer.set_ended_pid(1);
  RegisterRequest same_pid = newcomer;
  same_pid.set_life(78);
  same_pid.clear_ended_pid();
  same_pid.set_pid(1);
  for (const RegisterRequest& request : {newcomer, same_pid}) {
    ASSERT_TRUE(Register(any, request).ok());
    EXPECT_EQ(members_.back().member_id(), 0u);
    EXPECT_EQ(members_.back().secret(), "");
    EXPECT_TRUE(members_.back().has_incumbent());
  }
  EXPECT_EQ(audit_.Refusals("/sluice.Scheduler/Register", "rank"), 2);
  EXPECT_EQ(audit_.Actions("takeover"), 0);
  EXPECT_EQ(Poll(any, members_[0].member_id(), members_[0].secret()), grpc::StatusCode::OK);
  const auto named = ChannelOf(certificates_.Of(PeerRole::kWorker, "0"));
  ASSERT_TRUE(Register(named, newcomer).ok());
  EXPECT_NE(members_.back().member_id(), 0u);
  EXPECT_EQ(audit_.Actions("takeover"), 1);
  EXPECT_THAT(audit_.Text(), HasSubstr("\"action\": \"takeover\", \"target\": \"worker 0\""));
  // The replaced process is refused, and that is recorded.
  EXPECT_EQ(Poll(any, members_[0].member_id(), members_[0].secret()), grpc::StatusCode::ABORTED);
  EXPECT_EQ(audit_.Refusals("/sluice.Scheduler/Poll", "fenced"), 1);
}

TEST_F(SchedulerServiceTest, TheRankOfALivingMemberIsRefusedAndRecordedOnceForEachLife) {
  Serve(certificates_.Of(PeerRole::kScheduler));
  const auto any = ChannelOf(certificates_.Of(PeerRole::kWorker));
  ASSERT_TRUE(Register(any, ROLE_WORKER, 0).ok());
  const auto attempt = [&](const std::shared_ptr<grpc::Channel>& channel, uint64_t life) {
    RegisterRequest newcomer = Registration(ROLE_WORKER, 0);
    newcomer.set_life(life);
    newcomer.set_pid(2);
    ASSERT_TRUE(Register(channel, newcomer).ok());
    EXPECT_EQ(members_.back().member_id(), 0u);
  };
  for (int i = 0; i < 3; ++i) attempt(any, 77);
  EXPECT_EQ(audit_.Refusals("/sluice.Scheduler/Register", "rank"), 1);
  EXPECT_THAT(audit_.Text(), HasSubstr("\"reason\": \"rank\", \"role\": \"worker\", \"name\": "
                                       "\"\", \"address\": \"127.0.0.1:"));
  for (int i = 0; i < 2; ++i) attempt(any, 78);
  EXPECT_EQ(audit_.Refusals("/sluice.Scheduler/Register", "rank"), 2);
  // The next process of the rank waits until the end of this one is known.
  attempt(ChannelOf(certificates_.Of(PeerRole::kWorker, "0")), 79);
  EXPECT_EQ(audit_.Refusals("/sluice.Scheduler/Register", "rank"), 2);
  EXPECT_EQ(Poll(any, members_[0].member_id(), members_[0].secret()), grpc::StatusCode::OK);
}

TEST_F(SchedulerServiceTest, AnotherProtocolIsRecorded) {
  Serve(certificates_.Of(PeerRole::kScheduler));
  RegisterRequest request = Registration(ROLE_WORKER, 0);
  request.set_protocol(2);
  EXPECT_EQ(Register(ChannelOf(certificates_.Of(PeerRole::kWorker)), request).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(audit_.Refusals("/sluice.Scheduler/Register", "invalid"), 1);
}

TEST_F(SchedulerServiceTest, WithoutTlsANewcomerIsBelievedThatTheOtherProcessHasEnded) {
  Serve({});
  const auto channel = ChannelOf({});
  ASSERT_TRUE(Register(channel, ROLE_WORKER, 0).ok());
  RegisterRequest newcomer = Registration(ROLE_WORKER, 0);
  newcomer.set_life(77);
  newcomer.set_pid(2);
  newcomer.set_ended_pid(1);
  ASSERT_TRUE(Register(channel, newcomer).ok());
  EXPECT_NE(members_.back().member_id(), 0u);
  EXPECT_EQ(audit_.Actions("takeover"), 1);
}

TEST_F(SchedulerServiceTest, RequestsOutOfBoundsChangeNothingAndAreRecorded) {
  Serve(certificates_.Of(PeerRole::kScheduler));
  const auto worker = ChannelOf(certificates_.Of(PeerRole::kWorker));
  RegisterRequest request = Registration(ROLE_WORKER, 0);
  request.set_host(std::string(1 << 20, 'H'));
  EXPECT_EQ(Register(worker, request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(loop_.GetStatus().members_size(), 0);
  EXPECT_EQ(audit_.Refusals("/sluice.Scheduler/Register", "invalid"), 1);
  ASSERT_TRUE(Register(worker, ROLE_WORKER, 0).ok());
  PollRequest report;
  report.set_member_id(members_.back().member_id());
  report.set_secret(members_.back().secret());
  report.add_hosted()->set_job_id("job-1");
  PollReply reply;
  grpc::ClientContext context;
  EXPECT_EQ(Scheduler::NewStub(worker)->Poll(&context, report, &reply).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(audit_.Refusals("/sluice.Scheduler/Poll", "invalid"), 1);
  EXPECT_EQ(loop_.GetStatus().members(0).hosted_size(), 0);
}

TEST_F(SchedulerServiceTest, RequestsBeyondTheBoundsOfTheirMethodAreRefusedUnparsed) {
  Serve({});
  const auto channel = ChannelOf({});
  const auto many = [](const std::string& unit, size_t bytes) {
    std::string wire;
    while (wire.size() < bytes) wire += unit;
    return wire;
  };
  constexpr size_t kMiB = 1 << 20;
  // Each of 4 bytes would take about 100 of memory.
  const std::string groups = many("\xa3\x06\xa4\x06", 10 * kMiB);
  const google::protobuf::ServiceDescriptor* const service =
      RegisterRequest::descriptor()->file()->FindServiceByName("Scheduler");
  for (int m = 0; m < service->method_count(); ++m) {
    const std::string method =
        absl::StrCat("/", service->full_name(), "/", service->method(m)->name());
    EXPECT_EQ(Call(channel, method, groups), grpc::StatusCode::INVALID_ARGUMENT) << method;
    EXPECT_EQ(audit_.Refusals(method, "invalid"), 1) << method;
  }
  EXPECT_EQ(Call(channel, "/sluice.Scheduler/Poll", many(std::string("\x3a\x00", 2), 4 * kMiB)),
            grpc::StatusCode::INVALID_ARGUMENT);
  PollRequest tables;  // a short request may not take all that a long one may
  HostedJob* const hosted = tables.add_hosted();
  for (int i = 0; i < 500'000; ++i) hosted->add_tables();
  EXPECT_EQ(Call(channel, "/sluice.Scheduler/Poll", tables.SerializeAsString()),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Call(channel, "/sluice.Scheduler/NextTask", many("\x0a\x01j", 65 << 10)),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Call(channel, "/sluice.Scheduler/GetStatus"), grpc::StatusCode::OK);
  EXPECT_TRUE(Register(channel, ROLE_WORKER, 0).ok());
}

TEST_F(SchedulerServiceTest, AMessageBeyondTheBoundOfTheControlPlaneIsRefused) {
  Serve({});
  const auto channel = ChannelOf({});
  const char* const method = "/sluice.Scheduler/NextPhase";  // which may have the longest requests
  const auto call = [&](size_t bytes) { return Call(channel, method, std::string(bytes, '\0')); };
  EXPECT_EQ(call(kMaxControlMessageBytes + 1), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(call(kMaxControlMessageBytes), grpc::StatusCode::INVALID_ARGUMENT) << "read, unlike it";
  EXPECT_EQ(Call(channel, "/sluice.Scheduler/GetStatus"), grpc::StatusCode::OK);
}

TEST_F(SchedulerServiceTest, WorkThatAMemberSaysToHoldWithoutItsPassIsRecorded) {
  Serve(certificates_.Of(PeerRole::kScheduler));
  RegisterRequest request = Registration(ROLE_WORKER, 0);
  request.add_holds()->set_job_id("job-1");
  ASSERT_TRUE(Register(ChannelOf(certificates_.Of(PeerRole::kWorker)), request).ok());
  EXPECT_FALSE(members_.back().adopted());
  EXPECT_EQ(audit_.Refusals("/sluice.Scheduler/Register", "pass"), 1);
}

TEST_F(SchedulerServiceTest, OrdersAreRecordedWithCallerTargetAndOutcome) {
  Serve(certificates_.Of(PeerRole::kScheduler));
  const auto stub = Scheduler::NewStub(ChannelOf(certificates_.Of(PeerRole::kOperator, "alice")));
  // Makes the call and returns the end of the text that it adds to the log.
  const auto line_of = [&](const auto& call) {
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(absl::Seconds(60)));
    const size_t before = audit_.Text().size();
    const grpc::Status status = call(&context);
    EXPECT_NE(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
    return audit_.Text().substr(before);
  };
  const auto is = [](const std::string& action, const std::string& target,
                     const std::string& outcome) {
    return HasSubstr("\"event\": \"action\", \"action\": \"" + action + "\", \"target\": \"" +
                     target + "\", \"outcome\": \"" + outcome +
                     "\", \"role\": \"operator\", \"name\": \"alice\", \"address\": "
                     "\"127.0.0.1:");
  };
  EXPECT_THAT(line_of([&](auto* context) {
                SubmitJobReply reply;
                return stub->SubmitJob(context, SubmitJobRequest(), &reply);
              }),
              is("submit", "", "INVALID_ARGUMENT"));
  EXPECT_THAT(line_of([&](auto* context) {
                CancelJobRequest request;
                request.set_job_id("job-1");
                CancelJobReply reply;
                return stub->CancelJob(context, request, &reply);
              }),
              is("cancel", "job-1", "NOT_FOUND"));
  EXPECT_THAT(line_of([&](auto* context) {
                ScaleJobRequest request;
                request.set_job_id("job-1");
                request.set_worker_num(3);
                ScaleJobReply reply;
                return stub->ScaleJob(context, request, &reply);
              }),
              is("scale", "job-1", "NOT_FOUND"));
  CheckpointJobRequest checkpoint;
  checkpoint.set_job_id("job-1");
  const auto ask = [&](auto* context) {
    CheckpointJobReply reply;
    return stub->CheckpointJob(context, checkpoint, &reply);
  };
  EXPECT_THAT(line_of(ask), is("checkpoint", "job-1", "NOT_FOUND"));
  checkpoint.set_number(7);
  EXPECT_EQ(line_of(ask), "") << "this call only keeps waiting";
  DeleteRowsRequest rows;
  rows.set_job_id("job-1");
  rows.set_table("e");
  rows.add_keys(7);
  const auto remove = [&](auto* context) {
    DeleteRowsReply reply;
    return stub->DeleteRows(context, rows, &reply);
  };
  EXPECT_THAT(line_of(remove), is("delete_rows", "job-1", "NOT_FOUND"));
  rows.set_deletion(7);
  EXPECT_EQ(line_of(remove), "") << "this call only keeps waiting";
  DrainPserverRequest request;
  request.set_rank(1);
  const auto drain = [&](auto* context) {
    DrainPserverReply reply;
    return stub->DrainPserver(context, request, &reply);
  };
  EXPECT_THAT(line_of(drain), HasSubstr("\"action\": \"drain\", \"target\": \"pserver 1\""));
  EXPECT_EQ(line_of(drain), "") << "asked again, to learn how far it is";
  request.set_cancel(true);
  EXPECT_THAT(line_of(drain), HasSubstr("\"action\": \"drain\", \"target\": \"pserver 1\""));
  const auto bob = Scheduler::NewStub(ChannelOf(certificates_.Of(PeerRole::kOperator, "bob")));
  EXPECT_THAT(line_of([&](auto* context) {
                DrainPserverReply reply;
                return bob->DrainPserver(context, request, &reply);
              }),
              HasSubstr("\"name\": \"bob\""))
      << "another caller's order is another order";
  EXPECT_THAT(line_of([&](auto* context) {
                MemberEndedRequest ended;
                ended.set_role(ROLE_WORKER);
                ended.set_rank(1);
                MemberEndedReply reply;
                return stub->MemberEnded(context, ended, &reply);
              }),
              is("member_ended", "worker 1", "FAILED_PRECONDITION"));
  EXPECT_THAT(line_of([&](auto* context) {
                ShutdownReply reply;
                return stub->Shutdown(context, ShutdownRequest(), &reply);
              }),
              is("shutdown", "", "OK"));
  for (const char* action : {"submit", "cancel", "scale", "checkpoint", "member_ended", "shutdown"})
    EXPECT_EQ(audit_.Actions(action), 1) << action;
  EXPECT_EQ(audit_.Actions("drain"), 3);
}

// A file system on which nothing below /slow is found before Release.
class SlowEnv : public HookedEnv {
 public:
  SlowEnv() {
    before = [](const std::string&, const std::string&) { return absl::OkStatus(); };
  }
  absl::StatusOr<int> OpenFile(const std::string& path, int flags, uint32_t mode) override {
    if (!absl::StartsWith(path, "/slow")) return HookedEnv::OpenFile(path, flags, mode);
    MutexLock lock(&mutex_);
    ++waiting_;
    changed_.NotifyAll();
    while (!released_) changed_.Wait(&mutex_);
    return absl::NotFoundError("nothing");
  }
  void Release() {
    MutexLock lock(&mutex_);
    released_ = true;
    changed_.NotifyAll();
  }
  void AwaitWaiting() {
    MutexLock lock(&mutex_);
    while (waiting_ == 0) changed_.Wait(&mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
};

class SlowFolderTest : private SlowEnv, public SchedulerServiceTest {
 protected:
  SlowFolderTest() : SchedulerServiceTest(static_cast<SlowEnv*>(this)) {}
  SlowEnv* env() { return this; }

  static SubmitJobRequest JobOnSlowFolder(int number) {
    SubmitJobRequest request;
    JobConfig* const job = request.mutable_config();
    job->set_name(absl::StrCat("job", number));
    job->set_worker_num(1);
    job->set_output_dir(absl::StrCat("/none/", number));
    job->mutable_data()->set_format(DataConfig::LIBSVM);
    job->mutable_data()->add_train_files("/slow/*.csv");
    Feature* const feature = job->add_features();
    feature->set_name("f");
    feature->mutable_numeric();
    job->mutable_model()->mutable_wide_deep();
    return request;
  }
};

TEST_F(SlowFolderTest, SubmissionsThatWaitForAFolderHoldUpNoOtherCallAndAreBounded) {
  Serve({});
  constexpr int kSubmissions = 30;  // 4 at work, 16 that wait, and 10 too many
  Mutex mutex;
  CondVar changed;
  std::map<grpc::StatusCode, int> ends;
  int ended = 0;
  std::vector<std::thread> operators;
  for (int i = 0; i < kSubmissions; ++i) {
    operators.emplace_back([&, i] {
      grpc::ClientContext context;
      context.set_deadline(GrpcDeadline(absl::Seconds(60)));
      SubmitJobReply reply;
      const grpc::Status status =
          Scheduler::NewStub(ChannelOf({}))->SubmitJob(&context, JobOnSlowFolder(i), &reply);
      MutexLock lock(&mutex);
      ++ends[status.error_code()];
      ++ended;
      changed.NotifyAll();
    });
  }
  env()->AwaitWaiting();
  // Leases are renewed meanwhile.
  const auto channel = ChannelOf({});
  EXPECT_TRUE(Register(channel, ROLE_PSERVER, 0).ok());
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(absl::Seconds(60)));
    PollRequest request;
    if (!members_.empty()) {
      request.set_member_id(members_[0].member_id());
      request.set_secret(members_[0].secret());
    }
    PollReply reply;
    const grpc::Status status = Scheduler::NewStub(channel)->Poll(&context, request, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    if (!status.ok()) break;
  }
  {
    MutexLock lock(&mutex);
    while (ended < kSubmissions - 4 - 16) changed.Wait(&mutex);
    EXPECT_EQ(ended, kSubmissions - 4 - 16);
    EXPECT_EQ(ends[grpc::StatusCode::RESOURCE_EXHAUSTED], kSubmissions - 4 - 16);
  }
  env()->Release();
  for (std::thread& one : operators) one.join();
  EXPECT_EQ(ends[grpc::StatusCode::OK], 4 + 16);
  EXPECT_EQ(loop_.GetStatus().jobs_size(), 4 + 16);
}

struct StoreInMemory {
  FakeMetaStore store;
};

class SlowStoreTest : private StoreInMemory, public SchedulerServiceTest {
 protected:
  SlowStoreTest() : SchedulerServiceTest(Env::Real(), &(StoreInMemory::store)) {}
  FakeMetaStore* store() { return &(StoreInMemory::store); }
};

TEST_F(SlowStoreTest, OrdersThatWaitForTheStoreHoldUpNoOtherCall) {
  Serve({});
  const auto channel = ChannelOf({});
  const auto stub = Scheduler::NewStub(channel);
  ASSERT_TRUE(Register(channel, ROLE_PSERVER, 0).ok());
  const uint64_t member = members_[0].member_id();
  const std::string secret = members_[0].secret();
  store()->HoldCommitsForTest(true);
  constexpr int kOfEach = 20;
  const int before = lines_;
  std::vector<std::thread> callers;
  std::atomic<int> answered{0}, not_found{0};
  const auto order = [&](const auto& call) {
    callers.emplace_back([&, call] {
      grpc::ClientContext context;
      context.set_deadline(GrpcDeadline(absl::Seconds(60)));
      not_found += call(&context).error_code() == grpc::StatusCode::NOT_FOUND;
      ++answered;
    });
  };
  for (int i = 0; i < kOfEach; ++i) {
    order([&, i](grpc::ClientContext* context) {
      CancelJobRequest request;
      request.set_job_id(absl::StrCat("cancelled-", i));
      CancelJobReply reply;
      return stub->CancelJob(context, request, &reply);
    });
    order([&, i](grpc::ClientContext* context) {
      ScaleJobRequest request;
      request.set_job_id(absl::StrCat("scaled-", i));
      ScaleJobReply reply;
      return stub->ScaleJob(context, request, &reply);
    });
    order([&, i](grpc::ClientContext* context) {
      DrainPserverRequest request;
      request.set_rank(100 + i);
      DrainPserverReply reply;
      return stub->DrainPserver(context, request, &reply);
    });
    order([&, i](grpc::ClientContext* context) {
      FailJobRequest request;
      request.set_member_id(member);
      request.set_secret(secret);
      request.set_job_id(absl::StrCat("failed-", i));
      FailJobReply reply;
      return stub->FailJob(context, request, &reply);
    });
  }
  // Each order is logged when it has been taken in.
  const absl::Time end = Clock::Real()->Now() + absl::Seconds(60);
  while (lines_ < before + 4 * kOfEach && Clock::Real()->Now() < end) std::this_thread::yield();
  EXPECT_EQ(lines_, before + 4 * kOfEach);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(Poll(channel, member, secret), grpc::StatusCode::OK);
    EXPECT_EQ(Call(channel, "/sluice.Scheduler/GetStatus"), grpc::StatusCode::OK);
  }
  EXPECT_EQ(answered, 0);
  store()->HoldCommitsForTest(false);
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(not_found, 4 * kOfEach);
  for (const char* action : {"cancel", "scale", "drain"})
    EXPECT_EQ(audit_.Actions(action), kOfEach) << action;
}

TEST_F(SchedulerServiceTest, WithoutTlsEveryMethodIsOpen) {
  Serve({});
  const auto channel = ChannelOf({});
  EXPECT_NE(Call(channel, "/sluice.Scheduler/CancelJob"), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_TRUE(Register(channel, ROLE_WORKER, 0).ok());
  EXPECT_THAT(audit_.Text(), HasSubstr("\"role\": \"unverified\""));
}

TEST_F(SchedulerServiceTest, ASchedulerWithAnotherRolesCertificateIsRefused) {
  Serve(certificates_.Of(PeerRole::kWorker));
  EXPECT_EQ(Call(ChannelOf(certificates_.Of(PeerRole::kOperator)), "/sluice.Scheduler/GetStatus"),
            grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace sluice
