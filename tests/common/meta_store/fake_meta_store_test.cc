#include "tests/common/meta_store/fake_meta_store.h"

#include "tests/common/meta_store/meta_store_conformance.h"

namespace sluice {
namespace {

class FakeStoreUnderTest : public StoreUnderTest {
 public:
  absl::StatusOr<std::unique_ptr<MetaStore>> Open() override {
    return std::make_unique<FakeMetaStore>(contents_);
  }
  bool has_concurrent_clients() const override { return true; }

 private:
  const std::shared_ptr<FakeMetaStore::Contents> contents_ =
      std::make_shared<FakeMetaStore::Contents>();
};

INSTANTIATE_TEST_SUITE_P(Fake, MetaStoreConformance, ::testing::Values(MakeStoreUnderTest([] {
                           return std::make_unique<FakeStoreUnderTest>();
                         })));

TEST(FakeMetaStoreTest, ErrorsHaveNoEffectAndEnd) {
  FakeMetaStore store;
  const uint64_t term = *store.AcquireTerm();
  store.SetErrorForTest(absl::ResourceExhaustedError("full"));
  EXPECT_TRUE(absl::IsResourceExhausted(store.Commit(term, {{"a", "1"}})));
  EXPECT_TRUE(absl::IsResourceExhausted(store.AcquireTerm().status()));
  EXPECT_TRUE(absl::IsResourceExhausted(store.Scan("").status()));
  store.SetErrorForTest(absl::OkStatus());
  EXPECT_TRUE(store.Scan("")->empty());
  EXPECT_EQ(store.commits(), 0);
  EXPECT_TRUE(store.Commit(term, {{"a", "1"}}).ok());
  EXPECT_EQ(store.commits(), 1);
}

TEST(FakeMetaStoreTest, CommitWithALostAnswerIsApplied) {
  FakeMetaStore store;
  const uint64_t term = *store.AcquireTerm();
  store.LoseNextAnswerForTest();
  EXPECT_TRUE(absl::IsUnavailable(store.Commit(term, {{"a", "1"}})));
  EXPECT_EQ(store.Scan("")->size(), 1u);
  EXPECT_TRUE(store.Commit(term, {{"a", "1"}}).ok());
}

}  // namespace
}  // namespace sluice
