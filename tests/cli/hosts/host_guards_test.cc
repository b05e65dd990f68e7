#include "cli/hosts/host_guards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/cli/hosts/fake_links.h"
#include "tests/common/base/fake_clock.h"

namespace sluice::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class HostGuardsTest : public testing::Test {
 protected:
  std::unique_ptr<HostGuards> Connect(const std::string& hosts) {
    HostGuards::Options options;
    options.clock = &clock_;
    options.links = &links_;
    options.hosts = *ParseHostList(hosts, "--hosts");
    options.version = "1";
    options.events.log = [this](const std::string& id, const std::string& line) {
      events_.push_back(absl::StrCat("log ", id, " ", line));
    };
    options.events.out = [this](const std::string& id, const std::string& line) {
      events_.push_back(absl::StrCat("out ", id, " ", line));
    };
    options.events.ended = [this](const std::string& id, uint32_t pid, int status) {
      events_.push_back(absl::StrCat("ended ", id, " ", pid, " ", status));
    };
    options.events.lost = [this](size_t host) { events_.push_back(absl::StrCat("lost ", host)); };
    auto guards = std::make_unique<HostGuards>(std::move(options));
    EXPECT_TRUE(guards->Connect().ok());
    return guards;
  }

  FakeClock clock_;
  FakeLinks links_{&clock_};
  std::vector<std::string> events_;
};

TEST_F(HostGuardsTest, KnowsWhatEachGuardHasSaidOfItsHost) {
  links_.hosts["b"].version = "2";
  const auto guards = Connect("a,b");
  EXPECT_EQ(guards->at(0).folder, "/guard");
  EXPECT_EQ(guards->at(0).programs, "/bin");
  EXPECT_EQ(guards->at(0).cores, 8U);
  EXPECT_TRUE(guards->Answers(0));
  EXPECT_FALSE(guards->Answers(1));  // another version is asked nothing
  EXPECT_FALSE(guards->IsGone(1));
  guards->End();
  EXPECT_TRUE(links_.hosts["a"].ended);
}

TEST_F(HostGuardsTest, AnswersGoToTheirQuestions) {
  links_.hosts["a"].files["/x"] = "5";
  const auto guards = Connect("a,b");
  const uint64_t first = guards->Send(0, "size", {"/x"});
  const uint64_t second = guards->Send(0, "size", {"/y"});
  EXPECT_EQ(guards->Await(0, second).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(*guards->Await(0, first), ElementsAre("5"));
  // A host cannot answer what another one was asked.
  links_.hosts["a"].silent = true;
  const uint64_t third = guards->Send(0, "size", {"/x"});
  links_.hosts["b"].says.push_back({third, "ok", {"6"}});
  guards->Listen();
  links_.hosts["a"].silent = false;
  EXPECT_THAT(*guards->Await(0, third), ElementsAre("5"));
}

TEST_F(HostGuardsTest, TellsOfLogsEndsAndHostsThatAreGone) {
  const auto guards = Connect("a,b");
  links_.hosts["a"].says = {{0, "log", {"worker.0.1", "hello"}},
                            {0, "ended", {"worker.0.1", "7", "256"}},
                            {0, "ended", {"worker.0.1", "seven", "256"}},
                            {0, "log", {"too few"}}};
  guards->Listen();
  EXPECT_THAT(events_, ElementsAre("log worker.0.1 hello", "ended worker.0.1 7 256"));
  links_.hosts["b"].silent = true;
  clock_.Advance(absl::Seconds(kGuardPatienceS));
  const auto answer = guards->Ask(1, "size", {"/x"});
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(answer.status().message(), HasSubstr("silent"));
  EXPECT_TRUE(guards->IsGone(1));
  EXPECT_EQ(events_.back(), "lost 1");
}

}  // namespace
}  // namespace sluice::cli
