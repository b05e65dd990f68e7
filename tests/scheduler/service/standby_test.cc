#include "scheduler/service/standby.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/common/base/fake_clock.h"

namespace sluice {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kLease = absl::Seconds(10);

// Time passes only in pauses.
class StandbyTest : public ::testing::Test, public Leadership {
 protected:
  StandbyTest() {
    Standby::Options options;
    options.leadership = this;
    options.clock = &clock_;
    options.lease = kLease;
    options.pause = [this](absl::Duration time) {
      clock_.Advance(time);
      if (on_pause_) on_pause_();
      return !stopped_;
    };
    options.say = [this](const std::string& text) { said_.push_back(text); };
    standby_.emplace(std::move(options));
  }

  absl::StatusOr<Leader> Find() override { return leader_; }
  absl::StatusOr<uint64_t> AcquireFreeTerm() override {
    if (!term_.ok()) return term_;
    EXPECT_EQ(leader_->name, "") << "the term is another one's";
    return 7;
  }
  absl::Status EndCluster(uint64_t) override { return absl::OkStatus(); }

  // Calls `change` when the standby has waited for so long.
  void After(absl::Duration time, std::function<void()> change) {
    on_pause_ = [this, at = clock_.Now() + time, change] {
      if (clock_.Now() >= at) change();
    };
  }
  absl::Duration Waited() { return clock_.Now() - absl::UnixEpoch(); }

  FakeClock clock_;
  absl::StatusOr<Leader> leader_ = Leader{};
  absl::Status term_;
  bool stopped_ = false;
  std::function<void()> on_pause_;
  std::vector<std::string> said_;
  std::optional<Standby> standby_;
};

TEST_F(StandbyTest, LeadsAtOnceWhenNobodyDoes) {
  EXPECT_EQ(standby_->AwaitTerm().value(), 7u);
  EXPECT_EQ(Waited(), absl::ZeroDuration());
  EXPECT_THAT(said_, ElementsAre());
}

TEST_F(StandbyTest, TakesOverAsSoonAsTheLeaderIsGone) {
  leader_ = Leader{"a:1", false};
  After(absl::Minutes(1), [this] { leader_ = Leader{}; });
  EXPECT_EQ(standby_->AwaitTerm().value(), 7u);
  EXPECT_LT(Waited(), absl::Minutes(1) + absl::Seconds(1));
  EXPECT_THAT(said_, ElementsAre("standby: a:1 leads", HasSubstr("taking over")));
}

TEST_F(StandbyTest, SaysOncePerLeaderWhoLeads) {
  leader_ = Leader{"a:1", false};
  After(absl::Minutes(1), [this] {
    leader_ = Leader{"b:1", false};
    After(absl::Minutes(1), [this] { stopped_ = true; });
  });
  EXPECT_TRUE(absl::IsCancelled(standby_->AwaitTerm().status()));
  EXPECT_THAT(said_, ElementsAre("standby: a:1 leads", "standby: b:1 leads"));
}

TEST_F(StandbyTest, WaitsOnWhenAnotherStandbyIsFaster) {
  term_ = absl::FailedPreconditionError("b:1 leads");
  After(absl::Seconds(1), [this] {
    leader_ = Leader{"b:1", false};
    stopped_ = true;
  });
  EXPECT_TRUE(absl::IsCancelled(standby_->AwaitTerm().status()));
}

TEST_F(StandbyTest, LeaderHasALeaseToReturnAfterTheStoreWasAway) {
  leader_ = Leader{"a:1", false};
  After(absl::Seconds(1), [this] {
    leader_ = absl::UnavailableError("etcd did not answer");
    After(absl::Minutes(1), [this] {
      leader_ = Leader{};
      on_pause_ = nullptr;
    });
  });
  EXPECT_EQ(standby_->AwaitTerm().value(), 7u);
  const absl::Duration waited = Waited() - absl::Seconds(61);
  EXPECT_GE(waited, kLease - absl::Seconds(1));
  EXPECT_LE(waited, kLease + absl::Seconds(1));
  EXPECT_THAT(said_, ElementsAre(HasSubstr("a:1"), HasSubstr("etcd did not answer"), _, _));
}

TEST_F(StandbyTest, KeepsWaitingWhenTheTermCannotBeWritten) {
  term_ = absl::ResourceExhaustedError("quota");
  After(absl::Seconds(30), [this] { term_ = absl::OkStatus(); });
  EXPECT_EQ(standby_->AwaitTerm().value(), 7u);
  EXPECT_THAT(said_.front(), HasSubstr("quota"));
}

TEST_F(StandbyTest, LastingErrorsEndIt) {
  leader_ = absl::PermissionDeniedError("no");
  EXPECT_TRUE(absl::IsPermissionDenied(standby_->AwaitTerm().status()));
  leader_ = Leader{};
  term_ = absl::DataLossError("damaged");
  EXPECT_TRUE(absl::IsDataLoss(standby_->AwaitTerm().status()));
}

TEST_F(StandbyTest, EndsWithTheClusterThatItStoodByFor) {
  leader_ = Leader{"a:1", false};
  After(absl::Seconds(5), [this] { leader_ = Leader{"", true}; });
  EXPECT_TRUE(absl::IsOutOfRange(standby_->AwaitTerm().status()));
}

TEST_F(StandbyTest, StartsAClusterThatWasEndedEarlier) {
  leader_ = Leader{"", true};
  EXPECT_EQ(standby_->AwaitTerm().value(), 7u);
}

TEST_F(StandbyTest, AnswersMembersWhileTheStoreRefusesTheTermAndNobodyLeads) {
  std::vector<std::string> answers;
  Standby::Options options;
  options.leadership = this;
  options.clock = &clock_;
  options.lease = kLease;
  options.name = "us";
  options.say = [](const std::string&) {};
  options.answer = [&](const std::string& why) { answers.push_back(why); };
  int tries = 0;
  options.pause = [&](absl::Duration time) {
    clock_.Advance(time);
    if (++tries == 2) leader_ = Leader{"another"};
    if (tries == 4) leader_ = Leader{"us"};
    if (tries == 6) leader_ = Leader{}, term_ = absl::OkStatus();
    return true;
  };
  for (const bool takes : {false, true}) {
    answers.clear();
    tries = 0;
    leader_ = Leader{};
    term_ = absl::ResourceExhaustedError("etcdctl alarm disarm");
    if (takes) {
      options.take = [this]() -> absl::StatusOr<uint64_t> {
        if (!term_.ok()) return term_;
        return uint64_t{7};
      };
    }
    EXPECT_EQ(Standby(options).AwaitTerm().value(), 7u);
    // A standby leaves the term to whoever leads, also under its own name.
    ASSERT_EQ(answers.size(), takes ? 3u : 2u);
    EXPECT_THAT(answers[0], HasSubstr("etcdctl alarm disarm"));
    EXPECT_EQ(answers[1], "");
  }
}

}  // namespace
}  // namespace sluice
