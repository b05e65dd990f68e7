#include "common/daemon/identity.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/url_roots.h"
#include "common/daemon/process_info.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/security/test_certificates.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class IdentityTest : public ::testing::Test {
 protected:
  IdentityTest()
      : file_(::testing::TempDir() + "/identity_test_" + std::to_string(getpid()) + ".textproto") {
    ClearVariables();
  }
  ~IdentityTest() override {
    ClearVariables();
    std::remove(file_.c_str());
  }
  void ClearVariables() {
    for (const char* name :
         {"ROLE", "RANK", "BIND", "ADVERTISE", "SCHEDULER", "CLUSTER", "LOG_DIR", "ADMIN_BIND",
          "DEVICE", "INSECURE", "ANY_LOCAL_USER", "STANDBY", "TLS_CERT", "TLS_KEY", "DATA_ROOT",
          "OUTPUT_ROOT", "ETCD_CA", "ETCD_CERT", "ETCD_KEY"}) {
      unsetenv((std::string("SLUICE_") + name).c_str());
    }
  }
  void WriteCluster(const std::string& text) {
    std::ofstream(file_) << text;
    flags_.cluster_file = file_;
  }
  std::string Refusal(Role role) {
    const auto identity = ResolveIdentity(role, flags_);
    EXPECT_EQ(identity.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(identity.status().message());
  }

  const std::string file_;
  IdentityFlags flags_;
};

constexpr char kTwoHosts[] =
    "scheduler: '10.0.0.1:7000' pservers: ['10.0.0.1:7001', '10.0.0.2:7001'] worker_num: 2 "
    "security { insecure: true }";

TEST_F(IdentityTest, FileGivesAddressesByRank) {
  WriteCluster(kTwoHosts);
  flags_.rank = 1;
  const auto pserver = ResolveIdentity(ROLE_PSERVER, flags_);
  ASSERT_TRUE(pserver.ok()) << pserver.status();
  EXPECT_EQ(pserver->bind, "10.0.0.2:7001");
  EXPECT_EQ(pserver->advertise, "10.0.0.2:7001");
  EXPECT_EQ(pserver->scheduler, "10.0.0.1:7000");
  EXPECT_EQ(pserver->admin_bind, "127.0.0.1:0");
  EXPECT_EQ(pserver->log_dir, "log");
  EXPECT_EQ(pserver->cluster.limits().wait_s(), 120);
  flags_.rank = -1;
  EXPECT_EQ(ResolveIdentity(ROLE_SCHEDULER, flags_)->bind, "10.0.0.1:7000");
}

TEST_F(IdentityTest, VariableBeatsFileAndFlagBeatsVariable) {
  WriteCluster(kTwoHosts);
  setenv("SLUICE_RANK", "1", 1);
  setenv("SLUICE_BIND", "127.0.0.1:8001", 1);
  setenv("SLUICE_SCHEDULER", "127.0.0.1:8000", 1);
  setenv("SLUICE_LOG_DIR", "logs-v", 1);
  setenv("SLUICE_ADVERTISE", "host-v:1", 1);
  auto id = ResolveIdentity(ROLE_PSERVER, flags_);
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_EQ(id->rank, 1);
  EXPECT_EQ(id->bind, "127.0.0.1:8001");
  EXPECT_EQ(id->advertise, "host-v:1");
  EXPECT_EQ(id->scheduler, "127.0.0.1:8000");
  EXPECT_EQ(id->cluster.scheduler(), "127.0.0.1:8000");
  EXPECT_EQ(id->log_dir, "logs-v");

  flags_.rank = 0;
  flags_.bind = "127.0.0.1:9001";
  flags_.scheduler = "127.0.0.1:9000";
  flags_.log_dir = "logs-f";
  flags_.advertise = "host-f:1";
  id = ResolveIdentity(ROLE_PSERVER, flags_);
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_EQ(id->rank, 0);
  EXPECT_EQ(id->bind, "127.0.0.1:9001");
  EXPECT_EQ(id->advertise, "host-f:1");
  EXPECT_EQ(id->scheduler, "127.0.0.1:9000");
  EXPECT_EQ(id->log_dir, "logs-f");
}

TEST_F(IdentityTest, ClusterFileCanComeFromTheVariable) {
  WriteCluster("scheduler: '127.0.0.1:7000' pservers: '127.0.0.1:0' worker_num: 1");
  setenv("SLUICE_CLUSTER", flags_.cluster_file.c_str(), 1);
  flags_.cluster_file.clear();
  const auto id = ResolveIdentity(ROLE_PSERVER, flags_);
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_EQ(id->rank, 0) << "the only pserver needs no rank";
  EXPECT_EQ(id->bind, "127.0.0.1:0");
  EXPECT_EQ(id->advertise, "") << "the port is not known yet";
}

TEST_F(IdentityTest, RankIsFoundByAHostNameThatOccursOnce) {
  char host[256] = {};
  ASSERT_EQ(gethostname(host, sizeof(host) - 1), 0);
  WriteCluster("scheduler: 'a:1' worker_num: 2 worker_hosts: ['other', '" + std::string(host) +
               "'] security { insecure: true }");
  const auto id = ResolveIdentity(ROLE_WORKER, flags_);
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_EQ(id->rank, 1);
}

TEST_F(IdentityTest, UnknownRankIsRefused) {
  WriteCluster(kTwoHosts);
  EXPECT_THAT(Refusal(ROLE_PSERVER), HasSubstr("--rank"));
  flags_.rank = 2;
  EXPECT_THAT(Refusal(ROLE_PSERVER),
              AllOf(HasSubstr("--rank: rank 2"), HasSubstr("has 2 pservers")));
  EXPECT_THAT(Refusal(ROLE_WORKER), HasSubstr("has 2 workers"));
  flags_.rank = -1;
  setenv("SLUICE_RANK", "one", 1);
  EXPECT_THAT(Refusal(ROLE_WORKER), HasSubstr("SLUICE_RANK: 'one'"));
}

TEST_F(IdentityTest, AddressesOtherThanLoopbackNeedInsecure) {
  flags_.scheduler = "127.0.0.1:7000";
  flags_.rank = 0;
  flags_.bind = "10.0.0.1:7001";
  EXPECT_THAT(Refusal(ROLE_PSERVER),
              AllOf(HasSubstr("--bind: '10.0.0.1:7001'"), HasSubstr("--insecure")));
  flags_.insecure = true;
  EXPECT_TRUE(ResolveIdentity(ROLE_PSERVER, flags_).ok());
  flags_.insecure = false;
  setenv("SLUICE_INSECURE", "true", 1);
  EXPECT_TRUE(ResolveIdentity(ROLE_PSERVER, flags_).ok());
  setenv("SLUICE_INSECURE", "perhaps", 1);
  EXPECT_THAT(Refusal(ROLE_PSERVER), HasSubstr("SLUICE_INSECURE: 'perhaps'"));
  setenv("SLUICE_INSECURE", "false", 1);
  flags_.bind = "127.0.0.1:0";
  flags_.admin_bind = "0.0.0.0:80";
  EXPECT_THAT(Refusal(ROLE_PSERVER), HasSubstr("--admin_bind"));
}

TEST_F(IdentityTest, OtherLocalUsersAreServedOnlyWhenAskedFor) {
  flags_.scheduler = "127.0.0.1:7000";
  flags_.rank = 0;
  const auto serves = [&] {
    return ResolveIdentity(ROLE_WORKER, flags_)->credentials.serves_any_local_user();
  };
  EXPECT_FALSE(serves());
  flags_.any_local_user = true;
  EXPECT_TRUE(serves());
  flags_.any_local_user = false;
  setenv("SLUICE_ANY_LOCAL_USER", "true", 1);
  EXPECT_TRUE(serves());
}

TEST_F(IdentityTest, WithTlsAnyAddressIsAllowed) {
  const TestCertificates certificates("identity");
  const TlsFiles files = certificates.Of(PeerRole::kPserver);
  flags_.scheduler = "10.0.0.1:7000";
  flags_.rank = 0;
  flags_.bind = "10.0.0.1:7001";
  flags_.tls = files;
  const auto pserver = ResolveIdentity(ROLE_PSERVER, flags_);
  ASSERT_TRUE(pserver.ok()) << pserver.status();
  EXPECT_TRUE(pserver->credentials.tls());
  EXPECT_EQ(pserver->tls.key, files.key);
  flags_.admin_bind = "10.0.0.1:7002";
  const auto with_admin = ResolveIdentity(ROLE_PSERVER, flags_);
  ASSERT_TRUE(with_admin.ok()) << with_admin.status();
  EXPECT_EQ(with_admin->admin_bind, "10.0.0.1:7002");
  flags_.tls.key.clear();
  EXPECT_THAT(Refusal(ROLE_PSERVER), HasSubstr("--tls_key"));
}

TEST_F(IdentityTest, WithoutTlsMembersFindTheSchedulerOnlyOnLoopback) {
  flags_.rank = 0;
  for (const Role role : {ROLE_PSERVER, ROLE_WORKER}) {
    flags_.insecure = false;
    for (const char* address : {"10.0.0.1:7000", "scheduler:7000", "127.0.0.1:1,10.0.0.1:1"}) {
      flags_.scheduler = address;
      EXPECT_THAT(Refusal(role), AllOf(HasSubstr("--scheduler"), HasSubstr(address),
                                       HasSubstr("--tls_cert"), HasSubstr("--insecure")));
    }
    flags_.scheduler = "127.0.0.1:1,localhost:1";
    EXPECT_TRUE(ResolveIdentity(role, flags_).ok());
    flags_.scheduler = "10.0.0.1:7000";
    flags_.insecure = true;
    EXPECT_TRUE(ResolveIdentity(role, flags_).ok());
  }
}

TEST_F(IdentityTest, TheCertificateMustBeForTheRoleAndTheRank) {
  const TestCertificates certificates("identity");
  flags_.scheduler = "127.0.0.1:7000";
  flags_.rank = 1;
  flags_.tls = certificates.Of(PeerRole::kPserver, "1");
  EXPECT_TRUE(ResolveIdentity(ROLE_PSERVER, flags_).ok());
  EXPECT_THAT(Refusal(ROLE_WORKER), HasSubstr("--tls_cert"));
  flags_.rank = 2;
  EXPECT_THAT(Refusal(ROLE_PSERVER), HasSubstr("--tls_cert"));
  flags_.rank = -1;
  EXPECT_THAT(Refusal(ROLE_SCHEDULER), HasSubstr("--tls_cert"));
  flags_.tls = certificates.Of(PeerRole::kScheduler);
  EXPECT_TRUE(ResolveIdentity(ROLE_SCHEDULER, flags_).ok());
}

TEST_F(IdentityTest, FilesOfTlsComeFromFlagElseVariableElseClusterFile) {
  const TestCertificates certificates("identity");
  const TlsFiles files = certificates.Of(PeerRole::kWorker);
  WriteCluster(
      "scheduler: '10.0.0.1:7000' worker_num: 1 security { tls_cert: 'a' tls_key: 'b' tls_ca: '" +
      files.ca + "' }");
  flags_.rank = 0;
  setenv("SLUICE_TLS_CERT", files.cert.c_str(), 1);
  setenv("SLUICE_TLS_KEY", "c", 1);
  flags_.tls.key = files.key;
  const auto worker = ResolveIdentity(ROLE_WORKER, flags_);
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_TRUE(worker->credentials.tls());
  unsetenv("SLUICE_TLS_CERT");
  EXPECT_THAT(Refusal(ROLE_WORKER), HasSubstr("--tls_cert: a"));
}

TEST_F(IdentityTest, RootsComeFromFlagElseVariableElseClusterFile) {
  WriteCluster("security { data_root: '/a' output_root: '/b' output_root: '/c' }");
  const auto roots = [&] {
    const auto identity = ResolveIdentity(ROLE_SCHEDULER, flags_);
    EXPECT_TRUE(identity.ok()) << identity.status();
    const SecurityConfig& security = identity->cluster.security();
    return absl::StrCat(absl::StrJoin(security.data_root(), "+"), " ",
                        absl::StrJoin(security.output_root(), "+"));
  };
  EXPECT_EQ(roots(), "/a /b+/c");
  setenv("SLUICE_OUTPUT_ROOT", "/d,/e", 1);
  EXPECT_EQ(roots(), "/a /d+/e");
  flags_.output_root = "/f";
  flags_.data_root = "/g,/h";
  EXPECT_EQ(roots(), "/g+/h /f");
  flags_.output_root = "f";
  EXPECT_THAT(Refusal(ROLE_SCHEDULER), HasSubstr("output_root[0]: 'f'"));
}

TEST_F(IdentityTest, OffLoopbackWebServersNeedADataRoot) {
  Identity identity;
  identity.bind = "127.0.0.1:0";
  EXPECT_EQ(WebDataProblem(identity), "");
  identity.scheduler = "127.0.0.1:7100";
  EXPECT_EQ(WebDataProblem(identity), "");
  identity.scheduler = "127.0.0.1:7100,10.0.0.1:7100";
  EXPECT_THAT(WebDataProblem(identity), ::testing::HasSubstr("--data_root"));
  identity.scheduler = "";
  identity.bind = "0.0.0.0:7000";
  EXPECT_THAT(WebDataProblem(identity), ::testing::HasSubstr("--data_root"));
  identity.bind = "127.0.0.1:no";
  EXPECT_THAT(WebDataProblem(identity), ::testing::HasSubstr("--data_root")) << "it may be any";
  identity.cluster.mutable_security()->add_output_root("/usr");
  EXPECT_EQ(WebDataProblem(identity), "") << "the roots say which";
}

TEST_F(IdentityTest, RedirectsAreConfinedToTheDataRoots) {
  Identity identity;
  identity.cluster.mutable_security()->add_output_root("/usr");
  identity.cluster.mutable_security()->add_data_root("https://h/d/");
  // The rule is one of the process: this test sets it for a process of its own.
  const auto confined = [&] {
    const bool made = ConfinedEnv(identity, Env::Real()).ok();
    std::_Exit(made && RedirectIsAllowed("https://h/d/a") && !RedirectIsAllowed("https://h/a") ? 0
                                                                                               : 1);
  };
  EXPECT_EXIT(confined(), ::testing::ExitedWithCode(0), "");
}

TEST_F(IdentityTest, TheEnvOfJobsIsConfinedOnlyWhenThereAreRoots) {
  Identity identity;
  auto env = ConfinedEnv(identity, Env::Real());
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(*env, nullptr);
  identity.cluster.mutable_security()->add_output_root("/usr");
  env = ConfinedEnv(identity, Env::Real());
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_TRUE((*env)->Exists("/usr/bin"));
  EXPECT_FALSE((*env)->Exists("/proc"));
  identity.cluster.mutable_security()->set_output_root(0, "/none");
  EXPECT_EQ(ConfinedEnv(identity, Env::Real()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(IdentityTest, WildcardBindNeedsAnAdvertisedAddress) {
  flags_.scheduler = "127.0.0.1:7000";
  flags_.rank = 0;
  flags_.insecure = true;
  flags_.bind = "0.0.0.0:7001";
  EXPECT_THAT(Refusal(ROLE_PSERVER), HasSubstr("--advertise"));
  flags_.advertise = "host-1:7001";
  EXPECT_EQ(ResolveIdentity(ROLE_PSERVER, flags_)->advertise, "host-1:7001");
}

TEST_F(IdentityTest, MissingSchedulerAndWrongRoleAreRefused) {
  flags_.rank = 0;
  EXPECT_THAT(Refusal(ROLE_WORKER), HasSubstr("--scheduler"));
  flags_.scheduler = "nowhere";
  EXPECT_THAT(Refusal(ROLE_WORKER), HasSubstr("--scheduler: 'nowhere'"));
  flags_.scheduler = "127.0.0.1:0";
  EXPECT_THAT(Refusal(ROLE_WORKER), HasSubstr("no port"));
  setenv("SLUICE_ROLE", "pserver", 1);
  EXPECT_THAT(Refusal(ROLE_WORKER), HasSubstr("SLUICE_ROLE: 'pserver'"));
  EXPECT_EQ(ResolveIdentity(ROLE_SCHEDULER, IdentityFlags()).status().code(),
            absl::StatusCode::kInvalidArgument);
  unsetenv("SLUICE_ROLE");
  EXPECT_EQ(ResolveIdentity(ROLE_SCHEDULER, IdentityFlags())->bind, "127.0.0.1:0");
}

TEST_F(IdentityTest, JobVariablesAreRefusedAndTheSchedulerIgnoresTheRank) {
  setenv("SLUICE_RANK", "1", 1);
  EXPECT_TRUE(ResolveIdentity(ROLE_SCHEDULER, flags_).ok());
  setenv("SLUICE_EPOCHS", "3", 1);
  for (const Role role : {ROLE_SCHEDULER, ROLE_PSERVER, ROLE_WORKER})
    EXPECT_THAT(Refusal(role), HasSubstr("SLUICE_EPOCHS=3"));
  unsetenv("SLUICE_EPOCHS");
}

constexpr char kTwoSchedulers[] =
    "scheduler: '198.51.100.1:7000,127.0.0.1:7000' pservers: '127.0.0.1:0' worker_num: 1 "
    "security { insecure: true }";

TEST_F(IdentityTest, MembersKnowAllSchedulers) {
  WriteCluster(kTwoSchedulers);
  EXPECT_EQ(ResolveIdentity(ROLE_WORKER, flags_)->scheduler, "198.51.100.1:7000,127.0.0.1:7000");
  flags_.scheduler = "a:1,b:1";
  EXPECT_EQ(ResolveIdentity(ROLE_PSERVER, flags_)->scheduler, "a:1,b:1");
  flags_.scheduler = "a:1,b:0";
  EXPECT_THAT(Refusal(ROLE_WORKER), HasSubstr("--scheduler: 'b:0'"));
}

TEST_F(IdentityTest, SchedulerOfSeveralIsTheOneOnThisHost) {
  WriteCluster(kTwoSchedulers);  // 198.51.100.0/24 is for documentation alone
  const auto here = ResolveIdentity(ROLE_SCHEDULER, flags_);
  ASSERT_TRUE(here.ok()) << here.status();
  EXPECT_EQ(here->bind, "127.0.0.1:7000");
  EXPECT_EQ(here->advertise, "127.0.0.1:7000");
  // All interfaces, with the port of the one on this host.
  flags_.bind = "0.0.0.0:7000";
  const auto everywhere = ResolveIdentity(ROLE_SCHEDULER, flags_);
  ASSERT_TRUE(everywhere.ok()) << everywhere.status();
  EXPECT_EQ(everywhere->bind, "0.0.0.0:7000");
  EXPECT_EQ(everywhere->advertise, "127.0.0.1:7000");
}

TEST_F(IdentityTest, SchedulerOfSeveralIsTheOneThatBindNames) {
  WriteCluster(
      "scheduler: '127.0.0.1:7000,127.0.0.1:7001,198.51.100.1:7002' security { insecure: true }");
  EXPECT_THAT(Refusal(ROLE_SCHEDULER), AllOf(HasSubstr(file_), HasSubstr("--bind")));
  for (const char* own : {"127.0.0.1:7001", "198.51.100.1:7002"}) {
    flags_.bind = own;
    const auto id = ResolveIdentity(ROLE_SCHEDULER, flags_);
    ASSERT_TRUE(id.ok()) << id.status();
    EXPECT_EQ(id->bind, own);
    EXPECT_EQ(id->advertise, own);
  }
  // One that the list does not name, such as one behind a port that is forwarded.
  flags_.bind = "127.0.0.1:7777";
  EXPECT_EQ(ResolveIdentity(ROLE_SCHEDULER, flags_)->advertise, "127.0.0.1:7777");
  WriteCluster("scheduler: '198.51.100.1:7000,198.51.100.2:7000' security { insecure: true }");
  flags_.bind.clear();
  EXPECT_THAT(Refusal(ROLE_SCHEDULER), HasSubstr("--bind"));
}

TEST_F(IdentityTest, StandbyIsAFlagOrAVariableOfTheScheduler) {
  EXPECT_FALSE(ResolveIdentity(ROLE_SCHEDULER, flags_)->standby);
  setenv("SLUICE_ETCD_CERT", "half", 1);
  EXPECT_THAT(Refusal(ROLE_SCHEDULER), HasSubstr("--etcd_ca"));
  unsetenv("SLUICE_ETCD_CERT");
  setenv("SLUICE_STANDBY", "perhaps", 1);
  EXPECT_THAT(Refusal(ROLE_SCHEDULER), HasSubstr("SLUICE_STANDBY: 'perhaps'"));
  setenv("SLUICE_STANDBY", "true", 1);
  EXPECT_TRUE(ResolveIdentity(ROLE_SCHEDULER, flags_)->standby);
  unsetenv("SLUICE_STANDBY");
  flags_.standby = true;
  EXPECT_TRUE(ResolveIdentity(ROLE_SCHEDULER, flags_)->standby);
}

TEST_F(IdentityTest, MissingClusterFileIsInvalidArgument) {
  flags_.cluster_file = "/nosuch/file";
  EXPECT_THAT(Refusal(ROLE_PSERVER), HasSubstr("/nosuch/file"));
}

TEST_F(IdentityTest, EachProblemNamesTheClusterFile) {
  WriteCluster("worker_num: 70000 limits { heartbeat_ms: 1 }");
  EXPECT_THAT(Refusal(ROLE_SCHEDULER), AllOf(HasSubstr(file_ + ": worker_num"),
                                             HasSubstr("\n" + file_ + ": limits.heartbeat_ms")));
}

TEST_F(IdentityTest, ParseErrorsNameTheClusterFile) {
  WriteCluster("scheduler: 'x'");
  EXPECT_THAT(Refusal(ROLE_SCHEDULER), AllOf(HasSubstr(file_), HasSubstr("scheduler: 'x'")));
  WriteCluster("shceduler: 'x'");
  EXPECT_THAT(Refusal(ROLE_SCHEDULER), HasSubstr(file_ + ":1:"));
}

TEST(RegistrationTest, EachRegistrationHasItsOwnLifeAndProcessSpace) {
  Identity identity;
  identity.role = ROLE_WORKER;
  const RegisterRequest first = RegistrationOf(identity, ""), second = RegistrationOf(identity, "");
  EXPECT_NE(first.life(), 0u);
  EXPECT_NE(first.life(), second.life());
  EXPECT_EQ(first.process_space(), ProcessSpace());
  EXPECT_EQ(first.pid(), static_cast<uint32_t>(getpid()));
}

TEST(ExitCodeTest, ErrorsThatWouldRecurExitWithTwo) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), 0);
  for (const absl::Status& status :
       {absl::InvalidArgumentError(""), absl::UnimplementedError(""), absl::AbortedError(""),
        absl::AlreadyExistsError(""), absl::PermissionDeniedError("")}) {
    EXPECT_EQ(ExitCodeOf(status), 2) << status;
  }
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("")), 1);
  EXPECT_EQ(ExitCodeOf(absl::CancelledError("")), 1);
}

TEST(LogFileNameTest, NamesAreTheDocumentedOnes) {
  EXPECT_EQ(LogFileName(ROLE_SCHEDULER, 0), "schedulerlog.0");
  EXPECT_EQ(LogFileName(ROLE_PSERVER, 3), "serverlog.3");
  EXPECT_EQ(LogFileName(ROLE_WORKER, 12), "workerlog.12");
  EXPECT_EQ(AuditFileName(ROLE_SCHEDULER, 0), "scheduleraudit.0");
  EXPECT_EQ(AuditFileName(ROLE_PSERVER, 3), "serveraudit.3");
  EXPECT_EQ(AuditFileName(ROLE_WORKER, 12), "workeraudit.12");
}

TEST_F(IdentityTest, TransportComesFromTheFlagThenTheVariableThenTheFile) {
  flags_.rank = 0;
  flags_.scheduler = "127.0.0.1:7000";
  EXPECT_EQ(ResolveIdentity(ROLE_WORKER, flags_)->transport, TransportChoice::kAuto);
  flags_.scheduler.clear();
  WriteCluster("scheduler: '127.0.0.1:7000' worker_num: 2 transport: 'grpc'");
  EXPECT_EQ(ResolveIdentity(ROLE_WORKER, flags_)->transport, TransportChoice::kGrpc);
  setenv("SLUICE_TRANSPORT", "shm", 1);
  EXPECT_EQ(ResolveIdentity(ROLE_WORKER, flags_)->transport, TransportChoice::kShm);
  flags_.transport = "auto";
  EXPECT_EQ(ResolveIdentity(ROLE_WORKER, flags_)->transport, TransportChoice::kAuto);
  flags_.transport = "tcp";
  EXPECT_THAT(Refusal(ROLE_WORKER), AllOf(HasSubstr("--transport: 'tcp'"), HasSubstr("shm")));
  flags_.transport.clear();
  setenv("SLUICE_TRANSPORT", "tcp", 1);
  EXPECT_THAT(Refusal(ROLE_WORKER), HasSubstr("SLUICE_TRANSPORT: 'tcp'"));
  unsetenv("SLUICE_TRANSPORT");
}

TEST_F(IdentityTest, DeviceComesFromTheFlagThenTheVariableThenTheFile) {
  WriteCluster("scheduler: '127.0.0.1:7000' worker_num: 2 worker_devices: 'cuda:3'");
  flags_.rank = 1;
  EXPECT_EQ(ResolveIdentity(ROLE_WORKER, flags_)->device.kind, DeviceRequest::kCpu);
  flags_.rank = 0;
  EXPECT_EQ(ResolveIdentity(ROLE_WORKER, flags_)->device.ordinal, 3);
  EXPECT_THAT(ResolveIdentity(ROLE_WORKER, flags_)->device.origin,
              AllOf(HasSubstr("worker_devices[0] of "), HasSubstr(" is cuda:3")));
  setenv("SLUICE_DEVICE", "auto", 1);
  EXPECT_EQ(ResolveIdentity(ROLE_WORKER, flags_)->device.kind, DeviceRequest::kAuto);
  flags_.device = "cuda";
  EXPECT_EQ(ResolveIdentity(ROLE_WORKER, flags_)->device.kind, DeviceRequest::kNextCuda);
  EXPECT_EQ(ResolveIdentity(ROLE_WORKER, flags_)->device.origin, "--device=cuda");
  flags_.device = "gpu";
  EXPECT_THAT(Refusal(ROLE_WORKER), AllOf(HasSubstr("--device: 'gpu'"), HasSubstr("cuda:N")));
  flags_.device.clear();
  setenv("SLUICE_DEVICE", "cuda:", 1);
  EXPECT_THAT(Refusal(ROLE_WORKER), HasSubstr("SLUICE_DEVICE: 'cuda:'"));
}

}  // namespace
}  // namespace sluice
