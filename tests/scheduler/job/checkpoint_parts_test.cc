#include "scheduler/job/checkpoint_parts.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

RankPosition Held(uint64_t sequence, uint64_t task_end) {
  RankPosition held;
  held.set_incarnation(1);
  held.set_sequence(sequence);
  held.set_task_id(1);
  held.set_task_end(task_end);
  return held;
}

HostedCut Writing(uint64_t bytes, std::vector<RankPosition> least = {}) {
  HostedCut cut;
  cut.set_state(HostedCut::WRITING);
  cut.set_written_bytes(bytes);
  for (RankPosition& held : least) *cut.add_least() = std::move(held);
  return cut;
}

HostedCut Written(const std::string& file, uint64_t bytes = 10) {
  HostedCut cut;
  cut.set_state(HostedCut::WRITTEN);
  cut.set_written_bytes(bytes);
  cut.add_files()->set_name(file);
  return cut;
}

WorkerCut CutOfWorker(uint32_t rank, uint64_t examples = 0) {
  WorkerCut cut;
  cut.set_rank(rank);
  cut.set_step(rank + 4);
  cut.mutable_state()->mutable_train()->set_examples(examples);
  return cut;
}

WorkerCut GeoWorker(uint32_t rank, bool parked) {
  WorkerCut cut = CutOfWorker(rank);
  cut.set_parked(parked);
  cut.mutable_state()->mutable_file()->set_name(absl::StrCat("worker-", rank));
  return cut;
}

CheckpointParts TwoAndTwo(Mode mode) {
  return CheckpointParts(mode, /*worker_num=*/2, /*pserver_num=*/2, /*without_shards=*/{});
}

std::vector<std::string> FilesOf(const Manifest& manifest) {
  std::vector<std::string> names;
  for (const SavedFile& file : manifest.files()) names.push_back(file.name());
  return names;
}

TEST(CheckpointPartsTest, OnlyNewsIsProgress) {
  CheckpointParts parts = TwoAndTwo(Mode::kSync);
  EXPECT_TRUE(parts.TakeHosted(0, Writing(5)));
  EXPECT_FALSE(parts.TakeHosted(0, Writing(5))) << "repeated";
  EXPECT_FALSE(parts.TakeHosted(0, Writing(4))) << "overtaken";
  EXPECT_TRUE(parts.TakeHosted(0, Writing(6)));
  EXPECT_TRUE(parts.TakeHosted(0, Written("a", 6)));
  EXPECT_FALSE(parts.TakeHosted(0, Writing(7))) << "overtaken by the end";
  EXPECT_TRUE(parts.Written(0));
  EXPECT_TRUE(parts.TakeWorker(CutOfWorker(1)));
  EXPECT_FALSE(parts.TakeWorker(CutOfWorker(1)));
}

TEST(CheckpointPartsTest, AllRanksAnswerAndAllCutsBegin) {
  CheckpointParts parts = TwoAndTwo(Mode::kAsync);
  parts.TakeWorker(CutOfWorker(1));
  EXPECT_FALSE(parts.AllRanksAnswered());
  parts.TakeWorker(CutOfWorker(0));
  EXPECT_TRUE(parts.AllRanksAnswered());
  parts.TakeHosted(0, Writing(0));
  EXPECT_FALSE(parts.AllCutsBegun());
  parts.TakeHosted(1, Written("b"));
  EXPECT_TRUE(parts.AllCutsBegun());
  EXPECT_FALSE(parts.Complete());
  parts.TakeHosted(0, Written("a"));
  EXPECT_TRUE(parts.Complete());
}

TEST(CheckpointPartsTest, PserversWithoutShardsMakeNoPart) {
  CheckpointParts parts(Mode::kSync, /*worker_num=*/1, /*pserver_num=*/3,
                        /*without_shards=*/{0, 2});
  EXPECT_FALSE(parts.AllCutsBegun());
  EXPECT_EQ(parts.Missing(/*of_pservers=*/true), "pserver 1, rank 0");
  parts.TakeWorker(CutOfWorker(0));
  EXPECT_FALSE(parts.Complete());
  parts.TakeHosted(1, Written("b"));
  EXPECT_TRUE(parts.Complete());
}

TEST(CheckpointPartsTest, ALostRankNeedsNoReport) {
  CheckpointParts parts(Mode::kSync, /*worker_num=*/2, /*pserver_num=*/0, /*without_shards=*/{});
  WorkerState lost;
  lost.mutable_train()->set_examples(77);
  parts.TakeLost(1, lost);
  EXPECT_FALSE(parts.TakeWorker(CutOfWorker(1, 5)));
  EXPECT_FALSE(parts.Complete());
  parts.TakeWorker(CutOfWorker(0, 10));
  ASSERT_TRUE(parts.Complete());
  Manifest manifest;
  parts.MoveTo(&manifest);
  EXPECT_EQ(manifest.checkpoint().workers(1).train().examples(), 77u);
}

TEST(CheckpointPartsTest, AGeoRankIsCompleteWhenItHasConfirmedItsRelease) {
  CheckpointParts parts = TwoAndTwo(Mode::kGeo);
  for (const uint32_t pserver : {0, 1}) parts.TakeHosted(pserver, Written("a"));
  EXPECT_TRUE(parts.TakeWorker(GeoWorker(0, /*parked=*/true)));
  EXPECT_FALSE(parts.RankComplete(0));
  EXPECT_TRUE(parts.TakeWorker(GeoWorker(0, /*parked=*/false)));
  EXPECT_FALSE(parts.TakeWorker(GeoWorker(0, /*parked=*/false)));
  EXPECT_TRUE(parts.RankComplete(0));
  EXPECT_FALSE(parts.Complete());
  // Its first report was overtaken.
  EXPECT_TRUE(parts.TakeWorker(GeoWorker(1, /*parked=*/false)));
  EXPECT_FALSE(parts.TakeWorker(GeoWorker(1, /*parked=*/true)));
  EXPECT_TRUE(parts.RankComplete(1));
  EXPECT_TRUE(parts.Complete());
}

TEST(CheckpointPartsTest, OnlyGeoRanksConfirmARelease) {
  for (const Mode mode : {Mode::kSync, Mode::kAsync}) {
    CheckpointParts parts = TwoAndTwo(mode);
    EXPECT_FALSE(parts.RankComplete(0));
    parts.TakeWorker(CutOfWorker(0));
    EXPECT_TRUE(parts.RankComplete(0));
  }
}

TEST(CheckpointPartsTest, MissingMembersAreNamed) {
  CheckpointParts parts = TwoAndTwo(Mode::kGeo);
  parts.TakeWorker(GeoWorker(1, /*parked=*/true));
  EXPECT_EQ(parts.Missing(/*of_pservers=*/false), "rank 0");
  parts.TakeWorker(GeoWorker(0, /*parked=*/true));
  EXPECT_EQ(parts.Missing(/*of_pservers=*/true), "pserver 0, pserver 1") << "parked ranks wait";
  parts.TakeHosted(0, Writing(0));
  parts.TakeHosted(1, Written("b"));
  EXPECT_EQ(parts.Missing(/*of_pservers=*/true), "pserver 0, rank 0, rank 1");
  parts.TakeWorker(GeoWorker(0, /*parked=*/false));
  EXPECT_EQ(parts.Missing(/*of_pservers=*/true), "pserver 0, rank 1");
}

TEST(CheckpointPartsTest, AtMostEightMissingMembersAreNamed) {
  CheckpointParts parts(Mode::kSync, /*worker_num=*/20, /*pserver_num=*/0, /*without_shards=*/{});
  EXPECT_THAT(parts.Missing(/*of_pservers=*/true),
              testing::AllOf(HasSubstr("rank 7"), Not(HasSubstr("rank 8")), HasSubstr("12")));
}

TEST(CheckpointPartsTest, ARankIsWhereTheSlowestPserverHoldsIt) {
  CheckpointParts parts = TwoAndTwo(Mode::kAsync);
  for (const uint32_t rank : {0, 1}) parts.TakeWorker(CutOfWorker(rank, 10 * rank));
  parts.TakeHosted(0, Writing(0, {Held(5, 30), Held(8, 10)}));
  parts.TakeHosted(1, Writing(0, {Held(6, 40), Held(7, 5)}));
  const auto ranks = parts.RankParts();
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  ASSERT_EQ(ranks->size(), 2u);
  EXPECT_EQ((*ranks)[0].held.task_end(), 30u);
  EXPECT_EQ((*ranks)[1].held.task_end(), 5u);
  EXPECT_EQ((*ranks)[0].tasks, 4u);
  EXPECT_EQ((*ranks)[1].tasks, 5u);
  EXPECT_EQ((*ranks)[1].state.train().examples(), 10u);
}

TEST(CheckpointPartsTest, APserverThatHoldsNothingOfARankIsBehindAllOthers) {
  for (const uint32_t empty : {0, 1}) {
    CheckpointParts parts(Mode::kAsync, /*worker_num=*/1, /*pserver_num=*/2, /*without_shards=*/{});
    parts.TakeWorker(CutOfWorker(0));
    parts.TakeHosted(empty, Writing(0, {RankPosition()}));
    parts.TakeHosted(1 - empty, Writing(0, {Held(3, 9)}));
    const auto ranks = parts.RankParts();
    ASSERT_TRUE(ranks.ok()) << ranks.status();
    EXPECT_EQ(ranks->front().held.sequence(), 0u) << empty;
  }
}

TEST(CheckpointPartsTest, PserversThatContradictEachOtherAreInternalErrors) {
  for (const Mode mode : {Mode::kAsync, Mode::kGeo}) {
    CheckpointParts parts = TwoAndTwo(mode);
    for (const uint32_t rank : {0, 1}) parts.TakeWorker(GeoWorker(rank, /*parked=*/true));
    parts.TakeHosted(0, Writing(0, {Held(2, 5), Held(3, 5)}));
    parts.TakeHosted(1, Writing(0, {Held(2, 5), Held(4, 9)}));
    EXPECT_EQ(parts.RankParts().status().code(),
              mode == Mode::kGeo ? absl::StatusCode::kInternal : absl::StatusCode::kOk);
    // More bytes replace what the pserver said before.
    parts.TakeHosted(1, Writing(1, {Held(2, 5)}));
    EXPECT_EQ(parts.RankParts().status().code(), absl::StatusCode::kInternal);
    parts.TakeHosted(1, Writing(2));
    EXPECT_TRUE(parts.RankParts().ok()) << "a pserver without positions holds everything";
  }
}

TEST(CheckpointPartsTest, TheManifestHasAllFilesAndInSyncTheStatesOfTheRanks) {
  for (const Mode mode : {Mode::kSync, Mode::kGeo}) {
    CheckpointParts parts = TwoAndTwo(mode);
    parts.TakeHosted(0, Writing(3));
    parts.TakeHosted(1, Written("b", 7));
    EXPECT_EQ(parts.written_bytes(), 10u);
    parts.TakeHosted(0, Written("a", 5));
    EXPECT_EQ(parts.written_bytes(), 12u);
    parts.TakeWorker(CutOfWorker(0, 10));
    parts.TakeWorker(GeoWorker(1, /*parked=*/false));
    ASSERT_TRUE(parts.Complete());
    Manifest manifest;
    parts.MoveTo(&manifest);
    EXPECT_THAT(FilesOf(manifest), ElementsAre("worker-1", "a", "b"));
    if (mode == Mode::kSync) {
      ASSERT_EQ(manifest.checkpoint().workers_size(), 2);
      EXPECT_EQ(manifest.checkpoint().workers(0).train().examples(), 10u);
      EXPECT_EQ(manifest.checkpoint().workers(1).file().name(), "worker-1");
    } else {
      EXPECT_EQ(manifest.checkpoint().workers_size(), 0);
    }
  }
}

}  // namespace
}  // namespace sluice
