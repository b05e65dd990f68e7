#include "scheduler/service/waiting_listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/daemon/scheduler_client.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

TEST(WaitingListenerTest, MembersStayAndOthersLearnWhy) {
  WaitingListener::Options options;
  options.bind = "127.0.0.1:0";
  options.cluster = "c";
  options.why = "waits for its term from the state store: etcdctl alarm disarm";
  const auto listener = WaitingListener::Start(options);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto client =
      SchedulerClient::Create(absl::StrCat("127.0.0.1:", (*listener)->port()), Clock::Real());
  PollRequest poll;
  poll.set_member_id(5);
  poll.set_seen_version(77);
  poll.set_wait_ms(1000);
  const auto news = client->Poll(poll);
  ASSERT_TRUE(news.ok()) << news.status();
  EXPECT_EQ(news->version(), 77u);
  EXPECT_FALSE(news->stop());
  const auto registered = client->Register(RegisterRequest());
  ASSERT_TRUE(registered.ok()) << registered.status();
  EXPECT_EQ(registered->member_id(), 0u);
  EXPECT_THAT(registered->waits_for(), HasSubstr("alarm disarm"));
  const auto phase = client->NextPhase(NextPhaseRequest());
  ASSERT_TRUE(phase.ok()) << phase.status();
  EXPECT_FALSE(phase->ready());
  EXPECT_THAT(phase->waiting_for(), HasSubstr("alarm disarm"));
  const auto task = client->NextTask(NextTaskRequest());
  ASSERT_TRUE(task.ok()) << task.status();
  EXPECT_EQ(task->kind(), NextTaskReply::WAIT);
  EXPECT_TRUE(task->same_number());
  const auto status = client->GetStatus();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_THAT(status->members(0).doing(), HasSubstr("alarm disarm"));
  const absl::Status refused = client->SubmitJob(SubmitJobRequest()).status();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_THAT(refused.message(), HasSubstr("alarm disarm"));
  EXPECT_TRUE(absl::IsUnavailable(client->FailJob(FailJobRequest())));
  EXPECT_TRUE(absl::IsUnavailable(client->EndJob(EndJobRequest())));
}

}  // namespace
}  // namespace sluice
