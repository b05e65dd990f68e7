#include "common/daemon/place_claim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/base/fake_clock.h"
#include "tests/worker/fake_scheduler.h"

namespace sluice {
namespace {

// A scheduler that refuses every registration while occupied, except one that names the incumbent's
// process as ended.
class OccupiedScheduler : public FakeScheduler {
 public:
  absl::StatusOr<RegisterReply> Register(const RegisterRequest& request) override {
    if (!error.ok()) return error;
    RegisterReply reply;
    reply.set_waits_for(waits_for);
    if (!waits_for.empty()) return reply;
    if (!occupied || request.ended_pid() == incumbent.pid()) {
      reply.set_member_id(9);
    } else {
      *reply.mutable_incumbent() = incumbent;
    }
    return reply;
  }
  bool occupied = true;
  std::string waits_for;
  Incumbent incumbent;
  absl::Status error;
};

class PlaceClaimTest : public testing::Test {
 protected:
  PlaceClaimTest() {
    scheduler_.incumbent.set_pid(77);
    scheduler_.incumbent.set_host("far");
    scheduler_.incumbent.set_process_space("space");
    options_.scheduler = &scheduler_;
    options_.self.set_role(ROLE_WORKER);
    options_.self.set_rank(3);
    options_.self.set_process_space("space");
    options_.clock = &clock_;
    options_.process_has_ended = [this](uint32_t pid) {
      EXPECT_EQ(pid, 77u);
      return ended_;
    };
    options_.log = [this](const std::string& line) { log_.push_back(line); };
  }
  // Makes the scheduler say that the incumbent last reported at `time`.
  void SeenAt(absl::Time time) {
    scheduler_.incumbent.set_last_seen_s(absl::ToDoubleSeconds(clock_.Now() - time));
  }

  OccupiedScheduler scheduler_;
  FakeClock clock_;
  bool ended_ = false;
  std::vector<std::string> log_;
  PlaceClaim::Options options_;
};

TEST_F(PlaceClaimTest, WaitsForASilentIncumbentAndNamesItOnce) {
  PlaceClaim claim(options_);
  const absl::Time seen = clock_.Now() - absl::Seconds(2);
  for (int i = 0; i < 60; ++i) {
    SeenAt(seen);
    const auto reply = claim.Ask();
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_FALSE(reply->has_value());
    clock_.Advance(absl::Milliseconds(500));
  }
  ASSERT_EQ(log_.size(), 1u);
  for (const char* said : {"worker 3", "pid 77", "host far", "2.0 s"}) {
    EXPECT_THAT(log_[0], testing::HasSubstr(said));
  }
  scheduler_.occupied = false;  // the incumbent's lease has run out
  EXPECT_EQ((*claim.Ask())->member_id(), 9u);
}

TEST_F(PlaceClaimTest, IncumbentThatReportsKeepsItsPlace) {
  PlaceClaim claim(options_);
  SeenAt(clock_.Now());
  ASSERT_TRUE(claim.Ask().ok());
  clock_.Advance(absl::Milliseconds(400));
  SeenAt(clock_.Now());  // this report may have been on its way at the first refusal
  ASSERT_TRUE(claim.Ask().ok());
  clock_.Advance(absl::Milliseconds(400));
  SeenAt(clock_.Now());
  EXPECT_TRUE(absl::IsAlreadyExists(claim.Ask().status()));
}

TEST_F(PlaceClaimTest, NewIncumbentIsJudgedByItsOwnReports) {
  PlaceClaim claim(options_);
  SeenAt(clock_.Now());
  ASSERT_TRUE(claim.Ask().ok());
  clock_.Advance(absl::Seconds(20));
  scheduler_.incumbent.set_host("elsewhere");
  SeenAt(clock_.Now());
  EXPECT_TRUE(claim.Ask().ok());
  EXPECT_EQ(log_.size(), 2u);
}

TEST_F(PlaceClaimTest, ReplacesAnEndedProcessAtOnceButOnlyInItsOwnSpace) {
  ended_ = true;
  EXPECT_EQ((*PlaceClaim(options_).Ask())->member_id(), 9u);
  scheduler_.incumbent.set_process_space("another host");
  options_.process_has_ended = [](uint32_t) -> bool {
    ADD_FAILURE();
    return true;
  };
  EXPECT_FALSE(PlaceClaim(options_).Ask()->has_value());
  scheduler_.incumbent.clear_process_space();
  options_.self.clear_process_space();  // two unknown spaces do not count as equal
  EXPECT_FALSE(PlaceClaim(options_).Ask()->has_value());
}

TEST_F(PlaceClaimTest, ReturnsTheErrorsOfTheCall) {
  scheduler_.error = absl::UnavailableError("away");
  EXPECT_TRUE(absl::IsUnavailable(PlaceClaim(options_).Ask().status()));
}

TEST_F(PlaceClaimTest, AsksAgainWhileTheSchedulerItselfWaits) {
  scheduler_.waits_for = "waits for its term from the state store: full";
  PlaceClaim claim(options_);
  for (int i = 0; i < 3; ++i) {
    const auto reply = claim.Ask();
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_FALSE(reply->has_value());
    clock_.Advance(absl::Minutes(10));
  }
  EXPECT_EQ(log_.size(), 1u);
  EXPECT_THAT(log_[0], testing::HasSubstr("state store: full"));
  scheduler_.waits_for.clear();
  scheduler_.occupied = false;
  EXPECT_TRUE(claim.Ask()->has_value());
}

}  // namespace
}  // namespace sluice
