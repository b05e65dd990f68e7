#include "worker/data/lane_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "common/config/mode.h"
#include "tests/worker/numbered_data.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

class LaneBatchesTest : public ::testing::Test {
 protected:
  LaneBatchesTest() {
    context_.spec = &spec_;
    context_.mode = Mode::kSync;
    context_.model = &model_;
    context_.data = &data_;
    context_.stats = &stats_;
    context_.cancelled = &cancelled_;
    context_.log = [](const std::string&) {};
    DataConfig* data = spec_.mutable_config()->mutable_data();
    data->set_shuffle(true);
    data->set_shuffle_lanes(8);
    data->set_shuffle_window(30);
    data->set_max_bad_lines(1000000);
    spec_.mutable_config()->mutable_train()->set_seed(1);
  }
  DataConfig* data_config() { return spec_.mutable_config()->mutable_data(); }

  // Plain files with these numbers of lines, cut into pieces.
  void SetFiles(const std::vector<uint64_t>& sizes, uint64_t piece) {
    table_ = PieceTable();
    for (uint32_t f = 0; f < sizes.size(); ++f) {
      table_.files.push_back(std::to_string(f));
      for (uint64_t at = 0; at < sizes[f]; at += piece) {
        const uint64_t end = std::min(at + piece, sizes[f]);
        table_.pieces.push_back({f, at, end, end - at});
      }
    }
  }
  // The last piece of each file ends with its text, as those of compressed files.
  void Compress() {
    for (size_t i = 0; i < table_.pieces.size(); ++i) {
      const bool last = i + 1 == table_.pieces.size() || table_.pieces[i + 1].begin == 0;
      if (!last) continue;
      data_.text_end = table_.pieces[i].end;  // all have the same size
      table_.pieces[i].end = kTextEnd;
    }
  }
  uint64_t Lines() const {
    uint64_t lines = 0;
    for (const CountedPiece& piece : table_.pieces) lines += piece.lines;
    return lines;
  }

  struct Epoch {
    std::vector<Batch> batches;
    uint64_t dropped = 0;
    std::multiset<float> Labels() const {
      std::multiset<float> labels;
      for (const Batch& batch : batches) labels.insert(batch.label.begin(), batch.label.end());
      return labels;
    }
  };
  Epoch Train(uint32_t ranks, uint32_t rank, uint32_t batch_size, uint32_t epoch = 0) {
    spec_.set_worker_num(ranks);
    context_.rank = rank;
    spec_.mutable_config()->mutable_train()->set_batch_size(batch_size);
    const uint64_t steps =
        GlobalSteps(Lines(), StepExamples(spec_.config()) * ranks, data_config()->drop_last());
    LaneBatches source(context_, table_, epoch, steps);
    Epoch result;
    PreparedBatch prepared;
    while (FillNext(&source, &prepared)) result.batches.push_back(prepared.batch);
    EXPECT_EQ(result.batches.size(), steps);
    result.dropped = source.dropped();
    return result;
  }
  // The ranks' batches of each step, concatenated.
  Epoch TrainAll(uint32_t ranks, uint32_t batch_size) {
    Epoch all;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const Epoch own = Train(ranks, rank, batch_size);
      all.dropped += own.dropped;
      if (rank == 0) all.batches.resize(own.batches.size());
      for (size_t t = 0; t < own.batches.size(); ++t) {
        Batch& to = all.batches[t];
        if (rank == 0) {
          to.first_position = own.batches[t].first_position;
          to.chunk = own.batches[t].chunk;
        } else if (data_.bad_examples.empty()) {
          EXPECT_EQ(own.batches[t].first_position, to.n);
        }
        EXPECT_EQ(own.batches[t].chunk, to.chunk);
        for (size_t i = 0; i < own.batches[t].n; ++i) {
          EXPECT_TRUE(to.Append(own.batches[t], i, own.batches[t].example_id[i]).ok());
        }
      }
    }
    return all;
  }

  // An epoch of one rank from step `first_step` on, whose readers are `ahead` batches ahead.
  struct Run {
    std::vector<Batch> batches;      // those of the steps from first_step on
    std::vector<TrainReport> after;  // as of checkpoints after first_step, first_step + 1, ...
    TrainReport report;              // of the whole epoch
    uint64_t dropped = 0;
  };
  Run TrainFrom(uint64_t first_step, const TrainReport& so_far, uint64_t ahead,
                uint32_t epoch = 0) {
    WorkerStats stats("job", 0, 1000, nullptr);
    context_.stats = &stats;
    stats.BeginEpoch(epoch);
    if (first_step > 0) stats.StartFrom(so_far, first_step, /*steps_before=*/0);
    LaneBatches source(context_, table_, epoch, steps_, first_step);
    Run run;
    PreparedBatch prepared;
    bool more = true;
    for (uint64_t trained = first_step;;) {
      while (more && run.batches.size() + first_step < trained + 1 + ahead) {
        more = FillNext(&source, &prepared);
        if (more) run.batches.push_back(prepared.batch);
      }
      run.after.push_back(stats.ReportAfter(trained));
      if (trained == first_step + run.batches.size()) break;
      const Batch& batch = run.batches[trained++ - first_step];
      stats.AddStep(batch.n, 0.25 * batch.n, batch.n);
    }
    run.report = stats.EpochReport();
    run.dropped = source.dropped();
    context_.stats = &stats_;
    return run;
  }
  static std::string WithoutTimes(TrainReport report) {
    report.clear_stages();
    report.clear_first_bad_lines();  // the first ones read, in whatever order
    return report.ShortDebugString();
  }
  // Resumes after every step; the rest of the epoch must be the same.
  void ExpectResumesAnywhere(uint32_t ranks, uint32_t batch_size) {
    spec_.set_worker_num(ranks);
    spec_.mutable_config()->mutable_train()->set_batch_size(batch_size);
    steps_ = GlobalSteps(Lines(), uint64_t{batch_size} * ranks, data_config()->drop_last());
    for (context_.rank = 0; context_.rank < ranks; ++context_.rank) {
      const Run whole = TrainFrom(0, TrainReport(), 3);
      ASSERT_EQ(whole.batches.size(), steps_);
      for (uint64_t step = 0; step <= steps_; ++step) {
        SCOPED_TRACE(testing::Message() << "rank " << context_.rank << " of " << ranks << ", batch "
                                        << batch_size << ", step " << step);
        const Run rest = TrainFrom(step, whole.after[step], 2);
        ASSERT_EQ(rest.batches.size(), steps_ - step);
        for (size_t t = 0; t < rest.batches.size(); ++t) {
          const Batch &a = rest.batches[t], &b = whole.batches[step + t];
          ASSERT_EQ(a.label, b.label);
          ASSERT_EQ(a.example_id, b.example_id);
          ASSERT_EQ(a.first_position, b.first_position);
          ASSERT_EQ(a.chunk, b.chunk);
        }
        ASSERT_EQ(rest.dropped, whole.dropped);
        ASSERT_EQ(WithoutTimes(rest.report), WithoutTimes(whole.report));
        ASSERT_EQ(WithoutTimes(rest.after.back()), WithoutTimes(whole.after.back()));
      }
    }
  }

  SchemaModel model_;
  NumberedData data_;
  uint64_t steps_ = 0;  // of an epoch, for TrainFrom
  JobSpec spec_;
  WorkerStats stats_{"job", 0, 1000, nullptr};
  std::atomic<bool> cancelled_{false};
  JobContext context_;
  PieceTable table_;
};

TEST_F(LaneBatchesTest, AnyNumberOfRanksTrainsTheBatchesOfOneWorker) {
  for (const uint64_t n : {0, 1, 5, 64, 103, 1000}) {
    SetFiles({n, n / 3, 17}, 13);
    for (const uint32_t b : {1, 5, 24}) {
      const Epoch one = TrainAll(1, 24 * b);
      for (const uint32_t ranks : {2u, 3u, 4u, 8u}) {
        SCOPED_TRACE(testing::Message() << n << " lines, batch " << b << ", ranks " << ranks);
        const Epoch all = TrainAll(ranks, 24 * b / ranks);
        ASSERT_EQ(all.batches.size(), one.batches.size());
        for (size_t t = 0; t < one.batches.size(); ++t) {
          EXPECT_EQ(all.batches[t].label, one.batches[t].label);
          EXPECT_EQ(all.batches[t].example_id, one.batches[t].example_id);
          EXPECT_EQ(all.batches[t].chunk, one.batches[t].chunk);
        }
      }
      const std::multiset<float> labels = one.Labels();
      EXPECT_EQ(labels.size(), Lines());
      EXPECT_EQ(std::set<float>(labels.begin(), labels.end()).size(), Lines());
    }
  }
}

TEST_F(LaneBatchesTest, EveryExampleIsTrainedOnceAtAnySize) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 100; ++i) {
    SCOPED_TRACE(i);
    const auto up_to = [&](uint64_t n) { return 1 + random() % n; };
    const bool compressed = i % 2 == 1;
    const uint64_t size = up_to(400);
    if (compressed) {
      SetFiles(std::vector<uint64_t>(up_to(4), size), up_to(50));
      Compress();
    } else {
      SetFiles({size, up_to(300), up_to(10)}, up_to(50));
    }
    data_config()->set_shuffle_lanes(up_to(20));
    data_config()->set_shuffle_window(up_to(60));
    data_config()->set_shuffle(i % 3 != 0);
    data_.bad_examples.clear();
    const uint64_t bad = i % 5 == 0 ? up_to(size) : 0;
    while (data_.bad_examples.size() < bad) data_.bad_examples.insert(random() % size);
    const uint32_t ranks = up_to(data_config()->shuffle_lanes());
    const std::multiset<float> labels = TrainAll(ranks, up_to(30)).Labels();
    EXPECT_EQ(labels.size(), Lines() - bad);
    EXPECT_EQ(std::set<float>(labels.begin(), labels.end()).size(), Lines() - bad);
    data_.text_end = UINT64_MAX;
  }
}

TEST_F(LaneBatchesTest, MalformedLinesAreCountedOnceOverRanksAndShiftNoOtherExample) {
  SetFiles({500, 300}, 40);
  const Epoch whole = TrainAll(2, 16);
  data_.bad_examples = {0, 1, 2, 77, 239, 100000, 100299};
  for (const uint32_t ranks : {1u, 2u, 4u}) {
    stats_.BeginEpoch(0);
    const Epoch holes = TrainAll(ranks, 32 / ranks);
    EXPECT_EQ(stats_.EpochReport().bad_lines(), 7u);
    EXPECT_EQ(stats_.EpochReport().first_bad_lines_size(), 1);
    ASSERT_EQ(holes.batches.size(), whole.batches.size());
    size_t shorter = 0;
    for (size_t t = 0; t < whole.batches.size(); ++t) {
      EXPECT_LE(holes.batches[t].n, whole.batches[t].n);
      shorter += whole.batches[t].n - holes.batches[t].n;
    }
    EXPECT_EQ(shorter, 7u);
    EXPECT_EQ(holes.Labels().size(), 793u);
  }
}

TEST_F(LaneBatchesTest, EachPieceOfTheFirstEpochIsSummarizedOnceOverRanks) {
  const OneExampleModel model;
  context_.model = &model;
  SetFiles({500, 300}, 40);
  for (const uint32_t ranks : {1u, 3u, 8u}) {
    WorkerStats stats("job", 0, 1000, nullptr);
    context_.stats = &stats;
    stats.BeginEpoch(0);
    TrainAll(ranks, 24 / ranks);
    EXPECT_EQ(stats.EpochReport().summary().examples(), table_.pieces.size());
    stats.BeginEpoch(1);
    TrainAll(ranks, 24 / ranks);
    EXPECT_FALSE(stats.EpochReport().has_summary());
  }
}

TEST_F(LaneBatchesTest, DataWithOnlyMalformedLinesGivesEmptyBatches) {
  SetFiles({100}, 10);
  for (uint64_t i = 0; i < 100; ++i) data_.bad_examples.insert(i);
  stats_.BeginEpoch(0);
  const Epoch none = TrainAll(2, 5);
  EXPECT_EQ(none.batches.size(), 10u);
  EXPECT_TRUE(none.Labels().empty());
  EXPECT_EQ(stats_.EpochReport().bad_lines(), 100u);
}

TEST_F(LaneBatchesTest, RefusesMoreMalformedLinesThanAllowed) {
  SetFiles({100}, 10);
  data_config()->set_max_bad_lines(2);
  data_.bad_examples = {5, 50, 95};
  spec_.set_worker_num(1);
  spec_.mutable_config()->mutable_train()->set_batch_size(10);
  LaneBatches source(context_, table_, 0, 10);
  absl::Status status;
  for (int i = 0; i < 10 && status.ok(); ++i) status = source.Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("max_bad_lines = 2"));
}

TEST_F(LaneBatchesTest, RefusesAPieceWhoseNumberOfLinesChanged) {
  SetFiles({100}, 10);
  table_.pieces[3].lines = 9;
  spec_.set_worker_num(1);
  spec_.mutable_config()->mutable_train()->set_batch_size(100);
  LaneBatches source(context_, table_, 0, 1);
  const auto fill = source.Next();
  EXPECT_EQ(fill.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(fill.status().message()), HasSubstr("data file 0"));
}

TEST_F(LaneBatchesTest, DropLastSkipsTheShortGlobalBatchAndRanksCountItOnce) {
  data_config()->set_drop_last(true);
  SetFiles({21}, 4);
  for (const uint32_t ranks : {1u, 2u, 4u}) {
    const Epoch all = TrainAll(ranks, 8 / ranks);
    EXPECT_EQ(all.batches.size(), 2u);
    EXPECT_EQ(all.Labels().size(), 16u);
    EXPECT_EQ(all.dropped, 5u);
  }
  data_.bad_examples = {3, 9, 20};
  stats_.BeginEpoch(0);
  const Epoch holes = TrainAll(2, 4);
  EXPECT_EQ(holes.Labels().size() + holes.dropped, 18u);
  EXPECT_EQ(stats_.EpochReport().bad_lines(), 3u);
}

TEST_F(LaneBatchesTest, PerRankFilesGiveEmptyBatchesToARankWithoutMoreData) {
  data_config()->set_assignment(DataConfig::PER_RANK_FILES);
  SetFiles({5}, 2);
  spec_.set_worker_num(20);  // more than lanes
  context_.rank = 13;
  spec_.mutable_config()->mutable_train()->set_batch_size(4);
  LaneBatches source(context_, table_, 0, 4);
  PreparedBatch prepared;
  std::vector<size_t> sizes;
  while (FillNext(&source, &prepared)) sizes.push_back(prepared.batch.n);
  EXPECT_THAT(sizes, testing::ElementsAre(4, 1, 0, 0));
}

TEST_F(LaneBatchesTest, EpochsHaveDifferentOrdersAndNoShuffleKeepsFileOrder) {
  SetFiles({64}, 8);
  EXPECT_NE(Train(1, 0, 64, 0).batches[0].label, Train(1, 0, 64, 1).batches[0].label);
  EXPECT_EQ(Train(1, 0, 64, 1).batches[0].label, Train(1, 0, 64, 1).batches[0].label);
  data_config()->set_shuffle(false);
  data_config()->set_shuffle_lanes(1);
  const std::vector<Batch> batches = Train(1, 0, 4).batches;
  for (size_t t = 0; t < 16; ++t) {
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(batches[t].label[i], 4 * t + i);
  }
}

TEST_F(LaneBatchesTest, WindowsMixTheirExamples) {
  data_config()->set_shuffle_lanes(1);
  data_config()->set_shuffle_window(1000);
  SetFiles({1000}, 1000);
  const std::vector<float> labels = Train(1, 0, 1000).batches[0].label;
  size_t ascents = 0;
  for (size_t i = 1; i < labels.size(); ++i) ascents += labels[i] == labels[i - 1] + 1 ? 1 : 0;
  EXPECT_LT(ascents, 20u);
}

// A rank's memory is that of the pieces that it holds; each has its own buffer.
TEST_F(LaneBatchesTest, WindowsBoundTheMemoryForAnySizeOfData) {
  data_config()->set_shuffle_lanes(4);
  data_config()->set_shuffle_window(100);
  for (const uint64_t lines : {10000, 80000}) {
    SetFiles({lines}, 20);
    for (const uint32_t ranks : {1u, 4u}) {
      data_.buffers.clear();
      data_.reads.clear();
      Train(ranks, 0, 32 / ranks);
      EXPECT_GE(data_.reads.size(), lines / 20 / ranks);
      // Each lane has a window of at most 7 pieces, and one lane has two windows for a moment. The
      // reader also holds the last piece.
      EXPECT_LE(data_.buffers.size(), (4 / ranks + 1) * 7 + 1);
    }
  }
}

TEST_F(LaneBatchesTest, ReadingRunsAheadOfTrainingByWindowsOnly) {
  data_config()->set_shuffle_lanes(4);
  data_config()->set_shuffle_window(100);
  SetFiles({40000}, 20);
  spec_.set_worker_num(1);
  spec_.mutable_config()->mutable_train()->set_batch_size(32);
  LaneBatches source(context_, table_, 0, 1250);
  PreparedBatch prepared;
  uint64_t most_at_once = 0, read = 0, trained = 0;
  while (FillNext(&source, &prepared)) {
    trained += prepared.batch.n;
    const uint64_t now = data_.reads.size() * 20;
    if (trained > 32) most_at_once = std::max(most_at_once, now - read);
    read = now;
    ASSERT_LE(read, trained + 4 * (100 + 20));
  }
  EXPECT_EQ(trained, 40000u);
  // One lane at a time reads its next window.
  EXPECT_LE(most_at_once, 100u + 40u);
}

TEST_F(LaneBatchesTest, RankReadsEachPieceOnceAndCompressedFilesInOrder) {
  SetFiles(std::vector<uint64_t>(3, 3000), 20);
  Compress();
  std::map<std::pair<std::string, uint64_t>, int> readers;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    data_.reads.clear();
    Train(2, rank, 16);
    std::map<std::string, uint64_t> last;
    for (const auto& [file, begin] : data_.reads) {
      EXPECT_TRUE(last.count(file) == 0 || last[file] < begin) << file;
      last[file] = begin;
      ++readers[{file, begin}];
    }
  }
  EXPECT_EQ(readers.size(), 450u);
  int twice = 0;
  for (const auto& [piece, n] : readers) twice += n > 1 ? 1 : 0;
  EXPECT_LE(twice, 4);
}

TEST_F(LaneBatchesTest, EpochResumedAfterAnyStepIsTheRestOfTheWholeOne) {
  const OneExampleModel model;
  context_.model = &model;
  for (const bool compressed : {false, true}) {
    for (const bool drop_last : {false, true}) {
      for (const bool malformed : {false, true}) {
        SCOPED_TRACE(testing::Message() << "compressed " << compressed << ", drop_last "
                                        << drop_last << ", malformed " << malformed);
        data_.text_end = UINT64_MAX;
        if (compressed) {
          SetFiles({170, 170, 170}, 13);
          Compress();
        } else {
          SetFiles({400, 3, 110}, 13);
        }
        data_config()->set_drop_last(drop_last);
        data_.bad_examples.clear();
        if (malformed) data_.bad_examples = {0, 5, 12, 13, 77, 100002, 150, 200050, 399};
        ExpectResumesAnywhere(1, 40);
        ExpectResumesAnywhere(2, 20);
        ExpectResumesAnywhere(5, 7);
      }
    }
  }
}

TEST_F(LaneBatchesTest, RandomEpochsCanBeResumed) {
  const OneExampleModel model;
  context_.model = &model;
  std::mt19937_64 random(5);
  const auto up_to = [&](uint64_t n) { return 1 + random() % n; };
  for (int i = 0; i < 40; ++i) {
    SCOPED_TRACE(i);
    SetFiles({up_to(300), up_to(100)}, up_to(60));
    data_config()->set_shuffle_lanes(up_to(12));
    data_config()->set_shuffle_window(up_to(50));
    data_config()->set_shuffle(i % 4 != 0);
    data_config()->set_drop_last(i % 3 == 0);
    data_.bad_examples = {random() % 300, random() % 300, 100000 + random() % 100};
    ExpectResumesAnywhere(up_to(data_config()->shuffle_lanes()), up_to(30));
    if (HasFatalFailure()) return;
  }
}

TEST_F(LaneBatchesTest, RanksWithoutLinesAndRanksWithOwnFilesCanBeResumed) {
  data_config()->set_shuffle_lanes(8);
  SetFiles({5}, 2);  // most ranks have nothing
  ExpectResumesAnywhere(5, 1);
  data_config()->set_assignment(DataConfig::PER_RANK_FILES);
  SetFiles({90}, 7);
  spec_.set_worker_num(5);
  spec_.mutable_config()->mutable_train()->set_batch_size(4);
  context_.rank = 3;
  steps_ = 30;  // another rank has more data
  const Run whole = TrainFrom(0, TrainReport(), 0);
  ASSERT_EQ(whole.batches.size(), 30u);
  for (uint64_t step = 1; step <= 30; ++step) {
    const Run rest = TrainFrom(step, whole.after[step], 0);
    ASSERT_EQ(rest.batches.size(), 30 - step);
    for (size_t t = 0; t < rest.batches.size(); ++t)
      ASSERT_EQ(rest.batches[t].example_id, whole.batches[step + t].example_id);
  }
}

TEST_F(LaneBatchesTest, ResumedEpochReadsOneWindowPerLaneAndCompressedFilesInOrder) {
  data_config()->set_shuffle_lanes(4);
  data_config()->set_shuffle_window(100);
  SetFiles({20000}, 20);
  Compress();
  spec_.set_worker_num(1);
  spec_.mutable_config()->mutable_train()->set_batch_size(32);
  LaneBatches source(context_, table_, 0, 625, /*first_step=*/500);
  PreparedBatch prepared;
  ASSERT_TRUE(FillNext(&source, &prepared));
  EXPECT_LE(data_.reads.size(), 4u * (100 / 20 + 2));
  while (FillNext(&source, &prepared)) continue;
  for (size_t i = 1; i < data_.reads.size(); ++i)
    ASSERT_LT(data_.reads[i - 1].second, data_.reads[i].second);
}

TEST_F(LaneBatchesTest, AStepHasTheMergedBatchesOfOneLargerBatch) {
  SetFiles({500, 300}, 13);
  const Epoch large = TrainAll(3, 32);
  StrategyConfig* const strategy = spec_.mutable_config()->mutable_strategy();
  strategy->set_a_sync(false);
  strategy->mutable_sync_configs()->set_gradient_merge_steps(4);
  const Epoch merged = TrainAll(3, 8);
  ASSERT_EQ(merged.batches.size(), large.batches.size());
  for (size_t t = 0; t < large.batches.size(); ++t) {
    EXPECT_EQ(merged.batches[t].example_id, large.batches[t].example_id);
    EXPECT_EQ(merged.batches[t].chunk, large.batches[t].chunk);
  }
}

TEST_F(LaneBatchesTest, AnotherNumberOfRanksResumesAnEpochWithItsGlobalBatch) {
  SetFiles({500, 300}, 13);
  const Epoch whole = TrainAll(3, 16);
  spec_.set_global_batch(48);
  spec_.mutable_config()->mutable_train()->set_batch_size(16);
  for (const uint32_t ranks : {1u, 2u, 5u}) {
    spec_.set_worker_num(ranks);
    for (const uint64_t step : {0, 1, 7, 16}) {
      std::vector<Batch> batches(whole.batches.size() - step);
      for (context_.rank = 0; context_.rank < ranks; ++context_.rank) {
        LaneBatches source(context_, table_, 0, whole.batches.size(), step);
        PreparedBatch prepared;
        for (Batch& batch : batches) {
          ASSERT_TRUE(FillNext(&source, &prepared));
          EXPECT_EQ(prepared.batch.chunk, whole.batches[0].chunk);
          for (size_t i = 0; i < prepared.batch.n; ++i)
            ASSERT_TRUE(batch.Append(prepared.batch, i, prepared.batch.example_id[i]).ok());
        }
        EXPECT_FALSE(FillNext(&source, &prepared));
      }
      for (size_t t = 0; t < batches.size(); ++t)
        EXPECT_EQ(batches[t].example_id, whole.batches[step + t].example_id);
    }
  }
}

TEST_F(LaneBatchesTest, FillsMayRunLateAndInAnyOrder) {
  SetFiles({300}, 7);
  const Epoch in_order = Train(1, 0, 16);
  LaneBatches source(context_, table_, 0, in_order.batches.size());
  std::vector<BatchSource::Fill> fills;
  for (;;) {
    const auto fill = source.Next();
    ASSERT_TRUE(fill.ok());
    if (!*fill) break;
    fills.push_back(*fill);
  }
  for (size_t t = fills.size(); t-- > 0;) {
    PreparedBatch prepared;
    ASSERT_TRUE(fills[t](&prepared).ok());
    EXPECT_EQ(prepared.batch.label, in_order.batches[t].label);
  }
}

TEST_F(LaneBatchesTest, CancelledJobReadsNoMore) {
  SetFiles({300}, 7);
  Train(1, 0, 16);
  LaneBatches source(context_, table_, 0, 10);
  cancelled_ = true;
  EXPECT_EQ(source.Next().status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace sluice
