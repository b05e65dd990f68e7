// Jobs without a folder of their own, whose output is on a store.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/service/job_submission.h"
#include "tests/common/places/fake_store_env.h"
#include "tests/scheduler/loop_fixture.h"

namespace sluice {
namespace {

class JobSubmissionStoreTest : public ::testing::Test {
 protected:
  LocalScheduler::Options Options() {
    LocalScheduler::Options options = LocalScheduler::Small();
    options.env = env_.get();
    options.default_output = "s3://b/jobs";
    return options;
  }
  size_t Reservations() {
    size_t found = 0;
    for (const auto& [name, bytes] : env_.store.objects())
      found += absl::EndsWith(name, absl::StrCat("/", JobSubmission::kReservation));
    return found;
  }

  FakeStoreEnv env_;
};

TEST_F(JobSubmissionStoreTest, JobsOfConcurrentSchedulersGetDifferentFolders) {
  // Replies that are lost are not taken for those of others.
  int requests = 0;
  env_.store.loses_reply = [&](const HttpRequest& request) {
    return request.method == "PUT" && ++requests % 5 == 0;
  };
  LocalScheduler one(Options()), other(Options());
  const SubmitJobRequest request = SmallJob("same", 1);
  constexpr int kEach = 8;
  std::vector<std::string> ids(2 * kEach);
  std::vector<std::thread> users;
  for (int user = 0; user < 2; ++user) {
    users.emplace_back([&, user] {
      for (int i = 0; i < kEach; ++i) {
        const auto reply = (user == 0 ? one : other).Submit(request);
        EXPECT_TRUE(reply.ok()) << reply.status();
        if (reply.ok()) ids[user * kEach + i] = reply->job_id();
      }
    });
  }
  for (std::thread& user : users) user.join();
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), ids.size());
  EXPECT_EQ(Reservations(), ids.size());
  for (const std::string& id : ids) {
    EXPECT_NE(
        env_.get()->ReadFile(absl::StrCat("s3://b/jobs/", id, "/RESERVED")).value_or("").find(id),
        std::string::npos);
  }
}

TEST_F(JobSubmissionStoreTest, NumbersGoOnAfterAllFoldersThatAreThere) {
  env_.store.Put("b/jobs/shop-7/model/MANIFEST", "of a job that named its folder");
  env_.store.Put("b/jobs/shop-old/x", "");
  env_.store.Put("b/jobs/shopping-90/x", "");
  LocalScheduler scheduler(Options());
  const auto reply = scheduler.Submit(SmallJob("shop", 1));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->job_id(), "shop-8");
}

TEST_F(JobSubmissionStoreTest, ARefusedJobLeavesNoReservation) {
  LocalScheduler scheduler(Options());
  SubmitJobRequest request = SmallJob("wide");
  request.mutable_config()->set_worker_num(2);  // the cluster has one
  EXPECT_FALSE(scheduler.Submit(request).ok());
  EXPECT_EQ(Reservations(), 0u);
}

}  // namespace
}  // namespace sluice
