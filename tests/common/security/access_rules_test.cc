#include "common/security/access_rules.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/pserver.pb.h"
#include "proto/replica.pb.h"
#include "proto/scheduler.pb.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;

// Who may call what, written out once more: worker, pserver, scheduler, operator. A test compares
// it with the rules cell by cell.
struct Row {
  const char* callers;
  const char* method;

  bool Allows(PeerRole role) const {
    switch (role) {
      case PeerRole::kWorker:
        return callers[0] == 'w';
      case PeerRole::kPserver:
        return callers[2] == 'p';
      case PeerRole::kScheduler:
        return callers[4] == 's';
      case PeerRole::kOperator:
        return callers[6] == 'o';
    }
    return false;
  }
};
constexpr Row kTable[] = {
    {"w p - -", "/sluice.Scheduler/Register"},      {"w p - -", "/sluice.Scheduler/Poll"},
    {"w p - -", "/sluice.Scheduler/Leave"},         {"- - - o", "/sluice.Scheduler/MemberEnded"},
    {"w - - -", "/sluice.Scheduler/NextPhase"},     {"w - - -", "/sluice.Scheduler/NextTask"},
    {"w - - -", "/sluice.Scheduler/GetRoute"},      {"w - - -", "/sluice.Scheduler/FailJob"},
    {"w - - -", "/sluice.Scheduler/Gather"},        {"w - - -", "/sluice.Scheduler/EndJob"},
    {"- - - o", "/sluice.Scheduler/SubmitJob"},     {"- - - o", "/sluice.Scheduler/WatchJob"},
    {"- - - o", "/sluice.Scheduler/CheckpointJob"}, {"- - - o", "/sluice.Scheduler/CancelJob"},
    {"- - - o", "/sluice.Scheduler/DeleteRows"},    {"- - - o", "/sluice.Scheduler/ScaleJob"},
    {"- p - o", "/sluice.Scheduler/DrainPserver"},  {"- - - o", "/sluice.Scheduler/GetStatus"},
    {"- - - o", "/sluice.Scheduler/Shutdown"},      {"w - - -", "/sluice.Pserver/Exchange"},
    {"w - - -", "/sluice.Pserver/SaveShards"},      {"w - - -", "/sluice.Pserver/OpenSharedMemory"},
    {"- p - -", "/sluice.Replica/Exchange"},
};

constexpr Row kPages[] = {
    {"- - - o", "/"},
    {"- - - o", "/metrics"},
    {"- - - o", "/statusz"},
    {"w p s o", "/livez"},
    {"w p s o", "/readyz"},
    {"- - - o", "/api/v1/status"},
    {"- - - o", "/api/v1/jobs"},
    {"- - - o", "/api/v1/jobs/"},
    {"- - - o", "/api/v1/logs/"},
    {"- - - o", "/page/"},
};

PeerIdentity Verified(PeerRole role) {
  PeerIdentity peer;
  peer.verified = true;
  peer.role = role;
  return peer;
}

// The methods of all services of the files that define the calls between our processes.
std::vector<std::string> MethodsOfTheProtocol() {
  std::vector<std::string> methods;
  for (const auto* file : {SubmitJobRequest::descriptor()->file(), Frame::descriptor()->file(),
                           ReplicaFrame::descriptor()->file()}) {
    EXPECT_GT(file->service_count(), 0) << file->name();
    for (int s = 0; s < file->service_count(); ++s) {
      const auto* const service = file->service(s);
      for (int m = 0; m < service->method_count(); ++m)
        methods.push_back(absl::StrCat("/", service->full_name(), "/", service->method(m)->name()));
    }
  }
  return methods;
}

TEST(AccessRulesTest, EveryMethodHasOneRuleAndEveryRuleHasAMethod) {
  std::vector<std::string> ruled, expected;
  for (const AccessRule& rule : AccessRules()) {
    ruled.push_back(rule.method);
    EXPECT_FALSE(rule.roles.empty()) << rule.method;
  }
  for (const Row& row : kTable) expected.push_back(row.method);
  EXPECT_THAT(ruled, UnorderedElementsAreArray(MethodsOfTheProtocol()));
  EXPECT_THAT(expected, UnorderedElementsAreArray(MethodsOfTheProtocol()));
}

TEST(AccessRulesTest, EachRoleMayCallItsMethodsAlone) {
  for (const Row& row : kTable) {
    for (const PeerRole role : kPeerRoles) {
      for (const std::string name : {"", "0"}) {
        PeerIdentity peer = Verified(role);
        peer.name = name;
        const absl::Status status = CheckAccess(peer, row.method);
        EXPECT_EQ(status.code(),
                  row.Allows(role) ? absl::StatusCode::kOk : absl::StatusCode::kPermissionDenied)
            << PeerRoleName(role) << " " << row.method << ": " << status;
      }
    }
  }
}

TEST(AccessRulesTest, UnverifiedPeersMayCallEveryMethod) {
  for (const Row& row : kTable)
    EXPECT_TRUE(CheckAccess(PeerIdentity(), row.method).ok()) << row.method;
}

TEST(AccessRulesTest, NobodyMayCallAMethodWithoutARule) {
  for (const char* method :
       {"", "/", "/sluice.Scheduler/Nothing", "/sluice.Scheduler/", "/sluice.Scheduler",
        "/sluice.Scheduler/poll", "/sluice.Scheduler/Poll/", "sluice.Scheduler/Poll",
        "/sluice.Scheduler/PollX", "/sluice.Scheduler/Pol", "/sluice.Pserver/Poll",
        "/grpc.health.v1.Health/Check"}) {
    EXPECT_TRUE(absl::IsPermissionDenied(CheckAccess(PeerIdentity(), method))) << method;
    for (const PeerRole role : kPeerRoles)
      EXPECT_TRUE(absl::IsPermissionDenied(CheckAccess(Verified(role), method))) << method;
  }
}

TEST(AccessRulesTest, EachRoleMayReadItsPagesAlone) {
  std::vector<std::string> ruled, expected;
  for (const PageRule& rule : PageRules()) ruled.push_back(rule.path);
  for (const Row& row : kPages) {
    expected.push_back(row.method);
    EXPECT_TRUE(CheckPageAccess(PeerIdentity(), row.method).ok()) << row.method;
    for (const PeerRole role : kPeerRoles) {
      const absl::Status status = CheckPageAccess(Verified(role), row.method);
      EXPECT_EQ(status.code(),
                row.Allows(role) ? absl::StatusCode::kOk : absl::StatusCode::kPermissionDenied)
          << PeerRoleName(role) << " " << row.method << ": " << status;
    }
  }
  EXPECT_THAT(ruled, UnorderedElementsAreArray(expected));
}

TEST(AccessRulesTest, PagesWithANameHaveTheRuleOfTheirBeginning) {
  EXPECT_EQ(PageOf("/api/v1/jobs/adult-1/curves"), "/api/v1/jobs/");
  EXPECT_EQ(PageOf("/page/dashboard.js"), "/page/");
  for (const char* path : {"/", "/metrics", "/metrics/x", "/api/v1/jobs", "/nowhere/page/", ""})
    EXPECT_EQ(PageOf(path), path);
}

TEST(AccessRulesTest, ClientsWithoutACertificateMayReadHealthAlone) {
  const absl::StatusOr<PeerIdentity> nobody = absl::PermissionDeniedError("no certificate");
  for (const Row& row : kPages) {
    const std::string path = row.method;
    EXPECT_EQ(CheckPageAccess(nobody, path).ok(), path == "/livez" || path == "/readyz") << path;
  }
}

TEST(AccessRulesTest, NobodyWithACertificateMayReadAPageWithoutARule) {
  for (const char* path : {"", "//", "/livez/", "/metrics2", "/api/v1/", "/api", "metrics",
                           "/METRICS", "/livez/../metrics", "/sluice.Scheduler/GetStatus"}) {
    EXPECT_TRUE(absl::IsPermissionDenied(
        CheckPageAccess(absl::PermissionDeniedError("no certificate"), path)))
        << path;
    for (const PeerRole role : kPeerRoles)
      EXPECT_TRUE(absl::IsPermissionDenied(CheckPageAccess(Verified(role), path))) << path;
  }
}

// The rules as docs/threat_model.md shows them, between two comments.
std::string DocumentedRules() {
  std::string text = "<!-- access rules -->\n\n| method or page |";
  for (const PeerRole role : kPeerRoles) absl::StrAppend(&text, " ", PeerRoleName(role), " |");
  absl::StrAppend(&text, "\n|---|---|---|---|---|\n");
  const auto add = [&](const std::string& name, bool everybody,
                       const std::vector<PeerRole>& roles) {
    absl::StrAppend(&text, "| `", name, "` |");
    for (const PeerRole role : kPeerRoles) {
      const bool may = everybody || std::count(roles.begin(), roles.end(), role) > 0;
      absl::StrAppend(&text, may ? " yes |" : " |");
    }
    absl::StrAppend(&text, "\n");
  };
  for (const AccessRule& rule : AccessRules()) add(rule.method, false, rule.roles);
  for (const PageRule& rule : PageRules()) add(rule.path, rule.everybody, rule.roles);
  return text + "\n<!-- end of access rules -->\n";
}

TEST(AccessRulesTest, TheThreatModelShowsTheRules) {
  std::ifstream file("docs/threat_model.md");
  const std::string document((std::istreambuf_iterator<char>(file)), {});
  EXPECT_NE(document.find(DocumentedRules()), std::string::npos)
      << "docs/threat_model.md must contain this text:\n"
      << DocumentedRules();
}

TEST(AccessRulesTest, RefusalNamesPeerMethodAndRoles) {
  PeerIdentity worker = Verified(PeerRole::kWorker);
  worker.name = "3";
  const std::string message(CheckAccess(worker, "/sluice.Scheduler/DrainPserver").message());
  for (const char* part : {"worker 3", "/sluice.Scheduler/DrainPserver", "operator", "pserver"})
    EXPECT_THAT(message, HasSubstr(part));
}

}  // namespace
}  // namespace sluice
