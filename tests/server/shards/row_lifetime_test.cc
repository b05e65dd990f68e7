// Rows that expire, beside a map that holds what each shard must show: whatever the sweep has
// returned, through cuts, restored shards, copies and days.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "common/config/mode.h"
#include "server/copies/shard_image_reader.h"
#include "server/shards/no_room.h"
#include "server/shards/sparse_shard.h"

namespace sluice {
namespace {

constexpr float kInitial = 0.5f;

std::shared_ptr<const TableLayout> LifetimeLayout(const ExpireConfig& expire,
                                                  uint64_t max_rows = 0) {
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  TableConfig* const table = tables.Add();
  table->set_name("e");
  table->set_kind(TableConfig::SPARSE);
  table->set_num_shards(1);
  table->set_max_rows(max_rows);
  *table->mutable_expire() = expire;
  table->add_columns()->set_dim(1);
  table->mutable_columns(0)->mutable_initializer()->set_constant(kInitial);
  table->mutable_columns(0)->mutable_optimizer()->mutable_sgd();
  table->mutable_columns(0)->mutable_optimizer()->set_learning_rate(1.0f);
  return (*CreateTableLayouts(tables, 1))[0];
}

ExpireConfig After(uint64_t steps, uint32_t days = 0, uint32_t min_count = 0) {
  ExpireConfig expire;
  expire.set_after_steps(steps);
  expire.set_after_days(days);
  expire.set_min_count(min_count);
  return expire;
}

struct LifetimeRow {
  float weight = 0;
  uint32_t count = 0;
  uint64_t last_seen = 0;
  bool operator==(const LifetimeRow& other) const {
    return weight == other.weight && count == other.count && last_seen == other.last_seen;
  }
};
using LifetimeRows = std::map<uint64_t, LifetimeRow>;

// A shard of a sync job of one worker.
class Lived {
 public:
  explicit Lived(std::shared_ptr<const TableLayout> layout, std::optional<int32_t> day = {})
      : layout_(std::move(layout)) {
    UpdatePolicy policy;
    policy.mode = Mode::kSync;
    policy.keeps_tombstones = true;
    policy.day = day;
    shard_ = std::make_unique<SparseShard>(layout_, 0, policy, ShardLimits());
  }

  void Step(uint64_t step, const std::set<uint64_t>& keys) {
    PushPart part;
    part.rows = static_cast<uint32_t>(keys.size());
    part.keys.assign(keys.begin(), keys.end());
    part.values.assign(keys.size(), -1.0f);
    ASSERT_EQ(shard_->Apply({0, 1, step, 1.0}, &part).status, PART_OK);
    shard_->CloseStep(step);
  }

  std::vector<std::string> Image() {
    const auto cut = shard_->BeginCut({/*state=*/true});
    std::vector<std::string> image(1);
    while (*cut->Next(&image.back())) image.emplace_back();
    image.pop_back();
    return image;
  }
  void Restore(const std::vector<std::string>& image) {
    ShardImageReader reader(shard_.get());
    for (const std::string& piece : image) {
      const absl::Status added = reader.Add(piece);
      ASSERT_TRUE(added.ok()) << added;
    }
  }

  static LifetimeRows RowsOf(const std::vector<std::string>& image) {
    constexpr size_t kRecord = 8 + 8 + 4 + 4;
    LifetimeRows rows;
    for (size_t i = 1; i + 1 < image.size(); ++i) {
      for (size_t at = 0; at < image[i].size(); at += kRecord) {
        uint64_t key;
        LifetimeRow row;
        std::memcpy(&key, &image[i][at], sizeof(key));
        std::memcpy(&row.last_seen, &image[i][at + 8], sizeof(row.last_seen));
        std::memcpy(&row.count, &image[i][at + 16], sizeof(row.count));
        std::memcpy(&row.weight, &image[i][at + 20], sizeof(row.weight));
        rows[key] = row;
      }
    }
    return rows;
  }

  float Weight(uint64_t key) {
    float weight = 0;
    shard_->Read(&key, 1, reinterpret_cast<uint8_t*>(&weight));
    return weight;
  }
  ShardFacts Facts() {
    ShardFacts facts;
    shard_->BeginCut({/*state=*/true}, &facts);
    return facts;
  }
  SparseShard* operator->() { return shard_.get(); }

 private:
  std::shared_ptr<const TableLayout> layout_;
  std::unique_ptr<SparseShard> shard_;
};

TEST(RowLifetimeTest, AnExpiredRowIsMissingSweptOrNot) {
  Lived lived(LifetimeLayout(After(3)));
  lived.Step(1, {7});  // last_seen 0
  for (uint64_t step = 2; step <= 3; ++step) {
    EXPECT_EQ(lived.Weight(7), kInitial + 1) << step;
    EXPECT_EQ(lived->rows(), 1u);
    lived.Step(step, {});
  }
  EXPECT_EQ(lived.Weight(7), kInitial + 1);
  lived.Step(4, {});
  // An update without rows sweeps nothing.
  EXPECT_GT(lived->bytes(), 0u);
  EXPECT_EQ(lived.Weight(7), kInitial);
  EXPECT_EQ(lived->rows(), 0u);
  EXPECT_TRUE(Lived::RowsOf(lived.Image()).empty());
  // Its next update begins a new row.
  lived.Step(5, {7});
  EXPECT_EQ(lived.Weight(7), kInitial + 1);
  EXPECT_EQ(lived->turnover().expired(), 1u);
  const LifetimeRows rows = Lived::RowsOf(lived.Image());
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows.at(7).count, 1u);
}

TEST(RowLifetimeTest, UpdatesSweepWhatHasExpired) {
  Lived lived(LifetimeLayout(After(3)));
  std::set<uint64_t> many;
  for (uint64_t key = 0; key < 1000; ++key) many.insert(key);
  lived.Step(1, many);
  const uint64_t bytes = lived->bytes();
  for (uint64_t step = 2; step < 300; ++step) lived.Step(step, {5000});
  EXPECT_LT(lived->bytes(), bytes / 100);
  EXPECT_EQ(lived->turnover().expired(), 1000u);
  EXPECT_EQ(lived->rows(), 1u);
}

// Far more rows than updates sweep: what has expired is not counted, swept or not.
TEST(RowLifetimeTest, ALargeShardCountsOnlyRowsThatLive) {
  const auto layout = LifetimeLayout(After(3, 0, 2));
  auto lived = std::make_unique<Lived>(layout);
  std::set<uint64_t> many, some, few;
  for (uint64_t key = 0; key < 30000; ++key) {
    many.insert(key);
    if (key < 20000) some.insert(key);
    if (key < 50) few.insert(key);
  }
  lived->Step(1, many);
  lived->Step(2, {});
  std::vector<std::string> image = lived->Image();
  for (const bool restored : {false, true}) {
    SCOPED_TRACE(restored);
    if (restored) {
      lived = std::make_unique<Lived>(layout);
      lived->Restore(image);
    }
    EXPECT_EQ((*lived)->rows(), 30000u);
    lived->Step(3, few);  // twice: they stay
    EXPECT_EQ((*lived)->rows(), 30000u);
    lived->Step(4, {});
    EXPECT_EQ((*lived)->rows(), few.size());
    EXPECT_GT((*lived)->bytes(), 29000u * 32) << "nearly nothing has been swept";
    lived->Step(5, some);
    EXPECT_EQ((*lived)->rows(), some.size());
    (*lived)->DeleteRows(&*few.begin(), 1);
    EXPECT_EQ((*lived)->rows(), some.size() - 1);
  }
}

TEST(RowLifetimeTest, ACountKeepsARowForEver) {
  Lived lived(LifetimeLayout(After(3, 0, 2)));
  lived.Step(1, {7, 8});
  lived.Step(2, {7});
  for (uint64_t step = 3; step < 100; ++step) lived.Step(step, {9});
  EXPECT_EQ(lived.Weight(7), kInitial + 2);
  EXPECT_EQ(lived.Weight(8), kInitial);
  EXPECT_EQ(lived->rows(), 2u);
}

// A table of constant turnover keeps its size, also while cuts are open part of the time.
TEST(RowLifetimeTest, ConstantTurnoverKeepsTheMemory) {
  Lived lived(LifetimeLayout(After(50)));
  uint64_t key = 0, step = 0;
  std::unique_ptr<ShardCut> cut;
  const auto steps = [&](uint64_t n) {
    for (; n > 0; --n) {
      std::set<uint64_t> fresh;
      for (int i = 0; i < 200; ++i) fresh.insert(key++);
      lived.Step(++step, fresh);
      if (step % 20 == 0) cut = lived->BeginCut({/*state=*/true});
      if (step % 20 == 5) cut = nullptr;
    }
  };
  steps(500);
  const uint64_t reserved = lived->reserved_bytes();
  steps(2000);
  EXPECT_LE(lived->reserved_bytes(), reserved);
  EXPECT_LE(lived->bytes(), 1.15 * 32 * 200 * 51);  // a row has 32 bytes
}

TEST(RowLifetimeTest, ExpiredRowsAreNotCountedForMaxRows) {
  Lived lived(LifetimeLayout(After(5), /*max_rows=*/100));
  uint64_t key = 0;
  for (uint64_t step = 1; step <= 200; ++step) {
    std::set<uint64_t> fresh;
    for (int i = 0; i < 16; ++i) fresh.insert(key++);  // 6 steps of them live
    lived.Step(step, fresh);
  }
  // Twice as many a step would be too many.
  std::set<uint64_t> fresh;
  for (int i = 0; i < 32; ++i) fresh.insert(key++);
  EXPECT_THROW(lived.Step(201, fresh), NoRoom);
}

// Rows that expired leave a few at a time, also when those that live and they are more than
// max_rows.
TEST(RowLifetimeTest, AFullShardTakesNewRowsWithoutALongSweep) {
  // 16 new rows a step fill it, because rows live for 501 steps.
  constexpr uint64_t kNew = 16, kMost = 501 * kNew, kRowBytes = 32;
  Lived lived(LifetimeLayout(After(500), kMost));
  uint64_t key = 0, step = 0;
  const auto fresh = [&](size_t n) {
    std::set<uint64_t> keys;
    while (keys.size() < n) keys.insert(key++);
    return keys;
  };
  lived.Step(++step, fresh(kMost));
  while (lived->rows() > 0) lived.Step(++step, {});
  for (const size_t n : {1, 1, 10, 100}) {
    const uint64_t before = lived->turnover().expired();
    lived.Step(++step, fresh(n));
    const uint64_t gone = lived->turnover().expired() - before;
    EXPECT_GT(gone, 0u);
    EXPECT_LE(gone, 8 + 17 * n);
  }
  while (lived->rows() > 0) lived.Step(++step, {});
  for (int more = 0; more < 2000; ++more) {
    lived.Step(++step, fresh(kNew));
    ASSERT_LE(lived->rows(), kMost);
    ASSERT_LE(lived->bytes(), kRowBytes * (kMost * 16 / 15 + kNew));
  }
  EXPECT_THROW(lived.Step(++step, fresh(kNew + 1)), NoRoom);
}

// Whether a job fails must not depend on the interval in which a large after_steps is counted.
TEST(RowLifetimeTest, AFullShardFindsTheRowsThatHaveJustExpired) {
  constexpr uint64_t kAfter = 5000, kMost = 100;
  Lived lived(LifetimeLayout(After(kAfter), kMost));
  uint64_t step = 3, key = 0;  // last_seen 2 is in the middle of an interval
  for (uint64_t s = 1; s < step; ++s) lived.Step(s, {});
  std::set<uint64_t> first, second;
  for (; key < kMost; ++key) (key < kMost / 2 ? first : second).insert(key);
  lived.Step(step, first);
  while (step < 5) lived.Step(++step, {});
  lived.Step(++step, second);
  while (step < kAfter + 3) lived.Step(++step, {});
  EXPECT_EQ(lived->rows(), kMost) << "their interval is not over";
  std::set<uint64_t> more;
  for (; more.size() < kMost / 2; ++key) more.insert(key);
  lived.Step(++step, more);
  EXPECT_EQ(lived->turnover().expired(), first.size());
  EXPECT_THROW(lived.Step(step + 1, {key}), NoRoom);
}

TEST(RowLifetimeTest, ShardsShowTheSameWhateverTheirSweepHasDone) {
  for (const uint32_t min_count : {0u, 3u}) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << " min_count " << min_count);
      constexpr uint64_t kAfter = 12;
      std::mt19937_64 random(seed);
      const auto layout = LifetimeLayout(After(kAfter, 0, min_count));
      auto lived = std::make_unique<Lived>(layout);
      std::unique_ptr<Lived> copy;
      LifetimeRows rows, wanted;  // that have not expired; those of the open cut
      std::unique_ptr<ShardCut> cut;
      std::vector<std::string> image;
      const auto expire = [&](uint64_t now) {
        for (auto it = rows.begin(); it != rows.end();) {
          const bool gone = now > it->second.last_seen + kAfter &&
                            (min_count == 0 || it->second.count < min_count);
          it = gone ? rows.erase(it) : std::next(it);
        }
      };
      for (uint64_t step = 1; step <= 300; ++step) {
        std::set<uint64_t> keys;
        for (size_t n = random() % 300; n > 0; --n) keys.insert(random() % 4000);
        lived->Step(step, keys);
        if (copy != nullptr) copy->Step(step, keys);
        for (const uint64_t key : keys) {
          LifetimeRow& row = rows[key];
          if (row.count == 0) row.weight = kInitial;
          row.weight += 1;
          ++row.count;
          row.last_seen = step - 1;
        }
        expire(step);
        ASSERT_EQ((*lived)->rows(), rows.size()) << step;
        for (uint64_t key = random() % 50; key < 4000; key += 50) {
          const auto row = rows.find(key);
          ASSERT_EQ(lived->Weight(key), row == rows.end() ? kInitial : row->second.weight);
        }
        if (cut == nullptr) {
          if (random() % 3 != 0) continue;
          cut = (*lived)->BeginCut({/*state=*/true});
          wanted = rows;
          image.clear();
          continue;
        }
        std::string piece;
        if (random() % 2 == 0) continue;
        if (*cut->Next(&piece)) {
          image.push_back(piece);
          continue;
        }
        cut = nullptr;
        ASSERT_TRUE(Lived::RowsOf(image) == wanted) << step;
        ASSERT_TRUE(Lived::RowsOf(lived->Image()) == rows) << step;
        if (copy != nullptr) {
          ASSERT_TRUE(Lived::RowsOf(copy->Image()) == rows) << step;
        }
        // The new shard has other slots and another sweep.
        auto restored = std::make_unique<Lived>(layout);
        restored->Restore(lived->Image());
        if (random() % 2 == 0) {
          copy = std::move(restored);
        } else {
          lived = std::move(restored);
          copy = nullptr;
        }
      }
    }
  }
}

// Two images: together they name every row that went between them, swept or not.
TEST(RowLifetimeTest, ImagesNameTheRowsThatExpired) {
  std::mt19937_64 random(5);
  const auto layout = LifetimeLayout(After(7));
  auto lived = std::make_unique<Lived>(layout);
  LifetimeRows before;
  uint64_t before_step = 0;
  for (uint64_t step = 1; step <= 400; ++step) {
    std::set<uint64_t> keys;
    for (size_t n = random() % 40; n > 0; --n) keys.insert(random() % 1000);
    lived->Step(step, keys);
    if (step % 10 != 0) continue;
    std::unique_ptr<ShardCut> cut = (*lived)->BeginCut({/*state=*/true});
    // Updates between the moment of the cut and its reading sweep some of the rows.
    for (uint64_t more = random() % 4; more > 0; --more) lived->Step(++step, {random() % 1000});
    std::vector<std::string> image(1);
    while (*cut->Next(&image.back())) image.emplace_back();
    image.pop_back();
    cut = nullptr;
    const LifetimeRows now = Lived::RowsOf(image);
    auto restored = std::make_unique<Lived>(layout);
    restored->Restore(image);
    const ShardFacts facts = restored->Facts();
    ASSERT_LE(facts.tombstones_since(), before_step);
    std::set<uint64_t> named;
    for (const RowTombstone& gone : facts.tombstones())
      if (gone.schedule_step() > before_step) named.insert(gone.key());
    for (const auto& [key, row] : before) {
      ASSERT_TRUE(now.count(key) == 1 || named.count(key) == 1) << key << " at " << step;
    }
    before = now;
    before_step = facts.schedule_steps();
    if (random() % 3 == 0) {
      // The job resumes from there.
      while (step > before_step) --step;
      lived = std::move(restored);
    }
  }
}

TEST(RowLifetimeTest, DeletedKeysCountAsExpiredIfTheirRowsHave) {
  Lived lived(LifetimeLayout(After(3)));
  std::set<uint64_t> many;
  for (uint64_t key = 1; key <= 400; ++key) many.insert(key);
  lived.Step(1, many);
  for (uint64_t step = 2; step <= 6; ++step) lived.Step(step, {500});
  ASSERT_GT(lived->turnover().expired(), 0u) << "the sweep has begun";
  ASSERT_LT(lived->turnover().expired(), 400u) << "and is not done";
  std::vector<uint64_t> keys(many.begin(), many.end());
  keys.insert(keys.end(), {500, 501});
  EXPECT_EQ(lived->DeleteRows(keys.data(), keys.size()), 1u);
  EXPECT_EQ(lived->rows(), 0u);
  EXPECT_EQ(lived->turnover().deleted(), 1u);
  EXPECT_EQ(lived->turnover().expired(), 400u);
}

TEST(RowLifetimeTest, DaysEndRowsOfEarlierDays) {
  const auto layout = LifetimeLayout(After(0, 2));
  // Rows of a job without the option count as seen on the first day that has it.
  Lived before(LifetimeLayout(After(1000)));
  before.Step(1, {1});
  before.Step(2, {2});
  std::vector<std::string> image = before.Image();
  uint64_t step = 2;
  const auto next_day = [&](int32_t day, uint64_t key) {
    auto lived = std::make_unique<Lived>(layout, day);
    lived->Restore(image);
    lived->Step(++step, {key});
    image = lived->Image();
    return lived;
  };
  const auto day100 = next_day(100, 3);
  EXPECT_EQ((*day100)->rows(), 3u);
  const auto day102 = next_day(102, 4);
  EXPECT_EQ((*day102)->rows(), 4u);
  const auto day103 = next_day(103, 5);
  EXPECT_EQ((*day103)->rows(), 2u);
  EXPECT_EQ(day103->Weight(3), kInitial);
  EXPECT_EQ(day103->Weight(4), kInitial + 1);
  const ShardFacts facts = day103->Facts();
  ASSERT_EQ(facts.days_size(), 3);
  EXPECT_EQ(facts.days(0).day(), 100);
  EXPECT_EQ(facts.days(0).schedule_step(), 2u);
  EXPECT_EQ(facts.days(2).day(), 103);
  EXPECT_EQ(facts.days(2).schedule_step(), 4u);
  // A copy has the days of its primary.
  Lived copy(layout, 103);
  copy.Restore(image);
  EXPECT_EQ(copy->rows(), 2u);
}

TEST(RowLifetimeTest, RowsWithoutAHistoryCountAsSeenWhenTheyAreLoaded) {
  Lived lived(LifetimeLayout(After(10)));
  const uint64_t key = 7;
  const float weight = 3;
  const char* const weights = reinterpret_cast<const char*>(&weight);
  lived->LoadRows(&key, &weights, 1);
  ShardFacts facts;
  facts.set_schedule_steps(1000);
  lived->RestorePosition(facts);
  EXPECT_EQ(lived->rows(), 1u);
  EXPECT_EQ(lived.Weight(key), weight);
  for (uint64_t step = 1; step <= 11; ++step) {
    EXPECT_EQ(lived.Weight(key), weight) << step;
    lived.Step(step, {});
  }
  EXPECT_EQ(lived.Weight(key), kInitial);
}

}  // namespace
}  // namespace sluice
