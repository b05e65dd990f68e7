#include "scheduler/files/folder_owner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "tests/common/places/fake_store_env.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

class FolderOwnerTest : public ::testing::Test {
 protected:
  absl::StatusOr<FolderOwner> Claim(const std::string& job, uint64_t instance,
                                    bool replaces = false, bool again = false) {
    FolderOwner::Claimant claimant;
    claimant.job_id = job;
    claimant.instances = {instance};
    claimant.replaces = replaces;
    claimant.again = again;
    claimant.single_writer = single_writer_;
    return FolderOwner::Claim(env_.get(), "s3://b/out", claimant);
  }

  FakeStoreEnv env_;
  bool single_writer_ = false;
};

TEST_F(FolderOwnerTest, OneJobAtATimeHasAFolder) {
  auto first = Claim("a-1", 1);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(first->Check().ok());
  const auto second = Claim("b-1", 2);
  EXPECT_TRUE(absl::IsAlreadyExists(second.status()));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("job a-1"));
  EXPECT_TRUE(first->Release().ok());
  ASSERT_TRUE(Claim("b-1", 2).ok());
  EXPECT_EQ(env_.store.objects().size(), 1u) << "the probe is gone";
}

TEST_F(FolderOwnerTest, WhoIsReplacedLearnsItAtTheNextCheck) {
  auto first = Claim("a-1", 1);
  const auto second = Claim("b-1", 2, /*replaces=*/true);
  ASSERT_TRUE(second.ok()) << second.status();
  const absl::Status lost = first->Check();
  EXPECT_TRUE(absl::IsAborted(lost));
  EXPECT_THAT(std::string(lost.message()), HasSubstr("job b-1"));
  EXPECT_TRUE(first->Release().ok());
  EXPECT_TRUE(second->Check().ok()) << "it was not his to release";
}

TEST_F(FolderOwnerTest, ASchedulerThatContinuesTheJobTakesItsOwn) {
  auto first = Claim("a-1", 1);
  const auto again = Claim("a-1", 1, /*replaces=*/false, /*again=*/true);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(absl::IsAborted(first->Check())) << "the earlier scheduler";
  EXPECT_TRUE(again->Check().ok());
  EXPECT_TRUE(absl::IsAlreadyExists(Claim("a-1", 7, false, true).status())) << "another instance";
}

TEST_F(FolderOwnerTest, OfTwoWhoClaimAtOnceOneSucceeds) {
  // The second comes between the look and the publication of the first.
  bool raced = false;
  env_.transport.answer = [&](const HttpRequest& request) {
    if (!raced && request.method == "PUT" && absl::EndsWith(request.url, "/OWNER")) {
      raced = true;
      EXPECT_TRUE(Claim("b-1", 2).ok());
    }
    return env_.store(request);
  };
  const auto first = Claim("a-1", 1);
  EXPECT_TRUE(raced);
  EXPECT_TRUE(absl::IsAlreadyExists(first.status())) << first.status();
}

TEST_F(FolderOwnerTest, ALostReplyToAClaimIsNoOtherJob) {
  env_.store.loses_reply = [lost = false](const HttpRequest& request) mutable {
    if (lost || request.method != "PUT" || !absl::EndsWith(request.url, "/OWNER")) return false;
    return lost = true;
  };
  const auto claimed = Claim("a-1", 1);
  ASSERT_TRUE(claimed.ok()) << claimed.status();
  EXPECT_TRUE(claimed->Check().ok());
}

TEST_F(FolderOwnerTest, AStoreThatIgnoresConditionsNeedsThePromiseOfASingleWriter) {
  env_.store.ignores_conditions = true;
  const absl::Status refused = Claim("a-1", 1).status();
  EXPECT_TRUE(absl::IsUnimplemented(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("single_writer"));
  single_writer_ = true;
  EXPECT_TRUE(Claim("a-1", 1).ok());
}

TEST_F(FolderOwnerTest, AStoreThatReplacesVersionsThatAreGoneIsRefused) {
  env_.store.ignores_if_match = true;
  EXPECT_TRUE(absl::IsUnimplemented(Claim("a-1", 1).status()));
  EXPECT_TRUE(env_.store.objects().empty()) << "neither a probe nor OWNER";
  single_writer_ = true;
  EXPECT_TRUE(Claim("a-1", 1).ok());
}

TEST_F(FolderOwnerTest, AnObjectOfSomebodyElseStays) {
  env_.store.Put("b/out/OWNER", "somebody's");
  EXPECT_THAT(std::string(Claim("a-1", 1).status().message()), HasSubstr("--overwrite"));
  EXPECT_EQ(env_.store.objects()["b/out/OWNER"], "somebody's");
}

}  // namespace
}  // namespace sluice
