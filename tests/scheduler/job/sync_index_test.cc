#include "scheduler/job/sync_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Piece {
  uint32_t file;
  uint64_t begin, end, examples;
};

// Returns the report of a rank that sees files a0, a1, ... of these sizes.
IndexReport SyncIndexReport(const std::vector<uint64_t>& sizes, const std::vector<Piece>& pieces) {
  IndexReport report;
  for (size_t f = 0; f < sizes.size(); ++f) {
    SeenFile* const file = report.add_train_seen();
    file->set_path(absl::StrCat("a", f));
    file->set_bytes(sizes[f]);
  }
  for (const Piece& piece : pieces) {
    report.mutable_pieces()->add_file(piece.file);
    report.mutable_pieces()->add_begin(piece.begin);
    report.mutable_pieces()->add_end(piece.end);
    report.mutable_pieces()->add_examples(piece.examples);
  }
  return report;
}

// Merges reports of ranks that all see the first one's files, and returns the refusal.
absl::StatusOr<DataPieces> Merge(const std::vector<IndexReport>& reports) {
  return MergePieces(reports, reports[0].train_seen());
}

std::string Refused(const std::vector<IndexReport>& reports) {
  const auto merged = Merge(reports);
  EXPECT_EQ(merged.status().code(), absl::StatusCode::kFailedPrecondition) << merged.status();
  return std::string(merged.status().message());
}

TEST(SyncIndexTest, PiecesOfAllRanksMergeIntoOneSortedTable) {
  const auto merged = Merge({SyncIndexReport({20, 0, 9}, {{2, 0, 4, 5}, {2, 4, UINT64_MAX, 6}}),
                             SyncIndexReport({20, 0, 9}, {{0, 10, 20, 4}, {0, 0, 10, 3}})});
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_THAT(merged->file(), ElementsAre(0, 0, 2, 2));
  EXPECT_THAT(merged->begin(), ElementsAre(0, 10, 0, 4));
  EXPECT_THAT(merged->end(), ElementsAre(10, 20, 4, UINT64_MAX));
  EXPECT_THAT(merged->examples(), ElementsAre(3, 4, 5, 6));
  EXPECT_EQ(CountExamples(*merged), 18u);
}

TEST(SyncIndexTest, PiecesOfRowsEndWhereTheirFilesDoAndKeepTheirUnits) {
  IndexReport one = SyncIndexReport({7, 7}, {{0, 0, 4000, 4000}, {0, 4000, 9000, 5000}}),
              two = SyncIndexReport({7, 7}, {{1, 0, 10, 10}});
  for (const bool goes_on : {false, true}) one.mutable_pieces()->add_goes_on(goes_on);
  two.mutable_pieces()->add_goes_on(false);
  const auto merged = MergePieces({two, one}, one.train_seen(), /*rows=*/true);
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_THAT(merged->end(), ElementsAre(4000, 9000, 10));
  EXPECT_THAT(merged->goes_on(), ElementsAre(false, true, false));
  one.mutable_pieces()->set_begin(1, 4001);
  EXPECT_THAT(
      std::string(MergePieces({two, one}, one.train_seen(), /*rows=*/true).status().message()),
      AllOf(HasSubstr("a0"), HasSubstr("row 4000")));
  one.mutable_pieces()->add_goes_on(true);
  EXPECT_EQ(MergePieces({two, one}, one.train_seen(), /*rows=*/true).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(SyncIndexTest, GapsOverlapsAndMissingEndsAreRefusedWithFileAndRank) {
  const std::vector<uint64_t> sizes = {5, 20};
  const IndexReport first = SyncIndexReport(sizes, {{0, 0, 5, 1}, {1, 0, 10, 2}});
  EXPECT_THAT(Refused({first, SyncIndexReport(sizes, {{1, 12, 20, 2}})}),
              AllOf(HasSubstr("file a1"), HasSubstr("rank 1"), HasSubstr("byte 12")));
  EXPECT_THAT(Refused({first, SyncIndexReport(sizes, {{1, 9, 20, 2}})}),
              AllOf(HasSubstr("file a1"), HasSubstr("rank 1")));
  EXPECT_THAT(Refused({first, SyncIndexReport(sizes, {{1, 0, 10, 2}, {1, 10, 20, 2}})}),
              AllOf(HasSubstr("file a1"), HasSubstr("rank 1")));
  EXPECT_THAT(Refused({first, SyncIndexReport(sizes, {{1, 10, 18, 2}})}),
              AllOf(HasSubstr("file a1"), HasSubstr("rank 1"), HasSubstr("byte 18")));
  EXPECT_THAT(Refused({first, SyncIndexReport(sizes, {{1, 10, 10, 2}})}), HasSubstr("file a1"));
  EXPECT_THAT(Refused({SyncIndexReport(sizes, {{1, 0, 20, 2}})}), HasSubstr("file a0"));
  EXPECT_THAT(Refused({first, SyncIndexReport({5, 20, 7}, {{1, 10, 20, 2}, {2, 0, 7, 1}})}),
              AllOf(HasSubstr("file number 2"), HasSubstr("rank 1")));
}

TEST(SyncIndexTest, ColumnsOfDifferentLengthsAreRefused) {
  IndexReport report = SyncIndexReport({5}, {{0, 0, 5, 1}});
  report.mutable_pieces()->add_examples(3);
  EXPECT_EQ(Merge({report}).status().code(), absl::StatusCode::kInvalidArgument);
}

JobConfig SyncIndexConfig(uint32_t batch_size) {
  JobConfig config;
  config.mutable_train()->set_batch_size(batch_size);
  return config;
}

TEST(SyncIndexTest, GlobalBatchesRoundUpOrDown) {
  JobConfig config = SyncIndexConfig(10);
  EXPECT_EQ(*SyncSteps(config, 20, {70, 30}), 5u);
  EXPECT_EQ(*SyncSteps(config, 20, {0, 101}), 6u);
  // A resumed job may have another number of ranks.
  EXPECT_EQ(*SyncSteps(config, 50, {70, 31, 0}), 3u);
  config.mutable_data()->set_drop_last(true);
  EXPECT_EQ(*SyncSteps(config, 20, {19, 100}), 5u);
}

TEST(SyncIndexTest, PerRankFilesTakeTheLargestCount) {
  JobConfig config = SyncIndexConfig(10);
  config.mutable_data()->set_assignment(DataConfig::PER_RANK_FILES);
  EXPECT_EQ(*SyncSteps(config, 30, {0, 101, 10}), 11u);
  config.mutable_data()->set_drop_last(true);
  EXPECT_EQ(*SyncSteps(config, 30, {0, 101, 10}), 10u);
}

TEST(SyncIndexTest, MergedBatchesOfARankAreOneStep) {
  JobConfig config = SyncIndexConfig(10);
  config.mutable_data()->set_assignment(DataConfig::PER_RANK_FILES);
  config.mutable_strategy()->set_a_sync(false);
  config.mutable_strategy()->mutable_sync_configs()->set_gradient_merge_steps(4);
  EXPECT_EQ(*SyncSteps(config, 120, {0, 101, 10}), 3u);
  config.mutable_data()->set_drop_last(true);
  EXPECT_EQ(*SyncSteps(config, 120, {0, 101, 10}), 2u);
}

TEST(SyncIndexTest, WhenAllLinesAreBadTheFirstAreNamed) {
  BadLines bad;
  bad.count = 3;
  bad.first = {"a.csv:1: the label is \"x\""};
  const absl::Status status = NoExamples(bad);
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr("3 malformed lines"), HasSubstr(bad.first[0]),
                             HasSubstr("data.train_files")));
}

TEST(SyncIndexTest, NothingToTrainIsAnError) {
  EXPECT_FALSE(SyncSteps(SyncIndexConfig(10), 20, {0, 0}).ok());
  JobConfig config = SyncIndexConfig(10);
  config.mutable_data()->set_drop_last(true);
  EXPECT_THAT(std::string(SyncSteps(config, 20, {5, 5}).status().message()),
              testing::HasSubstr("drop_last"));
}

TEST(SyncIndexTest, MorePiecesThanAMessageCanHoldAreRefused) {
  std::vector<IndexReport> reports(2);
  for (int i = 0; i < kMaxDataPieces + 1; ++i) {
    DataPieces* const pieces = reports[i % 2].mutable_pieces();
    pieces->add_file(0);
    pieces->add_begin(i);
    pieces->add_end(i + 1);
    pieces->add_examples(1);
  }
  SeenFile* const file = reports[0].add_train_seen();
  file->set_path("a0");
  file->set_bytes(kMaxDataPieces + 1);
  EXPECT_THAT(Refused(reports), HasSubstr(absl::StrCat(kMaxDataPieces + 1, " pieces")));
  DataPieces* const last = reports[0].mutable_pieces();
  for (auto* column : {last->mutable_begin(), last->mutable_end(), last->mutable_examples()})
    column->RemoveLast();
  last->mutable_file()->RemoveLast();
  file->set_bytes(kMaxDataPieces);
  EXPECT_TRUE(Merge(reports).ok());
}

TEST(SyncIndexTest, CountsThatNoDataHasAreRefusedAndNeverWrap) {
  JobConfig config;
  config.mutable_train()->set_batch_size(2);
  for (const std::vector<uint64_t>& examples : {std::vector<uint64_t>{UINT64_MAX, 2},
                                                {kMaxExamples, 1},
                                                {uint64_t{1} << 63, uint64_t{1} << 63}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(SyncSteps(config, 4, examples).status()));
  }
  EXPECT_EQ(*SyncSteps(config, 4, {kMaxExamples - 1, 1}), kMaxExamples / 4);
  DataPieces pieces;
  pieces.add_examples(UINT64_MAX);
  pieces.add_examples(3);
  EXPECT_EQ(CountExamples(pieces), UINT64_MAX);
}

TEST(SyncIndexTest, SourcesMustAgreeOnTheSteps) {
  std::vector<IndexReport> ranks(2);
  ranks[0].set_examples(40);
  ranks[1].set_examples(40);
  EXPECT_EQ(*StepsOfSources(ranks), 40u);
  ranks[1].set_examples(39);
  EXPECT_EQ(StepsOfSources(ranks).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(StepsOfSources(ranks).status().message()),
              AllOf(HasSubstr("rank 1 has 39"), HasSubstr("epoch_steps")));
  ranks[1].set_examples(0);
  EXPECT_THAT(std::string(StepsOfSources(ranks).status().message()),
              AllOf(HasSubstr("rank 1 does not say"), HasSubstr("epoch_steps")));
  for (IndexReport& rank : ranks) rank.set_examples(kMaxExamples + 1);
  EXPECT_EQ(StepsOfSources(ranks).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice
