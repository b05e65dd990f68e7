#include "server/checkpoints/cut_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/common/base/fake_clock.h"
#include "tests/common/saved_model/memory_env.h"
#include "tests/server/test_worker.h"

namespace sluice {
namespace {

using testing::SizeIs;

// Files in memory, whose writes wait until they may continue.
class SlowEnv : public MemoryEnv {
 public:
  absl::Status WriteFile(const std::string& path,
                         absl::Span<const absl::string_view> pieces) override {
    ++writing;
    while (!go_on) std::this_thread::yield();
    return MemoryEnv::WriteFile(path, pieces);
  }
  std::atomic<int> writing{0};
  std::atomic<bool> go_on{true};
};

class CutWriterTest : public testing::Test {
 protected:
  std::shared_ptr<JobCut> Cut(CutWriter* writer, const std::string& dir) {
    UpdatePolicy policy;
    const auto view = FirstView(LayoutsOf(spec_), policy, spec_.route(), kSelf);
    JobCut::Options options;
    options.checkpoint = 1;
    options.directory = dir;
    options.save_id = "00000000000000c1";
    options.budget = writer->NewBudget(1 << 30);
    options.env = &env_;
    options.clock = &clock_;
    auto cut = std::make_shared<JobCut>(std::move(options));
    cut->Begin(*view);
    return cut;
  }

  const JobSpec spec_ = MakeSpec(1, true, 0);
  SlowEnv env_;
  FakeClock clock_;
};

TEST_F(CutWriterTest, CutsAreWrittenInTheBackground) {
  for (const uint32_t threads : {0u, 1u, 3u}) {
    CutWriter writer(threads);
    std::vector<std::shared_ptr<JobCut>> cuts;
    for (const char* dir : {"a", "b", "c"}) {
      cuts.push_back(Cut(&writer, dir));
      writer.Add(cuts.back());
    }
    for (const auto& cut : cuts) {
      cut->AwaitEnd();
      EXPECT_EQ(cut->Report().state(), HostedCut::WRITTEN);
      EXPECT_THAT(cut->Report().files(), SizeIs(5));
    }
  }
}

TEST_F(CutWriterTest, StopGivesUpWhatIsNotComplete) {
  env_.go_on = false;
  CutWriter writer(1);
  const auto first = Cut(&writer, "a"), second = Cut(&writer, "b"), third = Cut(&writer, "c");
  writer.Add(first);
  writer.Add(second);
  while (env_.writing == 0) std::this_thread::yield();
  std::thread stop([&] { writer.Stop(); });
  while (second->Report().state() != HostedCut::FAILED) std::this_thread::yield();
  env_.go_on = true;
  stop.join();
  writer.Add(third);
  for (const auto& cut : {first, second, third}) {
    cut->AwaitEnd();
    EXPECT_EQ(cut->Report().state(), HostedCut::FAILED);
  }
  EXPECT_TRUE(env_.List("a")->empty());
}

TEST_F(CutWriterTest, AllCutsTogetherMayUseHalfOfTheMemory) {
  CutWriter writer(1);
  constexpr uint64_t kMiB = 1 << 20;
  const auto first = writer.NewBudget(400 * kMiB);
  ASSERT_TRUE(first->Take(150 * kMiB));
  const auto second = writer.NewBudget(250 * kMiB);  // the first one's are used by now
  EXPECT_FALSE(second->Take(126 * kMiB));
  EXPECT_TRUE(second->Take(125 * kMiB));
  first->Give(150 * kMiB);
  second->Give(125 * kMiB);
  EXPECT_TRUE(writer.NewBudget(0)->Take(64 * kMiB)) << "so much is always allowed";
}

}  // namespace
}  // namespace sluice
