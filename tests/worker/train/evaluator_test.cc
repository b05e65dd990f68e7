#include "worker/train/evaluator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/model/data/files_for_test.h"
#include "tests/worker/fakes.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

// "Text" of 5 lines of one byte. Line i has key 10 + i in slot 0, i in slot 1, and 10 in slot 2.
class KeyedData : public DataSource {
 public:
  KeyedData() : DataSource(Env::Real()) {}
  absl::StatusOr<uint64_t> TextBytes(const std::string&) const override { return 5; }
  absl::StatusOr<std::vector<uint64_t>> CountLines(const std::string&, uint64_t, uint64_t,
                                                   uint64_t) const override {
    return absl::UnimplementedError("evaluation counts no lines");
  }
  absl::Status ReadPiece(const std::string&, uint64_t begin, uint64_t end, bool, Batch* examples,
                         BadLines*) const override {
    for (uint64_t i = begin; i < std::min<uint64_t>(end, 5); ++i)
      AppendKeys({{10 + i}, {i}, {10}}, examples);
    return absl::OkStatus();
  }
};

TEST(EvaluatorTest, EachBatchIsScoredOnTheRowsOfItsSparseTables) {
  const TempFolder folder;
  JobConfig job;
  job.mutable_data()->add_eval_files(folder.Write("eval", "12345"));
  JobSpec spec;
  *spec.mutable_config() = job;
  spec.mutable_config()->mutable_eval()->set_batch_size(2);
  spec.set_worker_num(1);
  const TwoTablesModel model;
  FakeClient client(model, 1.0f);
  for (uint64_t i = 0; i < 5; ++i) {
    client.rows[i] = static_cast<float>(i);
    client.more_rows[2][10 + i] = static_cast<float>(100 * i);
  }
  PserverDenseTables dense(&model);
  OnesNet net({1, kWideDim});
  net.sums = {{"interrupted", 1, 1}};  // by an evaluation that has not ended
  const KeyedData data;
  WorkerStats stats("job", 0, 1000, nullptr);
  std::atomic<bool> cancelled{false};
  JobContext context;
  context.spec = &spec;
  context.model = &model;
  context.client = &client;
  context.dense = &dense;
  context.net = &net;
  context.data = &data;
  context.stats = &stats;
  context.cancelled = &cancelled;
  const auto files = DataFiles::See(job, Env::Real());
  ASSERT_TRUE(files.ok()) << files.status();
  context.files = *files;

  Evaluator evaluator(context);
  DataSummary summary;
  const absl::StatusOr<EvalSums> sums = evaluator.Run(&summary);
  ASSERT_TRUE(sums.ok()) << sums.status();
  EXPECT_EQ(sums->examples(), 5u);
  ASSERT_EQ(sums->user_size(), 3);  // this net's, one by batch
  EXPECT_EQ(sums->user(2).name(), "examples");
  EXPECT_EQ(sums->user(2).sum(), 1);
  EXPECT_EQ(sums->user(2).weight(), 1);
  EXPECT_EQ(sums->user(0).sum(), 2);
  // Batches of 2, 2 and 1 examples: their unique keys, by shard.
  ASSERT_THAT(net.evaluated, SizeIs(3));
  EXPECT_THAT(net.evaluated[0][0], testing::UnorderedElementsAre(0, 1));
  EXPECT_THAT(net.evaluated[0][1], testing::UnorderedElementsAre(0, 0, 0, 100, 100, 100));
  EXPECT_THAT(net.evaluated[1][0], testing::UnorderedElementsAre(2, 3));
  EXPECT_THAT(net.evaluated[1][1],
              testing::UnorderedElementsAre(0, 0, 0, 200, 200, 200, 300, 300, 300));
  EXPECT_THAT(net.evaluated[2][0], ElementsAre(4));
  EXPECT_THAT(net.evaluated[2][1], testing::UnorderedElementsAre(0, 0, 0, 400, 400, 400));
}

}  // namespace
}  // namespace sluice
