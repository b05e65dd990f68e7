#include "common/saved_model/start_map.h"

#include <gmock/gmock.h>

#include <array>
#include <cstring>
#include <random>

#include "google/protobuf/text_format.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

TableConfig ParsedTable(const std::string& text) {
  TableConfig table;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &table)) << text;
  return table;
}

// "t" with these dimensions, which starts from "s" with these runs (from, to, count).
TableConfig StartingDense(const std::vector<uint64_t>& shape,
                          const std::vector<std::array<uint64_t, 3>>& runs = {}) {
  TableConfig table = ParsedTable("name: 't' kind: DENSE optimizer { adam {} }");
  for (const uint64_t n : shape) table.add_shape(n);
  table.mutable_start()->set_table("s");
  for (const auto& [from, to, count] : runs) {
    TableStart::Run* const run = table.mutable_start()->add_rows();
    run->set_from(from), run->set_to(to), run->set_count(count);
  }
  return table;
}

TableConfig SavedDense(const std::vector<uint64_t>& shape) {
  TableConfig table = StartingDense(shape);
  table.set_name("s");
  table.clear_start();
  return table;
}

std::shared_ptr<const StartMap> MapOf(const TableConfig& saved, const TableConfig& table) {
  const auto map = StartMap::Create(saved, table);
  EXPECT_TRUE(map.ok()) << map.status();
  return map.ok() ? *map : nullptr;
}

// The numbers of the saved elements in each element of the table, 1 more than the number; 0: none.
// Reads the saved table in pieces of `piece` elements.
std::vector<uint64_t> Moved(const StartMap& map, uint64_t saved, uint64_t elements,
                            uint64_t piece) {
  std::vector<uint64_t> moved(elements);
  for (uint64_t first = 0; first < saved; first += piece) {
    const uint64_t count = std::min(piece, saved - first);
    map.ForEachRun(first, count, [&](uint64_t offset, uint64_t to, uint64_t n) {
      ASSERT_LE(offset + n, count);
      ASSERT_LE(to + n, elements);
      for (uint64_t i = 0; i < n; ++i) {
        EXPECT_EQ(moved[to + i], 0u) << "written twice";
        moved[to + i] = 1 + first + offset + i;
      }
    });
  }
  return moved;
}

TEST(StartMapTest, RowsGoWhereTheirFeaturesAreNow) {
  // Inputs a (2 rows), b (1), c (2) become c, new (1), a.
  const auto map = MapOf(SavedDense({5, 3}), StartingDense({5, 3}, {{3, 0, 2}, {0, 3, 2}}));
  const std::vector<uint64_t> wanted = {10, 11, 12, 13, 14, 15, 0, 0, 0, 1, 2, 3, 4, 5, 6};
  for (uint64_t piece = 1; piece <= 15; ++piece) EXPECT_EQ(Moved(*map, 15, 15, piece), wanted);
  EXPECT_EQ(map->counts().kept, 4u);
  EXPECT_EQ(map->counts().added, 1u);
  EXPECT_EQ(map->counts().dropped, 1u);
}

TEST(StartMapTest, LongerRowsBeginWithTheSavedOnes) {
  const auto map = MapOf(SavedDense({4, 2}), StartingDense({3, 3}, {{2, 0, 2}, {0, 2, 1}}));
  const std::vector<uint64_t> wanted = {5, 6, 0, 7, 8, 0, 1, 2, 0};
  for (uint64_t piece = 1; piece <= 8; ++piece) EXPECT_EQ(Moved(*map, 8, 9, piece), wanted);
}

TEST(StartMapTest, ATensorOfOneDimensionHasRowsOfOneElement) {
  const auto map = MapOf(SavedDense({3}), StartingDense({4}, {{1, 0, 2}}));
  EXPECT_EQ(Moved(*map, 3, 4, 2), (std::vector<uint64_t>{2, 3, 0, 0}));
}

TEST(StartMapTest, NothingNeedBeKept) {
  const auto map = MapOf(SavedDense({3, 2}), StartingDense({4, 2}));
  EXPECT_EQ(Moved(*map, 6, 8, 4), std::vector<uint64_t>(8));
  EXPECT_EQ(map->counts().dropped, 3u);
}

TEST(StartMapTest, RandomMovesAgreeWithMovingRowByRow) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const uint64_t width = 1 + random() % 4, wider = width + random() % 2 * (random() % 3);
    std::vector<uint64_t> sizes(1 + random() % 8);
    uint64_t rows = 0;
    for (uint64_t& size : sizes) rows += size = 1 + random() % 5;
    std::vector<size_t> order(sizes.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    std::vector<std::array<uint64_t, 3>> runs;
    uint64_t at = 0;
    for (const size_t i : order) {
      at += random() % 3;  // new rows
      if (random() % 4 == 0) continue;
      uint64_t from = 0;
      for (size_t before = 0; before < i; ++before) from += sizes[before];
      runs.push_back({from, at, sizes[i]});
      at += sizes[i];
    }
    const uint64_t now = at + 1;
    const auto map = MapOf(SavedDense({rows, width}), StartingDense({now, wider}, runs));
    std::vector<uint64_t> wanted(now * wider);
    for (const auto& [from, to, count] : runs) {
      for (uint64_t r = 0; r < count; ++r) {
        for (uint64_t c = 0; c < width; ++c)
          wanted[(to + r) * wider + c] = 1 + (from + r) * width + c;
      }
    }
    ASSERT_EQ(Moved(*map, rows * width, now * wider, 1 + random() % 7), wanted) << round;
  }
}

std::string StartRefusal(const TableConfig& saved, const TableConfig& table) {
  const absl::Status status = StartMap::Create(saved, table).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(StartMapTest, WhatDoesNotFitIsRefused) {
  EXPECT_THAT(StartRefusal(SavedDense({5, 3}), StartingDense({5, 2}, {{0, 0, 5}})),
              HasSubstr("5 x 3"));
  EXPECT_THAT(StartRefusal(SavedDense({5, 3}), StartingDense({15})), HasSubstr("15"));
  EXPECT_THAT(StartRefusal(SavedDense({2, 3, 4}), StartingDense({2, 4, 4})),
              HasSubstr("2 x 3 x 4"));
  const uint64_t huge = UINT64_MAX - 1;
  for (const std::array<uint64_t, 3>& run : std::vector<std::array<uint64_t, 3>>{
           {0, 0, 6}, {0, 1, 5}, {1, 0, 5}, {0, 6, 1}, {6, 0, 1}, {huge, 0, 3}, {0, huge, 3}})
    EXPECT_THAT(StartRefusal(SavedDense({5, 3}), StartingDense({5, 3}, {run})), HasSubstr("row"));
  EXPECT_THAT(StartRefusal(SavedDense({5, 3}), StartingDense({5, 3}, {{0, 0, 2}, {1, 2, 2}})),
              HasSubstr("twice"));
  EXPECT_THAT(StartRefusal(SavedDense({5, 3}), StartingDense({5, 3}, {{0, 0, 2}, {3, 1, 2}})),
              HasSubstr("overlap"));
  EXPECT_THAT(
      StartRefusal(ParsedTable("name: 's' kind: SPARSE num_shards: 1 columns { name: 'a' dim: 2 "
                               "optimizer { sgd {} } }"),
                   StartingDense({2})),
      HasSubstr("SPARSE"));
}

constexpr char kWideColumn[] = "columns { name: 'wide' dim: 1 optimizer { ftrl {} } } ";

TableConfig SavedSparse(const std::string& columns) {
  return ParsedTable("name: 's' kind: SPARSE num_shards: 2 " + columns);
}

std::string EmbeddingColumns(uint32_t dim, const std::string& rule = "adam {}") {
  return "columns { name: 'embedding' dim: " + std::to_string(dim) + " optimizer { " + rule +
         " } initializer { uniform { min: -1 max: 1 } } } ";
}

class StartMapColumnsTest : public testing::Test {
 protected:
  // Converts a saved row whose floats are 0.5, 1.5, ... and returns the table's, bit by bit equal
  // or not.
  std::vector<float> Convert(const TableConfig& saved, TableConfig table, bool state = true) {
    map_ = MapOf(saved, table);
    table.set_name("t");
    layout_ = *TableLayout::Create(0, table, 3);
    const TableLayout& from = *map_->saved_layout();
    std::string bytes = "x";  // unaligned
    for (uint32_t i = 0; i < from.dim() + (state ? from.state_floats() : 0); ++i) {
      const float value = static_cast<float>(i) + 0.5f;
      bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    std::vector<float> row(layout_->dim() + (state ? layout_->state_floats() : 0), -7.0f);
    map_->ConvertRow(*layout_, kKey, state, bytes.data() + 1, row.data());
    initial_.resize(layout_->dim());
    layout_->InitialRow(kKey, initial_.data());
    return row;
  }

  static constexpr uint64_t kKey = 0x123456789abcdef;
  std::shared_ptr<const StartMap> map_;
  std::shared_ptr<const TableLayout> layout_;
  std::vector<float> initial_;  // of the table's row
};

TEST_F(StartMapColumnsTest, AWidenedRowKeepsItsColumnsAndTheirState) {
  // Weights: wide 0.5, embedding 1.5 2.5. State: wide z 3.5, n 4.5; embedding m 5.5 6.5, v 7.5 8.5.
  const std::vector<float> row = Convert(SavedSparse(kWideColumn + EmbeddingColumns(2)),
                                         SavedSparse(kWideColumn + EmbeddingColumns(3)));
  EXPECT_EQ(row,
            (std::vector<float>{0.5, 1.5, 2.5, initial_[3], 3.5, 4.5, 5.5, 6.5, 0, 7.5, 8.5, 0}));
  EXPECT_NE(initial_[3], 0);
  EXPECT_EQ(map_->counts().kept, 3u);
  EXPECT_EQ(map_->counts().added, 1u);
  EXPECT_EQ(map_->counts().dropped, 0u);
}

TEST_F(StartMapColumnsTest, ATableWhoseShardsAreNotYetKnownMayHaveASketch) {
  TableConfig table = SavedSparse(EmbeddingColumns(3));
  table.clear_num_shards();
  table.mutable_admit()->set_after(3);  // a sketch of 64 MiB, more than one shard may have
  EXPECT_EQ(MapOf(SavedSparse(EmbeddingColumns(2)), table)->counts().kept, 2u);
}

TEST_F(StartMapColumnsTest, ValuesAloneNeedNoState) {
  const std::vector<float> row = Convert(SavedSparse(kWideColumn + EmbeddingColumns(2)),
                                         SavedSparse(kWideColumn + EmbeddingColumns(3)), false);
  EXPECT_EQ(row, (std::vector<float>{0.5, 1.5, 2.5, initial_[3]}));
}

TEST_F(StartMapColumnsTest, GroupsComeAndGoByName) {
  const std::vector<float> added =
      Convert(SavedSparse(EmbeddingColumns(2)), SavedSparse(kWideColumn + EmbeddingColumns(2)));
  EXPECT_EQ(added, (std::vector<float>{initial_[0], 0.5, 1.5, 0, 0, 2.5, 3.5, 4.5, 5.5}));
  const std::vector<float> gone =
      Convert(SavedSparse(kWideColumn + EmbeddingColumns(2)), SavedSparse(EmbeddingColumns(2)));
  EXPECT_EQ(gone, (std::vector<float>{1.5, 2.5, 5.5, 6.5, 7.5, 8.5}));
  EXPECT_EQ(map_->counts().dropped, 1u);
}

TEST_F(StartMapColumnsTest, StateOfAnotherRuleIsLeftOut) {
  // AdaGrad's sums begin at the initial_accumulator.
  const std::vector<float> row =
      Convert(SavedSparse(EmbeddingColumns(2)),
              SavedSparse(EmbeddingColumns(2, "adagrad { initial_accumulator: 0.25 }")));
  EXPECT_EQ(row, (std::vector<float>{0.5, 1.5, 0.25, 0.25}));
}

TEST_F(StartMapColumnsTest, NarrowerColumnsAreRefused) {
  EXPECT_THAT(StartRefusal(SavedSparse(EmbeddingColumns(3)), SavedSparse(EmbeddingColumns(2))),
              testing::AllOf(HasSubstr("'embedding'"), HasSubstr("2"), HasSubstr("3")));
}

TEST(StartOfTest, ATableStartsFromThatOfItsNameUnlessItsStartNamesAnother) {
  Manifest manifest;
  *manifest.add_tables() = SavedDense({2});
  TableConfig table = SavedDense({2});
  EXPECT_EQ(StartOf(manifest, table), &manifest.tables(0));
  table.set_name("other");
  EXPECT_EQ(StartOf(manifest, table), nullptr);
  table.mutable_start()->set_table("s");
  EXPECT_EQ(StartOf(manifest, table), &manifest.tables(0));
  table.set_name("s");
  table.mutable_start()->clear_table();
  EXPECT_EQ(StartOf(manifest, table), nullptr);
}

}  // namespace
}  // namespace sluice
