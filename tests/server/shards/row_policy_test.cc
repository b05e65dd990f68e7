// Checks which rows a sparse shard takes in (admit) and drops at its limit (evict): against a plain
// model, through cuts and restores, in sync and async, and with a follower.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mix_hash.h"
#include "google/protobuf/text_format.h"
#include "server/copies/shard_image_reader.h"
#include "server/shards/admission_sketch.h"
#include "server/shards/eviction.h"
#include "server/shards/no_room.h"
#include "server/shards/sparse_shard.h"

namespace sluice {
namespace {

using Keys = std::vector<uint64_t>;

// A table of one weight a row, which SGD moves by 1 for a gradient of -1.
std::shared_ptr<const TableLayout> OneWeight(const std::string& more, uint32_t shards = 1) {
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      absl::StrCat("name: 'e' kind: SPARSE num_shards: ", shards,
                   " columns { dim: 1 initializer { constant: 8 } optimizer { sgd {} ",
                   "learning_rate: 1 } } ", more),
      tables.Add()));
  return (*CreateTableLayouts(tables, 1))[0];
}

UpdatePolicy Policy(Mode mode, uint32_t workers = 1) {
  UpdatePolicy policy;
  policy.mode = mode;
  policy.worker_num = workers;
  return policy;
}

std::unique_ptr<SparseShard> New(const std::shared_ptr<const TableLayout>& table,
                                 const UpdatePolicy& policy) {
  return std::make_unique<SparseShard>(table, 0, policy, ShardLimits());
}

struct Kept {
  float weight = 8;
  uint32_t count = 0;
  uint64_t last_seen = 0;
  bool operator==(const Kept& other) const {
    return std::tie(weight, count, last_seen) ==
           std::tie(other.weight, other.count, other.last_seen);
  }
};
using KeptRows = std::map<uint64_t, Kept>;

std::vector<std::string> PiecesOf(ShardCut* cut) {
  std::vector<std::string> image;
  std::string piece;
  while (*cut->Next(&piece)) image.push_back(piece);
  return image;
}
std::vector<std::string> PiecesOf(Shard* shard) {
  return PiecesOf(shard->BeginCut({/*state=*/true}).get());
}

std::unique_ptr<SparseShard> MadeOf(const std::vector<std::string>& image,
                                    const std::shared_ptr<const TableLayout>& table,
                                    const UpdatePolicy& policy) {
  auto shard = New(table, policy);
  ShardImageReader reader(shard.get());
  for (const std::string& piece : image) {
    const absl::Status added = reader.Add(piece);
    EXPECT_TRUE(added.ok()) << added;
  }
  return shard;
}

// The rows of an image, which ends with its index.
KeptRows RowsOf(const std::vector<std::string>& image) {
  constexpr size_t kRecord = 8 + 8 + 4 + 4;
  KeptRows rows;
  for (size_t i = 1; i + 1 < image.size(); ++i) {
    EXPECT_EQ(image[i].size() % kRecord, 0u);
    for (size_t at = 0; at < image[i].size(); at += kRecord) {
      uint64_t key;
      Kept row;
      std::memcpy(&key, &image[i][at], sizeof(key));
      std::memcpy(&row.last_seen, &image[i][at + 8], sizeof(row.last_seen));
      std::memcpy(&row.count, &image[i][at + 16], sizeof(row.count));
      std::memcpy(&row.weight, &image[i][at + 20], sizeof(row.weight));
      rows[key] = row;
    }
  }
  return rows;
}

// Pushes gradients of -1 as `rank`.
void PushAs(uint32_t rank, uint64_t sequence, const Keys& keys, Shard* shard) {
  PushPart part;
  part.rows = static_cast<uint32_t>(keys.size());
  part.keys = keys;
  part.values.assign(keys.size(), -1.0f);
  ASSERT_EQ(shard->Apply({rank, 1, sequence, 1.0}, &part).status, PART_OK);
}

float ReadOf(uint64_t key, Shard* shard) {
  float value = 0;
  shard->Read(&key, 1, reinterpret_cast<uint8_t*>(&value));
  return value;
}

AdmissionSketch SketchOf(Shard* shard, size_t bytes) {
  ShardFacts facts;
  shard->BeginCut({/*state=*/true}, &facts);
  AdmissionSketch sketch(bytes);
  EXPECT_TRUE(sketch.Restore(facts.admission_sketch()));
  return sketch;
}

// What a sync shard must do, said plainly. Every rank pushes the same keys, so gradients stay -1.
class PlainPolicy {
 public:
  PlainPolicy(uint32_t after, uint64_t limit) : after_(after), limit_(limit) {}

  void Step(const Keys& keys) {
    for (const uint64_t key : keys) {
      if (rows.count(key) == 0 && ++seen_[key] < after_) {
        ++refused;
        continue;
      }
      Kept& row = rows[key];
      row.weight += 1;
      ++row.count;
      row.last_seen = step_;
    }
    if (rows.size() > limit_) Evict();
    ++step_;
  }

  KeptRows rows;
  uint64_t refused = 0, evicted = 0;

 private:
  void Evict() {
    std::vector<std::tuple<uint32_t, uint64_t, uint64_t, uint64_t>> order;
    for (const auto& [key, row] : rows) {
      if (row.last_seen < step_) order.emplace_back(row.count, row.last_seen, MixHash(key), key);
    }
    std::sort(order.begin(), order.end());
    for (const auto& one : order) {
      if (rows.size() <= limit_ - limit_ / 20) break;
      rows.erase(std::get<3>(one));
      ++evicted;
    }
  }

  const uint32_t after_;
  const uint64_t limit_;
  std::map<uint64_t, uint32_t> seen_;
  uint64_t step_ = 0;
};

TEST(RowPolicyTest, ASyncShardDoesWhatTheModelSaysThroughCutsAndRestores) {
  const auto table = OneWeight("max_rows: 400 evict {} admit { after: 3 sketch_kib: 512 }");
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    uint32_t workers = 1;
    auto shard = New(table, Policy(Mode::kSync, workers));
    PlainPolicy model(3, 400);
    KeptRows at_cut;
    std::unique_ptr<ShardCut> cut;
    int restored = 0;
    for (uint64_t step = 1; step <= 200; ++step) {
      std::set<uint64_t> chosen;
      for (size_t n = random() % 200; n > 0; --n) chosen.insert(random() % (random() % 2000 + 1));
      Keys keys(chosen.begin(), chosen.end());
      for (uint32_t rank = 0; rank < workers; ++rank) {
        // The order in which a rank has its keys does not matter either.
        std::shuffle(keys.begin(), keys.end(), random);
        PushAs(rank, step, keys, shard.get());
      }
      shard->CloseStep(step);
      model.Step(keys);
      ASSERT_EQ(shard->rows(), model.rows.size()) << "step " << step;
      if (cut == nullptr && random() % 4 == 0) {
        cut = shard->BeginCut({/*state=*/true});
        at_cut = model.rows;
      } else if (cut != nullptr && random() % 3 == 0) {
        // Rows have gone and come since the cut began.
        const std::vector<std::string> image = PiecesOf(cut.get());
        cut = nullptr;
        ASSERT_TRUE(RowsOf(image) == at_cut);
        ASSERT_TRUE(RowsOf(PiecesOf(shard.get())) == model.rows);
        // The job goes on with what was saved now, and with other workers.
        workers = 1 + random() % 3;
        shard = MadeOf(PiecesOf(shard.get()), table, Policy(Mode::kSync, workers));
        ++restored;
      }
    }
    cut = nullptr;
    EXPECT_GT(restored, 5);
    EXPECT_GT(model.evicted, 100u);
    const RowTurnover turnover = shard->turnover();
    EXPECT_EQ(turnover.evicted(), model.evicted);
    EXPECT_EQ(turnover.refused(), model.refused);
    EXPECT_EQ(turnover.admitted(), model.rows.size() + model.evicted);
  }
}

// Frames of two workers, in one order. A follower begins with an image and gets the same frames.
TEST(RowPolicyTest, AFollowerOfAnAsyncShardDoesTheSame) {
  for (const char* score : {"COUNT", "LAST_USE", "NORM"}) {
    SCOPED_TRACE(score);
    const auto table = OneWeight(absl::StrCat("max_rows: 100 evict { score: ", score,
                                              " } admit { after: 2 sketch_kib: 8 }"));
    std::mt19937_64 random(5);
    const UpdatePolicy policy = Policy(Mode::kAsync, 2);
    auto shard = New(table, policy);
    std::unique_ptr<SparseShard> follower;
    uint64_t last[2] = {0, 0};
    for (int frame = 0; frame < 600; ++frame) {
      std::set<uint64_t> keys;
      for (size_t n = random() % 30; n > 0; --n) keys.insert(random() % (random() % 500 + 1));
      const auto rank = static_cast<uint32_t>(random() % 2);
      ++last[rank];
      for (SparseShard* const one : {shard.get(), follower.get()})
        if (one != nullptr) PushAs(rank, last[rank], Keys(keys.begin(), keys.end()), one);
      ASSERT_LE(shard->rows(), 100u + keys.size());
      if (frame != 200) continue;
      ShardSeed seed;
      HeldSum held;
      const auto cut = shard->BeginSeed(nullptr, nullptr, &seed, &held);
      follower = MadeOf(PiecesOf(cut.get()), table, policy);
      ASSERT_TRUE(follower->RestoreSeed(seed, std::move(held)).ok());
    }
    EXPECT_GT(shard->turnover().evicted(), 50u);
    EXPECT_GT(SketchOf(shard.get(), 8 << 10).halvings(), 5u);
    EXPECT_EQ(PiecesOf(shard.get()), PiecesOf(follower.get()));
  }
}

TEST(RowPolicyTest, RowsOfTheCurrentStepStayAboveTheLimit) {
  const auto table = OneWeight("max_rows: 4 evict { score: LAST_USE }");
  const auto shard = New(table, Policy(Mode::kSync));
  const auto step = [&](uint64_t number, const Keys& keys) {
    PushAs(0, number, keys, shard.get());
    shard->CloseStep(number);
    std::set<uint64_t> left;
    for (const auto& [key, row] : RowsOf(PiecesOf(shard.get()))) left.insert(key);
    return left;
  };
  EXPECT_EQ(step(1, {1, 2, 3}).size(), 3u);
  EXPECT_EQ(step(2, {4, 5, 6, 7, 8, 9}), (std::set<uint64_t>{4, 5, 6, 7, 8, 9}));
  // The next border finds them old enough, also without an update.
  EXPECT_EQ(step(3, {}).size(), 4u);
  EXPECT_EQ(shard->turnover().evicted(), 5u);
}

TEST(RowPolicyTest, RowsAboveTheLimitAreLoadedAndLeaveWithTheNextStep) {
  const auto table = OneWeight("max_rows: 4 evict {}");
  const auto shard = New(table, Policy(Mode::kSync));
  const Keys keys = {1, 2, 3, 4, 5, 6};
  const float weight = 1;
  const std::vector<const char*> weights(keys.size(), reinterpret_cast<const char*>(&weight));
  shard->LoadRows(keys.data(), weights.data(), keys.size());
  EXPECT_EQ(shard->rows(), 6u);
  for (const uint64_t step : {1, 2}) {
    PushAs(0, step, {7}, shard.get());
    shard->CloseStep(step);
  }
  EXPECT_EQ(shard->rows(), 4u);
  EXPECT_EQ(ReadOf(7, shard.get()), 10.0f);
}

TEST(RowPolicyTest, AnEvictedKeyReadsAsNewAndBeginsANewRow) {
  const auto table = OneWeight("max_rows: 1 evict { score: LAST_USE }");
  const auto shard = New(table, Policy(Mode::kAsync));
  PushAs(0, 1, {1}, shard.get());
  EXPECT_EQ(ReadOf(1, shard.get()), 9.0f);
  PushAs(0, 2, {2}, shard.get());
  EXPECT_EQ(ReadOf(1, shard.get()), 8.0f);
  PushAs(0, 3, {1}, shard.get());
  EXPECT_EQ(ReadOf(1, shard.get()), 9.0f);
  EXPECT_EQ(RowsOf(PiecesOf(shard.get())), (KeptRows{{1, {9, 1, 2}}}));
}

TEST(RowPolicyTest, ACountHalvesWithTheDaysSinceTheLastUpdate) {
  for (const int days : {5, 10}) {
    const auto table = OneWeight("max_rows: 2 evict { half_life_days: 5 }");
    UpdatePolicy policy = Policy(Mode::kAsync);
    policy.day = 100;
    const auto shard = New(table, policy);
    for (const uint64_t sequence : {1, 2, 3, 4, 5}) PushAs(0, sequence, {1}, shard.get());
    policy.day = 100 + days;
    const auto next = MadeOf(PiecesOf(shard.get()), table, policy);
    PushAs(0, 1, {2}, next.get());
    PushAs(0, 2, {2}, next.get());
    PushAs(0, 3, {3}, next.get());
    // Of 5 updates 2.5 are left after 5 days, 1.25 after 10, and the other row has had 2.
    const KeptRows rows = RowsOf(PiecesOf(next.get()));
    EXPECT_EQ(rows.count(1), days == 5 ? 1u : 0u);
    EXPECT_EQ(rows.count(2), days == 5 ? 0u : 1u);
    EXPECT_EQ(rows.count(3), 1u);
  }
}

TEST(RowPolicyTest, ExpiredRowsDoNotCountAgainstTheLimit) {
  const auto table = OneWeight("max_rows: 4 evict {} expire { after_steps: 2 }");
  const auto shard = New(table, Policy(Mode::kSync));
  for (uint64_t step = 1; step <= 6; ++step) {
    PushAs(0, step, step == 1 ? Keys{1, 2, 3} : step == 6 ? Keys{4, 5, 6, 7} : Keys(), shard.get());
    shard->CloseStep(step);
  }
  EXPECT_EQ(shard->rows(), 4u);
  EXPECT_EQ(shard->turnover().evicted(), 0u);
  EXPECT_EQ(shard->turnover().expired(), 3u);
}

TEST(RowPolicyTest, AnExpiredRowHasToBeAdmittedAgain) {
  const auto before = OneWeight(""),
             with = OneWeight("admit { after: 2 sketch_kib: 64 } expire { after_steps: 2 }");
  const auto shard = New(before, Policy(Mode::kAsync));
  PushAs(0, 1, {1}, shard.get());
  const auto next = MadeOf(PiecesOf(shard.get()), with, Policy(Mode::kAsync));
  for (const uint64_t sequence : {1, 2, 3, 4}) PushAs(0, sequence, {}, next.get());
  PushAs(0, 5, {1}, next.get());
  EXPECT_EQ(next->rows(), 0u);
  PushAs(0, 6, {1}, next.get());
  EXPECT_EQ(next->rows(), 1u);
}

TEST(RowPolicyTest, GradientsBeforeAdmissionAreDropped) {
  for (const char* before : {"ZERO", "INITIAL"}) {
    const auto table =
        OneWeight(absl::StrCat("admit { after: 3 sketch_kib: 64 before: ", before, " }"));
    const auto shard = New(table, Policy(Mode::kAsync));
    const float unseen = std::string(before) == "ZERO" ? 0 : 8;
    for (const uint64_t sequence : {1, 2}) {
      PushAs(0, sequence, {1}, shard.get());
      EXPECT_EQ(ReadOf(1, shard.get()), unseen) << before;
    }
    EXPECT_EQ(shard->rows(), 0u);
    PushAs(0, 3, {1}, shard.get());
    // The third update is its first: the optimizer's count began at 0.
    EXPECT_EQ(RowsOf(PiecesOf(shard.get())), (KeptRows{{1, {9, 1, 2}}}));
    EXPECT_EQ(ReadOf(2, shard.get()), unseen);
    EXPECT_EQ(shard->turnover().refused(), 2u);
    EXPECT_EQ(shard->turnover().admitted(), 1u);
  }
}

TEST(RowPolicyTest, AGlobalStepCountsAKeyOnce) {
  const auto table = OneWeight("admit { after: 2 sketch_kib: 64 }");
  const auto shard = New(table, Policy(Mode::kSync, 3));
  for (uint32_t rank = 0; rank < 3; ++rank) PushAs(rank, 1, {1}, shard.get());
  shard->CloseStep(1);
  EXPECT_EQ(shard->rows(), 0u);
  for (uint32_t rank = 0; rank < 3; ++rank)
    PushAs(rank, 2, rank == 1 ? Keys{1} : Keys(), shard.get());
  shard->CloseStep(2);
  EXPECT_EQ(shard->rows(), 1u);
}

TEST(RowPolicyTest, CountsOfKeysWithoutARowAreReservedMemory) {
  const auto with = New(OneWeight("admit { after: 2 sketch_kib: 64 }"), Policy(Mode::kAsync));
  EXPECT_EQ(with->reserved_bytes(),
            New(OneWeight(""), Policy(Mode::kAsync))->reserved_bytes() + (64 << 10));
  EXPECT_EQ(with->bytes(), 0u);
}

TEST(RowPolicyTest, RowsThatExistAreAdmitted) {
  const auto before = OneWeight(""),
             with = OneWeight("admit { after: 3 sketch_kib: 64 before: ZERO }");
  const auto shard = New(before, Policy(Mode::kAsync));
  PushAs(0, 1, {1}, shard.get());
  const auto next = MadeOf(PiecesOf(shard.get()), with, Policy(Mode::kAsync));
  PushAs(0, 1, {1, 2}, next.get());
  EXPECT_EQ(ReadOf(1, next.get()), 10.0f);
  EXPECT_EQ(ReadOf(2, next.get()), 0.0f);
}

// One worker, and three whose keys come in other orders, go through many halvings; one of the two
// shards is restored in between.
TEST(RowPolicyTest, ASyncSketchAgesTheSameForAnyWorkersAndRestores) {
  const auto table = OneWeight("admit { after: 3 sketch_kib: 8 }");
  std::mt19937_64 random(9);
  const auto one = New(table, Policy(Mode::kSync));
  auto three = New(table, Policy(Mode::kSync, 3));
  for (uint64_t step = 1; step <= 100; ++step) {
    std::set<uint64_t> chosen;
    for (uint64_t i = 0; i < 40; ++i) chosen.insert(random() % (40 * step));
    Keys keys(chosen.begin(), chosen.end());
    PushAs(0, step, keys, one.get());
    one->CloseStep(step);
    for (uint32_t rank = 3; rank-- > 0;) {
      std::shuffle(keys.begin(), keys.end(), random);
      PushAs(rank, step, keys, three.get());
    }
    three->CloseStep(step);
    if (step % 10 == 7) three = MadeOf(PiecesOf(three.get()), table, Policy(Mode::kSync, 3));
    ASSERT_EQ(SketchOf(one.get(), 8 << 10).Image(), SketchOf(three.get(), 8 << 10).Image());
  }
  EXPECT_GT(SketchOf(one.get(), 8 << 10).halvings(), 5u);
  EXPECT_TRUE(RowsOf(PiecesOf(one.get())) == RowsOf(PiecesOf(three.get())));
  EXPECT_GT(one->rows(), 10u);
}

// Each key of the step must meet the counts of all, or the first ones would be refused and the last
// ones admitted. All keys of this small sketch share their counters.
TEST(RowPolicyTest, TheOrderOfKeysInAStepDoesNotMatter) {
  constexpr uint32_t kShards = 128;
  const auto table = OneWeight("admit { after: 4 sketch_kib: 1 }", kShards);
  Keys keys;
  for (uint64_t key = 0; keys.size() < 4; ++key)
    if (table->ShardOf(key) == 0) keys.push_back(key);
  const auto shard = New(table, Policy(Mode::kSync));
  PushAs(0, 1, keys, shard.get());
  shard->CloseStep(1);
  EXPECT_EQ(shard->rows(), 4u);
}

TEST(RowPolicyTest, WithoutEvictAFullTableNamesItsLimitInGib) {
  const auto table = OneWeight("max_gib: 5e-8");  // 53 bytes, which hold one row
  ASSERT_EQ(table->row_limit(), 1u);
  const auto shard = New(table, Policy(Mode::kAsync));
  PushAs(0, 1, {1}, shard.get());
  try {
    PushAs(0, 2, {2}, shard.get());
    ADD_FAILURE() << "a row beyond the limit was taken";
  } catch (const NoRoom& full) {
    EXPECT_THAT(full.what(),
                testing::AllOf(testing::HasSubstr("max_gib"), testing::HasSubstr("evict")));
  }
}

}  // namespace
}  // namespace sluice
