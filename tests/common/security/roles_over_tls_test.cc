// Every rule of AccessRules, called with the certificate of every role over TLS, at a scheduler and
// at a pserver.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/security/access_rules.h"
#include "common/transport/grpc_convert.h"
#include "scheduler/service/scheduler_service.h"
#include "server/service/pserver_daemon.h"
#include "tests/common/security/recorded_audit.h"
#include "tests/common/security/test_certificates.h"

namespace sluice {
namespace {

// A daemon that serves some of the methods.
struct Daemon {
  PeerRole role;
  std::string address;
  RecordedAudit* audit;
};

class RolesOverTlsTest : public testing::Test {
 protected:
  RolesOverTlsTest()
      : log_dir_(absl::StrCat(testing::TempDir(), "roles_over_tls-", getpid())),
        loop_(LoopOptions()),
        intake_(IntakeOptions()) {
    std::filesystem::create_directories(log_dir_);
    const auto credentials = GrpcCredentials::Create(certificates_.Of(PeerRole::kScheduler));
    auto listener =
        SchedulerListener::Start("127.0.0.1:0", *credentials, &intake_, scheduler_audit_.log());
    EXPECT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    scheduler_ = absl::StrCat("127.0.0.1:", listener_->port());

    PserverDaemon::Options pserver;
    pserver.identity.role = ROLE_PSERVER;
    pserver.identity.bind = "127.0.0.1:0";
    pserver.identity.admin_bind = "127.0.0.1:0";
    pserver.identity.scheduler = scheduler_;
    pserver.identity.log_dir = log_dir_;
    pserver.identity.tls = certificates_.Of(PeerRole::kPserver);
    pserver.identity.credentials = GrpcCredentials::Create(pserver.identity.tls).value();
    pserver.identity.cluster.mutable_limits()->set_wait_s(120);
    pserver.clock = Clock::Real();
    pserver.env = Env::Real();
    pserver.available_memory = [] { return uint64_t{1} << 30; };
    pserver.log = [](const std::string&) {};
    pserver.on_end = [](const absl::Status&) {};
    pserver.audit = pserver_audit_.log();
    auto daemon = PserverDaemon::Start(std::move(pserver));
    EXPECT_TRUE(daemon.ok()) << daemon.status();
    pserver_ = *std::move(daemon);
  }
  ~RolesOverTlsTest() override {
    pserver_.reset();
    listener_.reset();
    std::filesystem::remove_all(log_dir_);
  }

  // The address of the pserver, as it has written it.
  std::string PserverAddress() const {
    const std::string text = *Env::Real()->ReadFile(log_dir_ + "/endpoints.log");
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      const std::vector<std::string> words = absl::StrSplit(line, ' ');
      if (words.size() > 2 && words[0] == "pserver") return words[2];
    }
    ADD_FAILURE() << "no pserver in " << text;
    return "";
  }
  Daemon DaemonOf(const std::string& method) {
    if (absl::StartsWith(method, "/sluice.Scheduler/"))
      return {PeerRole::kScheduler, scheduler_, &scheduler_audit_};
    return {PeerRole::kPserver, PserverAddress(), &pserver_audit_};
  }
  // The status of a call with an empty request. A stream gets it as its only message.
  grpc::StatusCode Call(PeerRole role, const Daemon& daemon, const std::string& method) const {
    const auto credentials = GrpcCredentials::Create(certificates_.Of(role));
    grpc::GenericStub stub(
        grpc::CreateChannel(daemon.address, credentials->ForClientOf(daemon.role)));
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(absl::Seconds(30)));
    grpc::CompletionQueue queue;
    const auto call = stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(nullptr, 0), &queue);
    call->StartCall();
    grpc::ByteBuffer reply;
    grpc::Status status;
    call->Finish(&reply, &status, nullptr);
    void* tag;
    bool ok;
    EXPECT_TRUE(queue.Next(&tag, &ok));
    return status.error_code();
  }

 private:
  RequestIntake::Options IntakeOptions() {
    RequestIntake::Options options;
    options.loop = &loop_;
    options.clock = Clock::Real();
    options.env = Env::Real();
    options.pserver_num = 2;
    options.log = [](const std::string&) {};
    return options;
  }
  static SchedulerLoop::Options LoopOptions() {
    SchedulerLoop::Options options;
    options.core.pserver_num = options.core.worker_num = 2;
    options.clock = Clock::Real();
    options.env = Env::Real();
    options.host = "h";
    options.log = [](const std::string&) {};
    options.job_log = [](const std::string&, const std::string&) {};
    options.on_end = [] {};
    return options;
  }

  const std::string log_dir_;
  TestCertificates certificates_{"roles_over_tls"};
  RecordedAudit scheduler_audit_{"scheduler"}, pserver_audit_{"pserver"};
  SchedulerLoop loop_;
  RequestIntake intake_;
  std::unique_ptr<SchedulerListener> listener_;
  std::string scheduler_;
  std::unique_ptr<PserverDaemon> pserver_;
};

// The role alone is judged here. An allowed call may be refused for what it says: an empty
// registration is one of rank 0 without a role, and an empty save has no pass.
TEST_F(RolesOverTlsTest, EachMethodIsRefusedToExactlyTheRolesThatItsRuleLeavesOut) {
  std::vector<AccessRule> rules = AccessRules();
  // Last, because it ends the cluster.
  std::stable_partition(rules.begin(), rules.end(), [](const AccessRule& rule) {
    return !absl::EndsWith(rule.method, "/Shutdown");
  });
  int cells = 0;
  for (const AccessRule& rule : rules) {
    const Daemon daemon = DaemonOf(rule.method);
    for (const PeerRole role : kPeerRoles) {
      SCOPED_TRACE(absl::StrCat(rule.method, " by a ", PeerRoleName(role)));
      const bool allowed = std::count(rule.roles.begin(), rule.roles.end(), role) > 0;
      const uint64_t before = daemon.audit->Refusals(rule.method, "role");
      const grpc::StatusCode code = Call(role, daemon, rule.method);
      EXPECT_NE(code, grpc::StatusCode::UNAVAILABLE);
      EXPECT_NE(code, grpc::StatusCode::UNIMPLEMENTED);
      EXPECT_NE(code, grpc::StatusCode::DEADLINE_EXCEEDED);
      if (!allowed) {
        EXPECT_EQ(code, grpc::StatusCode::PERMISSION_DENIED);
      }
      EXPECT_EQ(daemon.audit->Refusals(rule.method, "role") - before, allowed ? 0u : 1u);
      ++cells;
    }
  }
  EXPECT_EQ(cells, 4 * static_cast<int>(AccessRules().size()));
}

}  // namespace
}  // namespace sluice
