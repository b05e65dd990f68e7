// However a job ends, it must not lose what its folder held before.
#include "scheduler/files/job_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/file_origin.h"
#include "common/config/job_config.h"
#include "common/config/output_folder.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/export_chain.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/unfinished_run.h"
#include "tests/common/base/hooked_env.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

class JobFolderTest : public testing::Test {
 protected:
  JobFolderTest() {
    std::string pattern = testing::TempDir() + "/job_folder_test.XXXXXX";
    root_ = ::mkdtemp(pattern.data());
    dir_ = root_ + "/out";
    env_.before = [this](const std::string& what, const std::string& path) {
      const bool full =
          !full_.empty() && absl::StrCat(what, " ", path).find(full_) != std::string::npos;
      return full ? absl::ResourceExhaustedError("no space left") : absl::OkStatus();
    };
  }
  ~JobFolderTest() override { fs::remove_all(root_); }

  OutputAction Action(OutputAction::Kind kind, const std::string& dir) {
    OutputAction action;
    action.kind = kind;
    action.job_id = "job-1";
    action.time = absl::FromUnixSeconds(++seconds_);
    action.config.set_name("job");
    action.config.set_output_dir(dir);
    action.config.set_overwrite(overwrite_);
    action.config.set_evaluate_only(evaluate_only_);
    action.config.set_trace_file(trace_file_);
    return action;
  }
  OutputAction ExportAction(uint64_t from, uint64_t to, uint64_t instance) {
    OutputAction made = Action(OutputAction::kCheckpoint, dir_);
    made.config.mutable_export_()->set_keep(1);
    made.save_id = CheckpointSaveId(instance, to);
    made.number = to;
    ExportFacts* const facts = made.manifest.mutable_export_();
    facts->set_instance(instance);
    facts->set_from(from);
    facts->set_to(to);
    return made;
  }
  // Runs a job from begin to end. A digest means that it has saved a model.
  absl::Status Run(const std::string& status, const std::string& number, std::string dir = "") {
    const std::string save_id = "00000000000000" + number;
    if (dir.empty()) dir = dir_;
    JobFolder folder(&env_, "h");
    const absl::Status begun = folder.Begin(Action(OutputAction::kStarted, dir));
    if (begun.ok()) {
      OutputAction points = Action(OutputAction::kScalars, dir);
      points.scalars = {{"train/loss", 1, 0.5}};
      folder.AddScalars(points);
    }
    OutputAction ended = Action(OutputAction::kEnded, dir);
    ended.result.set_job(absl::StrCat("job-", save_id));
    ended.result.set_status(begun.ok() ? status : "failed");
    ended.save_id = save_id;
    if (begun.ok() && saves_) {
      PrepareModel(dir + "/model", ended.config, Manifest(), Env::Real(), save_id).IgnoreError();
      if (status == "done") ended.result.set_model_dir(dir + "/model");
    }
    const absl::Status result = folder.End(ended);
    return begun.ok() ? result : begun;
  }
  bool ModelLoads() {
    return ReadManifest(dir_ + "/model", Env::Real()).ok() &&
           ReadModelJob(dir_ + "/model", Env::Real()).ok();
  }
  std::string Read(const std::string& name) {
    return Env::Real()->ReadFile(dir_ + "/" + name).value_or("");
  }
  void Write(const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(dir_ + "/" + name).parent_path());
    std::ofstream(dir_ + "/" + name) << text;
  }
  static std::vector<std::string> Curves(const std::string& dir) {
    std::vector<std::string> curves;
    for (const std::string& name : Env::Real()->List(dir).value_or(std::vector<std::string>())) {
      if (name.find("tfevents") != std::string::npos) curves.push_back(name);
    }
    return curves;
  }

  std::string root_, dir_;
  HookedEnv env_;
  std::string full_;  // changes whose "operation path" contains this fail for lack of space
  int64_t seconds_ = 1000;
  bool overwrite_ = false, evaluate_only_ = false, saves_ = true;
  std::string trace_file_;
};

// Until the test ends this, an earlier scheduler has the folder.
TEST_F(JobFolderTest, AJobOfAnEarlierSchedulerWaitsForItsFolder) {
  auto earlier = std::make_unique<JobFolder>(&env_, "h");
  ASSERT_TRUE(earlier->Begin(Action(OutputAction::kStarted, dir_)).ok());
  int tries = 0;
  JobFolder next(&env_, "h", [&] {
    if (++tries == 3) earlier = nullptr;
    return true;
  });
  OutputAction started = Action(OutputAction::kStarted, dir_);
  started.again = true;
  EXPECT_TRUE(next.Begin(started).ok());
  EXPECT_EQ(tries, 3);
}

TEST_F(JobFolderTest, AResultThatAnEarlierSchedulerKeepsFromBeingWrittenIsAnError) {
  JobFolder earlier(&env_, "h");
  ASSERT_TRUE(earlier.Begin(Action(OutputAction::kStarted, dir_)).ok());
  const auto give_up = [] { return false; };
  OutputAction ended = Action(OutputAction::kEnded, dir_), started = ended;
  started.kind = OutputAction::kStarted;
  ended.result.set_status("done");
  ended.again = true;
  EXPECT_TRUE(absl::IsAborted(JobFolder(&env_, "h", give_up).End(ended)));
  // The end of a job that could not begin again.
  JobFolder refused(&env_, "h", give_up);
  started.again = true;
  ended.again = false;
  EXPECT_TRUE(absl::IsAlreadyExists(refused.Begin(started)));
  EXPECT_TRUE(absl::IsAborted(refused.End(ended)));
  EXPECT_EQ(Read("result.json"), "");
}

TEST_F(JobFolderTest, AFinishedRunWithoutModelStaysFinishedAfterACancelledOne) {
  saves_ = false;
  ASSERT_TRUE(Run("done", "1a").ok());
  // Its checkpoint, which the run would list had it made one itself.
  OutputAction made = Action(OutputAction::kCheckpoint, dir_);
  made.config.mutable_checkpoint()->set_keep(2);
  Manifest manifest;
  manifest.set_global_step(10);
  manifest.mutable_checkpoint()->set_global_step(10);
  ASSERT_TRUE(CommitCheckpoint(CheckpointFolder(CheckpointRoot(made.config), 10), made.config,
                               manifest, Env::Real(), CheckpointSaveId(7, 1))
                  .ok());
  overwrite_ = true;
  ASSERT_TRUE(Run("done", "1b").ok());
  overwrite_ = false;
  EXPECT_THAT(Read("result.json"), HasSubstr(CheckpointSaveId(7, 1)));
  for (const char* number : {"1c", "1d"}) {
    const absl::Status cancelled = Run("cancelled", number);
    EXPECT_TRUE(cancelled.ok()) << cancelled;
    EXPECT_THAT(Read("result.json"), HasSubstr("\"cancelled\""));
    EXPECT_FALSE(FindUnfinished(CheckpointRoot(made.config), dir_, Env::Real()).has_value());
  }
}

// An export that breaks at any of its changes of files leaves a chain that holds.
TEST_F(JobFolderTest, ExportsGrowAChainOfWhichNoneIsWrong) {
  const auto action = [&](uint64_t from, uint64_t to, uint64_t instance = 7) {
    return ExportAction(from, to, instance);
  };
  int changes = 0, fails_at = 0;
  env_.before = [&](const std::string&, const std::string&) {
    return ++changes == fails_at ? absl::UnavailableError("gone") : absl::OkStatus();
  };
  const std::string root = dir_ + "/export";
  std::string warning;
  JobFolder folder(&env_, "h");
  OutputAction started = Action(OutputAction::kStarted, dir_);
  started.config.mutable_export_()->set_every_steps(5);
  ASSERT_TRUE(folder.Begin(started).ok());
  EXPECT_TRUE(fs::is_directory(ExportRoot(started.config)));
  ASSERT_TRUE(folder.Checkpoint(action(0, 2), &warning).ok());
  uint64_t last = 2;
  for (int at = 1;; ++at) {
    SCOPED_TRACE(at);
    changes = 0;
    fails_at = at;
    const OutputAction next = action(last, last + 2);
    const absl::Status made = folder.Checkpoint(next, &warning);
    if (!made.ok()) folder.Discard(next);
    const bool fired = changes >= at;
    fails_at = 0;
    std::vector<ExportProblem> problems;
    const auto chains = ListChains(root, Env::Real(), &problems);
    ASSERT_TRUE(chains.ok());
    EXPECT_TRUE(problems.empty()) << problems[0].status;
    ASSERT_EQ(chains->size(), 1u);
    for (const ExportMember& member : chains->front()) {
      EXPECT_TRUE(VerifyExport(member, Env::Real()).ok());
    }
    const uint64_t end = chains->front().back().facts().to();
    EXPECT_TRUE(made.ok() ? end == last + 2 : end == last) << made;
    if (made.ok()) last = end;
    if (!fired) break;
  }
  EXPECT_GT(last, 2u);
  // A new base replaces the chain, and a delta of another run does not follow it.
  ASSERT_TRUE(folder.Checkpoint(action(0, 40, 8), &warning).ok());
  EXPECT_EQ(ListChains(root, Env::Real(), nullptr)->size(), 1u);
  EXPECT_FALSE(folder.Checkpoint(action(last, last + 2), &warning).ok()) << "its base is gone";
  // So does one whose clock is behind.
  OutputAction behind = action(0, 3, 9);
  behind.time -= absl::Hours(24);
  ASSERT_TRUE(folder.Checkpoint(behind, &warning).ok());
  const auto chains = ListChains(root, Env::Real(), nullptr);
  ASSERT_EQ(chains->size(), 1u);
  EXPECT_EQ(chains->front().front().facts().instance(), 9u);
}

// Rules of a store that remove what is old take the base first.
TEST_F(JobFolderTest, ADeltaWhoseBaseOrPredecessorIsGoneFailsAndABaseFollows) {
  const std::string root = dir_ + "/export";
  std::string warning;
  // A scheduler that has made the base itself, and one that was started later.
  for (const bool restarted : {false, true}) {
    for (const uint64_t gone : {2, 6}) {
      SCOPED_TRACE(testing::Message() << restarted << " " << gone);
      fs::remove_all(root);
      OutputAction started = Action(OutputAction::kStarted, dir_);
      started.config.mutable_export_()->set_every_steps(5);
      auto folder = std::make_unique<JobFolder>(&env_, "h");
      ASSERT_TRUE(folder->Begin(started).ok());
      for (const uint64_t cut : {2, 4, 6})
        ASSERT_TRUE(
            folder->Checkpoint(ExportAction(cut - 2 == 0 ? 0 : cut - 2, cut, 7), &warning).ok());
      if (restarted) {
        folder = nullptr;
        folder = std::make_unique<JobFolder>(&env_, "h");
        started.again = true;
        ASSERT_TRUE(folder->Begin(started).ok());
      }
      const std::string lost = ExportFolder(root, 7, gone);
      fs::remove_all(lost);
      const absl::Status delta = folder->Checkpoint(ExportAction(6, 8, 7), &warning);
      EXPECT_EQ(delta.code(), absl::StatusCode::kFailedPrecondition) << delta;
      EXPECT_THAT(std::string(delta.message()),
                  AllOf(HasSubstr(restarted && gone == 2 ? ExportFolder(root, 7, 6) : lost),
                        HasSubstr("is gone"), HasSubstr("new base")));
      folder->Discard(ExportAction(6, 8, 7));
      ASSERT_TRUE(folder->Checkpoint(ExportAction(0, 10, 7), &warning).ok());
      EXPECT_TRUE(folder->Checkpoint(ExportAction(10, 12, 7), &warning).ok());
    }
  }
}

TEST_F(JobFolderTest, ADeltaReadsAsMuchHoweverLongTheChainIs) {
  JobFolder folder(&env_, "h");
  OutputAction started = Action(OutputAction::kStarted, dir_);
  started.config.mutable_export_()->set_every_steps(5);
  ASSERT_TRUE(folder.Begin(started).ok());
  int reads = 0, of_second = 0;
  env_.before_read = [&](const std::string&) {
    ++reads;
    return absl::OkStatus();
  };
  std::string warning;
  for (uint64_t cut = 1; cut <= 21; ++cut) {
    reads = 0;
    ASSERT_TRUE(folder.Checkpoint(ExportAction(cut - 1, cut, 7), &warning).ok());
    if (cut == 3) of_second = reads;
  }
  EXPECT_GT(of_second, 0);
  EXPECT_EQ(reads, of_second);
}

// Whichever read fails, a base is the newest, or there is none.
TEST_F(JobFolderTest, ABaseWhosePlaceCannotBeReadFails) {
  JobFolder folder(&env_, "h");
  OutputAction started = Action(OutputAction::kStarted, dir_);
  started.config.mutable_export_()->set_every_steps(5);
  ASSERT_TRUE(folder.Begin(started).ok());
  std::string warning;
  uint64_t newest = 7;
  ASSERT_TRUE(folder.Checkpoint(ExportAction(0, 2, newest), &warning).ok());
  int reads = 0, fails_at = 0, failed = 0;
  env_.before_read = [&](const std::string&) {
    return ++reads == fails_at ? absl::UnavailableError("no answer") : absl::OkStatus();
  };
  for (int at = 1;; ++at) {
    SCOPED_TRACE(at);
    ASSERT_LT(at, 1000);
    const uint64_t instance = 7 + static_cast<uint64_t>(at);
    OutputAction next = ExportAction(0, 2, instance);
    next.time -= absl::Hours(at);  // so that only the order tells that it is newer
    reads = 0;
    fails_at = at;
    const absl::Status made = folder.Checkpoint(next, &warning);
    const bool fired = reads >= at;
    fails_at = 0;
    if (made.ok()) newest = instance;
    if (!made.ok()) folder.Discard(next);
    failed += made.ok() ? 0 : 1;
    const auto chains = ListChains(dir_ + "/export", Env::Real(), nullptr);
    ASSERT_TRUE(chains.ok());
    ASSERT_FALSE(chains->empty());
    EXPECT_EQ(chains->front().front().facts().instance(), newest) << made;
    if (!fired) break;
    // Older chains stay when the reads before their removal fail.
    RemoveOldChains(dir_ + "/export", 1, newest, 3, Env::Real());
  }
  EXPECT_GE(failed, 2) << "the list, and the manifest of a member";
}

TEST_F(JobFolderTest, TheExportsOfAnotherJobStay) {
  const auto start = [&](const std::string& dir, JobFolder* folder) {
    OutputAction started = Action(OutputAction::kStarted, dir);
    started.config.mutable_export_()->set_every_steps(5);
    started.config.mutable_export_()->set_dir(root_ + "/exports");
    return folder->Begin(started);
  };
  {
    JobFolder folder(&env_, "h"), other(&env_, "h");
    ASSERT_TRUE(start(dir_, &folder).ok());
    EXPECT_EQ(start(root_ + "/other", &other).code(), absl::StatusCode::kAlreadyExists)
        << "it is locked";
    OutputAction made = Action(OutputAction::kCheckpoint, dir_);
    made.config.mutable_export_()->set_dir(root_ + "/exports");
    made.manifest.mutable_export_()->set_instance(7);
    made.manifest.mutable_export_()->set_to(2);
    made.save_id = CheckpointSaveId(7, 2);
    std::string warning;
    ASSERT_TRUE(folder.Checkpoint(made, &warning).ok());
  }
  {
    JobFolder again(&env_, "h");
    EXPECT_TRUE(start(dir_, &again).ok()) << "its own";
  }
  {
    JobFolder other(&env_, "h");
    EXPECT_EQ(start(root_ + "/other", &other).code(), absl::StatusCode::kAlreadyExists);
  }
  overwrite_ = true;
  JobFolder meant(&env_, "h");
  EXPECT_TRUE(start(root_ + "/third", &meant).ok());
}

TEST_F(JobFolderTest, WritesConfigurationCurveModelAndResult) {
  ASSERT_TRUE(Run("done", "1a").ok());
  EXPECT_THAT(Read("job.textproto"), HasSubstr("name: \"job\""));
  EXPECT_THAT(Read("result.json"), HasSubstr("\"done\""));
  EXPECT_EQ(Curves(dir_).size(), 1u);
  EXPECT_TRUE(ModelLoads());
  for (const auto& [name, kind] :
       {std::pair("/job.textproto", FileKind::kJobConfig),
        std::pair("/result.json", FileKind::kResult), std::pair("/curves.jsonl", FileKind::kCurves),
        std::pair("/model/MANIFEST", FileKind::kManifest)})
    EXPECT_TRUE(IsOwnFile(Env::Real(), dir_ + name, kind)) << name;
  EXPECT_TRUE(IsOwnFile(Env::Real(), dir_ + "/" + Curves(dir_)[0], FileKind::kEvents));
}

TEST_F(JobFolderTest, ResultAndCurvesOfAJobHaveItsInstance) {
  const auto run = [&](std::vector<uint64_t> instances, bool begins) {
    JobFolder folder(&env_, "h");
    OutputAction started = Action(OutputAction::kStarted, dir_);
    started.instances = {instances.front()};
    if (begins) {
      EXPECT_TRUE(folder.Begin(started).ok());
    }
    OutputAction ended = Action(OutputAction::kEnded, dir_);
    ended.result.set_status("cancelled");
    ended.instances = instances;
    EXPECT_TRUE(folder.End(ended).ok());
  };
  run({7, 8}, true);
  EXPECT_THAT(Read("result.json"), HasSubstr("\"instance\": \"7\""));
  EXPECT_THAT(Read("curves.jsonl"), HasSubstr("\"instance\": \"7\", \"ended\": true"));
  run({9}, false);
  EXPECT_THAT(Read("result.json"), HasSubstr("\"instance\": \"9\""));
  EXPECT_THAT(Read("curves.jsonl"), HasSubstr("\"instance\": \"7\""));
}

TEST_F(JobFolderTest, AJobThatSavesNoModelLeavesTheLastGoodOneAndItsResult) {
  for (const std::string& path : {dir_, dir_ + "/", root_ + "/link", root_ + "/link/../out//"}) {
    for (const char* status : {"failed", "cancelled", "done"}) {
      SCOPED_TRACE(path + " " + status);
      fs::remove_all(dir_);
      saves_ = true;
      ASSERT_TRUE(Run("done", "1a").ok());
      fs::remove(root_ + "/link");
      fs::create_directory_symlink(dir_, root_ + "/link");
      const std::string manifest = Read("model/MANIFEST"), result = Read("result.json");
      const std::vector<std::string> curves = Curves(dir_);
      saves_ = status != std::string("done");  // a job that fails may have prepared a save
      evaluate_only_ = !saves_;
      ASSERT_TRUE(Run(status, "2b", path).ok());
      evaluate_only_ = false;
      EXPECT_EQ(Read("model/MANIFEST"), manifest);
      EXPECT_TRUE(ModelLoads());
      EXPECT_THAT(*Env::Real()->List(dir_ + "/model"), Each(Not(HasSubstr("2b"))));
      EXPECT_EQ(Read("model_result.json"), result);
      EXPECT_THAT(Read("result.json"), HasSubstr("\"model_dir\": \"\""));
      EXPECT_EQ(Curves(dir_), curves);
      EXPECT_EQ(Curves(dir_ + "/rerun-1").size(), 1u);
      // A second such job keeps it, too. The next job that saves a model replaces everything.
      ASSERT_TRUE(Run("failed", "3c", path).ok());
      EXPECT_EQ(Read("model_result.json"), result);
      saves_ = true;
      ASSERT_TRUE(Run("done", "4d", path).ok());
      EXPECT_NE(Read("model/MANIFEST"), manifest);
      EXPECT_TRUE(ModelLoads());
      EXPECT_EQ(Read("model_result.json"), "");
      EXPECT_EQ(Curves(dir_).size(), 1u);
      EXPECT_NE(Curves(dir_), curves);
      EXPECT_THAT(*Env::Real()->List(dir_), Each(Not(HasSubstr("rerun"))));
    }
  }
}

TEST_F(JobFolderTest, BeginTouchesNothingButTheConfiguration) {
  ASSERT_TRUE(Run("done", "1a").ok());
  const std::string manifest = Read("model/MANIFEST"), result = Read("result.json");
  const std::vector<std::string> curves = Curves(dir_);
  {
    JobFolder killed(&env_, "h");
    ASSERT_TRUE(killed.Begin(Action(OutputAction::kStarted, dir_)).ok());
  }
  EXPECT_EQ(Read("model/MANIFEST"), manifest);
  EXPECT_EQ(Read("result.json"), result);
  EXPECT_EQ(Curves(dir_), curves);
  EXPECT_TRUE(ModelLoads());
}

TEST_F(JobFolderTest, AFullDiskAtAnyChangeLosesNeitherModelNorResult) {
  for (const char* change : {"write ", "job.textproto", "rename ", "MANIFEST"}) {
    SCOPED_TRACE(change);
    full_.clear();
    fs::remove_all(dir_);
    ASSERT_TRUE(Run("done", "1a").ok());
    const std::string manifest = Read("model/MANIFEST"), result = Read("result.json");
    full_ = change;
    EXPECT_EQ(Run("done", "2b").code(), absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(ModelLoads());
    EXPECT_EQ(Read("model/MANIFEST"), manifest);
    EXPECT_TRUE(Read("result.json") == result || Read("model_result.json") == result);
    EXPECT_GE(Curves(dir_).size(), 1u);
  }
}

TEST_F(JobFolderTest, AFullDiskDropsPointsOfTheCurveWithOneWarning) {
  JobFolder folder(&env_, "h");
  ASSERT_TRUE(folder.Begin(Action(OutputAction::kStarted, dir_)).ok());
  ASSERT_EQ(Curves(dir_).size(), 1u);
  const std::string curve = Curves(dir_)[0], begun = Read(curve);
  OutputAction points = Action(OutputAction::kScalars, dir_);
  points.scalars = {{"train/loss", 1, 0.5}};
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit full{begun.size() + 7, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  folder.AddScalars(points);
  folder.AddScalars(points);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  const std::vector<std::string> warnings = folder.TakeWarnings();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], AllOf(HasSubstr(dir_ + "/" + curve), HasSubstr("File too large")));
  EXPECT_EQ(Read(curve), begun);
  folder.AddScalars(points);
  EXPECT_GT(Read(curve).size(), begun.size());
  OutputAction ended = Action(OutputAction::kEnded, dir_);
  ended.result.set_status("done");
  EXPECT_TRUE(folder.End(ended).ok());
  EXPECT_THAT(folder.TakeWarnings(), testing::IsEmpty());
  EXPECT_THAT(Read("result.json"), HasSubstr(curve));
}

TEST_F(JobFolderTest, AFullDiskDoesNotKeepAJobFromContinuingUnderTheNextScheduler) {
  trace_file_ = root_ + "/trace.json";
  {
    JobFolder earlier(&env_, "h");
    ASSERT_TRUE(earlier.Begin(Action(OutputAction::kStarted, dir_)).ok());
  }
  const std::string config = Read("job.textproto");
  JobFolder next(&env_, "h");
  OutputAction started = Action(OutputAction::kStarted, dir_);
  started.again = true;
  started.config.set_name("changed");
  started.config.set_trace_file("/proc/none/trace");
  full_ = "write ";
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit tiny{7, before.rlim_max};  // no first record of a curve fits
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tiny), 0);
  const absl::Status begun = next.Begin(started);
  OutputAction points = Action(OutputAction::kScalars, dir_);
  points.scalars = {{"train/loss", 1, 0.5}};
  const std::vector<std::string> warnings = next.TakeWarnings();
  next.AddScalars(points);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_TRUE(begun.ok()) << begun;
  EXPECT_THAT(warnings, testing::ElementsAre(AllOf(HasSubstr(dir_), HasSubstr("no space left")),
                                             AllOf(HasSubstr("trace"), HasSubstr("/proc/none"))));
  EXPECT_EQ(Read("job.textproto"), config);
  EXPECT_EQ(next.TakeWarnings().size(), 1u);
  EXPECT_EQ(Curves(dir_).size(), 1u);
  full_.clear();
  next.AddScalars(points);
  EXPECT_EQ(Curves(dir_).size(), 2u);
  OutputAction ended = Action(OutputAction::kEnded, dir_);
  ended.result.set_status("done");
  EXPECT_TRUE(next.End(ended).ok());
  EXPECT_EQ(Curves(dir_).size(), 2u);
}

TEST_F(JobFolderTest, ACurveThatCannotReplaceAnEarlierOneIsAWarning) {
  ASSERT_TRUE(Run("done", "1a").ok());
  JobFolder folder(&env_, "h");
  ASSERT_TRUE(folder.Begin(Action(OutputAction::kStarted, dir_)).ok());
  OutputAction ended = Action(OutputAction::kEnded, dir_);
  ended.result.set_status("done");
  full_ = "rename ";
  EXPECT_TRUE(folder.End(ended).ok());
  EXPECT_THAT(folder.TakeWarnings(), testing::ElementsAre(HasSubstr("no space left")));
  EXPECT_EQ(Curves(dir_).size(), 1u);
  EXPECT_EQ(Curves(dir_ + "/rerun-1").size(), 1u);
}

TEST_F(JobFolderTest, TheNewModelStaysCommittedWhenTheDiskIsFullForTheResult) {
  ASSERT_TRUE(Run("done", "1a").ok());
  const std::string manifest = Read("model/MANIFEST"), result = Read("result.json");
  full_ = "out/result.json";
  EXPECT_EQ(Run("done", "2b").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(ModelLoads());
  EXPECT_NE(Read("model/MANIFEST"), manifest);
  EXPECT_EQ(Read("result.json"), "") << "the earlier result is not of this model";
  EXPECT_EQ(Read("replaced_result.json"), result);
  full_.clear();
  ASSERT_TRUE(Run("done", "3c").ok());
  EXPECT_THAT(Read("result.json"), HasSubstr("3c"));
  EXPECT_EQ(Read("replaced_result.json"), "");
}

TEST_F(JobFolderTest, TheEarlierResultIsMarkedBeforeTheNewModelIsInForce) {
  ASSERT_TRUE(Run("done", "1a").ok());
  const std::string result = Read("result.json");
  std::string at_commit = "none";
  env_.before = [&](const std::string& what, const std::string& path) {
    if (what == "rename" && absl::StrContains(path, "MANIFEST")) at_commit = Read("result.json");
    return absl::OkStatus();
  };
  ASSERT_TRUE(Run("done", "2b").ok());
  EXPECT_THAT(at_commit, HasSubstr("\n  \"status\": \"replaced\",\n  \"message\": \"job job-"));
  EXPECT_TRUE(absl::StrContains(at_commit, "\n  \"worker_num\"")) << "the rest stays";
  EXPECT_THAT(Read("result.json"), HasSubstr("\"done\""));
  // A model that could not be put in force leaves the earlier one and its result.
  const std::string second = Read("result.json");
  env_.before = [&](const std::string& what, const std::string& path) {
    return what == "rename" && absl::StrContains(path, "MANIFEST") ? absl::InternalError("no")
                                                                   : absl::OkStatus();
  };
  EXPECT_FALSE(Run("done", "3c").ok());
  EXPECT_THAT(Read("result.json"), HasSubstr("failed"));
  EXPECT_EQ(Read("model_result.json"), second);
  EXPECT_EQ(Read("replaced_result.json"), "");
}

TEST_F(JobFolderTest, AJobIsRefusedWhenItWouldReplaceForeignFiles) {
  for (const char* name : {"job.textproto", "result.json", "model_result.json", "model/MANIFEST",
                           "model/job.textproto"}) {
    SCOPED_TRACE(name);
    fs::remove_all(dir_);
    Write(name, "mine");
    overwrite_ = false;
    const absl::Status refused = Run("done", "1a");
    EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
    for (const std::string& word : {dir_ + "/" + name, std::string("--overwrite")})
      EXPECT_THAT(std::string(refused.message()), HasSubstr(word));
    EXPECT_EQ(Read(name), "mine");
    EXPECT_EQ(Env::Real()->List(dir_)->size(), 1u);  // and nothing was added
    overwrite_ = true;
    EXPECT_TRUE(Run("done", "1a").ok());
    // A job that saves a model does not need model_result.json.
    EXPECT_EQ(Read(name) == "mine", name == std::string("model_result.json"));
  }
}

TEST_F(JobFolderTest, AModelFolderIsRefusedAsOutputFolder) {
  ASSERT_TRUE(Run("done", "1a").ok());
  for (const bool overwrite : {false, true}) {
    overwrite_ = overwrite;
    EXPECT_EQ(Run("done", "2b", dir_ + "/model").code(), absl::StatusCode::kAlreadyExists);
    EXPECT_TRUE(ModelLoads());
    EXPECT_FALSE(fs::exists(dir_ + "/model/result.json"));
  }
}

TEST_F(JobFolderTest, AForeignResultThatAppearsDuringTheJobStays) {
  JobFolder folder(&env_, "h");
  ASSERT_TRUE(folder.Begin(Action(OutputAction::kStarted, dir_)).ok());
  Write("result.json", "mine");
  OutputAction ended = Action(OutputAction::kEnded, dir_);
  ended.save_id = "000000000000001a";
  ended.result.set_status("done");
  ended.result.set_model_dir(dir_ + "/model");
  ASSERT_TRUE(
      PrepareModel(dir_ + "/model", ended.config, Manifest(), Env::Real(), ended.save_id).ok());
  EXPECT_EQ(folder.End(ended).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Read("result.json"), "mine");
  EXPECT_TRUE(ModelLoads());  // the trained model is not lost
}

TEST_F(JobFolderTest, ForeignCurvesStay) {
  Write("events.out.tfevents.1.other", "of TensorFlow");
  ASSERT_TRUE(Run("done", "1a").ok());
  EXPECT_EQ(Read("events.out.tfevents.1.other"), "of TensorFlow");
  EXPECT_EQ(Curves(dir_).size(), 2u);
}

TEST_F(JobFolderTest, CurvesBegunInTheSameSecondDoNotReplaceEachOther) {
  for (const char* id : {"1a", "2b", "3c"}) {
    seconds_ = 1000;
    ASSERT_TRUE(Run("failed", id).ok());
  }
  EXPECT_EQ(Curves(dir_).size(), 1u);
  EXPECT_EQ(Curves(dir_ + "/rerun-1").size() + Curves(dir_ + "/rerun-2").size(), 2u);
  seconds_ = 1000;
  ASSERT_TRUE(Run("done", "4d").ok());
  EXPECT_EQ(Curves(dir_).size(), 1u);
}

class CheckpointFolderTest : public JobFolderTest {
 protected:
  CheckpointFolderTest() : folder_(&env_, "h") {}
  OutputAction OfStep(uint64_t step, OutputAction::Kind kind = OutputAction::kCheckpoint) {
    OutputAction action = Action(kind, dir_);
    action.config.mutable_strategy()->set_a_sync(false);
    action.config.mutable_checkpoint()->set_keep(2);
    action.number = step;
    action.save_id = CheckpointSaveId(9, step);
    action.manifest.set_global_step(step);
    if (kind == OutputAction::kCheckpoint)
      action.manifest.mutable_checkpoint()->set_global_step(step);
    return action;
  }
  absl::Status Write(uint64_t step) {
    std::string warning;
    const absl::Status status = folder_.Checkpoint(OfStep(step), &warning);
    EXPECT_EQ(warning, "");
    return status;
  }
  std::vector<uint64_t> Steps() {
    std::vector<uint64_t> steps;
    for (const CheckpointInfo& one : ListCheckpoints(dir_ + "/checkpoints", Env::Real(), nullptr)) {
      EXPECT_TRUE(CheckCheckpoint(one, Env::Real()).ok());
      steps.push_back(one.step);
    }
    return steps;
  }
  JobFolder folder_;
};

TEST_F(CheckpointFolderTest, TheNewestCompleteOnesStay) {
  for (const uint64_t step : {5, 10, 15}) ASSERT_TRUE(Write(step).ok());
  EXPECT_THAT(Steps(), testing::ElementsAre(15, 10));
  EXPECT_FALSE(fs::exists(dir_ + "/checkpoints/step-5"));
  const auto newest = ListCheckpoints(dir_ + "/checkpoints", Env::Real(), nullptr).front();
  EXPECT_EQ(newest.manifest.checkpoint().unix_time(), 1003);
}

TEST_F(CheckpointFolderTest, KnownDamagedOnesDoNotCountAmongThoseThatStay) {
  for (const uint64_t step : {5, 10}) ASSERT_TRUE(Write(step).ok());
  OutputAction action = OfStep(15);
  action.damaged = {CheckpointSaveId(9, 10)};
  std::string warning;
  ASSERT_TRUE(folder_.Checkpoint(action, &warning).ok());
  EXPECT_THAT(Steps(), testing::ElementsAre(15, 10, 5));
}

// Models of epochs, with checkpoint.save: BEST.
class BestModelFolderTest : public CheckpointFolderTest {
 protected:
  OutputAction OfBest(OutputAction::Kind kind) {
    OutputAction action = Action(kind, dir_);
    action.config.mutable_strategy()->set_a_sync(false);
    action.config.mutable_checkpoint()->set_keep(1);
    action.config.mutable_checkpoint()->set_save(CheckpointConfig::BEST);
    action.config.mutable_train()->set_epochs(100);
    return action;
  }
  // The model of `epoch` (from 1) is saved.
  void Prepare(uint32_t epoch, uint64_t instance = 7) {
    Manifest manifest;
    manifest.set_epochs(epoch);
    const absl::Status prepared = PrepareModel(dir_ + "/model", OfBest(OutputAction::kEnded).config,
                                               manifest, Env::Real(), EpochSaveId(instance, epoch))
                                      .status();
    ASSERT_TRUE(prepared.ok()) << prepared;
  }
  // A checkpoint in whose epoch the best one was `best`.
  void WriteNaming(uint64_t step, uint32_t best) {
    OutputAction action = OfStep(step);
    action.config = OfBest(OutputAction::kCheckpoint).config;
    action.manifest.mutable_checkpoint()->mutable_result()->mutable_best()->set_save_id(
        EpochSaveId(7, best));
    std::string warning;
    ASSERT_TRUE(folder_.Checkpoint(action, &warning).ok());
  }
  void KeepModels(uint32_t epoch, const std::vector<uint32_t>& named) {
    OutputAction action = OfBest(OutputAction::kModels);
    action.number = epoch;
    action.instances = instances_;
    for (const uint32_t one : named) action.save_ids.push_back(EpochSaveId(instances_.back(), one));
    folder_.KeepModels(action);
  }
  absl::Status End(const std::string& status, uint32_t best) {
    OutputAction ended = OfBest(OutputAction::kEnded);
    ended.result.set_status(status);
    ended.save_id = EpochSaveId(7, best);
    if (status == "done") ended.result.set_model_dir(dir_ + "/model");
    return folder_.End(ended);
  }
  std::vector<uint32_t> Prepared() {
    std::vector<uint32_t> epochs;
    for (const PreparedSave& save : ListPrepared(dir_ + "/model", Env::Real()))
      epochs.push_back(save.manifest.epochs());
    std::sort(epochs.begin(), epochs.end());
    return epochs;
  }
  std::vector<uint64_t> instances_ = {7};  // of the job, when KeepModels was decided
};

TEST_F(BestModelFolderTest, ModelsThatTheJobOrACheckpointNamesStay) {
  for (const uint32_t epoch : {1, 2, 3, 4, 5}) Prepare(epoch);
  WriteNaming(10, 2);
  // The model of epoch 5 was saved after this was decided.
  KeepModels(4, {4});
  EXPECT_THAT(Prepared(), testing::ElementsAre(2, 4, 5));
  WriteNaming(20, 4);  // the checkpoint of step 10 is gone
  KeepModels(5, {5});
  EXPECT_THAT(Prepared(), testing::ElementsAre(4, 5));
}

// A checkpoint was completed while the model of epoch 5 was being saved, which nobody named yet.
TEST_F(BestModelFolderTest, TheModelOfTheNewestEpochStaysBeforeAnyoneNamesIt) {
  for (const uint32_t epoch : {3, 4, 5}) Prepare(epoch);
  KeepModels(5, {4});
  EXPECT_THAT(Prepared(), testing::ElementsAre(4, 5));
}

TEST_F(BestModelFolderTest, WhatWasDecidedBeforeARollbackRemovesNoModelOfTheNextAttempt) {
  for (const uint32_t epoch : {1, 2, 9}) Prepare(epoch);
  Prepare(3, /*instance=*/8);
  KeepModels(10, {9});
  EXPECT_THAT(Prepared(), testing::ElementsAre(3, 9));
  // The next attempt decides about the models of both.
  instances_ = {7, 8};
  KeepModels(4, {3});
  EXPECT_THAT(Prepared(), testing::ElementsAre(3));
}

TEST_F(BestModelFolderTest, ModelsOfEarlierJobsGoWhenNoCheckpointNamesThem) {
  for (const uint32_t epoch : {1, 2}) Prepare(epoch, /*instance=*/5);
  WriteNaming(10, 2);
  OutputAction started = OfBest(OutputAction::kStarted);
  started.resumes = true;
  ASSERT_TRUE(folder_.Begin(started).ok());
  Prepare(3);
  Prepare(8, /*instance=*/9);  // of an instance that is not known yet
  KeepModels(4, {3});
  EXPECT_THAT(Prepared(), testing::ElementsAre(3, 8));
}

TEST_F(BestModelFolderTest, TheModelInForceChangesOnlyWhenTheJobIsDone) {
  ASSERT_TRUE(Run("done", "01").ok());
  const std::string before = Read("model/MANIFEST");
  ASSERT_TRUE(folder_.Begin(OfBest(OutputAction::kStarted)).ok());
  Prepare(1);
  Prepare(2);
  WriteNaming(10, 1);
  KeepModels(2, {2});
  ASSERT_TRUE(End("failed", 2).ok());
  EXPECT_EQ(Read("model/MANIFEST"), before);
  // The checkpoint needs it, if the job is resumed.
  EXPECT_THAT(Prepared(), testing::ElementsAre(1));
  EXPECT_TRUE(CheckSaved(dir_ + "/model", EpochSaveId(7, 1), Env::Real()).ok());
  ASSERT_TRUE(End("done", 1).ok());
  EXPECT_EQ(ReadManifest(dir_ + "/model", Env::Real())->epochs(), 1u);
  EXPECT_TRUE(ModelLoads());
  EXPECT_THAT(Prepared(), testing::IsEmpty());
  // A job that resumes it, and ends without a better one, keeps it.
  EXPECT_TRUE(CheckSaved(dir_ + "/model", EpochSaveId(7, 1), Env::Real()).ok());
  EXPECT_TRUE(End("done", 1).ok());
  EXPECT_FALSE(End("done", 2).ok());
}

TEST_F(BestModelFolderTest, AFailedJobWithoutCheckpointsLeavesNoModels) {
  ASSERT_TRUE(folder_.Begin(OfBest(OutputAction::kStarted)).ok());
  Prepare(1);
  ASSERT_TRUE(End("failed", 1).ok());
  EXPECT_THAT(Prepared(), testing::IsEmpty());
}

TEST_F(CheckpointFolderTest, TheLastOneIsTheNewestWhenTheTimeOfDayIsSetBack) {
  for (const uint64_t step : {5, 10}) ASSERT_TRUE(Write(step).ok());
  seconds_ -= 500;
  ASSERT_TRUE(Write(15).ok());
  EXPECT_THAT(Steps(), testing::ElementsAre(15, 10));
  ASSERT_TRUE(Write(20).ok());
  EXPECT_THAT(Steps(), testing::ElementsAre(20, 15));
  // The time of the earlier ones is not passed on.
  const auto newest = ListCheckpoints(dir_ + "/checkpoints", Env::Real(), nullptr).front();
  EXPECT_LT(newest.manifest.checkpoint().unix_time(), 600);
}

class RerunTest : public CheckpointFolderTest {
 protected:
  // A run that starts from the beginning makes a checkpoint at each step, and then ends; "": it
  // crashes.
  absl::Status RunWith(uint64_t instance, const std::vector<uint64_t>& steps,
                       const std::string& status, bool resumes = false) {
    JobFolder folder(&env_, "h");
    OutputAction started = Action(OutputAction::kStarted, dir_);
    started.resumes = resumes;
    const absl::Status begun = folder.Begin(started);
    for (const uint64_t step : begun.ok() ? steps : std::vector<uint64_t>()) {
      OutputAction action = OfStep(step);
      action.save_id = CheckpointSaveId(instance, step);
      if (!resumes) action.instances = {instance};
      action.config.set_initial_checkpoint(initial_);
      std::string warning;
      const absl::Status made = folder.Checkpoint(action, &warning);
      EXPECT_TRUE(made.ok() && warning.empty()) << made << warning;
    }
    if (status.empty()) return begun;
    OutputAction ended = Action(OutputAction::kEnded, dir_);
    ended.result.set_status(status);
    EXPECT_TRUE(folder.End(ended).ok());
    return begun;
  }
  std::string initial_;  // initial_checkpoint of the runs
};

TEST_F(RerunTest, TheCheckpointFromWhichANextDayStartsStays) {
  ASSERT_TRUE(RunWith(1, {5, 10}, "done").ok());
  initial_ = dir_ + "/checkpoints/step-10";
  ASSERT_TRUE(RunWith(2, {3}, "").ok());
  EXPECT_THAT(Steps(), testing::UnorderedElementsAre(3, 10));
}

TEST_F(RerunTest, ACrashedRunIsContinuedOrGivenUpOnPurpose) {
  ASSERT_TRUE(RunWith(1, {5, 10}, "").ok());
  const absl::Status refused = RunWith(2, {7}, "done");
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(Steps(), testing::ElementsAre(10, 5));
  EXPECT_EQ(Read("result.json"), "") << "the refused job says nothing in the folder";
  // What only evaluates removes no checkpoint, and finishes no run.
  evaluate_only_ = true;
  EXPECT_TRUE(RunWith(3, {}, "done").ok());
  evaluate_only_ = false;
  EXPECT_FALSE(RunWith(2, {7}, "done").ok());
  ASSERT_TRUE(RunWith(4, {15}, "done", /*resumes=*/true).ok());
  EXPECT_THAT(Steps(), testing::ElementsAre(15, 10));
  EXPECT_TRUE(RunWith(5, {}, "").ok()) << "it has finished, with the checkpoints before it";
}

TEST_F(RerunTest, CheckpointsOfOthersGoWithTheFirstNewOne) {
  ASSERT_TRUE(RunWith(1, {5, 10}, "cancelled").ok());
  overwrite_ = true;
  ASSERT_TRUE(RunWith(2, {}, "").ok());
  EXPECT_THAT(Steps(), testing::ElementsAre(10, 5)) << "it has made none yet";
  ASSERT_TRUE(RunWith(3, {7}, "").ok());
  EXPECT_THAT(Steps(), testing::ElementsAre(7));
  overwrite_ = false;
  EXPECT_FALSE(RunWith(4, {7}, "").ok()) << "the last run has crashed";
}

TEST_F(RerunTest, ACrashAfterAFinishedRunIsNoticed) {
  ASSERT_TRUE(RunWith(1, {5}, "done").ok());
  ASSERT_TRUE(RunWith(2, {}, "").ok()) << "a finished run is replaced";
  EXPECT_THAT(Steps(), testing::ElementsAre(5));
  ASSERT_TRUE(RunWith(3, {5}, "").ok()) << "the crash before made no checkpoint";
  EXPECT_THAT(Read("result.json"), HasSubstr("done"));
  EXPECT_FALSE(RunWith(4, {5}, "").ok());
}

TEST_F(CheckpointFolderTest, AFullDiskLeavesTheEarlierOnes) {
  ASSERT_TRUE(Write(5).ok());
  full_ = "step-10";
  const absl::Status full = Write(10);
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  full_.clear();
  folder_.Discard(OfStep(10, OutputAction::kDiscard));
  EXPECT_THAT(Steps(), testing::ElementsAre(5));
  EXPECT_FALSE(fs::exists(dir_ + "/checkpoints/step-10"));
}

TEST_F(CheckpointFolderTest, AMissingShardIsNamedWithWhatToDo) {
  OutputAction action = OfStep(5);
  SavedFile* file = action.manifest.add_files();
  file->set_name("emb-0.0123456789abcdef.shard");
  file->set_bytes(8);
  std::string warning;
  const absl::Status missing = folder_.Checkpoint(action, &warning);
  EXPECT_TRUE(absl::IsDataLoss(missing)) << missing;
  EXPECT_THAT(std::string(missing.message()),
              testing::AllOf(HasSubstr("emb-0."), HasSubstr(dir_ + "/checkpoints")));
}

TEST_F(CheckpointFolderTest, DiscardingKeepsWhatIsInForce) {
  ASSERT_TRUE(Write(5).ok());
  // The same step again, which was given up, and the one in force, whose commit seemed to fail.
  OutputAction again = OfStep(5, OutputAction::kDiscard);
  again.save_id = CheckpointSaveId(9, 77);
  folder_.Discard(again);
  EXPECT_THAT(Steps(), testing::ElementsAre(5));
}

TEST_F(CheckpointFolderTest, AFolderOutsideOutputDirIsLocked) {
  OutputAction first = Action(OutputAction::kStarted, dir_);
  first.config.mutable_strategy()->set_a_sync(false);
  first.config.mutable_checkpoint()->set_dir(root_ + "/shared");
  ASSERT_TRUE(folder_.Begin(first).ok());
  JobFolder other(&env_, "h");
  OutputAction second = first;
  second.config.set_output_dir(root_ + "/other");
  EXPECT_EQ(other.Begin(second).code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(JobFolderTest, AForeignTraceFileStays) {
  trace_file_ = root_ + "/trace.json";
  std::ofstream(trace_file_) << "mine";
  EXPECT_EQ(Run("done", "1a").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(*Env::Real()->ReadFile(trace_file_), "mine");
  EXPECT_FALSE(fs::exists(dir_ + "/job.textproto"));
  overwrite_ = true;
  EXPECT_TRUE(Run("done", "1a").ok());
}

TEST_F(JobFolderTest, ATraceFileThatCannotBeCreatedFailsTheJob) {
  trace_file_ = "/proc/none/trace";
  JobFolder folder(&env_, "h");
  EXPECT_THAT(std::string(folder.Begin(Action(OutputAction::kStarted, dir_)).message()),
              HasSubstr("/proc/none"));
}

TEST_F(JobFolderTest, AFolderLockedUnderAnotherPathIsLeftAlone) {
  JobFolder first(&env_, "h");
  ASSERT_TRUE(first.Begin(Action(OutputAction::kStarted, dir_)).ok());
  fs::create_directory_symlink(dir_, root_ + "/link");
  EXPECT_EQ(Run("done", "2b", root_ + "/link").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_FALSE(fs::exists(dir_ + "/result.json"));
  EXPECT_FALSE(fs::exists(dir_ + "/model"));
}

}  // namespace
}  // namespace sluice
