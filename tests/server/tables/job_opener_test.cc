#include "server/tables/job_opener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/config/job_validation.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/saved_model.h"
#include "server/checkpoints/model_loader.h"
#include "tests/common/base/fake_clock.h"
#include "tests/common/saved_model/memory_env.h"
#include "tests/server/test_worker.h"

namespace sluice {
namespace {

using testing::ElementsAre;

class JobOpenerTest : public testing::Test {
 protected:
  JobOpenerTest() : resources_(TestResources(&clock_)) {
    resources_.env = &env_;
    resources_.load_threads = 1;
  }
  absl::StatusOr<OpenedJob> Open(const JobSpec& spec) {
    return OpenJob(spec, kSelf, resources_, &progress_);
  }
  absl::StatusCode CodeOf(const JobSpec& spec) { return Open(spec).status().code(); }

  // Bytes that shards of the job keep for its ranks.
  uint64_t RankState(const JobSpec& spec, uint64_t shards) {
    resources_.available_memory = [] { return UINT64_MAX; };
    return shards * Shard::RankStateBytes(Open(spec)->policy);
  }

  // Saves the values of the job as the model "m".
  void Save(const JobSpec& spec, const OpenedJob& job) {
    Manifest manifest;
    *manifest.mutable_tables() = spec.tables();
    job.view->ForEachShard([&](Shard* shard) {
      *manifest.add_files() =
          *WriteShardFile("m", shard->table(), shard->index(), shard->BeginCut().get(), &env_);
    });
    ASSERT_TRUE(FinishModel("m", spec.config(), manifest, &env_).ok());
  }
  static std::vector<float> Dense(const OpenedJob& job) {
    std::vector<float> values(4);
    job.view->FindShard(0, 0)->Read(nullptr, 0, reinterpret_cast<uint8_t*>(values.data()));
    return values;
  }

  FakeClock clock_;
  MemoryEnv env_;
  JobResources resources_;
  LoadProgress progress_;
};

TEST_F(JobOpenerTest, OpensTheShardsOfTheRouteWithInitialValues) {
  JobSpec spec = MakeSpec(2, true, 0);
  spec.mutable_route()->set_generation(7);
  spec.mutable_route()->add_pservers("127.0.0.1:7001");
  spec.mutable_route()->mutable_tables(1)->set_owner(1, 1);
  const auto job = Open(spec);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->view->generation, 7u);
  EXPECT_EQ(job->view->FindShard(1, 1), nullptr);
  EXPECT_NE(job->view->FindShard(1, 2), nullptr);
  EXPECT_THAT(Dense(*job), ElementsAre(1, 1, 1, 1));
}

TEST_F(JobOpenerTest, PolicyFollowsTheStrategy) {
  JobSpec spec = MakeSpec(4, true, 0);
  ASyncConfigs* async = spec.mutable_config()->mutable_strategy()->mutable_a_sync_configs();
  async->set_gradients_to_wait(3);
  async->set_max_staleness(0);
  UpdatePolicy policy = Open(spec)->policy;
  EXPECT_EQ(policy.mode, Mode::kAsync);
  EXPECT_EQ(policy.worker_num, 4u);
  EXPECT_EQ(policy.gradients_to_wait, 3u);
  EXPECT_EQ(policy.max_staleness, 0u);
  async->clear_max_staleness();
  EXPECT_EQ(Open(spec)->policy.max_staleness, std::nullopt);
  async->set_k_steps(10);
  async->set_max_staleness(5);
  policy = Open(spec)->policy;
  EXPECT_EQ(policy.mode, Mode::kGeo);
  EXPECT_EQ(policy.merge_scale, 0.25);
  EXPECT_EQ(policy.max_staleness, std::nullopt) << "async only";
  async->set_geo_merge(ASyncConfigs::SUM);
  EXPECT_EQ(Open(spec)->policy.merge_scale, 1);
}

TEST_F(JobOpenerTest, RefusesAnInconsistentSpec) {
  EXPECT_EQ(CodeOf(MakeSpec(0, true, 0)), absl::StatusCode::kInvalidArgument);
  JobSpec spec = MakeSpec(1, true, 0);
  spec.mutable_route()->mutable_tables(1)->add_owner(0);
  EXPECT_EQ(CodeOf(spec), absl::StatusCode::kInvalidArgument);
  spec.mutable_route()->mutable_tables()->RemoveLast();
  EXPECT_EQ(CodeOf(spec), absl::StatusCode::kInvalidArgument);
  spec = MakeSpec(1, true, 0);
  spec.mutable_route()->mutable_tables(1)->set_owner(0, 1);
  EXPECT_EQ(CodeOf(spec), absl::StatusCode::kInvalidArgument);
}

TEST_F(JobOpenerTest, RefusesFollowersAndLivesThatDoNotFitTheJob) {
  JobSpec spec = MakeSpec(2, true, 0);
  spec.add_follower(0);  // its own index: none
  spec.add_incarnations(1);
  spec.add_incarnations(1);
  EXPECT_TRUE(Open(spec).ok());
  JobSpec elsewhere = spec, too_many = spec, three_lives = spec;
  elsewhere.set_follower(0, 1);
  too_many.add_follower(0);
  three_lives.add_incarnations(1);
  for (const JobSpec& wrong : {elsewhere, too_many, three_lives})
    EXPECT_EQ(CodeOf(wrong), absl::StatusCode::kInvalidArgument);
  // It is described while it is being opened, before it is refused.
  for (const uint64_t life : {1, 2})
    elsewhere.mutable_takeover()->add_ended()->set_incarnation(life);
  EXPECT_FALSE(SourceOfTables(elsewhere, kSelf).empty());
  EXPECT_EQ(CodeOf(elsewhere), absl::StatusCode::kInvalidArgument);
}

TEST_F(JobOpenerTest, RefusesMoreWorkersThanAJobMayHave) {
  EXPECT_EQ(CodeOf(MakeSpec(kMaxWorkers + 1, true, 0)), absl::StatusCode::kInvalidArgument);
}

TEST_F(JobOpenerTest, OnlyDenseShardsOfThisPserverMustFitInMemory) {
  JobSpec spec = MakeSpec(1, true, 0);
  spec.mutable_tables(0)->set_shape(0, 2 << 18);  // two blocks of 1 MiB
  spec.mutable_route()->mutable_tables(0)->add_owner(0);
  const uint64_t needed = (uint64_t{2} << 20) + RankState(spec, 2 + 4);
  resources_.available_memory = [=] { return needed; };
  EXPECT_EQ(CodeOf(spec), absl::StatusCode::kOk);
  resources_.available_memory = [=] { return needed - 1; };
  EXPECT_EQ(CodeOf(spec), absl::StatusCode::kResourceExhausted);
  spec.mutable_route()->add_pservers("127.0.0.1:7001");
  spec.mutable_route()->mutable_tables(0)->set_owner(1, 1);
  EXPECT_EQ(CodeOf(spec), absl::StatusCode::kOk);
}

TEST_F(JobOpenerTest, BufferedGradientsMustFitInMemory) {
  constexpr uint64_t kMiB = 1 << 20;
  const auto needs = [&](JobSpec spec, uint64_t mib) {
    spec.mutable_tables(0)->set_shape(0, 2 << 18);  // two blocks of 1 MiB
    spec.mutable_route()->mutable_tables(0)->add_owner(0);
    const uint64_t needed = mib * kMiB + RankState(spec, 2 + 4);
    resources_.available_memory = [=] { return needed; };
    EXPECT_EQ(CodeOf(spec), absl::StatusCode::kOk) << mib;
    resources_.available_memory = [=] { return needed - 1; };
    const absl::Status status = Open(spec).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << mib;
    return std::string(status.message());
  };
  // Sync buffers the gradient of each worker until the step closes.
  for (const uint32_t workers : {1u, 3u}) {
    EXPECT_THAT(needs(MakeSpec(workers, false, 0), 2 + 2 * workers),
                testing::AllOf(testing::HasSubstr(absl::StrCat(2 + 2 * workers, ".0 MiB")),
                               testing::HasSubstr(absl::StrCat(2 * workers, ".0 MiB for")),
                               testing::HasSubstr("2.0 MiB for values"), testing::HasSubstr("'w'"),
                               testing::HasSubstr("fewer workers")));
  }
  // Momentum has one state float for each element, which is not buffered.
  JobSpec momentum = MakeSpec(2, false, 0);
  momentum.mutable_tables(0)->mutable_optimizer()->mutable_momentum();
  needs(momentum, 4 + 4);
  EXPECT_THAT(needs(MakeSpec(3, true, 0), 2), testing::Not(testing::HasSubstr("workers")));
  needs(MakeSpec(3, true, 7), 2);
  JobSpec waits = MakeSpec(3, true, 0);
  waits.mutable_config()->mutable_strategy()->mutable_a_sync_configs()->set_gradients_to_wait(2);
  EXPECT_THAT(needs(waits, 2 + 6), testing::HasSubstr("gradients_to_wait"));
}

TEST_F(JobOpenerTest, GradientsOfSparseTablesThatASyncStepBuffersMustFitInMemory) {
  JobSpec spec = MakeSpec(4, false, 0);
  spec.set_global_batch(4 << 16);
  const auto add = [&] { return spec.mutable_config()->add_features(); };
  add()->mutable_categorical();                          // 65,536 keys a worker
  add()->mutable_categorical()->set_hash_buckets(1023);  // 1,024
  add()->mutable_cross()->set_hash_buckets(1 << 20);     // 65,536
  add()->mutable_numeric();                              // none
  Feature* const bucketed = add();
  for (int i = 0; i < 1023; ++i) bucketed->mutable_numeric()->add_boundaries(i);  // 1,024
  // A key, and a gradient of three numbers; a worker pushes 133,120 of them.
  uint64_t needed = uint64_t{4} * 133120 * (8 + 3 * 4);
  const uint64_t dense = 4 * 4 + 4 * 4 * 4;  // table "w" and its buffers
  uint64_t other = dense + RankState(spec, 1 + 4);
  const auto fits = [&](uint64_t bytes) {
    resources_.available_memory = [=] { return bytes; };
    const absl::Status status = Open(spec).status();
    EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
    if (!status.ok()) {
      for (const char* part : {"'e'", "batch_size", "pservers"})
        EXPECT_THAT(std::string(status.message()), testing::HasSubstr(part));
    }
    return status.ok();
  };
  EXPECT_TRUE(fits(needed + other));
  EXPECT_FALSE(fits(needed + other - 1));
  // Another pserver has one of the four shards.
  spec.mutable_route()->add_pservers("127.0.0.1:7001");
  spec.mutable_route()->mutable_tables(1)->set_owner(1, 1);
  needed = needed * 3 / 4;
  other = dense + RankState(spec, 1 + 3);
  EXPECT_TRUE(fits(needed + other));
  EXPECT_FALSE(fits(needed + other - 1));
  // No worker can push more keys than the table has rows.
  spec.mutable_tables(1)->set_max_rows(1000);
  needed = uint64_t{4} * 1000 * 20 * 3 / 4;
  EXPECT_TRUE(fits(needed + other));
  EXPECT_FALSE(fits(needed + other - 1));
  // Without steps nothing is buffered.
  spec.mutable_config()->mutable_strategy()->set_a_sync(true);
  EXPECT_TRUE(fits(4 * 4 + RankState(spec, 1 + 3)));
}

TEST_F(JobOpenerTest, TheStateOfManyRanksInManyShardsMustFitInMemory) {
  constexpr uint32_t kShards = 4096;
  const uint64_t free = uint64_t{8} << 30;
  resources_.available_memory = [=] { return free; };
  for (const bool a_sync : {false, true}) {
    // 65,536 ranks in 4,097 shards would need more than 16 GiB.
    const absl::Status status = Open(MakeSpec(kMaxWorkers, a_sync, 0, kShards)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    for (const char* part : {"4097 shards", "65536 workers", "num_shards", "fewer workers"})
      EXPECT_THAT(std::string(status.message()), testing::HasSubstr(part));
  }
  // What other pservers have does not count, unless this one keeps copies of it.
  JobSpec spec = MakeSpec(kMaxWorkers, true, 0, kShards);
  spec.mutable_route()->add_pservers("127.0.0.1:7001");
  for (uint32_t& owner : *spec.mutable_route()->mutable_tables(1)->mutable_owner()) owner = 1;
  EXPECT_EQ(CodeOf(spec), absl::StatusCode::kOk);
  for (const uint32_t follower : {1, 0}) spec.add_follower(follower);
  EXPECT_EQ(CodeOf(spec), absl::StatusCode::kResourceExhausted);
}

TEST_F(JobOpenerTest, SketchesOfTablesWithAdmitMustFitInMemory) {
  JobSpec spec = MakeSpec(1, true, 0);
  spec.mutable_tables(1)->mutable_admit()->set_after(2);
  spec.mutable_tables(1)->mutable_admit()->set_sketch_kib(1024);
  const uint64_t needed = (uint64_t{2} << 20) + 4 * 4 + RankState(spec, 1 + 4);
  resources_.available_memory = [=] { return needed; };
  EXPECT_EQ(CodeOf(spec), absl::StatusCode::kOk);
  resources_.available_memory = [=] { return needed - 1; };
  const absl::Status status = Open(spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("sketch_kib"));
}

TEST_F(JobOpenerTest, InitialModelFillsTheShards) {
  const JobSpec spec = MakeSpec(1, true, 0);
  const auto first = Open(spec);
  const float values[] = {4, 3, 2, 1};
  first->view->FindShard(0, 0)->LoadElements(0, values, 4);
  Save(spec, *first);
  JobSpec next = spec;
  next.mutable_config()->set_initial_model("m");
  const auto second = Open(next);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_THAT(Dense(*second), ElementsAre(4, 3, 2, 1));
  EXPECT_GT(progress_.read(), 0u);
  EXPECT_EQ(progress_.read(), progress_.planned());
}

TEST_F(JobOpenerTest, KeysWithoutARowAreEvaluatedAsTheModelReadsThem) {
  const JobSpec initial = MakeSpec(1, true, 0);
  JobSpec zero = initial;
  zero.mutable_tables(1)->mutable_admit()->set_after(2);
  zero.mutable_tables(1)->mutable_admit()->set_sketch_kib(8);
  zero.mutable_tables(1)->mutable_admit()->set_before(AdmitConfig::ZERO);
  for (const JobSpec& trained : {zero, initial}) {
    Save(trained, *Open(trained));
    for (JobSpec spec : {zero, initial}) {
      spec.mutable_config()->set_evaluate_only(true);
      spec.mutable_config()->set_initial_model("m");
      const auto job = Open(spec);
      ASSERT_TRUE(job.ok()) << job.status();
      const uint64_t key = 7;
      std::vector<float> row(3);
      job->view->FindShard(1, job->layouts[1]->ShardOf(key))
          ->Read(&key, 1, reinterpret_cast<uint8_t*>(row.data()));
      const bool zeros = trained.tables(1).has_admit();
      EXPECT_EQ(row, std::vector<float>(3, zeros ? 0.0f : kInitialSparse)) << zeros;
    }
  }
}

TEST_F(JobOpenerTest, UnreadableInitialModelFailsTheOpening) {
  const JobSpec spec = MakeSpec(1, true, 0);
  Save(spec, *Open(spec));
  JobSpec next = spec;
  next.mutable_config()->set_initial_model("none");
  EXPECT_EQ(CodeOf(next), absl::StatusCode::kNotFound);
  next.mutable_config()->set_initial_model("m");
  next.mutable_tables(1)->mutable_columns(1)->set_dim(5);
  EXPECT_EQ(CodeOf(next), absl::StatusCode::kInvalidArgument);
  next = spec;
  next.mutable_config()->set_initial_model("m");
  progress_.Cancel();
  EXPECT_EQ(CodeOf(next), absl::StatusCode::kCancelled);
}

TEST_F(JobOpenerTest, AJobResumesFromACheckpointWithItsStateAndStep) {
  JobSpec spec = MakeSpec(1, false, 0);
  spec.mutable_tables(0)->mutable_optimizer()->mutable_momentum();
  const auto first = Open(spec);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->closed, 0u);
  Manifest manifest;
  *manifest.mutable_tables() = spec.tables();
  manifest.mutable_checkpoint();
  first->view->ForEachShard([&](Shard* shard) {
    ShardFacts facts;
    facts.set_closed(30);
    shard->RestorePosition(facts);
    const auto cut = shard->BeginCut({true});
    *manifest.add_files() = *WriteShardFile("c/step-30", shard->table(), shard->index(), cut.get(),
                                            &env_, CheckpointSaveId(1, 1));
  });
  ASSERT_TRUE(
      CommitCheckpoint("c/step-30", JobConfig(), manifest, &env_, CheckpointSaveId(1, 1)).ok());
  JobSpec next = spec;
  next.mutable_restore()->set_directory("c/step-30");
  next.mutable_restore()->set_step(30);
  next.mutable_config()->set_initial_model("none");  // of the first run
  const auto second = Open(next);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->closed, 30u);
  EXPECT_EQ(second->view->FindShard(0, 0)->LastPushed(0), 30u);
  EXPECT_TRUE(HasTablesToLoad(next, kSelf));
  EXPECT_EQ(SourceOfTables(next, kSelf), "checkpoint c/step-30");
  JobSpec fresh = next;  // a new job: no step is applied yet, and no step is checked
  fresh.mutable_restore()->clear_step();
  fresh.mutable_restore()->set_kind(Restore::INITIAL);
  const auto third = Open(fresh);
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(third->closed, 0u);
  EXPECT_EQ(third->view->FindShard(0, 0)->LastPushed(0), 0u);
  EXPECT_EQ(SourceOfTables(fresh, kSelf), "initial_checkpoint c/step-30");
  next.mutable_restore()->set_step(31);
  const absl::Status other = Open(next).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(other.message()),
              testing::AllOf(testing::HasSubstr("c/step-30"), testing::HasSubstr("--allow_older")));
  next.mutable_restore()->set_directory("c/step-31");
  EXPECT_EQ(CodeOf(next), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace sluice
