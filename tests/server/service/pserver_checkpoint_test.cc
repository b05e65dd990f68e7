// Checkpoints of sync and async jobs on two pservers of one process, driven by workers frame by
// frame: made at the step that was asked for, restored, and trained further to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <thread>

#include "absl/strings/match.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/saved_model.h"
#include "server/service/pserver.h"
#include "tests/common/base/fake_clock.h"
#include "tests/common/base/hooked_env.h"
#include "tests/common/saved_model/read_shard_file.h"
#include "tests/server/test_worker.h"

namespace sluice {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

constexpr char kOther[] = "127.0.0.1:7001", kThird[] = "127.0.0.1:7002";
constexpr uint32_t kWorkers = 2;

google::protobuf::RepeatedPtrField<JobSpec> Desire(const JobSpec& spec) {
  google::protobuf::RepeatedPtrField<JobSpec> desired;
  *desired.Add() = spec;
  return desired;
}

// A job on two pservers, and its workers' streams to both.
class Cluster {
 public:
  Cluster(const JobSpec& spec, Env* env, Clock* clock, uint64_t incarnation = 1) : spec_(spec) {
    JobResources resources = TestResources(clock);
    resources.env = env;
    for (const std::string& address : spec.route().pservers()) {
      pservers_.push_back(std::make_unique<Pserver>(resources, [this] { ++changes; }));
      pservers_.back()->Reconcile(address, Desire(spec));
      pservers_.back()->WaitUntilOpenForTest();
      errors.push_back(pservers_.back()->Report()[0].error());
      const std::shared_ptr<JobTables> job = pservers_.back()->Find("job-1");
      if (job == nullptr) continue;
      workers_.emplace_back();
      for (uint32_t r = 0; r < kWorkers; ++r)
        workers_.back().push_back(std::make_unique<TestWorker>(spec, job, r, incarnation));
    }
  }

  static TestWorker::PushArgs Gradients(uint64_t step, uint32_t rank) {
    TestWorker::PushArgs push;
    push.sequence = step;
    push.weight = 1.0 + rank;
    for (uint32_t i = 0; i < 4; ++i)
      push.dense.push_back(0.1f * static_cast<float>((step + i + rank) % 7));
    for (uint64_t key = step % 5; key < 200; key += 3 + rank)
      push.rows[key] = {0.01f * static_cast<float>(key % 11), 0.3f,
                        -0.2f * static_cast<float>(step)};
    push.task_id = 50 + rank;
    push.task_end = 10 * step;
    return push;
  }

  // One sync step. Returns the checkpoint that each answer names.
  std::vector<uint64_t> Step(uint64_t step, uint64_t checkpoint = 0, int times = 1) {
    std::vector<uint64_t> seen;
    for (auto& workers : workers_) {
      for (uint32_t r = 0; r < kWorkers; ++r) {
        EXPECT_EQ(workers[r]->Get(workers[r]->Push(Gradients(step, r))).code, 0);
      }
    }
    for (auto& workers : workers_) {
      std::vector<uint64_t> ids;
      // Rank 0's commit comes first: the last one, without a number, closes the step.
      for (uint32_t r = 0; r < kWorkers; ++r) {
        for (int i = 0; i < times; ++i)
          ids.push_back(workers[r]->Commit(step, true, r == 0 ? checkpoint : 0));
      }
      // Sent again after a broken stream.
      for (int i = 1; i < times; ++i) {
        const Answer& again = workers[0]->Get(workers[0]->Commit(step, true, checkpoint));
        EXPECT_TRUE(again.done);
        seen.push_back(again.checkpoint);
      }
      for (uint32_t i = 0; i < ids.size(); ++i) {
        const Answer& answer = workers[i / times]->Get(ids[i]);
        EXPECT_TRUE(answer.done) << answer.message;
        EXPECT_EQ(answer.code, 0) << answer.message;
        seen.push_back(answer.checkpoint);
      }
    }
    return seen;
  }

  // All values, from both pservers.
  Rows Values() {
    std::vector<uint64_t> keys;
    for (uint64_t key = 0; key < 200; ++key) keys.push_back(key);
    Rows all;
    for (size_t p = 0; p < workers_.size(); ++p) {
      for (uint64_t key : keys) {
        const Rows row = workers_[p][0]->Sparse({key});
        if (!row.empty()) all.insert(*row.begin());
      }
      const std::vector<float> dense = workers_[p][0]->Dense();
      if (!dense.empty()) all[UINT64_MAX] = dense;
    }
    EXPECT_THAT(all, SizeIs(201));
    return all;
  }

  HostedCut Cut(size_t p) { return pservers_[p]->Report()[0].cut(); }
  HostedCut AwaitCut(size_t p) {
    while (Cut(p).state() == HostedCut::WRITING) std::this_thread::yield();
    return Cut(p);
  }
  void Order(uint64_t over, uint64_t now = 0, uint64_t step = 0) {
    google::protobuf::RepeatedPtrField<CutOrder> orders;
    CutOrder* const order = orders.Add();
    order->set_job_id("job-1");
    order->set_instance(spec_.instance());
    order->set_over(over);
    order->set_now(now);
    order->set_step(step);
    for (const auto& pserver : pservers_) pserver->SetCutOrders(orders);
  }
  // Rows of table "e" go before the cut of checkpoint `at`.
  void Delete(uint64_t at, const std::vector<uint64_t>& keys) {
    google::protobuf::RepeatedPtrField<CutOrder> orders;
    CutOrder* const order = orders.Add();
    order->set_job_id("job-1");
    order->set_instance(spec_.instance());
    order->mutable_deletion()->set_id(70 + at);
    order->mutable_deletion()->set_at(at);
    order->mutable_deletion()->set_table(1);
    order->mutable_deletion()->mutable_keys()->Assign(keys.begin(), keys.end());
    for (const auto& pserver : pservers_) {
      pserver->SetCutOrders(orders);
      EXPECT_EQ(pserver->Report()[0].deletion().at(), at);
    }
  }
  // What the scheduler does when all pservers have written their files.
  absl::Status Commit(uint64_t number, Env* env) {
    Manifest manifest;
    *manifest.mutable_tables() = spec_.tables();
    uint64_t step = 0;
    for (size_t p = 0; p < pservers_.size(); ++p) {
      const HostedCut cut = AwaitCut(p);
      EXPECT_EQ(cut.state(), HostedCut::WRITTEN) << cut.error();
      EXPECT_EQ(cut.checkpoint(), number);
      step = cut.step();
      for (const SavedFile& file : cut.files()) *manifest.add_files() = file;
    }
    manifest.mutable_checkpoint()->set_global_step(step);
    return CommitCheckpoint(CheckpointFolder(spec_.config().checkpoint().dir(), step),
                            spec_.config(), manifest, env,
                            CheckpointSaveId(spec_.instance(), number));
  }
  TestWorker& worker(size_t p, uint32_t rank) { return *workers_[p][rank]; }
  Pserver& pserver(size_t p) { return *pservers_[p]; }

  std::vector<std::string> errors;  // of opening the job
  std::atomic<int> changes{0};

 private:
  const JobSpec spec_;
  std::vector<std::unique_ptr<Pserver>> pservers_;
  std::vector<std::vector<std::unique_ptr<TestWorker>>> workers_;  // [pserver][rank]
};

class PserverCheckpointTest : public testing::Test {
 protected:
  PserverCheckpointTest() {
    std::string pattern = testing::TempDir() + "/pserver_checkpoint_test.XXXXXX";
    root_ = ::mkdtemp(pattern.data());
    env_.before = [](const std::string&, const std::string&) { return absl::OkStatus(); };
  }
  ~PserverCheckpointTest() override { std::filesystem::remove_all(root_); }

  // With Adam and a schedule; half of the sparse shards on each pserver.
  JobSpec Spec(bool a_sync, uint32_t pservers = 2, uint32_t num_shards = 4) {
    JobSpec spec = MakeSpec(kWorkers, a_sync, 0, num_shards);
    spec.set_instance(9);
    spec.mutable_config()->mutable_checkpoint()->set_dir(root_);
    for (OptimizerConfig* optimizer :
         {spec.mutable_tables(0)->mutable_optimizer(),
          spec.mutable_tables(1)->mutable_columns(0)->mutable_optimizer(),
          spec.mutable_tables(1)->mutable_columns(1)->mutable_optimizer()}) {
      optimizer->mutable_adam();
      optimizer->mutable_schedule()->mutable_inverse_time()->set_steps(2);
      optimizer->mutable_schedule()->mutable_inverse_time()->set_rate(0.5f);
    }
    if (pservers > 1) spec.mutable_route()->add_pservers(kOther);
    if (pservers > 2) spec.mutable_route()->add_pservers(kThird);
    for (uint32_t s = 0; s < num_shards; ++s)
      spec.mutable_route()->mutable_tables(1)->set_owner(s, s % pservers);
    return spec;
  }
  JobSpec Resumed(JobSpec spec, uint64_t step) {
    spec.set_instance(10);
    spec.mutable_restore()->set_directory(CheckpointFolder(root_, step));
    spec.mutable_restore()->set_step(step);
    return spec;
  }

  std::string root_;
  HookedEnv env_;
  FakeClock clock_;
};

TEST_F(PserverCheckpointTest, TheCutIsOfTheStepWhoseCommitAsksForIt) {
  Cluster cluster(Spec(false), &env_, &clock_);
  EXPECT_THAT(cluster.Step(1), Each(0));
  EXPECT_THAT(cluster.Step(2), Each(0));
  EXPECT_THAT(cluster.Step(3, 1), Each(1)) << "each rank learns of it from each pserver";
  const Rows at_3 = cluster.Values();
  EXPECT_THAT(cluster.Step(4), Each(0));
  for (size_t p = 0; p < 2; ++p) {
    const HostedCut cut = cluster.AwaitCut(p);
    EXPECT_EQ(cut.state(), HostedCut::WRITTEN) << cut.error();
    EXPECT_EQ(cut.checkpoint(), 1u);
    EXPECT_EQ(cut.step(), 3u);
    EXPECT_THAT(cut.files(), SizeIs(p == 0 ? 3 : 2));
  }
  EXPECT_GT(cluster.changes, 0);
  ASSERT_TRUE(cluster.Commit(1, &env_).ok());
  cluster.Step(5);
  cluster.Step(6);
  const Rows at_6 = cluster.Values();

  // On as many pservers, on one, and on other numbers of shards.
  for (const auto& [pservers, shards] : {std::make_pair(2u, 4u), std::make_pair(1u, 4u),
                                         std::make_pair(2u, 7u), std::make_pair(1u, 1u)}) {
    SCOPED_TRACE(testing::Message() << pservers << " pservers, " << shards << " shards");
    Cluster resumed(Resumed(Spec(false, pservers, shards), 3), &env_, &clock_);
    ASSERT_THAT(resumed.errors, Each(""));
    EXPECT_EQ(resumed.Values(), at_3);
    for (uint64_t step = 4; step <= 6; ++step) EXPECT_THAT(resumed.Step(step), Each(0));
    EXPECT_EQ(resumed.Values(), at_6);
  }
}

TEST_F(PserverCheckpointTest, RowsAreDeletedAfterTheSameStepOnAnyNumberOfPservers) {
  const std::vector<uint64_t> gone = {3, 6, 150, 151, 152, 153, 154, 9999};
  std::vector<Rows> at_6, resumed_at_6;
  std::vector<uint64_t> deleted;
  for (const uint32_t pservers : {1, 2, 3}) {
    SCOPED_TRACE(testing::Message() << pservers << " pservers");
    std::filesystem::remove_all(root_);
    Cluster cluster(Spec(false, pservers, 7), &env_, &clock_);
    for (uint64_t step = 1; step <= 2; ++step) cluster.Step(step);
    const Rows before = cluster.Values();
    cluster.Delete(1, gone);
    EXPECT_EQ(cluster.Values(), before) << "nothing goes before the cut";
    EXPECT_THAT(cluster.Step(3, 1), Each(1));
    Rows at_3 = cluster.Values();
    for (const uint64_t key : {3, 6, 150, 151, 152, 153, 154})
      EXPECT_EQ(at_3[key], std::vector<float>(3, kInitialSparse)) << key;
    uint64_t rows = 0;
    for (size_t p = 0; p < pservers; ++p) rows += cluster.AwaitCut(p).deleted();
    deleted.push_back(rows);
    ASSERT_TRUE(cluster.Commit(1, &env_).ok());
    cluster.Order(1);
    EXPECT_FALSE(cluster.pserver(0).Report()[0].has_deletion());
    for (uint64_t step = 4; step <= 6; ++step) cluster.Step(step);
    at_6.push_back(cluster.Values());
    EXPECT_NE(at_6.back()[3], at_3[3]) << "a key that is trained again";
    Cluster resumed(Resumed(Spec(false, pservers, 7), 3), &env_, &clock_);
    ASSERT_THAT(resumed.errors, Each(""));
    EXPECT_EQ(resumed.Values(), at_3);
    for (uint64_t step = 4; step <= 6; ++step) resumed.Step(step);
    resumed_at_6.push_back(resumed.Values());
  }
  EXPECT_THAT(at_6, Each(at_6[0]));
  EXPECT_THAT(resumed_at_6, Each(at_6[0]));
  EXPECT_GT(deleted[0], 0u);
  EXPECT_THAT(deleted, Each(deleted[0]));
}

TEST_F(PserverCheckpointTest, ACommitThatIsSentAgainMakesNoSecondCut) {
  Cluster cluster(Spec(false), &env_, &clock_);
  EXPECT_THAT(cluster.Step(1, 1, 3), Each(1));
  EXPECT_THAT(cluster.Step(2), Each(0));
  EXPECT_EQ(cluster.AwaitCut(0).step(), 1u);
  ASSERT_TRUE(cluster.Commit(1, &env_).ok());
  EXPECT_THAT(*Env::Real()->List(CheckpointFolder(root_, 1)), SizeIs(7));
  cluster.Order(1);
  EXPECT_EQ(cluster.Cut(0).checkpoint(), 0u);
  EXPECT_THAT(*Env::Real()->List(CheckpointFolder(root_, 1)), SizeIs(7));
  EXPECT_THAT(cluster.Step(3, 2), Each(2));
  EXPECT_EQ(cluster.AwaitCut(1).step(), 3u);
}

TEST_F(PserverCheckpointTest, ACheckpointThatIsDroppedLeavesNothingAndTrainingContinues) {
  std::atomic<bool> go_on{false}, writing{false};
  env_.before = [&](const std::string& what, const std::string&) {
    if (what == "write") writing = true;
    while (what == "write" && !go_on) std::this_thread::yield();
    return absl::OkStatus();
  };
  Cluster cluster(Spec(false), &env_, &clock_);
  cluster.Step(1, 1);
  while (!writing) std::this_thread::yield();
  EXPECT_THAT(cluster.Step(2), Each(0)) << "training continues while it is written";
  EXPECT_EQ(cluster.Cut(0).state(), HostedCut::WRITING);
  cluster.Order(1);
  EXPECT_EQ(cluster.Cut(0).checkpoint(), 0u);
  go_on = true;
  cluster.Step(3);
  // A save waits until nothing of it is under way.
  for (size_t p = 0; p < 2; ++p)
    EXPECT_TRUE(cluster.pserver(p).Find("job-1")->SaveShards(root_ + "/model").ok());
  EXPECT_FALSE(Env::Real()->Exists(CheckpointFolder(root_, 1)));
  EXPECT_THAT(cluster.Step(4, 2), Each(2));
  EXPECT_TRUE(cluster.Commit(2, &env_).ok());
}

TEST_F(PserverCheckpointTest, AFullDiskFailsTheCheckpointAlone) {
  std::atomic<bool> full{true};
  env_.before = [&full](const std::string& what, const std::string& path) {
    return full && what == "write" && absl::StrContains(path, "/e-2.")
               ? absl::ResourceExhaustedError("write " + path + ": No space left on device")
               : absl::OkStatus();
  };
  Cluster cluster(Spec(false), &env_, &clock_), undisturbed(Spec(false), &env_, &clock_);
  cluster.Step(1, 1);
  undisturbed.Step(1);
  EXPECT_EQ(cluster.AwaitCut(1).state(), HostedCut::WRITTEN);
  const HostedCut failed = cluster.AwaitCut(0);
  EXPECT_EQ(failed.state(), HostedCut::FAILED);
  EXPECT_THAT(failed.error(), HasSubstr("No space left on device"));
  EXPECT_EQ(cluster.pserver(0).Report()[0].error(), "") << "the job continues";
  // The hook stays: what is left of the checkpoint may still be being removed.
  full = false;
  cluster.Order(1);
  for (uint64_t step = 2; step <= 4; ++step) {
    cluster.Step(step, step == 3 ? 2 : 0);
    undisturbed.Step(step);
  }
  EXPECT_EQ(cluster.Values(), undisturbed.Values());
  EXPECT_TRUE(cluster.Commit(2, &env_).ok());
}

TEST_F(PserverCheckpointTest, ACloseAndAStopEndWhatIsWritten) {
  std::atomic<bool> go_on{false};
  env_.before = [&](const std::string& what, const std::string&) {
    while (what == "write" && !go_on) std::this_thread::yield();
    return absl::OkStatus();
  };
  Cluster cluster(Spec(false), &env_, &clock_);
  cluster.Step(1, 1);
  cluster.pserver(0).Reconcile(kSelf, {});  // the job is dropped
  std::thread stop([&] { cluster.pserver(1).Stop(); });
  while (cluster.Cut(1).state() == HostedCut::WRITING) std::this_thread::yield();
  go_on = true;
  stop.join();
  EXPECT_EQ(cluster.Cut(1).state(), HostedCut::FAILED);
  while (Env::Real()->Exists(CheckpointFolder(root_, 1))) std::this_thread::yield();
}

TEST_F(PserverCheckpointTest, AFinalSaveWaitsForACheckpointAndHasTheValuesAlone) {
  Cluster cluster(Spec(false), &env_, &clock_);
  cluster.Step(1, 1);
  const auto files = cluster.pserver(0).Find("job-1")->SaveShards(root_ + "/model");
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(cluster.Cut(0).state(), HostedCut::WRITTEN);
  uint32_t shard = 0;
  const auto layouts = LayoutsOf(Spec(false));
  const TableConfig& dense = layouts[0]->config();
  EXPECT_EQ(ReadShardFile(root_ + "/model", dense, (*files)[0], &shard, &env_)->weights,
            cluster.worker(0, 0).Dense());
  EXPECT_LT((*files)[0].bytes(), cluster.Cut(0).files(0).bytes());
}

TEST_F(PserverCheckpointTest, AFinalSaveWithoutMemoryFailsAndMayBeTriedAgain) {
  Cluster cluster(Spec(false), &env_, &clock_);
  cluster.Step(1);
  env_.before = [](const std::string& what, const std::string&) -> absl::Status {
    if (what == "write") throw std::bad_alloc();
    return absl::OkStatus();
  };
  const auto save = [&] { return cluster.pserver(0).Find("job-1")->SaveShards(root_ + "/model"); };
  for (int attempt = 0; attempt < 2; ++attempt) {
    const absl::Status failed = save().status();
    EXPECT_TRUE(absl::IsResourceExhausted(failed)) << failed;
    EXPECT_THAT(std::string(failed.message()), HasSubstr("job-1"));
  }
  EXPECT_THAT(*Env::Real()->List(root_ + "/model"), SizeIs(0)) << "no unfinished file is left";
  env_.before = [](const std::string&, const std::string&) { return absl::OkStatus(); };
  EXPECT_TRUE(save().ok());
}

TEST_F(PserverCheckpointTest, AJobThatCannotResumeSaysWhatIsWrongAndWhere) {
  {
    Cluster cluster(Spec(false), &env_, &clock_);
    cluster.Step(1, 1);
    ASSERT_TRUE(cluster.Commit(1, &env_).ok());
  }
  const std::string dir = CheckpointFolder(root_, 1);
  EXPECT_THAT(Cluster(Resumed(Spec(false), 2), &env_, &clock_).errors,
              Each(HasSubstr(CheckpointFolder(root_, 2))));
  const auto names = *Env::Real()->List(dir);
  std::string damaged;
  for (const std::string& name : names) {
    if (absl::StartsWith(name, "e-1.")) damaged = dir + "/" + name;
  }
  std::string bytes = *Env::Real()->ReadFile(damaged);
  bytes[bytes.size() / 2] ^= 1;
  ASSERT_TRUE(Env::Real()->WriteFile(damaged, {bytes}).ok());
  const auto errors = Cluster(Resumed(Spec(false), 1), &env_, &clock_).errors;
  EXPECT_THAT(errors, ElementsAre("", HasSubstr(damaged))) << "the pserver that needs it";
}

TEST_F(PserverCheckpointTest, AnAsyncJobIsCutWhenTheOrderComes) {
  Cluster cluster(Spec(true), &env_, &clock_);
  for (uint64_t step = 1; step <= 3; ++step) {
    for (size_t p = 0; p < 2; ++p) {
      for (uint32_t r = 0; r < kWorkers; ++r) {
        if (step == 3 && r == 1) continue;
        cluster.worker(p, r).Push(Cluster::Gradients(step, r));
      }
    }
  }
  // One pserver has a frame more of rank 1.
  cluster.worker(1, 1).Push(Cluster::Gradients(3, 1));
  const Rows now = cluster.Values();
  cluster.Order(0, 1, 3);
  cluster.worker(0, 1).Push(Cluster::Gradients(3, 1));
  for (size_t p = 0; p < 2; ++p) {
    const HostedCut cut = cluster.AwaitCut(p);
    ASSERT_EQ(cut.state(), HostedCut::WRITTEN) << cut.error();
    EXPECT_EQ(cut.step(), 3u);
    ASSERT_THAT(cut.least(), SizeIs(2));
    EXPECT_EQ(cut.least(0).sequence(), 3u);
    EXPECT_EQ(cut.least(0).task_id(), 50u);
    EXPECT_EQ(cut.least(0).task_end(), 30u);
    EXPECT_EQ(cut.least(1).sequence(), 2u + p);
    EXPECT_EQ(cut.least(1).task_end(), 20u + 10 * p);
  }
  ASSERT_TRUE(cluster.Commit(1, &env_).ok());
  Cluster resumed(Resumed(Spec(true), 3), &env_, &clock_);
  ASSERT_THAT(resumed.errors, Each(""));
  EXPECT_EQ(resumed.Values(), now);
  // Its workers begin with sequence 1.
  TestWorker& worker = resumed.worker(0, 0);
  EXPECT_EQ(worker.Get(worker.Push(Cluster::Gradients(1, 0))).code, 0);
}

}  // namespace
}  // namespace sluice
