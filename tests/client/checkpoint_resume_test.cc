// Checks ParameterClient against the real pserver core, in memory. A sync job that resumes from a
// checkpoint gives the same bits as one that was never stopped.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/shard_file_reader.h"
#include "tests/client/cluster_for_test.h"
#include "tests/common/transport/faulty_transport.h"

namespace sluice {
namespace {

constexpr uint64_t kSteps = 14;
constexpr uint64_t kCheckpoint = 3;  // its number

std::vector<uint64_t> KeysOf(uint64_t step) {
  std::vector<uint64_t> keys;
  for (uint64_t i = 0; i < 12; ++i) keys.push_back(MixHash(step * 7 + i * i) % 40);
  return keys;
}

std::shared_ptr<TestValues> Gradient(const ParameterClient& client, uint64_t step, uint32_t rank) {
  auto g = std::make_shared<TestValues>(client, KeysOf(step * 2 + rank));
  for (size_t i = 0; i < g->rows.size(); ++i)
    g->rows[i] = static_cast<float>(MixHash(step * 999 + rank * 77 + i) % 1000) / 700 - 0.7f;
  for (size_t i = 0; i < g->dense.size(); ++i)
    g->dense[i] = static_cast<float>(MixHash(step * 555 + rank * 33 + i) % 1000) / 600 - 0.8f;
  return g;
}

struct Tables {
  std::vector<float> rows, dense;
  bool operator==(const Tables& o) const { return rows == o.rows && dense == o.dense; }
};

Tables ReadAllRows(ParameterClient* client) {
  std::vector<uint64_t> keys;
  for (uint64_t k = 0; k < 60; ++k) keys.push_back(k);
  TestValues all(*client, keys);
  PullRequest request = all.Pull();
  request.evaluation = true;
  const absl::Status status = client->WaitPull(client->StartPull(std::move(request)));
  EXPECT_TRUE(status.ok()) << status;
  return {all.rows, all.dense};
}

// Everything that a checkpoint has of the tables, but for their division into files.
struct SavedTables {
  // By table, and by the row's key or the number of the block: the bytes of weights, optimizer
  // state and counts.
  std::map<std::pair<std::string, uint64_t>, std::string> records;
  std::map<std::string, std::vector<uint64_t>> facts;  // by table: those that all shards share
  bool operator==(const SavedTables& o) const { return records == o.records && facts == o.facts; }
};

SavedTables ReadSaved(const std::string& dir, const Manifest& manifest) {
  SavedTables saved;
  for (const TableConfig& table : manifest.tables()) {
    for (const SavedFile& file : manifest.files()) {
      if (file.name().rfind(table.name() + "-", 0) != 0) continue;
      const auto reader = ShardFileReader::Open(Env::Real(), dir, table, file);
      EXPECT_TRUE(reader.ok()) << reader.status();
      const ShardFacts& facts = (*reader)->header().facts();
      const std::vector<uint64_t> shared = {facts.closed(), facts.schedule_steps(),
                                            facts.schedule_frames()};
      EXPECT_EQ(saved.facts.emplace(table.name(), shared).first->second, shared) << file.name();
      RunReader runs(reader->get(), 0, (*reader)->runs());
      std::string block;
      while (true) {
        const auto records = runs.Next(1 << 20);
        EXPECT_TRUE(records.ok()) << records.status();
        if (!records.ok() || records->empty()) break;
        if (!(*reader)->sparse()) {
          block += *records;
          continue;
        }
        const size_t bytes = (*reader)->record_bytes();
        for (size_t at = 0; at < records->size(); at += bytes) {
          uint64_t key;
          std::memcpy(&key, records->data() + at, sizeof(key));
          EXPECT_TRUE(
              saved.records.emplace(std::pair(table.name(), key), records->substr(at, bytes))
                  .second);
        }
      }
      if ((*reader)->sparse()) continue;
      block += absl::StrCat("count ", facts.count());
      saved.records[{table.name(), (*reader)->header().shard()}] = block;
    }
  }
  return saved;
}

class CheckpointResumeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/checkpoint_resume_test";
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  JobSpec Job(uint32_t pservers, uint32_t workers = 2) const {
    JobSpec job = MakeJob(TestMode::kSync, pservers, workers);
    job.mutable_config()->mutable_checkpoint()->set_dir(root_);
    OptimizerConfig* rows = job.mutable_tables(kEmb)->mutable_columns(0)->mutable_optimizer();
    rows->mutable_adam()->set_beta1(0.9f);
    rows->mutable_adam()->set_beta2(0.999f);
    rows->mutable_adam()->set_epsilon(1e-8f);
    rows->set_learning_rate(0.1f);
    rows->mutable_schedule()->mutable_cosine()->set_steps(20);
    rows->mutable_schedule()->set_warmup_steps(3);
    OptimizerConfig* dense = job.mutable_tables(kDense)->mutable_optimizer();
    dense->mutable_momentum()->set_momentum(0.9f);
    dense->set_learning_rate(0.05f);
    return job;
  }

  // Trains the steps [first, kSteps) of all ranks. Rank 0 asks for the checkpoint with the commit
  // of step `at`, and all must see it after that step and no other.
  static Tables Train(TestCluster* cluster, uint64_t first, uint64_t at = UINT64_MAX,
                      Transport* transport = nullptr) {
    std::vector<std::unique_ptr<ParameterClient>> clients;
    const uint32_t ranks = cluster->job().worker_num();
    for (uint32_t r = 0; r < ranks; ++r) clients.push_back(cluster->Client(r, transport));
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] { TrainRank(clients[rank].get(), rank, first, at); });
    }
    for (std::thread& thread : threads) thread.join();
    return ReadAllRows(clients[0].get());
  }
  static void TrainRank(ParameterClient* client, uint32_t rank, uint64_t first, uint64_t at) {
    for (uint64_t t = first; t < kSteps; ++t) {
      TestValues values(*client, KeysOf(t * 2 + rank));
      if (t == first) {
        ASSERT_TRUE(client->WaitPull(client->StartPull(values.Pull())).ok());
      }
      const absl::Status pushed =
          client->PushStep(t, TestValues::Push(Gradient(*client, t, rank), rank + 1));
      ASSERT_TRUE(pushed.ok()) << pushed;
      TestValues next(*client, KeysOf(t * 2 + 2 + rank));
      const uint64_t asks = rank == 0 && t == at ? kCheckpoint : 0;
      const absl::Status pulled = client->WaitPull(
          client->StartCommit(t, t + 1 == kSteps ? PullRequest() : next.Pull(), asks));
      ASSERT_TRUE(pulled.ok()) << pulled;
      EXPECT_EQ(client->checkpoint_seen(), t == at ? kCheckpoint : 0) << "rank " << rank;
    }
    const absl::Status ended = client->EndEpoch(0);
    ASSERT_TRUE(ended.ok()) << ended;
  }

  // Waits until all pservers have written their part, then commits the checkpoint. Returns its
  // folder.
  std::string Commit(TestCluster* cluster, uint32_t pservers, uint64_t step,
                     SavedTables* saved = nullptr) {
    const std::string dir = CheckpointFolder(cluster->job().config().checkpoint().dir(), step);
    Manifest manifest;
    manifest.set_job_id(cluster->job().job_id());
    manifest.set_global_step(step);
    *manifest.mutable_tables() = cluster->job().tables();
    manifest.mutable_checkpoint()->set_mode("sync");
    manifest.mutable_checkpoint()->set_global_step(step);
    const absl::Time deadline = Clock::Real()->Now() + absl::Seconds(20);
    for (uint32_t p = 0; p < pservers; ++p) {
      HostedCut cut;
      do {
        std::this_thread::yield();
        cut = cluster->pserver(p)->Report().at(0).cut();
      } while (cut.state() != HostedCut::WRITTEN && Clock::Real()->Now() < deadline);
      EXPECT_EQ(cut.state(), HostedCut::WRITTEN) << cut.ShortDebugString();
      EXPECT_EQ(cut.checkpoint(), kCheckpoint);
      EXPECT_EQ(cut.step(), step);
      for (const SavedFile& file : cut.files()) *manifest.add_files() = file;
    }
    const absl::Status status =
        CommitCheckpoint(dir, cluster->job().config(), manifest, Env::Real(),
                         CheckpointSaveId(kInstance, kCheckpoint));
    EXPECT_TRUE(status.ok()) << status;
    if (saved != nullptr) *saved = ReadSaved(dir, manifest);
    return dir;
  }
  // Makes a checkpoint of step `step` at once, without training.
  void CutNow(TestCluster* cluster, uint32_t pservers, uint64_t step) {
    google::protobuf::RepeatedPtrField<CutOrder> orders;
    CutOrder* const order = orders.Add();
    order->set_job_id(cluster->job().job_id());
    order->set_instance(kInstance);
    order->set_now(kCheckpoint);
    order->set_step(step);
    for (uint32_t p = 0; p < pservers; ++p) cluster->pserver(p)->SetCutOrders(orders);
  }

  std::string root_;
};

TEST_F(CheckpointResumeTest, ResumeOnAnyNumberOfPserversGivesTheSameBits) {
  TestCluster plain(Job(2));
  const Tables expected = Train(&plain, 0);
  for (const uint64_t at : {uint64_t{0}, uint64_t{5}, kSteps - 1}) {
    SCOPED_TRACE(at);
    TestCluster cluster(Job(4));
    EXPECT_EQ(Train(&cluster, 0, at), expected) << "a cut changed the training";
    const std::string dir = Commit(&cluster, 4, at + 1);
    for (const uint32_t pservers : {1u, 3u, 4u, 8u}) {
      JobSpec job = Job(pservers);
      job.set_instance(kInstance);
      job.mutable_restore()->set_directory(dir);
      job.mutable_restore()->set_step(at + 1);
      TestCluster resumed(job);
      EXPECT_EQ(Train(&resumed, at + 1), expected) << pservers << " pservers";
    }
  }
}

// Each row and block has the same weights, optimizer state and count, and each table the same
// position of its schedule, before any step is trained.
TEST_F(CheckpointResumeTest, ACheckpointRightAfterAResumeHasTheSameRowsAndBlocks) {
  constexpr uint64_t kStep = 9;
  TestCluster cluster(Job(4, 3));
  Train(&cluster, 0, kStep - 1);
  SavedTables expected;
  const std::string dir = Commit(&cluster, 4, kStep, &expected);
  ASSERT_GT(expected.records.size(), 30u);
  ASSERT_EQ(expected.facts["emb"], std::vector<uint64_t>({kStep, kStep, 0}));
  for (const uint32_t pservers : {1u, 3u, 8u}) {
    for (const uint32_t workers : {1u, 5u}) {
      for (const uint32_t shards : {16u, 5 * pservers}) {
        SCOPED_TRACE(testing::Message() << pservers << " pservers, " << workers << " workers, "
                                        << shards << " shards");
        JobSpec job = Job(pservers, workers);
        job.mutable_tables(kEmb)->set_num_shards(shards);
        TableRoute* const owners = job.mutable_route()->mutable_tables(kEmb);
        owners->clear_owner();
        for (uint32_t s = 0; s < shards; ++s) owners->add_owner(s % pservers);
        job.mutable_restore()->set_directory(dir);
        job.mutable_restore()->set_step(kStep);
        job.mutable_config()->mutable_checkpoint()->set_dir(root_ + "/again");
        TestCluster resumed(job);
        CutNow(&resumed, pservers, kStep);
        SavedTables saved;
        Commit(&resumed, pservers, kStep, &saved);
        EXPECT_TRUE(saved == expected);
        std::filesystem::remove_all(root_ + "/again");
      }
    }
  }
}

TEST_F(CheckpointResumeTest, CutStreamsMakeTheSameCheckpoint) {
  TestCluster plain(Job(2));
  const Tables expected = Train(&plain, 0);
  int cuts = 0;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    std::filesystem::remove_all(root_);
    TestCluster cluster(Job(2));
    FaultyTransport faulty(cluster.transport(), {seed, 9, 200});
    EXPECT_EQ(Train(&cluster, 0, 6, &faulty), expected);
    cuts += faulty.cuts();
    JobSpec job = Job(1);
    job.mutable_restore()->set_directory(Commit(&cluster, 2, 7));
    job.mutable_restore()->set_step(7);
    TestCluster resumed(job);
    EXPECT_EQ(Train(&resumed, 7), expected) << "seed " << seed;
  }
  EXPECT_GT(cuts, 3);
}

}  // namespace
}  // namespace sluice
