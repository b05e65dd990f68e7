#include "server/checkpoints/job_cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/saved_model/saved_model.h"
#include "tests/common/base/fake_clock.h"
#include "tests/common/base/hooked_env.h"
#include "tests/common/saved_model/read_shard_file.h"
#include "tests/server/test_worker.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const std::string kSaveId = "00000000000000c1";

// The shards of MakeSpec: one dense block and four sparse shards.
class JobCutTest : public testing::Test {
 protected:
  JobCutTest() : layouts_(LayoutsOf(spec_)) {
    std::string pattern = testing::TempDir() + "/job_cut_test.XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    dir_ = folder_ + "/checkpoints/step-7";
    UpdatePolicy policy;
    policy.worker_num = 2;
    view_ = FirstView(layouts_, policy, spec_.route(), kSelf);
    env_.before = [](const std::string&, const std::string&) { return absl::OkStatus(); };
  }
  ~JobCutTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<JobCut> Begin(const JobView& view) {
    JobCut::Options options;
    options.checkpoint = 3;
    options.step = 7;
    options.directory = dir_;
    options.save_id = kSaveId;
    options.export_since = export_since_;
    options.budget = budget_;
    options.env = &env_;
    options.clock = &clock_;
    options.on_change = [this] { ++changes_; };
    options.fail_job = [this](const std::string& error) { job_error_ = error; };
    auto cut = std::make_unique<JobCut>(std::move(options));
    cut->Begin(view);
    return cut;
  }

  void Push(uint32_t rank, uint64_t sequence) {
    view_->ForEachShard([&](Shard* shard) {
      PushPart part;
      const FrameId frame{rank, 1, sequence, 1, {40 + rank, sequence}};
      if (!shard->table().sparse()) {
        part.rows = 4;
        part.values.assign(4, 1.0f);
      }
      ASSERT_EQ(shard->Apply(frame, &part).status, PART_OK);
    });
  }

  bool NothingIsLeft() { return !Env::Real()->Exists(dir_); }

  const JobSpec spec_ = MakeSpec(2, true, 0);
  const TableLayouts layouts_;
  std::shared_ptr<const JobView> view_;
  std::string folder_, dir_;
  HookedEnv env_;
  FakeClock clock_;
  std::optional<std::vector<uint64_t>> export_since_;
  std::shared_ptr<PreImageBudget> budget_ = std::make_shared<PreImageBudget>(1 << 20);
  std::atomic<int> changes_{0};
  std::string job_error_;
  uint64_t pushes_ = 0;
};

TEST_F(JobCutTest, ItsFilesAreWrittenOneAfterAnotherAndReported) {
  Push(0, 1);
  const auto cut = Begin(*view_);
  Push(0, 2);
  HostedCut report = cut->Report();
  EXPECT_EQ(report.state(), HostedCut::WRITING);
  EXPECT_EQ(report.checkpoint(), 3u);
  EXPECT_EQ(report.step(), 7u);
  EXPECT_THAT(report.files(), IsEmpty());
  for (int file = 1; file <= 5; ++file) {
    EXPECT_EQ(changes_, 0);
    ASSERT_TRUE(cut->WriteOne());
    EXPECT_THAT(*Env::Real()->List(dir_), SizeIs(file));
  }
  EXPECT_FALSE(cut->WriteOne());
  EXPECT_TRUE(cut->ended());
  cut->AwaitEnd();
  report = cut->Report();
  EXPECT_EQ(changes_, 1);
  EXPECT_EQ(report.state(), HostedCut::WRITTEN);
  ASSERT_THAT(report.files(), SizeIs(5));
  uint64_t bytes = 0;
  for (const SavedFile& file : report.files()) {
    bytes += file.bytes();
    EXPECT_EQ(*Env::Real()->FileSize(dir_ + "/" + file.name()), file.bytes());
    EXPECT_THAT(file.name(), HasSubstr(kSaveId));
  }
  EXPECT_EQ(report.written_bytes(), bytes);
  EXPECT_GT(report.preimage_bytes(), 0u);
  EXPECT_EQ(budget_->taken(), 0u);
  // The update that came meanwhile is not in it.
  uint32_t shard = 0;
  for (const SavedFile& file : report.files()) {
    if (!absl::StartsWith(file.name(), "w-")) continue;
    EXPECT_THAT(ReadShardFile(dir_, layouts_[0]->config(), file, &shard, &env_)->weights,
                ElementsAre(0.5f, 0.5f, 0.5f, 0.5f));
  }
  // What is complete stays.
  cut->Cancel();
  EXPECT_EQ(cut->Report().state(), HostedCut::WRITTEN);
  EXPECT_THAT(*Env::Real()->List(dir_), SizeIs(5));
}

TEST_F(JobCutTest, AValueThatIsNotFiniteFailsTheCheckpointAndTheJob) {
  const float bad = std::numeric_limits<float>::infinity();
  view_->FindShard(0, 0)->LoadElements(2, &bad, 1);
  const auto cut = Begin(*view_);
  while (cut->WriteOne()) {
  }
  EXPECT_TRUE(cut->ended());
  const HostedCut report = cut->Report();
  EXPECT_EQ(report.state(), HostedCut::FAILED);
  for (const std::string& error : {report.error(), job_error_})
    EXPECT_THAT(error, testing::AllOf(HasSubstr("'w'"), HasSubstr("element 2 ")));
  EXPECT_TRUE(NothingIsLeft());
}

TEST_F(JobCutTest, ThePositionIsTheLeastOfAllShards) {
  Push(0, 1);
  Push(0, 2);
  Push(1, 1);
  PushPart part;  // one shard is ahead
  ASSERT_EQ(view_->FindShard(1, 2)->Apply({1, 1, 2, 1, 41, 2}, &part).status, PART_OK);
  const HostedCut report = Begin(*view_)->Report();
  ASSERT_THAT(report.least(), SizeIs(2));
  EXPECT_EQ(report.least(0).sequence(), 2u);
  EXPECT_EQ(report.least(0).task_id(), 40u);
  EXPECT_EQ(report.least(0).task_end(), 2u);
  EXPECT_EQ(report.least(1).sequence(), 1u);
  EXPECT_EQ(report.least(1).task_end(), 1u);
}

TEST_F(JobCutTest, ADeltaThatCannotNameAllThatWentIsABase) {
  view_->ForEachShard([](Shard* shard) {
    PushPart part;
    const FrameId frame{0, 1, 1, 1, {}};
    for (uint64_t key = 0; shard->table().sparse() && part.keys.empty(); ++key)
      if (shard->table().ShardOf(key) == shard->index()) part.keys = {key};
    part.rows = static_cast<uint32_t>(shard->table().sparse() ? 1 : 4);
    part.values.assign(shard->table().sparse() ? 3 : 4, 1.0f);
    ASSERT_EQ(shard->Apply(frame, &part).status, PART_OK);
  });
  // It has forgotten what went before step 4.
  view_->FindShard(1, 2)->DropTombstones(5);
  for (const uint64_t since : {5u, 3u}) {
    SCOPED_TRACE(since);
    export_since_ = std::vector<uint64_t>(2, since);  // by table
    const auto cut = Begin(*view_);
    while (cut->WriteOne()) {
    }
    const HostedCut report = cut->Report();
    EXPECT_EQ(report.state(), HostedCut::WRITTEN);
    EXPECT_THAT(report.files(), SizeIs(5));
    EXPECT_EQ(report.since_size(), since == 5 ? 2 : 0);
    EXPECT_EQ(report.rows(), since == 5 ? 0u : 4u);
    EXPECT_EQ(report.error().empty(), since == 5) << report.error();
    if (since == 3) {
      EXPECT_THAT(report.error(), HasSubstr("shard 2 of table 'e'"));
    }
    std::filesystem::remove_all(dir_);
  }
}

TEST_F(JobCutTest, APserverWithoutShardsOfTheJobHasWrittenThem) {
  JobView none = *view_;
  for (auto& table : none.shards) {
    for (auto& shard : table) shard = nullptr;
  }
  const auto cut = Begin(none);
  EXPECT_EQ(cut->Report().state(), HostedCut::WRITTEN);
  EXPECT_FALSE(cut->WriteOne());
}

TEST_F(JobCutTest, AFullDiskIsReportedAndLeavesNothing) {
  for (int fail_at = 1; fail_at <= 5; ++fail_at) {
    SCOPED_TRACE(fail_at);
    changes_ = 0;
    int writes = 0;
    env_.before = [&](const std::string& what, const std::string& path) {
      return what == "write" && ++writes == fail_at
                 ? absl::ResourceExhaustedError("write " + path + ": No space left on device")
                 : absl::OkStatus();
    };
    const auto cut = Begin(*view_);
    while (cut->WriteOne()) {
    }
    EXPECT_EQ(writes, fail_at) << "after the error no file is begun";
    const HostedCut report = cut->Report();
    EXPECT_EQ(report.state(), HostedCut::FAILED);
    EXPECT_THAT(report.error(), HasSubstr("No space left on device"));
    EXPECT_THAT(report.error(), HasSubstr(dir_));
    EXPECT_THAT(report.files(), IsEmpty());
    EXPECT_EQ(changes_, 1);
    EXPECT_TRUE(NothingIsLeft());
    EXPECT_EQ(budget_->taken(), 0u);
    Push(0, static_cast<uint64_t>(fail_at));
  }
}

// A folder that cannot be made, and a disk that fails or is read-only at each file in turn.
TEST_F(JobCutTest, AnErrorOfTheDiskIsReportedAndLeavesNothing) {
  for (const std::string change : {"mkdir", "write"}) {
    for (int fail_at = 1; fail_at <= (change == "mkdir" ? 1 : 5); ++fail_at) {
      SCOPED_TRACE(absl::StrCat(change, " ", fail_at));
      changes_ = 0;
      int seen = 0;
      env_.before = [&](const std::string& what, const std::string& path) {
        return what == change && ++seen == fail_at
                   ? absl::InternalError(absl::StrCat(what, " ", path, ": Input/output error"))
                   : absl::OkStatus();
      };
      // A crash of the disk leaves what it has of the file.
      env_.tears_writes = true;
      const auto cut = Begin(*view_);
      while (cut->WriteOne()) {
      }
      const HostedCut report = cut->Report();
      EXPECT_EQ(report.state(), HostedCut::FAILED);
      EXPECT_THAT(report.error(), testing::AllOf(HasSubstr("Input/output error"), HasSubstr(dir_)));
      EXPECT_THAT(report.files(), IsEmpty());
      EXPECT_EQ(changes_, 1);
      EXPECT_EQ(budget_->taken(), 0u);
      for (const std::string& name : Env::Real()->List(dir_).value_or(std::vector<std::string>()))
        EXPECT_TRUE(absl::EndsWith(name, kUnfinishedSuffix)) << name;
      Push(0, ++pushes_);
    }
  }
}

// The disk stands still while all rows are updated. Updates never wait for it. What they need for
// the checkpoint comes from the budget; without room the checkpoint fails, and nothing else.
TEST_F(JobCutTest, ASlowDiskDoesNotDelayUpdates) {
  constexpr uint64_t kRows = 8000;
  const auto push_rows = [&](uint64_t sequence) {
    for (const auto& shard : view_->shards[1]) {
      PushPart part;
      for (uint64_t key = 0; key < kRows; ++key) {
        if (shard->table().ShardOf(key) == shard->index()) part.keys.push_back(key);
      }
      part.rows = static_cast<uint32_t>(part.keys.size());
      part.values.assign(part.keys.size() * 3, 0.5f);
      ASSERT_EQ(shard->Apply({0, 1, sequence, 1, {}}, &part).status, PART_OK);
    }
  };
  push_rows(1);
  uint64_t sequence = 1;
  for (const bool enough : {false, true}) {
    SCOPED_TRACE(enough);
    budget_ = std::make_shared<PreImageBudget>(enough ? 16 << 20 : 100 << 10);
    std::atomic<bool> writing{false}, go_on{false};
    env_.before = [&](const std::string& what, const std::string&) {
      if (what != "write") return absl::OkStatus();
      writing = true;
      while (!go_on) std::this_thread::yield();
      return absl::OkStatus();
    };
    const auto cut = Begin(*view_);
    std::thread writer([&] {
      while (cut->WriteOne()) {
      }
    });
    while (!writing) std::this_thread::yield();
    for (int round = 0; round < 3; ++round) push_rows(++sequence);  // or it would hang here
    HostedCut report = cut->Report();
    EXPECT_EQ(report.state(), HostedCut::WRITING);
    EXPECT_GT(report.preimage_bytes(), 0u);
    EXPECT_LE(report.preimage_bytes(), enough ? 16u << 20 : 100u << 10);
    go_on = true;
    cut->AwaitEnd();
    writer.join();
    report = cut->Report();
    EXPECT_EQ(budget_->taken(), 0u);
    if (enough) {
      EXPECT_EQ(report.state(), HostedCut::WRITTEN) << report.error();
    } else {
      EXPECT_EQ(report.state(), HostedCut::FAILED);
      EXPECT_THAT(report.error(), testing::AllOf(HasSubstr("table 'e'"), HasSubstr("memory")));
      EXPECT_TRUE(NothingIsLeft());
    }
    uint64_t rows = 0;
    for (const auto& shard : view_->shards[1]) rows += shard->rows();
    EXPECT_EQ(rows, kRows);
  }
}

TEST_F(JobCutTest, FilesOfOthersStayWhenItFails) {
  Env::Real()->MakeDirs(dir_).IgnoreError();
  ASSERT_TRUE(Env::Real()->WriteFile(dir_ + "/MANIFEST", {"of another"}).ok());
  const auto cut = Begin(*view_);
  ASSERT_TRUE(cut->WriteOne());
  cut->Cancel();
  EXPECT_THAT(*Env::Real()->List(dir_), ElementsAre("MANIFEST"));
}

TEST_F(JobCutTest, ExhaustedBudgetFailsOnlyTheCut) {
  budget_ = std::make_shared<PreImageBudget>(10);
  const auto cut = Begin(*view_);
  while (cut->WriteOne()) {
  }
  EXPECT_EQ(cut->Report().state(), HostedCut::FAILED);
  EXPECT_THAT(cut->Report().error(), HasSubstr("table 'w'"));
  EXPECT_TRUE(NothingIsLeft());
  Push(0, 1);
}

TEST_F(JobCutTest, CancellationEndsTheFileBeingWritten) {
  std::atomic<bool> writing{false}, go_on{false};
  env_.before = [&](const std::string& what, const std::string&) {
    if (what == "write" && !writing.exchange(true)) {
      while (!go_on) std::this_thread::yield();
    }
    return absl::OkStatus();
  };
  const auto cut = Begin(*view_);
  std::thread writer([&] {
    while (cut->WriteOne()) {
    }
  });
  while (!writing) std::this_thread::yield();
  cut->Cancel();
  EXPECT_FALSE(cut->ended()) << "a file is under way";
  EXPECT_EQ(cut->Report().state(), HostedCut::FAILED);
  go_on = true;
  cut->AwaitEnd();
  writer.join();
  EXPECT_TRUE(NothingIsLeft());
  EXPECT_EQ(budget_->taken(), 0u);
}

TEST_F(JobCutTest, SeveralThreadsShareItsFiles) {
  const auto cut = Begin(*view_);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (cut->WriteOne()) {
      }
    });
  }
  cut->AwaitEnd();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cut->Report().state(), HostedCut::WRITTEN);
  EXPECT_THAT(cut->Report().files(), SizeIs(5));
}

}  // namespace
}  // namespace sluice
