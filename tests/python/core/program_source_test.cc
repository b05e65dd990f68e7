// A thread of the test plays the program: it serves the requests, as the reader in Python does.
#include "python/core/program_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "common/config/job_config.h"
#include "google/protobuf/text_format.h"
#include "model/built_in_models.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

constexpr char kSourced[] = R"(
  name: "job"
  features { name: "item" key: RAW categorical {} }
  model { program { collections { name: "emb" dim: 4 features: "item" } } }
)";

// Gives batches of one example, whose key is its number, up to `batches`.
class Player {
 public:
  Player(SourceExchange* exchange, int64_t batches)
      : thread_([this, exchange, batches] {
          for (;;) {
            const auto request = exchange->Await(absl::Milliseconds(1));
            if (!request.ok()) return;
            if (!request->has_value()) continue;
            const SourceRequest& r = **request;
            requests.push_back(r);
            EXPECT_EQ(r.job->name(), "job");  // with what flags say, whatever is asked for
            if (r.kind == SourceRequest::kCount) {
              exchange->Counted(r.number, batches);
              continue;
            }
            bool wanted = true;
            for (auto i = static_cast<int64_t>(r.start); i < batches && wanted; ++i) {
              auto batch = std::make_shared<GivenBatch>();
              batch->n = 1;
              batch->values = {{{i}, {}}};
              wanted = exchange->Give(r.number, std::move(batch));
            }
            if (wanted) exchange->EndBatches(r.number);
          }
        }) {}
  void Join() { thread_.join(); }

  std::vector<SourceRequest> requests;  // after Join

 private:
  std::thread thread_;
};

class ProgramSourceTest : public ::testing::Test {
 protected:
  ProgramSourceTest() {
    JobConfig job;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kSourced, &job));
    const auto effective = EffectiveJobConfig(job, "/base", BuiltInSpecs());
    EXPECT_TRUE(effective.ok()) << effective.status();
    if (effective.ok()) *spec_.mutable_config() = *effective;
    spec_.set_worker_num(3);
    context_.spec = &spec_;
    context_.rank = 2;
    context_.stats = &stats_;
    context_.cancelled = &cancelled_;
  }
  std::vector<uint64_t> Keys(BatchSource* source) {
    std::vector<uint64_t> keys;
    PreparedBatch prepared;
    for (;;) {
      const auto fill = source->Next();
      EXPECT_TRUE(fill.ok()) << fill.status();
      if (!fill.ok() || !*fill) return keys;
      EXPECT_TRUE((*fill)(&prepared).ok());
      keys.insert(keys.end(), prepared.batch.keys.begin(), prepared.batch.keys.end());
    }
  }

  JobSpec spec_;
  WorkerStats stats_{"job", 0, 1000, nullptr};
  std::atomic<bool> cancelled_{false}, stopped_{false};
  JobContext context_;
  SourceExchange exchange_;
};

TEST_F(ProgramSourceTest, GivesTheBatchesOfThisRankFromAPositionOn) {
  Player player(&exchange_, 5);
  ProgramData data(&exchange_, nullptr, 0);
  EXPECT_EQ(*data.CountBatches(context_), 5u);
  {
    const auto source = data.Train(context_, 1, 2, &stopped_);
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_THAT(Keys(source->get()), ElementsAre(2, 3, 4));
  }
  const auto evaluation = data.Evaluate(context_);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  EXPECT_THAT(Keys(evaluation->get()), ElementsAre(0, 1, 2, 3, 4));
  exchange_.End();
  player.Join();
  ASSERT_EQ(player.requests.size(), 3u);
  EXPECT_EQ(player.requests[1].rank, 2u);
  EXPECT_EQ(player.requests[1].world_size, 3u);
  EXPECT_EQ(player.requests[1].epoch, 1u);
  EXPECT_EQ(player.requests[2].kind, SourceRequest::kEvaluate);
}

TEST_F(ProgramSourceTest, ASourceThatIsLeftLetsTheProgramServeTheNextOne) {
  Player player(&exchange_, 1000);
  ProgramData data(&exchange_, nullptr, 0);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto source = data.Train(context_, 0, 10, &stopped_);
    ASSERT_TRUE(source.ok());
    const auto fill = (*source)->Next();
    ASSERT_TRUE(fill.ok() && *fill);
    PreparedBatch prepared;
    ASSERT_TRUE((*fill)(&prepared).ok());
    EXPECT_THAT(prepared.batch.keys, ElementsAre(10));
  }
  exchange_.End();
  player.Join();
}

TEST_F(ProgramSourceTest, ACancelledJobDoesNotWaitForTheProgram) {
  ProgramData data(&exchange_, nullptr, 0);
  const auto source = data.Train(context_, 0, 0, &stopped_);
  ASSERT_TRUE(source.ok());
  stopped_ = true;
  EXPECT_EQ((*source)->Next().status().code(), absl::StatusCode::kCancelled);
  stopped_ = false;
  cancelled_ = true;
  EXPECT_EQ((*source)->Next().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(data.CountBatches(context_).status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace sluice
