// Checks that rows of a saved model are loaded into a shard, and saved from it into a model.
#include "server/shards/sparse_shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/saved_model/saved_model.h"
#include "server/copies/shard_image_reader.h"
#include "server/shards/no_room.h"
#include "server/shards/not_finite_change.h"
#include "server/shards/shard.h"
#include "tests/common/saved_model/memory_env.h"
#include "tests/common/saved_model/read_shard_file.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kDim = 3;
using Rows = std::map<uint64_t, std::vector<float>>;

class SparseShardTest : public testing::Test {
 protected:
  SparseShardTest() {
    google::protobuf::RepeatedPtrField<TableConfig> tables;
    TableConfig* table = tables.Add();
    table->set_name("e");
    table->set_kind(TableConfig::SPARSE);
    table->set_num_shards(1);
    ColumnGroup* column = table->add_columns();
    column->set_dim(kDim);
    column->mutable_initializer()->set_constant(0.25f);
    column->mutable_optimizer()->mutable_adagrad()->set_initial_accumulator(0.5f);
    column->mutable_optimizer()->set_learning_rate(1.0f);
    table_ = (*CreateTableLayouts(tables, 1))[0];
    shard_ = MakeSparseShard(table_, 0, UpdatePolicy());
  }

  void Load(const Rows& rows) {
    std::vector<uint64_t> keys;
    std::vector<const char*> weights;
    std::string memory = "x";  // unaligned, as in a file
    for (const auto& [key, row] : rows) {
      memory.append(reinterpret_cast<const char*>(row.data()), kDim * sizeof(float));
    }
    for (const auto& [key, row] : rows) {
      weights.push_back(memory.data() + 1 + keys.size() * kDim * sizeof(float));
      keys.push_back(key);
    }
    shard_->LoadRows(keys.data(), weights.data(), keys.size());
  }

  // Pushes a gradient of ones.
  void Push(uint64_t key) {
    PushPart part;
    part.rows = 1;
    part.keys = {key};
    part.values.assign(kDim, 1.0f);
    ASSERT_EQ(shard_->Apply({0, 1, ++pushes_, 1.0}, &part).status, PART_OK);
  }

  absl::StatusOr<Rows> Save(ShardCut* cut) {
    MemoryEnv env;
    const auto file = WriteShardFile("m", *table_, 0, cut, &env);
    if (!file.ok()) return file.status();
    uint32_t shard;
    const auto values = ReadShardFile("m", table_->config(), *file, &shard, &env);
    if (!values.ok()) return values.status();
    Rows rows;
    for (size_t i = 0; i < values->keys.size(); ++i) {
      const auto weights = values->weights.begin() + static_cast<int64_t>(i * kDim);
      rows[values->keys[i]].assign(weights, weights + kDim);
    }
    EXPECT_EQ(rows.size(), values->keys.size());
    return rows;
  }

  static Rows RandomRows(size_t n) {
    std::mt19937_64 random(23);
    Rows rows;
    while (rows.size() < n) {
      const uint64_t key = random();
      rows[key] = {static_cast<float>(key % 13), static_cast<float>(key % 7), -1.0f};
    }
    return rows;
  }

  std::shared_ptr<const TableLayout> table_;
  std::unique_ptr<Shard> shard_;
  uint64_t pushes_ = 0;
};

TEST_F(SparseShardTest, LoadedRowsAreReadAndSaved) {
  const Rows rows = RandomRows(20000);
  Load(rows);
  EXPECT_EQ(shard_->rows(), rows.size());
  for (const auto& [key, row] : rows) {
    float read[kDim];
    shard_->Read(&key, 1, reinterpret_cast<uint8_t*>(read));
    ASSERT_EQ(std::memcmp(read, row.data(), sizeof(read)), 0) << key;
  }
  const auto saved = Save(shard_->BeginCut().get());
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(*saved, rows);
}

TEST_F(SparseShardTest, LoadedRowHasFreshOptimizerState) {
  Load({{7, {2, 2, 2}}});
  Push(7);
  float read[kDim];
  const uint64_t key = 7;
  shard_->Read(&key, 1, reinterpret_cast<uint8_t*>(read));
  // AdaGrad from the accumulator 0.5: 2 - 1 / sqrt(1.5).
  EXPECT_NEAR(read[0], 2 - 0.8164966f, 1e-5);
}

TEST_F(SparseShardTest, ReloadedKeyHasTheLaterWeights) {
  Load({{7, {2, 2, 2}}});
  Load({{7, {3, 3, 3}}, {8, {1, 1, 1}}});
  const auto saved = Save(shard_->BeginCut().get());
  ASSERT_TRUE(saved.ok());
  EXPECT_EQ(*saved, (Rows{{7, {3, 3, 3}}, {8, {1, 1, 1}}}));
}

TEST_F(SparseShardTest, AnUpdateMeanwhileDoesNotReachTheCut) {
  const Rows rows = RandomRows(100);
  Load(rows);
  const std::unique_ptr<ShardCut> cut = shard_->BeginCut();
  Push(5);
  Push(rows.begin()->first);
  const auto saved = Save(cut.get());
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(*saved, rows);
}

TEST_F(SparseShardTest, AnUpdateThatMakesAValueInfiniteNamesTheKey) {
  Load({{5, {1, 1, 1}}, {7, {1, 1, 1}}, {9, {1, 1, 1}}});
  PushPart part;
  part.rows = 3;
  part.keys = {5, 7, 9};
  // The square of 3e38 overflows. The weight, which is divided by its root, does not show it.
  part.values = {1, 1, 1, 1, 3e38f, 1, 1, 1, 1};
  try {
    shard_->Apply({0, 1, ++pushes_, 1.0}, &part);
    ADD_FAILURE() << "it was not noticed";
  } catch (const NotFiniteChange& why) {
    EXPECT_THAT(why.what(),
                testing::AllOf(HasSubstr("'e'"), HasSubstr("optimizer state of key 7")));
  }
  const auto saved = Save(shard_->BeginCut({/*state=*/true}).get());
  EXPECT_EQ(saved.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(saved.status().message()), HasSubstr("key 7"));
}

TEST_F(SparseShardTest, ADeltaThatMakesAValueInfiniteNamesTheKey) {
  UpdatePolicy geo;
  geo.mode = Mode::kGeo;
  shard_ = MakeSparseShard(table_, 0, geo);
  Load({{7, {3e38f, 1, 1}}});
  PushPart part;
  part.rows = 1;
  part.keys = {7};
  part.values = {3e38f, 0, 0};
  try {
    shard_->Apply({0, 1, ++pushes_, 1.0}, &part);
    ADD_FAILURE() << "it was not noticed";
  } catch (const NotFiniteChange& why) {
    EXPECT_THAT(why.what(), testing::AllOf(HasSubstr("'e'"), HasSubstr("a weight of key 7")));
  }
}

TEST_F(SparseShardTest, AModelWithAValueThatIsNotFiniteIsNotWritten) {
  for (const float bad : {std::nanf(""), -INFINITY}) {
    Load({{5, {1, 1, 1}}, {7, {1, 1, bad}}});
    const auto saved = Save(shard_->BeginCut().get());
    EXPECT_EQ(saved.status().code(), absl::StatusCode::kOutOfRange);
    EXPECT_THAT(std::string(saved.status().message()),
                testing::AllOf(HasSubstr("'e'"), HasSubstr("a weight of key 7")));
  }
}

TEST(SparseShardCountTest, ARowsCountStaysAtItsEnd) {
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  TableConfig* const table = tables.Add();
  table->set_name("e");
  table->set_kind(TableConfig::SPARSE);
  table->set_num_shards(1);
  table->add_columns()->set_dim(1);
  table->mutable_columns(0)->mutable_optimizer()->mutable_adam();
  table->mutable_columns(0)->mutable_optimizer()->set_learning_rate(0.5f);
  *table->mutable_columns(0)->mutable_optimizer() = WithDefaults(table->columns(0).optimizer());
  const auto layout = (*CreateTableLayouts(tables, 1))[0];
  // A row of a checkpoint whose gradient was always 2: last_seen, count, w, m, v.
  std::string record(12, '\0');
  const uint32_t count = UINT32_MAX - 2;
  std::memcpy(&record[8], &count, sizeof(count));
  const float floats[] = {10, 2, 4};
  record.append(reinterpret_cast<const char*>(floats), sizeof(floats));
  const uint64_t key = 7;
  const char* const records[] = {record.data()};
  const auto shard = MakeSparseShard(layout, 0, UpdatePolicy());
  shard->RestoreRows(&key, records, 1);
  const auto push = [&](Shard* to, uint64_t sequence) {
    PushPart part;
    part.rows = 1, part.keys = {key}, part.values = {2.0f};
    ASSERT_EQ(to->Apply({0, 1, sequence, 1.0}, &part).status, PART_OK);
  };
  const auto weight = [&](Shard* of) {
    float read = 0;
    of->Read(&key, 1, reinterpret_cast<uint8_t*>(&read));
    return read;
  };
  for (uint64_t sequence = 1; sequence <= 5; ++sequence) {
    push(shard.get(), sequence);
    EXPECT_NEAR(weight(shard.get()), 10 - 0.5 * sequence, 1e-3) << sequence;
  }
  // Its image has the count, too.
  const auto copy = MakeSparseShard(layout, 0, UpdatePolicy());
  ShardImageReader reader(copy.get());
  const std::unique_ptr<ShardCut> cut = shard->BeginCut({/*state=*/true});
  std::string piece;
  while (*cut->Next(&piece)) ASSERT_TRUE(reader.Add(piece).ok());
  for (Shard* const one : {shard.get(), copy.get()}) {
    push(one, one == copy.get() ? 1 : 6);
    EXPECT_NEAR(weight(one), 10 - 0.5 * 6, 1e-3);
  }
}

// A shard whose rows come and go, beside a map that holds what its rows must be.
class ErasureModel {
 public:
  struct Row {
    float weight = 0;
    uint32_t count = 0;
    bool operator==(const Row& other) const {
      return weight == other.weight && count == other.count;
    }
  };
  using Map = std::map<uint64_t, Row>;

  ErasureModel() : layout_(Layout()), shard_(New()) {}

  std::unique_ptr<SparseShard> New() const {
    UpdatePolicy policy;
    policy.keeps_tombstones = true;
    return std::make_unique<SparseShard>(layout_, 0, policy, ShardLimits());
  }

  void Push(const std::vector<uint64_t>& keys) {
    ++sequence_;
    for (SparseShard* const shard : {shard_.get(), follower_.get()}) {
      if (shard == nullptr) continue;
      PushPart part;
      part.rows = static_cast<uint32_t>(keys.size());
      part.keys = keys;
      part.values.assign(keys.size(), -1.0f);
      const uint64_t sequence = sequence_ - (shard == shard_.get() ? 0 : followed_from_);
      ASSERT_EQ(shard->Apply({0, 1, sequence, 1.0}, &part).status, PART_OK);
    }
    for (const uint64_t key : keys) {
      Row& row = rows_[key];
      row.weight += 1;
      ++row.count;
    }
  }

  void Erase(const std::vector<uint64_t>& keys) {
    size_t gone = 0;
    for (const uint64_t key : keys) gone += rows_.erase(key);
    erased_ += gone;
    EXPECT_EQ(shard_->DeleteRows(keys.data(), keys.size()), gone);
    if (follower_ == nullptr) return;
    EXPECT_EQ(follower_->DeleteRows(keys.data(), keys.size()), gone);
  }

  // The shard that the image makes.
  std::unique_ptr<SparseShard> Restored(const std::vector<std::string>& image) const {
    auto shard = New();
    ShardImageReader reader(shard.get());
    for (const std::string& piece : image) {
      const absl::Status added = reader.Add(piece);
      EXPECT_TRUE(added.ok()) << added;
    }
    return shard;
  }

  static Map Contents(SparseShard* shard) {
    const auto cut = shard->BeginCut({/*state=*/true});
    std::vector<std::string> image(1);
    while (*cut->Next(&image.back())) image.emplace_back();
    image.pop_back();
    Map contents;
    // Between the header and the index.
    for (size_t i = 1; i + 1 < image.size(); ++i) {
      for (size_t at = 0; at < image[i].size(); at += kRecord) {
        uint64_t key;
        Row row;
        std::memcpy(&key, &image[i][at], sizeof(key));
        std::memcpy(&row.count, &image[i][at + 16], sizeof(row.count));
        std::memcpy(&row.weight, &image[i][at + 20], sizeof(row.weight));
        contents[key] = row;
      }
    }
    return contents;
  }

  SparseShard* shard() { return shard_.get(); }
  SparseShard* follower() { return follower_.get(); }
  const Map& rows() const { return rows_; }
  uint64_t erased() const { return erased_; }
  void Follow(std::unique_ptr<SparseShard> follower) {
    follower_ = std::move(follower);
    followed_from_ = sequence_;
  }
  // The job goes on with this shard.
  void Replace(std::unique_ptr<SparseShard> shard) {
    shard_ = std::move(shard);
    follower_ = nullptr;
    sequence_ = 0;
  }

 private:
  static constexpr size_t kRecord = 8 + 8 + 4 + 4;

  static std::shared_ptr<const TableLayout> Layout() {
    google::protobuf::RepeatedPtrField<TableConfig> tables;
    TableConfig* const table = tables.Add();
    table->set_name("e");
    table->set_kind(TableConfig::SPARSE);
    table->set_num_shards(1);
    table->add_columns()->set_dim(1);
    table->mutable_columns(0)->mutable_optimizer()->mutable_sgd();
    table->mutable_columns(0)->mutable_optimizer()->set_learning_rate(1.0f);
    return (*CreateTableLayouts(tables, 1))[0];
  }

  const std::shared_ptr<const TableLayout> layout_;
  std::unique_ptr<SparseShard> shard_, follower_;
  Map rows_;
  uint64_t sequence_ = 0, followed_from_ = 0, erased_ = 0;
};

TEST(SparseShardErasureTest, CutsCopiesAndRestoredShardsHoldTheRowsOfTheirMoment) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    ErasureModel model;
    std::unique_ptr<ShardCut> cut;
    std::vector<std::string> image;
    ErasureModel::Map wanted;
    uint64_t wanted_erased = 0;
    int restored = 0;
    const auto some = [&](size_t most) {
      std::set<uint64_t> keys;
      for (size_t n = random() % most; n > 0; --n) keys.insert(random() % 20000);
      return std::vector<uint64_t>(keys.begin(), keys.end());
    };
    for (int round = 0; round < 150; ++round) {
      model.Push(some(round < 15 ? 2000 : 300));
      if (random() % 2 == 0) model.Erase(some(800));
      ASSERT_EQ(model.shard()->rows(), model.rows().size());
      if (cut == nullptr) {
        if (random() % 3 != 0) continue;
        cut = model.shard()->BeginCut({/*state=*/true});
        wanted = model.rows();
        wanted_erased = model.erased();
        image.clear();
        continue;
      }
      std::string piece;
      const auto more = cut->Next(&piece);
      ASSERT_TRUE(more.ok()) << more.status();
      if (*more) {
        image.push_back(piece);
        continue;
      }
      cut = nullptr;
      ++restored;
      auto shard = model.Restored(image);
      ASSERT_EQ(shard->rows(), wanted.size());
      ASSERT_TRUE(ErasureModel::Contents(shard.get()) == wanted);
      EXPECT_EQ(shard->turnover().deleted(), wanted_erased);
      ASSERT_TRUE(ErasureModel::Contents(model.shard()) == model.rows());
      if (model.follower() != nullptr) {
        ASSERT_TRUE(ErasureModel::Contents(model.follower()) == model.rows());
      }
      // A copy of now, which goes through the same changes, or the shard of a resumed job.
      image.clear();
      cut = model.shard()->BeginCut({/*state=*/true});
      while (*cut->Next(&piece)) image.push_back(piece);
      cut = nullptr;
      if (random() % 2 == 0) {
        model.Follow(model.Restored(image));
      } else {
        model.Replace(model.Restored(image));
      }
    }
    EXPECT_GT(restored, 5);
    // Slots are used again, also after cuts: without that there would be one for each new row.
    EXPECT_LT(model.shard()->reserved_bytes(), 24u << 20);
  }
}

// The key comes back while the cut that has its old row is open.
TEST(SparseShardErasureTest, AKeyThatComesBackDuringACutIsOutsideOfIt) {
  ErasureModel model;
  model.Push({1, 2, 3});
  model.Push({1});
  for (const bool read_before : {false, true}) {
    SCOPED_TRACE(read_before);
    const ErasureModel::Map wanted = model.rows();
    const auto cut = model.shard()->BeginCut({/*state=*/true});
    std::vector<std::string> image(1);
    ASSERT_TRUE(*cut->Next(&image[0]));
    std::string piece;
    const auto read = [&] {
      while (*cut->Next(&piece)) image.push_back(piece);
    };
    if (read_before) read();
    model.Push({2});  // saves the record of the cut
    model.Erase({1, 2});
    model.Push({1, 2, 4});
    model.Erase({4});  // younger than the cut
    model.Push({5});
    if (!read_before) read();
    const auto shard = model.Restored(image);
    EXPECT_TRUE(ErasureModel::Contents(shard.get()) == wanted);
  }
  EXPECT_TRUE(ErasureModel::Contents(model.shard()) == model.rows());
}

TEST(SparseShardErasureTest, FactsNameTheRowsThatAreGone) {
  ErasureModel model;
  model.Push({1, 2, 3});
  model.Erase({3, 7});
  model.Push({1});
  model.Erase({1});
  ShardFacts facts;
  model.shard()->BeginCut({/*state=*/true}, &facts);
  EXPECT_EQ(facts.turnover().deleted(), 2u);
  ASSERT_EQ(facts.tombstones_size(), 2);
  EXPECT_EQ(facts.tombstones(0).key(), 3u);
  EXPECT_EQ(facts.tombstones(0).schedule_step(), 0u);
  EXPECT_EQ(facts.tombstones(1).key(), 1u);
  EXPECT_EQ(facts.tombstones(1).schedule_step(), 1u);
  EXPECT_EQ(facts.tombstones_since(), 0u);
}

// A base, then what deltas say of random changes, is what the shard holds.
TEST(SparseShardErasureTest, DeltasSayWhatHasChangedSinceTheLastOne) {
  for (const uint32_t seed : {1u, 2u, 3u}) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    ErasureModel model;
    std::map<uint64_t, float> exported;
    uint64_t since = 0;
    for (int round = 0; round < 40; ++round) {
      for (int i = random() % 4; i > 0; --i) {
        std::set<uint64_t> keys;
        while (keys.size() < 3) keys.insert(random() % 25);
        const std::vector<uint64_t> chosen(keys.begin(), keys.end());
        // Also without any update since the cut before.
        random() % 3 == 0 ? model.Erase(chosen) : model.Push(chosen);
      }
      CutOptions options;
      options.since = since;
      ShardFacts facts;
      const auto cut = model.shard()->BeginCut(options, &facts);
      ErasureModel::Map wanted = model.rows();
      if (round % 2 == 0) {  // while it is read
        model.Push({1, 2, 30});
        model.Erase({3});
      }
      ShardFileHeader header;
      std::string piece;
      size_t rows = 0;
      std::map<uint64_t, float> delta;
      for (bool first = true; *cut->Next(&piece); first = false) {
        if (first) {
          ASSERT_TRUE(
              header.ParseFromArray(piece.data() + 12, static_cast<int>(piece.size()) - 12));
          continue;
        }
        if (rows == header.rows()) continue;  // the index
        for (size_t at = 0; at < piece.size(); at += 12, ++rows) {
          uint64_t key;
          std::memcpy(&key, &piece[at], sizeof(key));
          std::memcpy(&delta[key], &piece[at + 8], sizeof(float));
        }
      }
      EXPECT_EQ(header.rows(), delta.size());
      if (since == 0) exported.clear();
      for (const uint64_t key : header.gone()) {
        exported.erase(key);
        EXPECT_EQ(delta.count(key), 0u);
      }
      for (const auto& [key, weight] : delta) exported[key] = weight;
      ASSERT_EQ(exported.size(), wanted.size()) << "round " << round;
      for (const auto& [key, row] : wanted) EXPECT_EQ(exported[key], row.weight) << key;
      if (random() % 5 == 0) continue;  // it was given up
      since = facts.schedule_steps();
      model.shard()->DropTombstones(since);
    }
  }
}

TEST(SparseShardErasureTest, ADeltaThatCannotNameAllFails) {
  ErasureModel model;
  model.Push({1, 2, 3});
  for (int i = 0; i < 5; ++i) model.Push({1});
  model.shard()->DropTombstones(5);
  CutOptions options;
  options.since = 3;
  std::string piece;
  EXPECT_EQ(model.shard()->BeginCut(options)->Next(&piece).status().code(),
            absl::StatusCode::kResourceExhausted);
  options.since = 5;
  EXPECT_TRUE(model.shard()->BeginCut(options)->Next(&piece).ok());
  // A base follows, and the least step of all shards may be before those of this one.
  model.shard()->DropTombstones(0);
  options.since = 3;
  EXPECT_TRUE(model.shard()->BeginCut(options)->Next(&piece).ok());
}

// Two shards share 5 rows: 3 and 2.
TEST(SparseShardLimitTest, AShardTakesItsShareOfMaxRowsAndNoMore) {
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  TableConfig* const table = tables.Add();
  table->set_name("e");
  table->set_kind(TableConfig::SPARSE);
  table->set_num_shards(2);
  table->set_max_rows(5);
  table->add_columns()->set_dim(1);
  table->mutable_columns(0)->mutable_optimizer()->mutable_sgd();
  const auto layout = (*CreateTableLayouts(tables, 1))[0];
  for (const uint32_t index : {0u, 1u}) {
    const uint64_t share = 3 - index;
    UpdatePolicy policy;
    const auto shard = MakeSparseShard(layout, index, policy);
    std::vector<uint64_t> keys;
    for (uint64_t key = 1; keys.size() < share + 1; ++key) {
      if (layout->ShardOf(key) == index) keys.push_back(key);
    }
    uint64_t sequence = 0;
    const auto push = [&](std::vector<uint64_t> of_push) {
      PushPart part;
      part.rows = static_cast<uint32_t>(of_push.size());
      part.values.assign(of_push.size(), 1.0f);
      part.keys = std::move(of_push);
      return shard->Apply({0, 1, ++sequence, 1.0}, &part).status;
    };
    for (uint64_t i = 0; i < share; ++i) EXPECT_EQ(push({keys[i]}), PART_OK);
    try {
      push(keys);  // all but the last are there
      ADD_FAILURE() << "a row beyond the share was taken";
    } catch (const NoRoom& full) {
      const std::string text = full.what();
      EXPECT_NE(text.find("'e'"), std::string::npos) << text;
      EXPECT_NE(text.find("max_rows, 5"), std::string::npos) << text;
      EXPECT_NE(text.find(absl::StrCat(share, " rows")), std::string::npos) << text;
    }
    EXPECT_EQ(shard->rows(), share);
    // Rows that are there are still updated and read.
    EXPECT_EQ(push({keys[0]}), PART_OK);
    // A load obeys the limit, too.
    const auto loaded = MakeSparseShard(layout, index, policy);
    const float weight = 1;
    const std::vector<const char*> weights(keys.size(), reinterpret_cast<const char*>(&weight));
    // Each of the threads that load names the limit.
    for (int thread = 0; thread < 2; ++thread)
      EXPECT_THROW(loaded->LoadRows(keys.data(), weights.data(), keys.size()), NoRoom);
    EXPECT_EQ(loaded->rows(), share);
  }
}

}  // namespace
}  // namespace sluice
