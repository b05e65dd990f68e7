#include "scheduler/files/curve_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/file_origin.h"
#include "tests/common/base/hooked_env.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAreArray;

constexpr char kCurve[] = "events.out.tfevents.1000.h";

class CurveFilesTest : public testing::Test {
 protected:
  CurveFilesTest() {
    std::string pattern = testing::TempDir() + "/curve_files_test.XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
  }
  ~CurveFilesTest() override { fs::remove_all(dir_); }

  std::unique_ptr<CurveFiles> Begin(int64_t seconds) {
    auto curve = CurveFiles::Begin(Env::Real(), dir_, "h", absl::FromUnixSeconds(seconds));
    EXPECT_TRUE(curve.ok()) << curve.status();
    return *std::move(curve);
  }
  std::vector<std::string> Names() { return *Env::Real()->List(dir_); }
  void Copy(const std::string& to) { fs::copy_file(dir_ + "/" + kCurve, dir_ + "/" + to); }

  std::string dir_;
};

TEST_F(CurveFilesTest, ACompleteCurveReplacesEarlierOnes) {
  ASSERT_TRUE(Begin(1000)->Complete().ok());
  // Curves from other hosts, and from jobs that began in the same second.
  for (const char* name : {"events.out.tfevents.900.other-host-2", "events.out.tfevents.900.h2",
                           "events.out.tfevents.1000.h.1", "events.out.tfevents.1000.h.12.1"})
    Copy(name);
  Begin(1001).reset();  // a job that failed
  EXPECT_TRUE(fs::exists(dir_ + "/rerun-1"));
  ASSERT_TRUE(Begin(1002)->Complete().ok());
  EXPECT_THAT(Names(), ElementsAre("events.out.tfevents.1002.h"));
}

class ResumedCurveTest : public CurveFilesTest {
 protected:
  // A run from `first` to `last`, three steps an epoch, that began at this second.
  void Run(CurveFiles* curve, uint64_t first, uint64_t last, double value) {
    for (uint64_t step = first; step <= last; ++step) {
      // One that every job has, and one that a program has named.
      std::vector<Scalar> points = {{"train/loss", step, value}, {"train/norm", step, value}};
      if (step % 3 == 0) {
        points.push_back({"eval/auc", step / 3, value});
        points.push_back({"train/epoch_loss", step / 3, value});
      }
      ASSERT_TRUE(curve->Add(absl::FromUnixSeconds(2000), points).ok());
    }
  }
  std::unique_ptr<CurveFiles> Resume(int64_t seconds, const CurvePosition& from) {
    auto curve = CurveFiles::Begin(Env::Real(), dir_, "h", absl::FromUnixSeconds(seconds), from);
    EXPECT_TRUE(curve.ok()) << curve.status();
    return *std::move(curve);
  }
  // Steps and values of a tag in all files of the folder.
  std::vector<std::pair<uint64_t, double>> Points(const std::string& tag,
                                                  const std::string& folder = "") {
    std::vector<std::pair<uint64_t, double>> points;
    const std::string path = dir_ + folder;
    for (const std::string& name : Env::Real()->List(path).value_or(std::vector<std::string>())) {
      const auto file = ReadEventFile(Env::Real(), path + "/" + name);
      if (!file.ok()) continue;
      for (const EventPoint& point : file->points) {
        if (point.tag == tag) points.emplace_back(point.step, point.value);
      }
    }
    return points;
  }
};

TEST_F(ResumedCurveTest, OneCurveShowsAllRuns) {
  Run(Begin(1000).get(), 1, 8, 0.5);
  // The checkpoint is of step 4, in the second epoch; what came after it is trained again.
  auto resumed = Resume(3000, {4, 1, absl::FromUnixSeconds(2000)});
  Run(resumed.get(), 5, 9, 0.25);
  using P = std::pair<uint64_t, double>;
  const auto losses = ElementsAre(P(1, .5), P(2, .5), P(3, .5), P(4, .5), P(5, .25), P(6, .25),
                                  P(7, .25), P(8, .25), P(9, .25));
  for (const char* tag : {"train/loss", "train/norm"})
    EXPECT_THAT(Points(tag), losses) << tag << ", also while it runs";
  for (const char* tag : {"eval/auc", "train/epoch_loss"})
    EXPECT_THAT(Points(tag), ElementsAre(P(1, .5), P(2, .25), P(3, .25))) << tag;
  resumed = nullptr;  // it is killed, too, before it has made a checkpoint
  resumed = Resume(4000, {4, 1, absl::FromUnixSeconds(2000)});
  Run(resumed.get(), 5, 6, 0.125);
  ASSERT_TRUE(resumed->Complete().ok());
  EXPECT_THAT(Points("train/loss"),
              ElementsAre(P(1, .5), P(2, .5), P(3, .5), P(4, .5), P(5, .125), P(6, .125)));
  EXPECT_EQ(Names().size(), 1u);
}

TEST_F(ResumedCurveTest, TheCurveOfAnotherRunIsNotContinued) {
  auto finished = Begin(500);
  Run(finished.get(), 1, 9, 0.75);
  ASSERT_TRUE(finished->Complete().ok());
  Run(Begin(1000).get(), 1, 5, 0.5);  // rerun-1, which made the checkpoint
  Run(Begin(2500).get(), 1, 2, 0.1);  // rerun-2, which came after it
  auto resumed = Resume(3000, {4, 1, absl::FromUnixSeconds(2000)});
  Run(resumed.get(), 5, 5, 0.25);
  using P = std::pair<uint64_t, double>;
  EXPECT_THAT(Points("train/loss", "/rerun-3"),
              ElementsAre(P(1, .5), P(2, .5), P(3, .5), P(4, .5), P(5, .25)));
  EXPECT_EQ(Points("train/loss", "/rerun-2").size(), 2u);
  ASSERT_TRUE(resumed->Complete().ok());
  EXPECT_EQ(Points("train/loss").size(), 5u);
  EXPECT_EQ(Names().size(), 1u);
}

TEST_F(ResumedCurveTest, ARunWhoseClockWasSetBackIsContinued) {
  Run(Begin(2500).get(), 1, 5, 0.5);  // its points come at 2000
  auto resumed = Resume(2100, {4, 1, absl::FromUnixSeconds(2000)});
  Run(resumed.get(), 5, 5, 0.25);
  using P = std::pair<uint64_t, double>;
  const auto losses = ElementsAre(P(1, .5), P(2, .5), P(3, .5), P(4, .5), P(5, .25));
  EXPECT_THAT(Points("train/loss"), losses);
  resumed = Resume(2200, {4, 1, absl::FromUnixSeconds(2000)});
  Run(resumed.get(), 5, 5, 0.25);
  ASSERT_TRUE(resumed->Complete().ok());
  EXPECT_THAT(Points("train/loss"), losses);
  EXPECT_EQ(Names().size(), 1u);
}

TEST_F(ResumedCurveTest, WithoutAnEarlierCurveItBeginsANewOne) {
  auto resumed = Resume(3000, {4, 1, absl::FromUnixSeconds(2000)});
  Run(resumed.get(), 5, 5, 0.25);
  EXPECT_EQ(Points("train/loss").size(), 1u);
}

TEST_F(ResumedCurveTest, TheThinnedCurvesContinueAndMoveWithTheCurve) {
  auto first = Begin(1000);
  Run(first.get(), 1, 6, 0.5);
  ASSERT_TRUE(first->Save("a-1", 7, /*ended=*/false).ok());
  first = nullptr;
  EXPECT_TRUE(IsOwnFile(Env::Real(), dir_ + "/curves.jsonl", FileKind::kCurves));
  // A scheduler that is started again, and then a run that resumes.
  auto continued = CurveFiles::Continue(Env::Real(), dir_, "h", absl::FromUnixSeconds(1500), 7);
  EXPECT_EQ(continued->thinned().by_tag().at("train/loss").points().size(), 6u);
  continued = nullptr;
  auto resumed = Resume(3000, {4, 1, absl::FromUnixSeconds(2000)});
  EXPECT_EQ(resumed->thinned().by_tag().at("train/loss").points().size(), 4u);
  EXPECT_EQ(resumed->thinned().by_tag().at("eval/auc").points().size(), 1u);
  Run(resumed.get(), 5, 5, 0.25);
  ASSERT_TRUE(resumed->Add(absl::FromUnixSeconds(2000), {{"eval/auc", 2, NAN}}).ok());
  ASSERT_TRUE(resumed->Save("a-1", 7, /*ended=*/true).ok());
  ASSERT_TRUE(resumed->Complete().ok());
  const std::string text = Env::Real()->ReadFile(dir_ + "/curves.jsonl").value_or("");
  EXPECT_EQ(
      text,
      "{\"sluice_curves\": 1, \"job\": \"a-1\", \"instance\": \"7\", \"ended\": true}\n"
      "{\"name\": \"eval/auc\", \"x\": \"epoch\", \"points\": [[1, 0.5], [2, null]]}\n"
      "{\"name\": \"train/epoch_loss\", \"x\": \"epoch\", \"points\": [[1, 0.5]]}\n"
      "{\"name\": \"train/loss\", \"x\": \"step\", \"points\": [[1, 0.5], [2, 0.5], [3, 0.5], "
      "[4, 0.5], [5, 0.25]]}\n"
      "{\"name\": \"train/norm\", \"x\": \"step\", \"points\": [[1, 0.5], [2, 0.5], [3, 0.5], "
      "[4, 0.5], [5, 0.25]]}\n");
}

// Counts the bytes that are read.
class CountingEnv final : public HookedEnv {
 public:
  CountingEnv() {
    before = [](const std::string&, const std::string&) { return absl::OkStatus(); };
  }
  absl::StatusOr<std::string> ReadFile(const std::string& path) override {
    return Count(HookedEnv::ReadFile(path));
  }
  absl::StatusOr<std::string> ReadRange(const std::string& path, uint64_t offset,
                                        uint64_t n) override {
    return Count(HookedEnv::ReadRange(path, offset, n));
  }
  uint64_t bytes = 0;

 private:
  absl::StatusOr<std::string> Count(absl::StatusOr<std::string> content) {
    if (content.ok()) bytes += content->size();
    return content;
  }
};

TEST_F(ResumedCurveTest, ARestartReadsOnlyTheEndOfLongFiles) {
  constexpr uint64_t kBatch = 1000, kSteps = 500'000, kSaved = kSteps / 2;
  const auto loss = [](uint64_t step) { return static_cast<double>(step % 4096); };
  auto first = Begin(1000);
  for (uint64_t step = 1; step <= kSteps; step += kBatch) {
    std::vector<Scalar> points = {{"eval/auc", step, 0.5}};
    for (uint64_t i = step; i < step + kBatch; ++i) points.push_back({"train/loss", i, loss(i)});
    ASSERT_TRUE(first->Add(absl::FromUnixSeconds(2000), points).ok());
    if (step + kBatch == kSaved + 1) {
      ASSERT_TRUE(first->Save("a-1", 7, /*ended=*/false).ok());
    }
  }
  first = nullptr;
  ASSERT_GT(fs::file_size(dir_ + "/" + kCurve), CurveFiles::kMostRead * 5 / 4);
  // A second scheduler has added little.
  auto second = CurveFiles::Continue(Env::Real(), dir_, "h", absl::FromUnixSeconds(3000), 7);
  ASSERT_TRUE(second->Add(absl::FromUnixSeconds(3000), {{"train/loss", kSteps + 1, 7}}).ok());
  second = nullptr;
  CountingEnv env;
  const auto curve = CurveFiles::Continue(&env, dir_, "h", absl::FromUnixSeconds(4000), 7);
  EXPECT_LT(env.bytes, CurveFiles::kMostRead * 9 / 8);
  const std::vector<ThinCurve::Point>& points = curve->thinned().by_tag().at("train/loss").points();
  EXPECT_EQ(points.front().x, 1u);
  EXPECT_EQ(points.back().x, kSteps + 1);
  EXPECT_LE(points.size(), ThinCurves::kMostPoints);
  uint64_t widest = 0;
  for (size_t i = 0; i + 1 < points.size(); ++i) {
    widest = std::max(widest, points[i + 1].x - points[i].x);
    EXPECT_EQ(points[i].y, loss(points[i].x)) << points[i].x;
  }
  // There is no gap where curves.jsonl ends and the end of the file begins.
  EXPECT_LT(widest, kSteps / 100);
  // The curves.jsonl of another job is not this one's.
  const auto other = CurveFiles::Continue(Env::Real(), dir_, "h", absl::FromUnixSeconds(5000), 8);
  EXPECT_GT(other->thinned().by_tag().at("train/loss").points().front().x, kSteps / 10);
}

TEST_F(ResumedCurveTest, TheThinnedCurvesOfAnEarlierJobStayUntilTheNewOneIsComplete) {
  auto earlier = Begin(1000);
  Run(earlier.get(), 1, 3, 0.5);
  ASSERT_TRUE(earlier->Save("a-1", 7, true).ok());
  ASSERT_TRUE(earlier->Complete().ok());
  auto next = Begin(2000);
  Run(next.get(), 1, 3, 0.25);
  ASSERT_TRUE(next->Save("a-2", 8, true).ok());
  const auto job = [&](const std::string& folder) {
    return Env::Real()->ReadFile(dir_ + folder + "/curves.jsonl").value_or("").substr(0, 32);
  };
  EXPECT_EQ(job(""), "{\"sluice_curves\": 1, \"job\": \"a-1");
  EXPECT_EQ(job("/rerun-1"), "{\"sluice_curves\": 1, \"job\": \"a-2");
  ASSERT_TRUE(next->Complete().ok());
  EXPECT_EQ(job(""), "{\"sluice_curves\": 1, \"job\": \"a-2");
  EXPECT_FALSE(fs::exists(dir_ + "/rerun-1"));
}

TEST_F(CurveFilesTest, CopiesWithOtherNamesStay) {
  ASSERT_TRUE(Begin(1000)->Complete().ok());
  std::vector<std::string> kept = {
      "events.out.tfevents.1000.h.bak", "events.out.tfevents.1000.h-old",
      "events.out.tfevents.1000.h (1)", "events.out.tfevents.1000.h.1.bak",
      "events.out.tfevents.mine.h",     "events.out.tfevents.1000.other.bak",
      "events.out.tfevents.1000"};
  for (const std::string& name : kept) Copy(name);
  for (const char* folder : {"rerun-", "rerun-old", "rerun-1-old", "rerun-1x"}) {
    fs::create_directory(dir_ + "/" + folder);
    kept.emplace_back(folder);
  }
  Copy("rerun-old/events.out.tfevents.1000.h");
  ASSERT_TRUE(Begin(1002)->Complete().ok());
  kept.emplace_back("events.out.tfevents.1002.h");
  EXPECT_THAT(Names(), UnorderedElementsAreArray(kept));
  EXPECT_TRUE(fs::exists(dir_ + "/rerun-old/events.out.tfevents.1000.h"));
}

}  // namespace
}  // namespace sluice
