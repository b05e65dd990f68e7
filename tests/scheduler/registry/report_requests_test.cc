#include "scheduler/registry/report_requests.h"

#include <gmock/gmock.h>

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(ReportRequestsTest, AJobIsAnsweredWhenAllItsMembersHaveReported) {
  ReportRequests requests;
  EXPECT_TRUE(requests.AllAnswered("a"));
  requests.Ask("a", 1, 5);
  requests.Ask("a", 2, 7);
  EXPECT_FALSE(requests.AllAnswered("a"));
  EXPECT_TRUE(requests.AllAnswered("b"));
  EXPECT_THAT(requests.Answer(1, 5), ElementsAre("a"));
  EXPECT_FALSE(requests.AllAnswered("a"));
  EXPECT_THAT(requests.Answer(2, 9), ElementsAre("a"));
  EXPECT_TRUE(requests.AllAnswered("a"));
  EXPECT_THAT(requests.Answer(2, 9), IsEmpty());
}

TEST(ReportRequestsTest, AReportMadeBeforeTheRequestDoesNotAnswerIt) {
  ReportRequests requests;
  requests.Ask("a", 1, 5);
  EXPECT_THAT(requests.Answer(1, 4), IsEmpty());
  EXPECT_FALSE(requests.AllAnswered("a"));
  requests.Ask("a", 1, 6);  // asked again, at the end of the next epoch
  EXPECT_THAT(requests.Answer(1, 5), IsEmpty());
  EXPECT_THAT(requests.Answer(1, 6), ElementsAre("a"));
  EXPECT_TRUE(requests.AllAnswered("a"));
}

TEST(ReportRequestsTest, OneReportAnswersSeveralJobsInTheOrderOfTheirRequests) {
  ReportRequests requests;
  requests.Ask("b", 1, 2);
  requests.Ask("c", 1, 4);
  requests.Ask("a", 1, 3);
  EXPECT_THAT(requests.Answer(1, 3), ElementsAre("b", "a"));
  EXPECT_FALSE(requests.AllAnswered("c"));
  EXPECT_THAT(requests.Answer(1, 4), ElementsAre("c"));
}

TEST(ReportRequestsTest, ADroppedMemberOwesNoReports) {
  ReportRequests requests;
  requests.Ask("a", 1, 1);
  requests.Ask("b", 1, 1);
  requests.Ask("b", 2, 1);
  requests.DropMember(1);
  requests.DropMember(3);  // a member that nobody has asked
  EXPECT_TRUE(requests.AllAnswered("a"));
  EXPECT_FALSE(requests.AllAnswered("b"));
  EXPECT_THAT(requests.Answer(1, 9), IsEmpty());
}

TEST(ReportRequestsTest, NoReportsAreAwaitedForADroppedJob) {
  ReportRequests requests;
  requests.Ask("a", 1, 1);
  requests.Ask("a", 2, 1);
  requests.Ask("b", 1, 1);
  requests.DropJob("a");
  requests.DropJob("never asked");
  EXPECT_TRUE(requests.AllAnswered("a"));
  EXPECT_THAT(requests.Answer(1, 1), ElementsAre("b"));
  EXPECT_THAT(requests.Answer(2, 1), IsEmpty());
}

}  // namespace
}  // namespace sluice
