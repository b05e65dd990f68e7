#include "server/service/pserver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "common/saved_model/checkpoint.h"
#include "common/saved_model/saved_model.h"
#include "tests/common/base/fake_clock.h"
#include "tests/common/saved_model/memory_env.h"
#include "tests/server/test_worker.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using Specs = google::protobuf::RepeatedPtrField<JobSpec>;

std::string OutputDir() { return testing::TempDir() + "pserver_test"; }

Specs Desire(std::initializer_list<JobSpec> specs) {
  Specs desired(specs.begin(), specs.end());
  for (JobSpec& spec : desired) spec.mutable_config()->set_output_dir(OutputDir());
  return desired;
}

class PserverTest : public testing::Test {
 protected:
  PserverTest() { std::filesystem::remove_all(OutputDir()); }
  ~PserverTest() override { std::filesystem::remove_all(OutputDir()); }

  absl::StatusOr<std::vector<SavedFile>> Save(const std::string& job_id, uint64_t generation,
                                              uint64_t instance = 0,
                                              const std::string& directory = OutputDir() +
                                                                             "/model") {
    SaveShardsRequest request;
    request.set_job_id(job_id);
    request.set_generation(generation);
    request.set_instance(instance);
    request.set_directory(directory);
    request.set_save_id(ModelSaveId(instance));
    return pserver_.SaveShards(request);
  }

  const std::string directory_ = OutputDir() + "/model";
  FakeClock clock_;
  Pserver pserver_{TestResources(&clock_)};
};

TEST_F(PserverTest, OpensDesiredJobsAndDropsTheOthers) {
  JobSpec one = MakeSpec(1, true, 0), two = MakeSpec(1, false, 0);
  two.set_job_id("job-2");
  pserver_.Reconcile(kSelf, Desire({one, two}));
  ASSERT_THAT(pserver_.Report(), SizeIs(2));
  EXPECT_EQ(pserver_.Report()[0].tables(1).shards(), 4u);
  std::weak_ptr<JobTables> kept = pserver_.Find("job-1"), gone = pserver_.Find("job-2");
  pserver_.Reconcile(kSelf, Desire({one}));
  EXPECT_FALSE(kept.expired());
  EXPECT_EQ(pserver_.Find("job-1"), kept.lock());
  EXPECT_TRUE(gone.expired());
  pserver_.Reconcile(kSelf, {});
  EXPECT_THAT(pserver_.Report(), IsEmpty());
}

// A restarted scheduler gives the same job_id and generation again.
TEST_F(PserverTest, DropsTablesOfAnotherInstance) {
  JobSpec first = MakeSpec(1, true, 0);
  first.set_instance(11);
  pserver_.Reconcile(kSelf, Desire({first}));
  EXPECT_EQ(pserver_.Report()[0].instance(), 11u);
  const std::shared_ptr<JobTables> old = pserver_.Find("job-1");
  TestWorker(first, old, 0).Push({.sequence = 1, .dense = {1, 2, 3, 4}});
  JobSpec second = first;
  second.set_instance(12);
  pserver_.Reconcile(kSelf, Desire({second}));
  EXPECT_EQ(pserver_.Report()[0].instance(), 12u);
  EXPECT_NE(pserver_.Find("job-1"), old);
  EXPECT_THAT(TestWorker(second, pserver_.Find("job-1"), 0).Dense(),
              ElementsAre(kInitialDense, kInitialDense, kInitialDense, kInitialDense));
  EXPECT_EQ(TestWorker(first, pserver_.Find("job-1"), 0).hello().code, 5);
  EXPECT_EQ(Save("job-1", 1, 11).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(Save("job-1", 1, 12).ok());
}

TEST_F(PserverTest, SavesOnlyIntoTheModelFolderOfTheJob) {
  pserver_.Reconcile(kSelf, Desire({MakeSpec(1, true, 0)}));
  const std::string elsewhere = OutputDir() + "/other";
  for (const std::string& directory :
       {elsewhere, OutputDir(), directory_ + "/../other", directory_ + "/deeper", std::string()}) {
    EXPECT_EQ(Save("job-1", 1, 0, directory).status().code(), absl::StatusCode::kPermissionDenied)
        << directory;
  }
  EXPECT_FALSE(std::filesystem::exists(OutputDir()));
  EXPECT_TRUE(Save("job-1", 1).ok());
}

TEST_F(PserverTest, SavesOnlyForARankOfTheJob) {
  JobSpec spec = MakeSpec(1, true, 0);
  spec.set_pass_key(JobPassKey(std::string(32, 'k'), spec.instance()));
  pserver_.Reconcile(kSelf, Desire({spec}));
  EXPECT_EQ(Save("job-1", 1).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(std::filesystem::exists(OutputDir()));
  SaveShardsRequest request;
  request.set_job_id("job-1");
  request.set_generation(1);
  request.set_directory(directory_);
  request.set_save_id(ModelSaveId(0));
  request.set_incarnation(1);
  request.set_pass(JobPasses(spec.pass_key()).OfWorker(0, 1));
  EXPECT_TRUE(pserver_.SaveShards(request).ok());
}

TEST_F(PserverTest, SavesOnlyForRankZeroAndUnderTheNameOfTheInstance) {
  JobSpec spec = MakeSpec(2, true, 0);
  spec.set_instance(7);
  spec.set_pass_key(JobPassKey(std::string(32, 'k'), spec.instance()));
  pserver_.Reconcile(kSelf, Desire({spec}));
  const auto save = [&](uint32_t rank, const std::string& save_id) {
    SaveShardsRequest request;
    request.set_job_id("job-1");
    request.set_generation(1);
    request.set_instance(7);
    request.set_directory(directory_);
    request.set_save_id(save_id);
    request.set_rank(rank);
    request.set_incarnation(1);
    request.set_pass(JobPasses(spec.pass_key()).OfWorker(rank, 1));
    return pserver_.SaveShards(request).status().code();
  };
  for (const std::string& other :
       {std::string(), ModelSaveId(8), CheckpointSaveId(7, 1), std::string("7")}) {
    EXPECT_EQ(save(0, other), absl::StatusCode::kPermissionDenied) << other;
  }
  EXPECT_EQ(save(1, ModelSaveId(7)), absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(std::filesystem::exists(OutputDir()));
  for (int i = 0; i < 2; ++i)  // a rank that replaces another one saves again
    EXPECT_EQ(save(0, ModelSaveId(7)), absl::StatusCode::kOk);
}

TEST_F(PserverTest, SavesTheModelsOfTheEpochsOfAJobThatKeepsTheBest) {
  JobSpec spec = MakeSpec(2, true, 0);
  spec.set_instance(7);
  spec.mutable_config()->mutable_checkpoint()->set_save(CheckpointConfig::BEST);
  spec.mutable_config()->mutable_train()->set_epochs(3);
  spec.set_pass_key(JobPassKey(std::string(32, 'k'), spec.instance()));
  pserver_.Reconcile(kSelf, Desire({spec}));
  const auto save = [&](const std::string& save_id) {
    SaveShardsRequest request;
    request.set_job_id("job-1");
    request.set_generation(1);
    request.set_instance(7);
    request.set_directory(directory_);
    request.set_save_id(save_id);
    request.set_incarnation(1);
    request.set_pass(JobPasses(spec.pass_key()).OfWorker(0, 1));
    return pserver_.SaveShards(request).status().code();
  };
  for (const uint32_t epoch : {0, 2}) EXPECT_EQ(save(EpochSaveId(7, epoch)), absl::StatusCode::kOk);
  for (const std::string& other : {EpochSaveId(7, 3), EpochSaveId(8, 0), ModelSaveId(7),
                                   CheckpointSaveId(7, 1), std::string()}) {
    EXPECT_EQ(save(other), absl::StatusCode::kPermissionDenied) << other;
  }
}

// A job that could not be opened is tried again for another instance.
TEST_F(PserverTest, ErrorsAreKeptPerInstance) {
  JobSpec spec = MakeSpec(1, true, 0);
  spec.set_instance(11);
  spec.mutable_config()->set_initial_model(directory_ + "/none");
  pserver_.Reconcile(kSelf, Desire({spec}));
  // A model is read on another thread than the reports.
  while (pserver_.Report()[0].error().empty()) std::this_thread::yield();
  EXPECT_EQ(pserver_.Report()[0].instance(), 11u);
  spec.set_instance(12);
  spec.mutable_config()->clear_initial_model();
  pserver_.Reconcile(kSelf, Desire({spec}));
  EXPECT_EQ(pserver_.Report()[0].error(), "");
  EXPECT_EQ(pserver_.Report()[0].instance(), 12u);
}

TEST_F(PserverTest, TakesOverANewRoute) {
  JobSpec spec = MakeSpec(1, true, 0);
  pserver_.Reconcile(kSelf, Desire({spec}));
  spec.mutable_route()->set_generation(2);
  pserver_.Reconcile(kSelf, Desire({spec}));
  EXPECT_EQ(pserver_.Report()[0].generation(), 2u);
  EXPECT_EQ(pserver_.Report()[0].error(), "");
}

TEST_F(PserverTest, JobWithATraceFileRecordsSpansOfItsFrames) {
  JobSpec traced = MakeSpec(2, false, 0), other = MakeSpec(1, true, 0);
  traced.mutable_config()->set_trace_file("/trace");
  other.set_job_id("job-2");
  pserver_.Reconcile(kSelf, Desire({traced, other}));
  std::vector<std::unique_ptr<TestWorker>> workers;
  for (const uint32_t rank : {0, 1}) {
    workers.push_back(std::make_unique<TestWorker>(traced, pserver_.Find("job-1"), rank));
    workers[rank]->Push({.sequence = 1, .dense = {1, 1, 1, 1}, .in_chunks = rank == 1});
    workers[rank]->Commit(1);
  }
  TestWorker(other, pserver_.Find("job-2"), 0).Push({.sequence = 1, .dense = {1, 1, 1, 1}});
  google::protobuf::RepeatedPtrField<TraceBatch> traces;
  pserver_.TakeTraces(&traces);
  ASSERT_THAT(traces, SizeIs(1));
  const TraceBatch& batch = traces[0];
  EXPECT_EQ(batch.job_id(), "job-1");
  std::map<int, std::vector<uint32_t>> ranks;
  std::map<int, uint64_t> bytes;
  int64_t step = 0;
  for (int i = 0; i < batch.name_size(); ++i) {
    ranks[batch.name(i)].push_back(batch.rank(i));
    bytes[batch.name(i)] += batch.bytes(i);
    step += batch.step(i);
    if (batch.name(i) == TraceBatch::PUSH) {
      EXPECT_EQ(step, 1);
    }
  }
  EXPECT_THAT(ranks[TraceBatch::PUSH], ElementsAre(0, 1));
  EXPECT_THAT(ranks[TraceBatch::PUSH_PART], testing::Each(1));
  EXPECT_EQ(bytes[TraceBatch::PUSH] + bytes[TraceBatch::PUSH_PART], 2 * 4 * sizeof(float));
  EXPECT_THAT(ranks[TraceBatch::CLOSE_STEP], SizeIs(1));
  EXPECT_THAT(ranks[TraceBatch::PULL], SizeIs(2));
  EXPECT_EQ(bytes[TraceBatch::PULL], 2 * 4 * sizeof(float));

  pserver_.GiveBack(traces);
  google::protobuf::RepeatedPtrField<TraceBatch> again;
  pserver_.TakeTraces(&again);
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_EQ(again[0].number(), batch.number());
  EXPECT_EQ(again[0].name_size(), batch.name_size());
}

TEST_F(PserverTest, ReportsWhyAJobCannotBeOpened) {
  JobSpec bad = MakeSpec(1, true, 0);
  bad.mutable_config()->set_initial_model("/nowhere/at/all");
  pserver_.Reconcile(kSelf, Desire({bad}));
  pserver_.WaitUntilOpenForTest();
  ASSERT_THAT(pserver_.Report(), SizeIs(1));
  EXPECT_THAT(pserver_.Report()[0].error(), HasSubstr("/nowhere/at/all"));
  EXPECT_EQ(pserver_.Find("job-1"), nullptr);
}

TEST_F(PserverTest, RefusesAJobThatDoesNotFitInMemoryAndKeepsRunning) {
  JobResources resources = TestResources(&clock_);
  // Three blocks, and a little for the state of ranks.
  resources.available_memory = [] { return (uint64_t{3} << 20) + 4096; };
  Pserver small(resources);
  JobSpec spec = MakeSpec(1, true, 0);
  spec.mutable_tables(0)->set_shape(0, 4 << 18);
  for (int b = 1; b < 4; ++b) spec.mutable_route()->mutable_tables(0)->add_owner(0);
  small.Reconcile(kSelf, Desire({spec}));
  ASSERT_THAT(small.Report(), SizeIs(1));
  EXPECT_THAT(small.Report()[0].error(), testing::AllOf(HasSubstr("4.0 MiB"), HasSubstr("'w'")));
  EXPECT_THAT(small.Report()[0].error(), HasSubstr("3.0 MiB"));
  // Shards of another pserver do not count.
  spec.mutable_route()->set_generation(2);
  spec.mutable_route()->add_pservers("127.0.0.1:7001");
  spec.mutable_route()->mutable_tables(0)->set_owner(1, 1);
  small.Reconcile(kSelf, Desire({spec}));
  EXPECT_EQ(small.Report()[0].error(), "");

  resources.available_memory = []() -> uint64_t { throw std::bad_alloc(); };
  Pserver none(resources);
  none.Reconcile(kSelf, Desire({spec}));
  EXPECT_THAT(none.Report()[0].error(), testing::AllOf(HasSubstr("no memory"), HasSubstr("job-1")));
}

// A worker pushes ever new keys.
TEST_F(PserverTest, RowsThatMemoryCannotHoldFailTheirJobAlone) {
  constexpr uint64_t kMiB = 1 << 20;
  for (const bool a_sync : {true, false}) {
    std::atomic<uint64_t> available{1024 * kMiB};
    JobResources resources = TestResources(&clock_);
    resources.available_memory = [&] { return available.load(); };
    Pserver pserver(resources);
    JobSpec greedy = MakeSpec(1, a_sync, 0), other = MakeSpec(1, true, 0);
    other.set_job_id("job-2");
    pserver.Reconcile(kSelf, Desire({greedy, other}));
    TestWorker worker(greedy, pserver.Find("job-1"), 0);
    TestWorker honest(other, pserver.Find("job-2"), 0);
    const auto key = [](uint64_t k) { return Rows{{k, {1, 1, 1}}}; };
    EXPECT_EQ(worker.Get(worker.Push({1, 1, {}, key(1)})).code, 0);
    if (!a_sync) worker.Commit(1);
    EXPECT_EQ(honest.Get(honest.Push({1, 1, {}, key(1)})).code, 0);
    available = 63 * kMiB;  // less than the reserve, 64 MiB
    clock_.Advance(absl::Seconds(1));
    Rows many;
    for (uint64_t k = 0; k < 4000; ++k) many[k] = {1, 1, 1};
    uint64_t id = worker.Push({2, 1, {}, many});
    if (!a_sync) id = worker.Commit(2);
    EXPECT_EQ(worker.Get(id).code, static_cast<int>(absl::StatusCode::kResourceExhausted));
    const std::vector<HostedJob> reports = pserver.Report();
    ASSERT_THAT(reports, SizeIs(2));
    for (const char* part : {"'e'", "63.0 MiB", "64.0 MiB", "max_rows", "pservers"})
      EXPECT_THAT(reports[0].error(), HasSubstr(part));
    // The other job updates its rows, and gets new ones when there is memory again.
    EXPECT_EQ(honest.Get(honest.Push({2, 1, {}, key(1)})).code, 0);
    pserver.Reconcile(kSelf, Desire({other}));
    available = 512 * kMiB;
    EXPECT_EQ(honest.Get(honest.Push({3, 1, {}, many})).code, 0);
    ASSERT_THAT(pserver.Report(), SizeIs(1));
    EXPECT_EQ(pserver.Report()[0].error(), "");
    EXPECT_EQ(pserver.Report()[0].rows(), 4000u);
  }
}

TEST_F(PserverTest, MessagesTakeHalfOfWhatRowsMustLeave) {
  constexpr uint64_t kMiB = 1 << 20;
  std::atomic<uint64_t> available{1024 * kMiB};
  JobResources resources = TestResources(&clock_);
  resources.available_memory = [&] { return available.load(); };
  Pserver pserver(resources);
  const auto take = pserver.TakeMemory();
  EXPECT_TRUE(take(4 * kMiB));
  available = 36 * kMiB;  // of the reserve of 64 MiB
  clock_.Advance(absl::Seconds(1));
  EXPECT_TRUE(take(4 * kMiB));
  available = 32 * kMiB;
  EXPECT_FALSE(take(4 * kMiB));
}

TEST_F(PserverTest, EvaluationJobUsesTheInitialValuesOfItsModel) {
  JobSpec trained = MakeSpec(1, true, 0);
  trained.mutable_config()->mutable_train()->set_seed(5);
  for (int c = 0; c < 2; ++c) {
    auto* uniform = trained.mutable_tables(1)->mutable_columns(c)->mutable_initializer();
    uniform->mutable_uniform()->set_min(-1);
    uniform->mutable_uniform()->set_max(1);
  }
  pserver_.Reconcile(kSelf, Desire({trained}));
  auto files = Save("job-1", 1);
  ASSERT_TRUE(files.ok()) << files.status();
  Manifest manifest;
  *manifest.mutable_tables() = trained.tables();
  for (const SavedFile& file : *files) *manifest.add_files() = file;
  ASSERT_TRUE(FinishModel(directory_, trained.config(), manifest, Env::Real()).ok());
  const Rows wanted = TestWorker(trained, pserver_.Find("job-1"), 0).Sparse({1, 2});

  JobSpec next = trained;
  next.mutable_config()->mutable_train()->set_seed(6);
  next.mutable_config()->set_initial_model(directory_);
  next.mutable_config()->set_evaluate_only(true);
  next.mutable_tables(1)->mutable_columns(0)->mutable_initializer()->set_constant(9);
  pserver_.Reconcile(kSelf, {});
  pserver_.Reconcile(kSelf, Desire({next}));
  pserver_.WaitUntilOpenForTest();
  ASSERT_EQ(pserver_.Report()[0].error(), "");
  EXPECT_EQ(TestWorker(next, pserver_.Find("job-1"), 0).Sparse({1, 2}), wanted);
  // A job that continues training from the model has its own initial values.
  next.mutable_config()->set_evaluate_only(false);
  pserver_.Reconcile(kSelf, {});
  pserver_.Reconcile(kSelf, Desire({next}));
  pserver_.WaitUntilOpenForTest();
  EXPECT_NE(TestWorker(next, pserver_.Find("job-1"), 0).Sparse({1, 2}), wanted);
}

TEST_F(PserverTest, LoadsASavedModelIntoAnotherNumberOfShards) {
  JobSpec spec = MakeSpec(1, true, 0);
  pserver_.Reconcile(kSelf, Desire({spec}));
  {
    TestWorker worker(spec, pserver_.Find("job-1"), 0);
    worker.Push(
        {.dense = {1, 2, 3, 4}, .rows = {{0, {1, 1, 1}}, {UINT64_MAX, {2, 2, 2}}, {8, {0, 4, 0}}}});
  }
  EXPECT_EQ(Save("job-1", 9).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Save("job-9", 1).status().code(), absl::StatusCode::kNotFound);
  auto files = Save("job-1", 1);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(*files, SizeIs(5));
  for (const SavedFile& file : *files)
    EXPECT_THAT(file.name(), HasSubstr(".0000000000000000.shard"));
  Manifest manifest;
  manifest.set_version(1);
  *manifest.mutable_tables() = spec.tables();
  for (const SavedFile& file : *files) *manifest.add_files() = file;
  auto finished = FinishModel(directory_, spec.config(), manifest, Env::Real());
  ASSERT_TRUE(finished.ok()) << finished.status();

  JobSpec next = MakeSpec(1, true, 0, 7);
  next.mutable_config()->set_initial_model(directory_);
  pserver_.Reconcile(kSelf, {});
  pserver_.Reconcile(kSelf, Desire({next}));
  pserver_.WaitUntilOpenForTest();
  ASSERT_EQ(pserver_.Report()[0].error(), "");
  TestWorker worker(next, pserver_.Find("job-1"), 0);
  EXPECT_THAT(worker.Dense(), ElementsAre(0.5f, 0.0f, -0.5f, -1.0f));
  Rows rows = worker.Sparse({0, UINT64_MAX, 8});
  EXPECT_THAT(rows[0], ElementsAre(-0.25f, -0.25f, -0.25f));
  EXPECT_THAT(rows[UINT64_MAX], ElementsAre(-0.75f, -0.75f, -0.75f));
  EXPECT_THAT(rows[8], ElementsAre(0.25f, -1.75f, 0.25f));

  JobSpec other = MakeSpec(1, true, 0);
  other.mutable_config()->set_initial_model(directory_);
  other.mutable_tables(1)->mutable_columns(1)->set_dim(5);
  pserver_.Reconcile(kSelf, {});
  pserver_.Reconcile(kSelf, Desire({other}));
  pserver_.WaitUntilOpenForTest();
  EXPECT_THAT(pserver_.Report()[0].error(), HasSubstr("initial_model: table 'e' of " + directory_));
}

// A pserver whose disk blocks at the rows of one shard file until the test releases it.
class LoadingPserverTest : public testing::Test {
 protected:
  LoadingPserverTest() {
    resources_.env = &env_;
    resources_.load_threads = 1;
    Pserver first(resources_);
    JobSpec spec = MakeSpec(1, true, 0);
    first.Reconcile(kSelf, Desire({spec}));
    TestWorker(spec, first.Find("job-1"), 0)
        .Push({.dense = {1, 2, 3, 4}, .rows = {{0, {1, 1, 1}}, {8, {2, 2, 2}}}});
    Manifest manifest;
    *manifest.mutable_tables() = spec.tables();
    const TableLayouts layouts = LayoutsOf(spec);
    for (uint32_t t = 0; t < 2; ++t) {
      const TableLayout& table = *layouts[t];
      for (uint32_t s = 0; s < table.num_shards(); ++s) {
        const auto cut = first.Find("job-1")->shard_for_test(t, s)->BeginCut();
        *manifest.add_files() = *WriteShardFile("model", table, s, cut.get(), &env_);
      }
    }
    EXPECT_TRUE(FinishModel("model", spec.config(), manifest, &env_).ok());
    for (const SavedFile& file : manifest.files()) model_bytes_ += file.bytes();
    loading_ = spec;
    loading_.set_job_id("loads");
    loading_.mutable_config()->set_initial_model("model");
    env_.before_read = [this](const std::string& path, uint64_t, uint64_t) {
      MutexLock lock(&mutex_);
      // The first four reads of a file are of its front and its index.
      if (path != "model/w-0.shard" || ++reads_ != 5) return absl::OkStatus();
      stopped_ = true;
      changed_.NotifyAll();
      while (!go_on_) changed_.Wait(&mutex_);
      return absl::OkStatus();
    };
  }

  void AwaitStop() {
    MutexLock lock(&mutex_);
    while (!stopped_) changed_.Wait(&mutex_);
  }
  void GoOn() {
    MutexLock lock(&mutex_);
    go_on_ = true;
    changed_.NotifyAll();
  }

  FakeClock clock_;
  MemoryEnv env_;
  JobResources resources_ = TestResources(&clock_);
  JobSpec loading_;
  uint64_t model_bytes_ = 0;
  Mutex mutex_;
  CondVar changed_;
  int reads_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false, go_on_ ABSL_GUARDED_BY(mutex_) = false;
};

TEST_F(LoadingPserverTest, ReportsALoadInProgressWhileOtherJobsOpen) {
  std::atomic<int> opened{0};
  Pserver pserver(resources_, [&] { ++opened; });
  pserver.Reconcile(kSelf, Desire({loading_}));
  AwaitStop();
  ASSERT_THAT(pserver.Report(), SizeIs(1));
  const HostedJob report = pserver.Report()[0];
  EXPECT_EQ(report.job_id(), "loads");
  EXPECT_EQ(report.generation(), 0u);
  EXPECT_EQ(report.load_bytes(), model_bytes_);
  EXPECT_GT(report.loaded_bytes(), 0u);
  EXPECT_LT(report.loaded_bytes(), model_bytes_);
  EXPECT_THAT(report.waiting_for(), HasSubstr("initial_model"));
  EXPECT_EQ(pserver.Find("loads"), nullptr);
  EXPECT_EQ(opened, 0);

  const JobSpec other = MakeSpec(1, true, 0);
  pserver.Reconcile(kSelf, Desire({loading_, other}));
  EXPECT_NE(pserver.Find("job-1"), nullptr);
  // A route that comes during the load is taken over once the job is open.
  JobSpec moved = loading_;
  moved.mutable_route()->set_generation(2);
  pserver.Reconcile(kSelf, Desire({moved, other}));

  GoOn();
  pserver.WaitUntilOpenForTest();
  EXPECT_THAT(TestWorker(loading_, pserver.Find("loads"), 0).Dense(),
              ElementsAre(0.5f, 0.0f, -0.5f, -1.0f));
  pserver.Reconcile(kSelf, Desire({moved, other}));
  EXPECT_EQ(opened, 1);
  for (const HostedJob& job : pserver.Report()) {
    EXPECT_EQ(job.generation(), job.job_id() == "loads" ? 2u : 1u);
    EXPECT_EQ(job.error(), "");
    EXPECT_EQ(job.load_bytes(), 0u);
  }
}

TEST_F(LoadingPserverTest, JobDroppedDuringItsLoadIsGoneAtOnceAndOpensAgainAfterThat) {
  bool ended = false;
  Pserver pserver(resources_, [&] {
    MutexLock lock(&mutex_);
    ended = true;
    changed_.NotifyAll();
  });
  pserver.Reconcile(kSelf, Desire({loading_}));
  AwaitStop();
  pserver.Reconcile(kSelf, {});
  EXPECT_THAT(pserver.Report(), IsEmpty());
  // The same job again, while the first try still has its memory and hangs in its read.
  pserver.Reconcile(kSelf, Desire({loading_}));
  EXPECT_THAT(pserver.Report(), IsEmpty());
  GoOn();
  {
    MutexLock lock(&mutex_);
    while (!ended) changed_.Wait(&mutex_);
  }
  EXPECT_EQ(pserver.Find("loads"), nullptr);
  pserver.Reconcile(kSelf, Desire({loading_}));
  pserver.WaitUntilOpenForTest();
  const std::shared_ptr<JobTables> second = pserver.Find("loads");
  ASSERT_NE(second, nullptr);
  pserver.Stop();
  EXPECT_EQ(pserver.Find("loads"), second);
}

TEST_F(LoadingPserverTest, CancelledLoadReadsNoMore) {
  Pserver pserver(resources_);
  pserver.Reconcile(kSelf, Desire({loading_}));
  AwaitStop();
  env_.TakeBytesRead();
  pserver.Reconcile(kSelf, {});
  GoOn();
  pserver.Stop();
  EXPECT_EQ(env_.TakeBytesRead(), 4 * sizeof(float)) << "the read that was under way";
}

HostedJob ReportOfBytes(const std::string& job_id, size_t bytes) {
  HostedJob report;
  report.set_job_id(job_id);
  report.set_instance(7);
  report.set_generation(3);
  report.set_rows(5);
  report.add_ranks()->mutable_totals()->set_net_state(std::string(bytes, 's'));
  return report;
}

size_t BytesOf(const std::vector<HostedJob>& reports) {
  size_t bytes = 0;
  for (const HostedJob& report : reports) bytes += report.ByteSizeLong();
  return bytes;
}

TEST(BoundReportsTest, ReportsThatFitStayAsTheyAre) {
  std::vector<HostedJob> reports = {ReportOfBytes("a", 1000), ReportOfBytes("b", 2000)};
  const std::vector<HostedJob> before = reports;
  BoundReports(BytesOf(reports), &reports);
  for (size_t i = 0; i < reports.size(); ++i)
    EXPECT_EQ(reports[i].SerializeAsString(), before[i].SerializeAsString());
}

TEST(BoundReportsTest, OnlyTheLargestJobsLoseTheirReports) {
  std::vector<HostedJob> reports = {ReportOfBytes("small", 1000), ReportOfBytes("huge", 100'000),
                                    ReportOfBytes("large", 50'000), ReportOfBytes("other", 1000)};
  constexpr size_t kMost = 60'000;
  BoundReports(kMost, &reports);
  EXPECT_LE(BytesOf(reports), kMost);
  for (const HostedJob& report : reports) {
    const bool bounded = report.job_id() == "huge";
    EXPECT_EQ(report.error().empty(), !bounded) << report.job_id();
    EXPECT_EQ(report.rows(), bounded ? 0u : 5u);
    EXPECT_EQ(report.instance(), 7u);
    EXPECT_EQ(report.generation(), 3u);
  }
  BoundReports(10'000, &reports);
  EXPECT_LE(BytesOf(reports), 10'000u);
  EXPECT_FALSE(reports[2].error().empty()) << "the next largest one goes too";
  EXPECT_TRUE(reports[0].error().empty());
}

}  // namespace
}  // namespace sluice
