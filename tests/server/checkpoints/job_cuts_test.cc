#include "server/checkpoints/job_cuts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/export_chain.h"
#include "proto/model.pb.h"
#include "server/shards/sparse_shard.h"
#include "tests/common/base/fake_clock.h"
#include "tests/common/base/hooked_env.h"
#include "tests/server/test_worker.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class JobCutsTest : public testing::Test {
 protected:
  JobCutsTest() {
    std::string pattern = testing::TempDir() + "/job_cuts_test.XXXXXX";
    root_ = ::mkdtemp(pattern.data());
    view_ = FirstView(LayoutsOf(spec_), UpdatePolicy(), spec_.route(), kSelf);
    env_.before = [this](const std::string& what, const std::string&) {
      if (what == "write") {
        ++writing_;
        while (!go_on_) std::this_thread::yield();
      }
      return absl::OkStatus();
    };
    cuts_ = std::make_unique<JobCuts>(OptionsFor(root_));
  }
  ~JobCutsTest() override {
    go_on_ = true;
    cuts_ = nullptr;
    writer_.Stop();
    std::filesystem::remove_all(root_);
  }

  JobCuts::Options OptionsFor(const std::string& root) {
    JobCuts::Options options;
    options.root = root;
    options.instance = 5;
    options.writer = &writer_;
    options.env = &env_;
    options.clock = &clock_;
    options.available_memory = [] { return UINT64_MAX; };
    options.on_change = [this] { ++changes_; };
    return options;
  }
  // The cut of the report; number 0: none.
  HostedCut Now() {
    HostedJob report;
    cuts_->FillReport(&report);
    return report.cut();
  }
  static CutOrder Over(uint64_t number) {
    CutOrder order;
    order.set_over(number);
    return order;
  }
  size_t FilesOf(uint64_t step) {
    const auto names = Env::Real()->List(CheckpointFolder(root_, step));
    return names.ok() ? names->size() : 0;
  }

  const JobSpec spec_ = MakeSpec(1, false, 0);
  std::string root_;
  HookedEnv env_;
  FakeClock clock_;
  std::atomic<int> writing_{0}, changes_{0};
  std::atomic<bool> go_on_{true};
  CutWriter writer_{1};
  std::shared_ptr<const JobView> view_;
  std::unique_ptr<JobCuts> cuts_;
};

TEST_F(JobCutsTest, ACheckpointIsWrittenOnceAndReportedUntilItIsOver) {
  EXPECT_EQ(Now().checkpoint(), 0u);
  cuts_->Begin(1, 40, *view_);
  cuts_->AwaitEnd();
  cuts_->Begin(1, 40, *view_);  // a commit that is sent again
  HostedCut cut = Now();
  EXPECT_EQ(cut.checkpoint(), 1u);
  EXPECT_EQ(cut.step(), 40u);
  EXPECT_EQ(cut.state(), HostedCut::WRITTEN);
  EXPECT_THAT(cut.files(), SizeIs(5));
  EXPECT_EQ(writing_, 5);
  while (changes_ < 2) std::this_thread::yield();  // the last one is told after the end
  EXPECT_EQ(cut.files(0).name().find(CheckpointSaveId(5, 1)) == std::string::npos, false);
  cuts_->SetOrder(Over(0), *view_);
  EXPECT_EQ(Now().checkpoint(), 1u);
  cuts_->SetOrder(Over(1), *view_);
  EXPECT_EQ(Now().checkpoint(), 0u);
  EXPECT_EQ(FilesOf(40), 5u) << "what is complete stays";
  cuts_->Begin(1, 40, *view_);
  EXPECT_EQ(Now().checkpoint(), 0u);
  cuts_->Begin(2, 80, *view_);
  EXPECT_EQ(Now().checkpoint(), 2u);
}

TEST_F(JobCutsTest, ACutThatIsNotPossibleFailsItsCheckpointOnly) {
  CutOrder order;
  order.set_now(1);
  order.set_step(40);
  cuts_->SetOrder(order, *view_, absl::FailedPreconditionError("step 39 is the last one"));
  EXPECT_EQ(Now().checkpoint(), 1u);
  EXPECT_EQ(Now().state(), HostedCut::FAILED);
  EXPECT_EQ(Now().error(), "step 39 is the last one");
  cuts_->SetOrder(order, *view_);
  EXPECT_EQ(Now().state(), HostedCut::FAILED) << "the number has been used";
  order.set_now(2);
  cuts_->SetOrder(order, *view_);
  cuts_->AwaitEnd();
  EXPECT_EQ(Now().state(), HostedCut::WRITTEN);
}

TEST_F(JobCutsTest, ACheckpointGivenUpWhileItIsWrittenLeavesNoFiles) {
  go_on_ = false;
  cuts_->Begin(1, 40, *view_);
  while (writing_ == 0) std::this_thread::yield();
  EXPECT_EQ(Now().state(), HostedCut::WRITING);
  cuts_->SetOrder(Over(1), *view_);
  EXPECT_EQ(Now().checkpoint(), 0u);
  std::thread waits([&] { cuts_->AwaitEnd(); });
  go_on_ = true;
  waits.join();
  EXPECT_FALSE(Env::Real()->Exists(CheckpointFolder(root_, 40)));
  cuts_->Begin(2, 40, *view_);
  cuts_->AwaitEnd();
  EXPECT_EQ(Now().state(), HostedCut::WRITTEN);
  EXPECT_EQ(FilesOf(40), 5u);
}

TEST_F(JobCutsTest, AnOrderOfAsyncBeginsACheckpointOnce) {
  CutOrder order = Over(0);
  order.set_now(1);
  order.set_step(123);
  for (int i = 0; i < 3; ++i) cuts_->SetOrder(order, *view_);
  cuts_->AwaitEnd();
  EXPECT_EQ(Now().state(), HostedCut::WRITTEN);
  EXPECT_EQ(Now().step(), 123u);
  EXPECT_EQ(writing_, 5);
  order.set_over(1);
  cuts_->SetOrder(order, *view_);
  EXPECT_EQ(Now().checkpoint(), 0u);
}

TEST_F(JobCutsTest, ALaterCheckpointReplacesOneWhoseFileHangs) {
  // A file of a sparse shard, which has one cut at a time.
  env_.before = [this](const std::string& what, const std::string& path) {
    if (what != "write" || path.find("/w-") != std::string::npos) return absl::OkStatus();
    ++writing_;
    while (!go_on_) std::this_thread::yield();
    return absl::OkStatus();
  };
  go_on_ = false;
  cuts_->Begin(1, 40, *view_);
  while (writing_ == 0) std::this_thread::yield();
  cuts_->Begin(2, 50, *view_);
  EXPECT_EQ(Now().checkpoint(), 2u);
  EXPECT_EQ(Now().state(), HostedCut::WRITING) << Now().error();
  go_on_ = true;
  cuts_->AwaitEnd();
  EXPECT_EQ(Now().state(), HostedCut::WRITTEN) << Now().error();
  EXPECT_FALSE(Env::Real()->Exists(CheckpointFolder(root_, 40)));
  cuts_->Begin(3, 60, *view_);
  cuts_->AwaitEnd();
  EXPECT_EQ(Now().state(), HostedCut::WRITTEN);
}

TEST_F(JobCutsTest, EvenNumbersAreExportsIfTheJobMakesThem) {
  JobCuts::Options options = OptionsFor(root_);
  options.export_root = root_ + "/export";
  cuts_ = std::make_unique<JobCuts>(std::move(options));
  cuts_->Begin(2, 40, *view_);
  cuts_->AwaitEnd();
  HostedCut cut = Now();
  EXPECT_EQ(cut.state(), HostedCut::WRITTEN);
  EXPECT_THAT(cut.since(), IsEmpty()) << "a base";
  EXPECT_EQ(FilesOf(40), 0u);
  EXPECT_EQ(Env::Real()->List(ExportFolder(root_ + "/export", 5, 2))->size(), 5u);
  CutOrder order = Over(2);
  order.add_export_since(15);
  order.add_export_since(17);
  cuts_->SetOrder(order, *view_);
  cuts_->Begin(4, 50, *view_);
  cuts_->AwaitEnd();
  EXPECT_THAT(Now().since(), ElementsAre(15, 17));
  cuts_->Begin(5, 60, *view_);
  cuts_->AwaitEnd();
  EXPECT_EQ(Now().checkpoint(), 5u);
  EXPECT_EQ(FilesOf(60), 5u) << "a checkpoint";
}

TEST_F(JobCutsTest, AnOrderThatNamesOtherTablesMakesABase) {
  JobCuts::Options options = OptionsFor(root_);
  options.export_root = root_ + "/export";
  cuts_ = std::make_unique<JobCuts>(std::move(options));
  CutOrder order;
  order.add_export_since(17);
  cuts_->SetOrder(order, *view_);
  cuts_->Begin(2, 40, *view_);
  cuts_->AwaitEnd();
  EXPECT_EQ(Now().state(), HostedCut::WRITTEN);
  EXPECT_THAT(Now().since(), IsEmpty());
}

// A table that joins a job which continues another begins at schedule step 0.
TEST_F(JobCutsTest, ADeltaHasTheTouchedRowsOfEachTableWhateverTheStepOfAnother) {
  JobSpec spec = spec_;
  *spec.add_tables() = spec_.tables(1);
  spec.mutable_tables(2)->set_name("new");
  *spec.mutable_route()->add_tables() = spec_.route().tables(1);
  UpdatePolicy policy;
  policy.keeps_tombstones = true;
  view_ = FirstView(LayoutsOf(spec), policy, spec.route(), kSelf);
  ShardFacts saved;
  saved.set_schedule_steps(1000000);
  for (const size_t old : {0u, 1u})
    for (const auto& shard : view_->shards[old]) shard->RestorePosition(saved);
  JobCuts::Options options = OptionsFor(root_);
  options.export_root = root_ + "/export";
  cuts_ = std::make_unique<JobCuts>(std::move(options));

  uint64_t sequence = 0;
  const auto push = [&](const std::vector<uint64_t>& keys) {
    ++sequence;
    view_->ForEachShard([&](Shard* shard) {
      PushPart part;
      for (const uint64_t key : keys)
        if (shard->table().sparse() && shard->table().ShardOf(key) == shard->index())
          part.keys.push_back(key);
      part.rows = static_cast<uint32_t>(shard->table().sparse() ? part.keys.size() : 4);
      part.values.assign(shard->table().sparse() ? 3 * part.keys.size() : 4, 1.0f);
      ASSERT_EQ(shard->Apply({0, 1, sequence, 1, {}}, &part).status, PART_OK);
    });
  };
  HostedCut cut;
  const auto make_export = [&] {
    CutOrder order = Over(cut.checkpoint());
    *order.mutable_export_since() = cut.schedule_step();
    cuts_->SetOrder(order, *view_);
    cuts_->Begin(cut.checkpoint() + 2, sequence, *view_);
    cuts_->AwaitEnd();
    cut = Now();
    EXPECT_EQ(cut.state(), HostedCut::WRITTEN);
    EXPECT_EQ(cut.error(), "") << "the chain goes on";
  };

  for (int frame = 0; frame < 3; ++frame) push({1, 2, 3, 4, 5, 6, 7, 8, 9});
  make_export();
  EXPECT_THAT(cut.since(), IsEmpty());
  EXPECT_THAT(cut.schedule_step(), ElementsAre(UINT64_MAX, 1000003, 3));
  EXPECT_EQ(cut.rows(), 18u);
  push({7});
  const uint64_t gone = 9;
  const auto& old = view_->shards[1];
  EXPECT_EQ(old[old[0]->table().ShardOf(gone)]->DeleteRows(&gone, 1), 1u);
  make_export();
  EXPECT_THAT(cut.since(), ElementsAre(UINT64_MAX, 1000003, 3));
  EXPECT_EQ(cut.rows(), 2u) << "the row of each table";
  EXPECT_EQ(cut.gone(), 1u);
  // It went between two updates, so the next delta names it once more.
  for (const uint64_t still_gone : {1u, 0u}) {
    push({7, 8});
    make_export();
    EXPECT_EQ(cut.rows(), 4u);
    EXPECT_EQ(cut.gone(), still_gone);
  }
}

// A shard that tells when it drops tombstones and when a cut of it has begun.
class WatchedShard : public SparseShard {
 public:
  using SparseShard::SparseShard;
  void DropTombstones(uint64_t before) override {
    if (on_drop) on_drop();
    SparseShard::DropTombstones(before);
  }

  std::function<void()> on_drop;
  std::atomic<bool> cut_begun{false};

 protected:
  std::unique_ptr<ShardCut> MakeCut(CutState state, const CutOptions& options) override
      ABSL_NO_THREAD_SAFETY_ANALYSIS {
    auto cut = SparseShard::MakeCut(std::move(state), options);
    cut_begun = true;
    return cut;
  }
};

bool IsAsleep(int64_t thread) {
  std::ifstream file(absl::StrCat("/proc/self/task/", thread, "/stat"));
  const std::string stat((std::istreambuf_iterator<char>(file)), {});
  const size_t name_end = stat.rfind(") ");
  return name_end != std::string::npos && stat[name_end + 2] == 'S';
}

// An order ends a chain, and in sync a commit begins the base while shards drop what a base does
// not need. A row that goes after the cut is not among that.
TEST_F(JobCutsTest, TheNextDeltaNamesWhatGoesAfterTheCutOfItsBase) {
  const TableLayouts layouts = LayoutsOf(spec_);
  UpdatePolicy policy;
  policy.keeps_tombstones = true;
  const auto shard = std::make_shared<WatchedShard>(layouts[1], 0, policy, ShardLimits());
  JobView view = *view_;
  view.shards[1][0] = shard;
  PushPart part;
  for (uint64_t key = 0; part.keys.empty(); ++key)
    if (layouts[1]->ShardOf(key) == 0) part.keys = {key};
  const uint64_t key = part.keys[0];
  part.rows = 1;
  part.values.assign(3, 1.0f);
  ASSERT_EQ(shard->Apply({0, 1, 1, 1, {}}, &part).status, PART_OK);

  JobCuts::Options options = OptionsFor(root_);
  options.export_root = root_ + "/export";
  std::atomic<int64_t> second{0};  // the thread, once it is about to begin the cut
  options.available_memory = [&second] {
    second = ::syscall(SYS_gettid);
    return UINT64_MAX;
  };
  cuts_ = std::make_unique<JobCuts>(std::move(options));
  CutOrder order;
  for (int table = 0; table < 2; ++table) order.add_export_since(1);
  cuts_->SetOrder(order, view);
  order.clear_export_since();
  std::thread begins;
  bool gone = false;
  const auto erase = [&] { gone = shard->DeleteRows(&key, 1) == 1; };
  shard->on_drop = [&] {
    begins = std::thread([&] { cuts_->Begin(2, 40, view); });
    // It sleeps when it waits for this call.
    while (!shard->cut_begun && !(second != 0 && IsAsleep(second))) std::this_thread::yield();
    if (shard->cut_begun) erase();
  };
  cuts_->SetOrder(order, view);
  begins.join();
  ASSERT_TRUE(shard->cut_begun);
  if (!gone) erase();
  ASSERT_TRUE(gone);
  cuts_->AwaitEnd();
  ASSERT_EQ(Now().state(), HostedCut::WRITTEN);
  EXPECT_EQ(Now().rows(), 1u) << "the row is in the base";

  CutOptions delta;
  delta.since = 1;
  std::string piece;
  ASSERT_TRUE(*shard->BeginCut(delta)->Next(&piece));
  ShardFileHeader header;
  ASSERT_TRUE(header.ParseFromArray(piece.data() + 12, static_cast<int>(piece.size()) - 12));
  EXPECT_THAT(header.gone(), ElementsAre(key));
}

TEST_F(JobCutsTest, RowsAreDeletedRightBeforeTheCutThatTheOrderNames) {
  const TableLayout& table = view_->FindShard(1, 0)->table();
  const float weights[3] = {1, 2, 3};
  const char* const values = reinterpret_cast<const char*>(weights);
  for (uint64_t key = 1; key <= 40; ++key)
    view_->FindShard(1, table.ShardOf(key))->LoadRows(&key, &values, 1);
  const auto rows = [this] {
    uint64_t rows = 0;
    for (uint32_t s = 0; s < 4; ++s) rows += view_->FindShard(1, s)->rows();
    return rows;
  };
  const auto held = [this] {
    HostedJob report;
    cuts_->FillReport(&report);
    return std::make_pair<uint64_t, uint64_t>(report.deletion().id(), report.deletion().at());
  };
  const auto order = [this](uint64_t id, uint64_t at, const std::vector<uint64_t>& keys,
                            uint32_t of_table = 1) {
    CutOrder order;
    order.mutable_deletion()->set_id(id);
    order.mutable_deletion()->set_at(at);
    order.mutable_deletion()->set_table(of_table);
    order.mutable_deletion()->mutable_keys()->Assign(keys.begin(), keys.end());
    cuts_->SetOrder(order, *view_);
  };
  const auto cut = [this](uint64_t number) {
    cuts_->Begin(number, 10 * number, *view_);
    cuts_->AwaitEnd();
    EXPECT_EQ(Now().state(), HostedCut::WRITTEN) << Now().error();
    return std::make_pair<uint64_t, uint64_t>(Now().deletion(), Now().deleted());
  };
  using Pair = std::pair<uint64_t, uint64_t>;
  order(5, 2, {1, 2, 3, 1000});
  EXPECT_EQ(held(), Pair(5, 2));
  EXPECT_EQ(cut(1), Pair(0, 0));
  order(5, 4, {});
  EXPECT_EQ(held(), Pair(5, 4)) << "the keys stay";
  EXPECT_EQ(cut(2), Pair(0, 0)) << "another number has taken its place";
  EXPECT_EQ(rows(), 40u);
  EXPECT_EQ(cut(4), Pair(5, 3));
  EXPECT_EQ(rows(), 37u);
  for (const uint64_t gone : {1, 2, 3}) {
    float row[3];
    view_->FindShard(1, table.ShardOf(gone))->Read(&gone, 1, reinterpret_cast<uint8_t*>(row));
    EXPECT_EQ(row[2], kInitialSparse);
  }
  EXPECT_EQ(cut(5), Pair(0, 0)) << "an order is about one cut";
  cuts_->SetOrder(Over(5), *view_);
  EXPECT_EQ(held(), Pair(0, 0));
  order(6, 6, {});
  EXPECT_EQ(held(), Pair(0, 0)) << "the keys went to another process";
  EXPECT_EQ(cut(6), Pair(0, 0));
  order(7, 7, {4}, /*of_table=*/2);
  EXPECT_EQ(held(), Pair(0, 0)) << "there is no such table";
  EXPECT_EQ(cut(7), Pair(0, 0));
  order(8, 8, {4}, /*of_table=*/0);
  EXPECT_EQ(cut(8), Pair(8, 0)) << "a dense table has no rows to delete";
  EXPECT_EQ(rows(), 37u);
}

TEST_F(JobCutsTest, WithoutAFolderNoneIsMade) {
  cuts_ = std::make_unique<JobCuts>(OptionsFor(""));
  cuts_->Begin(1, 40, *view_);
  EXPECT_EQ(Now().state(), HostedCut::FAILED);
  EXPECT_EQ(Now().checkpoint(), 1u);
}

}  // namespace
}  // namespace sluice
