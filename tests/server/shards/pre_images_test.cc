#include "server/shards/pre_images.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <unordered_map>

#include "tests/common/base/fake_clock.h"

namespace sluice {
namespace {

constexpr size_t kBytes = 52;

std::string RecordOf(uint64_t key) {
  std::string record(kBytes, static_cast<char>(key));
  std::memcpy(record.data(), &key, sizeof(key));
  return record;
}

TEST(PreImageBudgetTest, TakesFromItselfAndItsParent) {
  PreImageBudget process(100);
  PreImageBudget one(70, &process), other(70, &process);
  EXPECT_TRUE(one.Take(60));
  EXPECT_FALSE(one.Take(20));
  EXPECT_FALSE(other.Take(50)) << "the parent has 40 left";
  EXPECT_EQ(other.taken(), 0u);
  EXPECT_TRUE(other.Take(40));
  EXPECT_EQ(process.taken(), 100u);
  one.Give(60);
  EXPECT_EQ(process.taken(), 40u);
  EXPECT_EQ(one.most(), 60u);
  EXPECT_EQ(process.most(), 100u);
}

TEST(PreImageBudgetTest, TakesNoMoreThanRowsHaveLeft) {
  FakeClock clock;
  uint64_t available = 256 << 20;  // a reserve of 64 MiB
  const auto rows = std::make_shared<RowMemory>(&clock, [&] { return available; });
  PreImageBudget process(128 << 20, nullptr, rows);
  PreImageBudget one(UINT64_MAX, &process);
  EXPECT_TRUE(one.Take(1 << 20));
  available = 34 << 20;  // rows were added
  clock.Advance(RowMemory::kFresh);
  EXPECT_TRUE(one.Take(1 << 20)) << "half of the reserve is 32 MiB";
  available -= 1 << 20;
  EXPECT_FALSE(one.Take(2 << 20));
  EXPECT_EQ(one.taken(), uint64_t{2} << 20);
  EXPECT_EQ(process.taken(), uint64_t{2} << 20);
}

TEST(PreImagesTest, RecordsAreFoundByTheirKeys) {
  for (const uint64_t rows : {uint64_t{1}, uint64_t{1000}, uint64_t{3000000}}) {
    PreImages images(rows, kBytes, nullptr);
    EXPECT_EQ(images.Find(5), nullptr);
    std::mt19937_64 random(rows);
    std::vector<uint64_t> keys = {0, UINT64_MAX};
    for (int i = 0; i < 20000; ++i) keys.push_back(random());
    for (const uint64_t key : keys) {
      char* const to = images.Add(key);
      ASSERT_NE(to, nullptr);
      std::memcpy(to, RecordOf(key).data(), kBytes);
    }
    for (const uint64_t key : keys) {
      const char* const found = images.Find(key);
      ASSERT_NE(found, nullptr) << key;
      ASSERT_EQ(std::string(found, kBytes), RecordOf(key));
    }
    EXPECT_EQ(images.Find(keys.back() + 1), nullptr);
  }
}

TEST(PreImagesTest, OverTheBudgetAllIsGivenBackAndItHasFailed) {
  const auto budget = std::make_shared<PreImageBudget>(100 << 10);
  {
    PreImages images(1000, kBytes, budget);
    uint64_t key = 0;
    while (images.Add(key) != nullptr) ++key;
    EXPECT_GT(key, 500u);
    EXPECT_LT(key, (100u << 10) / kBytes);
    EXPECT_TRUE(images.failed());
    EXPECT_EQ(budget->taken(), 0u);
    EXPECT_EQ(images.Find(0), nullptr);
  }
  {
    PreImages images(1000, kBytes, budget);
    ASSERT_NE(images.Add(1), nullptr);
    EXPECT_GT(budget->taken(), 0u);
  }
  EXPECT_EQ(budget->taken(), 0u);
}

TEST(PreImagesTest, ARecordLargerThanAPieceHasItsOwn) {
  PreImages images(10, 3 << 20, nullptr);
  for (uint64_t key = 0; key < 3; ++key) {
    char* const to = images.Add(key);
    ASSERT_NE(to, nullptr);
    std::memset(to, static_cast<int>(key), 3 << 20);
  }
  EXPECT_EQ(images.Find(1)[(3 << 20) - 1], 1);
}

}  // namespace
}  // namespace sluice
