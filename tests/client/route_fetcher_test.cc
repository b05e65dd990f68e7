#include "client/route_fetcher.h"

#include <gtest/gtest.h>

#include "tests/client/two_tables.h"
#include "tests/common/base/fake_clock.h"

namespace sluice {
namespace {

class RouteFetcherTest : public ::testing::Test {
 protected:
  RouteFetcherTest()
      : fetcher_(
            &index_,
            [this] {
              ++calls_;
              if (during_call_) during_call_();
              return answer_;
            },
            &clock_) {}

  absl::Duration Pause() { return fetcher_.due() - clock_.Now(); }

  const ShardIndex index_{TwoTables()};
  FakeClock clock_;
  absl::StatusOr<Route> answer_ = TwoPservers(2);
  std::function<void()> during_call_;
  int calls_ = 0;
  RouteFetcher fetcher_;
};

TEST_F(RouteFetcherTest, DueFromWantUntilARouteArrives) {
  EXPECT_EQ(fetcher_.due(), absl::InfiniteFuture());
  fetcher_.Want();
  EXPECT_LE(fetcher_.due(), clock_.Now());
  const auto route = fetcher_.Fetch(1);
  ASSERT_TRUE(route.ok()) << route.status();
  EXPECT_EQ(route->generation(), 2u);
  EXPECT_FALSE(fetcher_.wanted());
  EXPECT_EQ(calls_, 1);
  fetcher_.Want();
  EXPECT_LE(fetcher_.due(), clock_.Now()) << "no pause after a newer route";
}

TEST_F(RouteFetcherTest, RetriesASilentSchedulerAfterGrowingPauses) {
  fetcher_.Want();
  for (const absl::Status& silence :
       {absl::UnavailableError("down"), absl::DeadlineExceededError("slow")}) {
    answer_ = silence;
    EXPECT_EQ(fetcher_.Fetch(1).status().code(), absl::StatusCode::kUnavailable);
    EXPECT_TRUE(fetcher_.wanted());
  }
  EXPECT_EQ(Pause(), absl::Milliseconds(20));
  clock_.Advance(Pause());
  answer_ = TwoPservers(2);
  ASSERT_TRUE(fetcher_.Fetch(1).ok());
  EXPECT_FALSE(fetcher_.wanted());
}

TEST_F(RouteFetcherTest, AcceptsTheSameRouteWithAGrowingPause) {
  answer_ = TwoPservers(1);
  for (const int pause_ms : {10, 20, 40}) {
    fetcher_.Want();
    ASSERT_TRUE(fetcher_.Fetch(1).ok());
    EXPECT_FALSE(fetcher_.wanted());
    fetcher_.Want();
    EXPECT_EQ(Pause(), absl::Milliseconds(pause_ms));
  }
}

TEST_F(RouteFetcherTest, OlderRouteIsUnavailable) {
  fetcher_.Want();
  EXPECT_EQ(fetcher_.Fetch(3).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(fetcher_.wanted());
}

TEST_F(RouteFetcherTest, WantDuringACallNeedsAnotherCall) {
  during_call_ = [this] { fetcher_.Want(); };
  ASSERT_TRUE(fetcher_.Fetch(1).ok());
  EXPECT_TRUE(fetcher_.wanted());
}

TEST_F(RouteFetcherTest, OtherErrorsAreFinal) {
  fetcher_.Want();
  answer_ = absl::NotFoundError("no such job");
  EXPECT_EQ(fetcher_.Fetch(1).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(fetcher_.wanted());
  answer_ = Route();
  EXPECT_EQ(fetcher_.Fetch(1).status().code(), absl::StatusCode::kInternal);
  RouteFetcher without(&index_, nullptr, &clock_);
  EXPECT_EQ(without.Fetch(1).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace sluice
