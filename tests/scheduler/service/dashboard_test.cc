#include "scheduler/service/dashboard.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/base/fake_clock.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class DashboardTest : public ::testing::Test {
 protected:
  DashboardTest() {
    std::filesystem::remove_all(logs_);
    std::filesystem::create_directories(logs_);
    status_.set_name("c");
    status_.add_jobs()->set_job_id("a-1");
    MemberStatus* const member = status_.add_members();
    member->set_role(ROLE_WORKER);
    member->set_alive(true);
    member->set_host("here");
    member->set_pid(77);
    member->set_cpu_seconds(7.7);
    member->set_log_file("/elsewhere/workerlog.0");
    Dashboard::Options options;
    options.status = [this] {
      ++asked_;
      return status_;
    };
    options.curves = &curves_;
    options.env = Env::Real();
    options.clock = &clock_;
    options.log_dir = logs_;
    options.host = "here";
    dashboard_ = std::make_unique<Dashboard>(std::move(options));
  }
  ~DashboardTest() override { std::filesystem::remove_all(logs_); }

  std::optional<AdminServer::Page> Get(const std::string& path, const std::string& value = "") {
    return dashboard_->Answer({path, [value](const char*) { return value; }});
  }
  std::string Body(const std::string& path, const std::string& value = "") {
    const auto page = Get(path, value);
    return page.has_value() ? absl::StrCat(page->status, " ", page->body) : "none";
  }
  void WriteLog(const std::string& name, const std::string& text) {
    std::ofstream(absl::StrCat(logs_, "/", name)) << text;
  }

  const std::string logs_ = absl::StrCat(testing::TempDir(), "dashboard.", getpid());
  FakeClock clock_;
  ClusterStatus status_;
  JobCurves curves_;
  int asked_ = 0;
  std::unique_ptr<Dashboard> dashboard_;
};

TEST_F(DashboardTest, ServesThePageAndItsFiles) {
  const auto page = Get("/");
  ASSERT_TRUE(page.has_value());
  EXPECT_EQ(page->type, "text/html; charset=utf-8");
  EXPECT_THAT(page->body, StartsWith("<!doctype html>"));
  EXPECT_THAT(Body("/page/chart.js"), HasSubstr("Chart"));
  EXPECT_EQ(Get("/page/dashboard.css")->type, "text/css; charset=utf-8");
  for (const char* path : {"/page/", "/page/../dashboard.js", "/metrics", "/api/v1/status", ""})
    EXPECT_FALSE(Get(path).has_value()) << path;
  // Nothing in it leads elsewhere, and nothing of it needs an exception from the policy.
  EXPECT_THAT(page->body, AllOf(Not(HasSubstr("://")), Not(HasSubstr("style=")),
                                Not(HasSubstr("onclick")), Not(HasSubstr("<style"))));
}

TEST_F(DashboardTest, HoweverManyAskTheStatusIsTakenOnceASecond) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(Body("/api/v1/jobs"), StartsWith("200 {\"cluster\":\"c\""));
    EXPECT_THAT(Body("/api/v1/jobs/a-1"), StartsWith("200 {"));
  }
  EXPECT_EQ(asked_, 1);
  status_.set_name("d");
  clock_.Advance(Dashboard::kStatusAge);
  EXPECT_THAT(Body("/api/v1/jobs"), StartsWith("200 {\"cluster\":\"d\""));
  EXPECT_EQ(asked_, 2);
}

TEST_F(DashboardTest, UnknownJobsAreNotFound) {
  for (const char* path : {"/api/v1/jobs/a-2", "/api/v1/jobs/a-2/curves", "/api/v1/jobs/a-1/x"})
    EXPECT_THAT(Body(path), StartsWith("404 {\"error\":\"no job ")) << path;
  EXPECT_FALSE(Get("/api/v1/jobsx").has_value());
}

TEST_F(DashboardTest, CurvesHaveAtMostAsManyPointsAsAskedFor) {
  std::vector<Scalar> points;
  for (uint64_t step = 1; step <= 5000; ++step) points.push_back({"train/loss", step, 0.5});
  curves_.Add("a-1", points);
  const auto count = [&](const std::string& most) {
    const std::string body = Body("/api/v1/jobs/a-1/curves", most);
    return std::count(body.begin(), body.end(), '[') - 2;  // two lists hold the points
  };
  EXPECT_LE(count(""), 2000);
  EXPECT_GT(count(""), 500);
  EXPECT_LE(count("100"), 100);
  EXPECT_LE(count("999999999"), 2000);
  EXPECT_GE(count("0"), 1);
}

TEST_F(DashboardTest, MembersOfThisHostHaveALog) {
  EXPECT_THAT(Body("/api/v1/jobs"),
              AllOf(HasSubstr("\"cpu_seconds\":7.7"), HasSubstr("\"log_name\":null")));
  WriteLog("workerlog.0", "x\n");
  clock_.Advance(Dashboard::kStatusAge);
  EXPECT_THAT(Body("/api/v1/jobs"), HasSubstr("\"log_name\":\"workerlog.0\""));
  status_.mutable_members(0)->set_host("there");
  clock_.Advance(Dashboard::kStatusAge);
  EXPECT_THAT(Body("/api/v1/jobs"),
              AllOf(HasSubstr("\"cpu_seconds\":7.7"), HasSubstr("\"log_name\":null")));
}

TEST_F(DashboardTest, ShowsTheEndOfALog) {
  std::string text;
  for (int i = 0; i < 10'000; ++i) absl::StrAppend(&text, "line ", i, "\n");
  WriteLog("serverlog.12", text);
  const std::string body = Body("/api/v1/logs/serverlog.12");
  EXPECT_LT(body.size(), 2 * Dashboard::kLogBytes);
  EXPECT_THAT(body, AllOf(HasSubstr("\"text\":\"line "), HasSubstr("line 9999\\n\"")));
  EXPECT_LT(Body("/api/v1/logs/serverlog.12", "999999999").size(), 2 * Dashboard::kMostLogBytes);
}

TEST_F(DashboardTest, OnlyLogsOfTheOwnFolderAreRead) {
  WriteLog("job_numbers", "secret");
  WriteLog("workerlog.0.key", "secret");
  const std::string outside = logs_ + ".outside";
  std::ofstream(outside) << "secret";
  std::filesystem::create_symlink(outside, logs_ + "/workerlog.7");
  std::filesystem::create_directories(logs_ + "/workerlog.8");
  for (const char* name :
       {"job_numbers", "workerlog.0.key", "workerlog.7", "workerlog.8", "workerlog.9", "../x",
        "workerlog.", "workerlog.0/../job_numbers", "", "/etc/passwd"}) {
    EXPECT_THAT(Body(absl::StrCat("/api/v1/logs/", name)),
                AllOf(StartsWith("404 {\"error\":"), Not(HasSubstr("secret"))))
        << name;
  }
  std::filesystem::remove(outside);
}

}  // namespace
}  // namespace sluice
