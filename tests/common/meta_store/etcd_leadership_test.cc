#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/meta_store/etcd_meta_store.h"
#include "common/meta_store/meta_store.h"
#include "tests/common/meta_store/etcd_cluster.h"
#include "tests/common/meta_store/etcd_proxy.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

// One etcd for all tests; each has a prefix of its own.
class EtcdLeadershipTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!EtcdCluster::IsInstalled()) return;
    etcd_ = std::make_unique<EtcdCluster>(1);
    etcd_->WaitReady(0);
  }
  static void TearDownTestSuite() { etcd_ = nullptr; }
  void SetUp() override {
    if (etcd_ == nullptr) GTEST_SKIP() << "etcd is not installed";
    static int n = 0;
    prefix_ = absl::StrCat("test/", ++n);
    reader_ = Open("");
  }

  std::unique_ptr<EtcdMetaStore> Open(const std::string& name, const std::string& endpoint = "") {
    EtcdMetaStore::Options options;
    options.client.clock = Clock::Real();
    options.client.endpoints = {endpoint.empty() ? etcd_->endpoint(0) : endpoint};
    options.client.call_timeout = absl::Seconds(20);
    options.client.patience = absl::Seconds(60);
    options.prefix = prefix_;
    options.name = name;
    options.lease = EtcdLease::kShortest;
    return std::make_unique<EtcdMetaStore>(options);
  }
  std::string Leader() {
    const auto leader = reader_->leadership()->Find();
    EXPECT_TRUE(leader.ok()) << leader.status();
    return leader.ok() ? leader->name : "";
  }
  bool Ended() { return reader_->leadership()->Find()->ended; }

  static std::unique_ptr<EtcdCluster> etcd_;
  std::string prefix_;
  std::unique_ptr<EtcdMetaStore> reader_;
};
std::unique_ptr<EtcdCluster> EtcdLeadershipTest::etcd_;

TEST_F(EtcdLeadershipTest, TermIsFreeOnlyWhenNobodyLeads) {
  EXPECT_EQ(Leader(), "");
  auto a = Open("a"), b = Open("b");
  EXPECT_EQ(a->AcquireFreeTerm().value(), 1u);
  EXPECT_EQ(Leader(), "a");
  const auto refused = b->AcquireFreeTerm();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status())) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("a leads"));
  EXPECT_TRUE(a->Commit(1, {{"k", "v"}}).ok());
  // One that leaves lets the term go at once.
  a = nullptr;
  EXPECT_EQ(Leader(), "");
  EXPECT_EQ(b->AcquireFreeTerm().value(), 2u);
  EXPECT_EQ(Leader(), "b");
}

TEST_F(EtcdLeadershipTest, LeaderThatLivesKeepsItsLease) {
  auto a = Open("a"), b = Open("b");
  ASSERT_TRUE(a->AcquireTerm().ok());
  const absl::Time end = Clock::Real()->Now() + 3 * EtcdLease::kShortest;
  while (Clock::Real()->Now() < end) {
    ASSERT_EQ(Leader(), "a");
    ASSERT_TRUE(absl::IsFailedPrecondition(b->AcquireFreeTerm().status()));
    Clock::Real()->Sleep(absl::Milliseconds(100));
  }
}

TEST_F(EtcdLeadershipTest, AcquireTermTakesTheTermFromALeader) {
  auto a = Open("a"), b = Open("b");
  ASSERT_EQ(a->AcquireTerm().value(), 1u);
  ASSERT_EQ(b->AcquireTerm().value(), 2u);
  EXPECT_EQ(Leader(), "b");
  EXPECT_TRUE(absl::IsAborted(a->Commit(1, {})));
  // Neither the loser's end nor its last words touch its successor.
  EXPECT_TRUE(absl::IsAborted(a->leadership()->EndCluster(1)));
  a = nullptr;
  EXPECT_EQ(Leader(), "b");
  EXPECT_FALSE(Ended());
}

TEST_F(EtcdLeadershipTest, NamelessHolderOfTheTermDoesNotLead) {
  auto a = Open("a");
  ASSERT_TRUE(a->AcquireTerm().ok());
  ASSERT_TRUE(reader_->AcquireTerm().ok());
  EXPECT_EQ(Leader(), "");
}

TEST_F(EtcdLeadershipTest, EndOfTheClusterStaysUntilTheNextTerm) {
  auto a = Open("a");
  const uint64_t term = *a->AcquireTerm();
  EXPECT_FALSE(Ended());
  ASSERT_TRUE(a->leadership()->EndCluster(term).ok());
  a = nullptr;
  EXPECT_TRUE(Ended());
  EXPECT_EQ(Leader(), "");
  auto b = Open("b");
  ASSERT_TRUE(b->AcquireFreeTerm().ok());
  EXPECT_FALSE(Ended());
  EXPECT_EQ(Leader(), "b");
}

TEST_F(EtcdLeadershipTest, LostAnswerDoesNotStandInItsOwnWay) {
  EtcdProxy proxy(etcd_->endpoint(0));
  auto a = Open("a", proxy.endpoint());
  proxy.OnTxn([](int attempt) { return attempt == 0 ? EtcdProxy::kLoseAnswer : EtcdProxy::kPass; });
  const auto term = a->AcquireFreeTerm();
  ASSERT_TRUE(term.ok()) << term.status();
  EXPECT_EQ(Leader(), "a");
  EXPECT_TRUE(a->Commit(*term, {{"k", "v"}}).ok());
}

TEST_F(EtcdLeadershipTest, LeaderSaysSoAgainWhenItsLeaseHasRunOut) {
  auto a = Open("a");
  const uint64_t term = *a->AcquireTerm();
  // As etcd does it when a leader was stopped for too long.
  EtcdClient::Options options;
  options.clock = Clock::Real();
  options.endpoints = etcd_->endpoints();
  EtcdClient raw(options);
  etcdserverpb::RangeRequest range;
  range.set_key(prefix_ + "/@leader");
  etcdserverpb::LeaseRevokeRequest revoke;
  revoke.set_id(raw.Range(range)->kvs(0).lease());
  ASSERT_TRUE(raw.LeaseRevoke(revoke).ok());
  ASSERT_EQ(Leader(), "");
  const absl::Time end = Clock::Real()->Now() + absl::Seconds(60);
  while (Leader().empty() && Clock::Real()->Now() < end)
    Clock::Real()->Sleep(absl::Milliseconds(50));
  EXPECT_EQ(Leader(), "a");
  EXPECT_TRUE(a->Commit(term, {}).ok());
}

}  // namespace
}  // namespace sluice
