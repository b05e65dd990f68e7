#include "scheduler/service/state_keeper.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "common/base/mix_hash.h"
#include "common/meta_store/record_parts.h"
#include "tests/common/base/fake_clock.h"
#include "tests/common/meta_store/fake_meta_store.h"

namespace sluice {
namespace {

class StateKeeperTest : public testing::Test {
 protected:
  StateKeeperTest() { Start(); }

  void Start(int check_ms = 5, int cut_off_ms = 0) {
    keeper_ = nullptr;
    keeper_ = std::make_unique<StateKeeper>(OptionsOf(check_ms, cut_off_ms));
    keeper_->Start();
  }
  StateKeeper::Options OptionsOf(int check_ms, int cut_off_ms) {
    StateKeeper::Options options;
    options.store = &store_;
    options.term = *store_.AcquireTerm();
    options.clock = &clock_;
    options.log = [](const std::string&) {};
    options.parts = parts_;
    options.on_trouble = [this](const absl::Status& trouble) { trouble_ = trouble; };
    options.on_superseded = [this](const absl::Status& why) { superseded_.set_value(why); };
    options.retry = std::chrono::milliseconds(5);
    options.check = std::chrono::milliseconds(check_ms);
    options.cut_off = std::chrono::milliseconds(cut_off_ms);
    return options;
  }
  std::string ValueOf(const std::string& key) {
    const auto entries = FakeMetaStore(store_.contents()).Scan(key);
    for (const MetaStore::Entry& entry : *entries) {
      if (entry.key == key) return entry.value;
    }
    return "";
  }
  void AwaitValue(const std::string& key, const std::string& value) {
    Await([&] { return ValueOf(key) == value; });
  }
  static void Await(const std::function<bool()>& reached) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!reached()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      std::this_thread::yield();
    }
  }
  void TakeOver() {
    FakeMetaStore newer(store_.contents());
    ASSERT_TRUE(newer.AcquireTerm().ok());
  }

  FakeClock clock_;
  FakeMetaStore store_;
  std::map<std::string, std::vector<std::string>> parts_;
  absl::Status trouble_;  // read when a Commit after the change has returned
  std::promise<absl::Status> superseded_;
  std::unique_ptr<StateKeeper> keeper_;
};

// Whoever makes a keeper uses it in its callbacks, so they must not run before it has the keeper.
TEST_F(StateKeeperTest, NothingRunsBeforeTheStart) {
  keeper_ = nullptr;
  StateKeeper::Options options = OptionsOf(5, 0);
  options.left_over = {"old"};
  ASSERT_TRUE(store_.Commit(options.term, {{"old", "value"}}).ok());
  bool done = false;
  {
    StateKeeper keeper(options);
    keeper.Add({{"new", "value"}}, [&](const absl::Status&) { done = true; });
  }
  EXPECT_FALSE(done);
  EXPECT_EQ(ValueOf("old"), "value");
  StateKeeper keeper(options);
  keeper.Add({{"new", "value"}}, nullptr);
  keeper.Start();
  EXPECT_TRUE(keeper.Commit({}).ok());
  EXPECT_EQ(ValueOf("old"), "");
  EXPECT_EQ(ValueOf("new"), "value");
}

TEST_F(StateKeeperTest, AnAdditionIsDoneWhenTheStoreHoldsIt) {
  std::promise<std::string> held;
  keeper_->Add({{"k", "v"}}, [&](const absl::Status& status) {
    held.set_value(status.ok() ? ValueOf("k") : status.ToString());
  });
  EXPECT_EQ(held.get_future().get(), "v");
  EXPECT_TRUE(keeper_->Commit({{"k", std::nullopt}}).ok());
  EXPECT_EQ(ValueOf("k"), "");
}

TEST_F(StateKeeperTest, AdditionsAreDoneInOrderAndCommittedInGroups) {
  std::promise<void> go;
  std::vector<int> order;
  keeper_->Add({}, [&](const absl::Status&) { go.get_future().wait(); });
  const int before = store_.commits();
  for (int i = 0; i < 100; ++i)
    keeper_->Add({{"k", std::to_string(i)}}, [&, i](const absl::Status&) { order.push_back(i); });
  go.set_value();
  ASSERT_TRUE(keeper_->Commit({}).ok());
  ASSERT_EQ(order.size(), 100);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_EQ(ValueOf("k"), "99");
  EXPECT_LT(store_.commits() - before, 50);
}

TEST_F(StateKeeperTest, AStoreThatFailsHoldsUpNothingAndHealsByItself) {
  store_.SetErrorForTest(absl::ResourceExhaustedError("disk full"));
  EXPECT_TRUE(absl::IsResourceExhausted(keeper_->Commit({{"a", "1"}})));
  EXPECT_TRUE(absl::IsResourceExhausted(keeper_->Commit({{"b", "1"}})));
  EXPECT_TRUE(absl::IsResourceExhausted(keeper_->Commit({{"a", "2"}})));
  EXPECT_TRUE(absl::IsResourceExhausted(keeper_->trouble()));
  store_.SetErrorForTest(absl::OkStatus());
  AwaitValue("b", "1");
  AwaitValue("a", "2");
  Await([&] { return keeper_->trouble().ok(); });
}

TEST_F(StateKeeperTest, ALostAnswerIsSettledByTheNextCommit) {
  ASSERT_TRUE(keeper_->Commit({}).ok());
  store_.LoseNextAnswerForTest();
  keeper_->Commit({{"a", "1"}}).IgnoreError();
  AwaitValue("a", "1");
  Await([&] { return keeper_->trouble().ok(); });
  EXPECT_TRUE(keeper_->Commit({{"a", "2"}}).ok());
  EXPECT_EQ(ValueOf("a"), "2");
}

TEST_F(StateKeeperTest, ANewerTermEndsItOnce) {
  TakeOver();
  EXPECT_TRUE(absl::IsAborted(superseded_.get_future().get()));  // it has written nothing itself
  EXPECT_TRUE(absl::IsAborted(keeper_->Commit({{"k", "v"}})));
  EXPECT_TRUE(absl::IsAborted(keeper_->trouble()));
  EXPECT_EQ(ValueOf("k"), "");
}

TEST_F(StateKeeperTest, AdditionsWithoutWritesDoNotHideANewerTerm) {
  Start(/*check_ms=*/600000);
  TakeOver();
  std::promise<absl::Status> early, late;
  clock_.Advance(absl::Minutes(9));
  keeper_->Add({}, [&](const absl::Status& status) { early.set_value(status); });
  EXPECT_TRUE(early.get_future().get().ok());
  clock_.Advance(absl::Minutes(1));
  keeper_->Add({}, [&](const absl::Status& status) { late.set_value(status); });
  EXPECT_TRUE(absl::IsAborted(late.get_future().get()));
  EXPECT_TRUE(absl::IsAborted(superseded_.get_future().get()));
}

TEST_F(StateKeeperTest, AnAdditionThatAsksForItIsDoneWithTheTermConfirmed) {
  Start(/*check_ms=*/600000);
  TakeOver();
  std::promise<absl::Status> unconfirmed, confirmed;
  keeper_->Add({}, [&](const absl::Status& status) { unconfirmed.set_value(status); });
  EXPECT_TRUE(unconfirmed.get_future().get().ok());
  keeper_->Add(
      {}, [&](const absl::Status& status) { confirmed.set_value(status); }, true);
  EXPECT_TRUE(absl::IsAborted(confirmed.get_future().get()));
}

TEST_F(StateKeeperTest, SilentStoreEndsTheScheduler) {
  Start(/*check_ms=*/5, /*cut_off_ms=*/100);
  ASSERT_TRUE(keeper_->Commit({{"k", "1"}}).ok());
  store_.SetErrorForTest(absl::UnavailableError("etcd did not answer"));
  EXPECT_TRUE(absl::IsUnavailable(keeper_->Commit({{"k", "2"}})));
  clock_.Advance(absl::Milliseconds(99));
  EXPECT_TRUE(absl::IsUnavailable(keeper_->Commit({})));
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_TRUE(absl::IsUnavailable(superseded_.get_future().get()));
  store_.SetErrorForTest(absl::OkStatus());
  EXPECT_TRUE(absl::IsAborted(keeper_->Commit({{"k", "2"}})));
  EXPECT_EQ(ValueOf("k"), "1");
}

TEST_F(StateKeeperTest, AnAnswerDoesNotWaitForAStoreThatFails) {
  store_.SetErrorForTest(absl::UnavailableError("etcd did not answer"));
  EXPECT_TRUE(absl::IsUnavailable(keeper_->Commit({{"k", "1"}})));
  store_.HoldCommitsForTest(true);
  absl::Status answered;
  keeper_->AddAnswer([&](const absl::Status& status) { answered = status; });
  EXPECT_TRUE(absl::IsUnavailable(answered));
  store_.HoldCommitsForTest(false);
}

TEST_F(StateKeeperTest, AnAnswerWaitsForTheRecordsBeforeIt) {
  ASSERT_TRUE(keeper_->Commit({}).ok());
  store_.HoldCommitsForTest(true);
  keeper_->Add({{"k", "1"}}, nullptr);
  std::atomic<bool> done{false};
  keeper_->AddAnswer([&](const absl::Status&) { done = true; });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_FALSE(done);
  store_.HoldCommitsForTest(false);
  Await([&] { return done.load(); });
  EXPECT_EQ(ValueOf("k"), "1");
}

TEST_F(StateKeeperTest, ARecordThatIsTooLargeIsDeletedAndTheOthersAreKept) {
  ASSERT_TRUE(keeper_->Commit({{"large", "outdated"}}).ok());
  const std::string large(kMaxRecordBytes + 1, 'x');
  std::promise<void> go;
  std::promise<absl::Status> first, second;
  keeper_->Add({}, [&](const absl::Status&) { go.get_future().wait(); });
  // They are committed together.
  keeper_->Add({{"large", large}, {"z", "v"}},
               [&](const absl::Status& status) { first.set_value(status); });
  keeper_->Add({{"small", "v"}, {"a", "v"}},
               [&](const absl::Status& status) { second.set_value(status); });
  go.set_value();
  EXPECT_TRUE(absl::IsInvalidArgument(first.get_future().get()));
  EXPECT_TRUE(second.get_future().get().ok());
  for (const char* key : {"small", "a", "z"}) EXPECT_EQ(ValueOf(key), "v");
  EXPECT_EQ(ValueOf("large"), "");
}

// Bytes that do not compress.
std::string Random(size_t n, uint64_t seed) {
  std::string bytes;
  for (uint64_t i = 0; bytes.size() < n; ++i) bytes.push_back(static_cast<char>(MixHash(seed + i)));
  return bytes;
}

TEST_F(StateKeeperTest, ALongRecordIsKeptInPartsAndItsOldPartsGo) {
  const std::string first = Random(3'000'000, 1), second = Random(2'000'000, 7'000'000);
  const auto held = [&]() -> std::string {
    const auto joined = JoinParts(*FakeMetaStore(store_.contents()).Scan(""));
    EXPECT_TRUE(joined.ok()) << joined.status();
    if (!joined.ok() || joined->records.size() != 1) return "";
    EXPECT_TRUE(joined->left_over.empty());
    return joined->records[0].value;
  };
  ASSERT_TRUE(keeper_->Commit({{"k", first}}).ok());
  EXPECT_TRUE(held() == first);
  // Another value replaces one that could not be written.
  store_.SetErrorForTest(absl::UnavailableError("away"));
  keeper_->Commit({{"k", "lost"}}).IgnoreError();
  keeper_->Commit({{"k", second}}).IgnoreError();
  EXPECT_TRUE(held() == first);
  store_.SetErrorForTest(absl::OkStatus());
  Await([&] { return keeper_->trouble().ok(); });
  EXPECT_TRUE(held() == second);
  // The next scheduler knows the parts.
  const auto joined = JoinParts(*FakeMetaStore(store_.contents()).Scan(""));
  parts_ = joined->parts;
  Start();
  ASSERT_TRUE(keeper_->Commit({{"k", std::nullopt}}).ok());
  EXPECT_TRUE(FakeMetaStore(store_.contents()).Scan("")->empty());
}

TEST_F(StateKeeperTest, AStoreThatOnlyRefusesWritesDoesNotEndTheScheduler) {
  Start(/*check_ms=*/5, /*cut_off_ms=*/100);
  ASSERT_TRUE(keeper_->Commit({{"k", "1"}}).ok());
  store_.RefuseWritesForTest(absl::ResourceExhaustedError("quota"));
  for (int i = 0; i < 10; ++i) {
    clock_.Advance(absl::Milliseconds(99));
    EXPECT_TRUE(absl::IsResourceExhausted(keeper_->Commit({{"k", "2"}})));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(trouble_));
  // It still learns of a newer scheduler.
  TakeOver();
  EXPECT_TRUE(absl::IsAborted(superseded_.get_future().get()));
}

TEST_F(StateKeeperTest, TheOwnerLearnsWhenWritesAreRefusedAndTakenAgain) {
  store_.RefuseWritesForTest(absl::ResourceExhaustedError("quota"));
  keeper_->Commit({{"k", "1"}}).IgnoreError();
  EXPECT_TRUE(absl::IsResourceExhausted(trouble_));
  store_.RefuseWritesForTest(absl::OkStatus());
  AwaitValue("k", "1");
  Await([&] { return keeper_->trouble().ok(); });
  keeper_->Commit({}).IgnoreError();  // the callback has returned
  EXPECT_TRUE(trouble_.ok());
}

TEST_F(StateKeeperTest, TheDestructorWritesWhatWasAdded) {
  keeper_->Add({{"k", "v"}}, nullptr);
  keeper_ = nullptr;
  EXPECT_EQ(ValueOf("k"), "v");
}

}  // namespace
}  // namespace sluice
