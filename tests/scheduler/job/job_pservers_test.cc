#include "scheduler/job/job_pservers.h"

#include <gmock/gmock.h>

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const absl::Time kJobPserversNow = absl::UnixEpoch();

TEST(JobPserversTest, APlaceIsVacantUntilItsShardsAreServedAgain) {
  JobPservers pservers;
  pservers.Serve({70, 50});
  EXPECT_EQ(pservers.IndexOf(50), 1u);
  PserverVacancy vacancy;
  vacancy.why = "killed";
  pservers.Lose(1, vacancy);
  EXPECT_EQ(pservers.IndexOf(50), std::nullopt);
  pservers.Replace(1, 60);
  EXPECT_EQ(pservers.IndexOf(60), 1u);
  pservers.vacancy(1).opened = true;
  pservers.Lose(1, vacancy);
  EXPECT_FALSE(pservers.vacant().at(1).opened) << "its successor is lost as well";
  EXPECT_EQ(pservers.members()[1], 0u);
  pservers.Fill(1);
  EXPECT_THAT(pservers.vacant(), IsEmpty());
}

TEST(JobPserversTest, PserversOfAnEarlierSchedulerHaveToComeBack) {
  JobPservers pservers;
  pservers.Choose({4, 2});
  pservers.Await();
  EXPECT_THAT(pservers.members(), ElementsAre(0, 0));
  EXPECT_THAT(pservers.placed_on(), ElementsAre(4, 2));
  EXPECT_THAT(pservers.vacant(), IsEmpty()) << "nobody is lost";
  pservers.TakeBack(1, 9);
  EXPECT_EQ(pservers.IndexOf(9), 1u);
}

TEST(JobPserversTest, CopiesAreMissingSinceTheFirstMomentInARow) {
  JobPservers pservers;
  EXPECT_EQ(pservers.NoteCopies(false, kJobPserversNow), kJobPserversNow);
  EXPECT_EQ(pservers.NoteCopies(false, kJobPserversNow + absl::Seconds(3)), kJobPserversNow);
  EXPECT_EQ(pservers.NoteCopies(true, kJobPserversNow + absl::Seconds(4)), absl::InfiniteFuture());
  EXPECT_EQ(pservers.NoteCopies(false, kJobPserversNow + absl::Seconds(5)),
            kJobPserversNow + absl::Seconds(5));
}

}  // namespace
}  // namespace sluice
