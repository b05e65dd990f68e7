#include "scheduler/files/job_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <iterator>
#include <mutex>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/file_lock.h"
#include "tests/common/base/hooked_env.h"
#include "tests/common/places/fake_store_env.h"

namespace sluice {
namespace {

class JobOutputTest : public testing::Test {
 protected:
  JobOutputTest() : dir_(testing::TempDir() + "job_output_test") {
    std::filesystem::remove_all(dir_);
  }
  JobOutput::Options Options() {
    JobOutput::Options options;
    options.env = Env::Real();
    options.host = "h";
    options.on_begun = [](const std::string&) {};
    options.on_failed = [this](const std::string&, absl::Status s) { Note(s, &failed_); };
    options.on_warning = [this](const std::string&, const std::string& warning) {
      Note(absl::UnknownError(warning), &warnings_);
    };
    options.on_away = [this](const std::string&, const absl::Status& s) { Note(s, &away_); };
    options.on_ended = [this](const std::string&, absl::Status s) { Note(s, &ended_); };
    return options;
  }
  OutputAction Action(OutputAction::Kind kind, const std::string& dir) {
    OutputAction action;
    action.kind = kind;
    action.job_id = "job-1";
    action.config.set_name("job");
    action.config.set_output_dir(dir);
    action.result.set_status("done");
    action.scalars = {{"train/loss", 1, 0.5}};
    return action;
  }
  // Callbacks run on the thread of any job.
  void Note(const absl::Status& status, std::vector<absl::Status>* list) {
    const std::lock_guard<std::mutex> lock(mutex_);
    list->push_back(status);
  }
  std::mutex mutex_;
  // Read after Stop.
  std::vector<absl::Status> failed_, ended_, warnings_, away_;
  const std::string dir_;
};

TEST_F(JobOutputTest, TheCurvesOfAnEarlierSchedulerAreGivenBeforeTheJobHasBegun) {
  {
    JobOutput first(Options());
    first.Add({Action(OutputAction::kStarted, dir_), Action(OutputAction::kScalars, dir_)});
  }
  std::vector<std::string> calls;
  JobOutput::Options options = Options();
  options.on_curves = [&](const std::string& job_id, const ThinCurves& earlier) {
    const auto& points = earlier.by_tag().at("train/loss").points();
    calls.push_back(absl::StrCat(job_id, " ", points.size(), " ", points[0].x, " ", points[0].y));
  };
  options.on_begun = [&](const std::string&) { calls.push_back("begun"); };
  JobOutput second(options);
  OutputAction again = Action(OutputAction::kStarted, dir_);
  again.again = true;
  second.Add({again});
  second.Stop();
  EXPECT_THAT(calls, testing::ElementsAre("job-1 1 1 0.5", "begun"));
  // A job that begins anew has none.
  calls.clear();
  JobOutput third(options);
  third.Add({Action(OutputAction::kStarted, dir_)});
  third.Stop();
  EXPECT_THAT(calls, testing::ElementsAre("begun"));
}

TEST_F(JobOutputTest, AFolderOfAnotherSchedulersJobIsLeftUnchanged) {
  JobOutput first(Options());
  first.Add({Action(OutputAction::kStarted, dir_)});
  first.Add({Action(OutputAction::kScalars, dir_)});
  // The first job's thread locks the folder before it writes the configuration.
  while (!std::filesystem::exists(dir_ + "/job.textproto")) std::this_thread::yield();
  JobOutput second(Options());
  OutputAction begin = Action(OutputAction::kStarted, dir_);
  begin.config.set_name("other");
  second.Add({begin, Action(OutputAction::kScalars, dir_), Action(OutputAction::kEnded, dir_)});
  second.Stop();
  ASSERT_EQ(failed_.size(), 1u);
  EXPECT_THAT(std::string(failed_[0].message()), testing::HasSubstr("output_dir " + dir_));
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/result.json"));
  EXPECT_THAT(*Env::Real()->ReadFile(dir_ + "/job.textproto"), testing::HasSubstr("name: \"job\""));
  first.Add({Action(OutputAction::kEnded, dir_)});
  first.Stop();
  // The folder is free again.
  JobOutput third(Options());
  third.Add({Action(OutputAction::kStarted, dir_), Action(OutputAction::kEnded, dir_)});
  third.Stop();
  EXPECT_EQ(failed_.size(), 1u);
}

TEST_F(JobOutputTest, AJobWaitsForAThreadWhenThereIsNone) {
  JobOutput output(Options());
  pthread_attr_t before, huge;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  ASSERT_EQ(pthread_attr_init(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 47), 0);  // no process has room for it
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  output.Add({Action(OutputAction::kStarted, dir_)});
  ASSERT_EQ(pthread_setattr_default_np(&before), 0);
  pthread_attr_destroy(&huge);
  pthread_attr_destroy(&before);
  EXPECT_FALSE(std::filesystem::exists(dir_));
  output.Add({});
  while (!std::filesystem::exists(dir_ + "/job.textproto")) std::this_thread::yield();
  output.Add({Action(OutputAction::kEnded, dir_)});
  output.Stop();
  EXPECT_EQ(failed_.size(), 0u);
  EXPECT_EQ(ended_.size(), 1u);
}

TEST_F(JobOutputTest, AJobWithASlowDiskDoesNotDelayOthers) {
  HookedEnv env;
  std::promise<void> disk;
  std::shared_future<void> ready = disk.get_future().share();
  const std::string slow = dir_ + "/slow", fast = dir_ + "/fast";
  env.before = [&](const std::string&, const std::string& path) {
    if (absl::StartsWith(path, slow)) ready.wait();
    return absl::OkStatus();
  };
  JobOutput::Options options = Options();
  options.env = &env;
  std::promise<void> fast_begun, fast_ended;
  std::vector<std::string> begun;  // of the slow job; read only after Stop
  options.on_begun = [&](const std::string& job_id) {
    if (job_id == "fast-1") return fast_begun.set_value();
    begun.push_back(job_id);
  };
  options.on_ended = [&](const std::string& job_id, absl::Status) {
    if (job_id == "fast-1") fast_ended.set_value();
  };
  JobOutput output(std::move(options));
  OutputAction started = Action(OutputAction::kStarted, fast);
  OutputAction ended = Action(OutputAction::kEnded, fast);
  started.job_id = ended.job_id = "fast-1";
  output.Add({Action(OutputAction::kStarted, slow), Action(OutputAction::kEnded, slow), started});
  fast_begun.get_future().get();
  output.Add({ended});
  fast_ended.get_future().get();
  EXPECT_TRUE(std::filesystem::exists(fast + "/result.json"));
  EXPECT_FALSE(std::filesystem::exists(slow));
  disk.set_value();
  output.Stop();
  EXPECT_EQ(begun, std::vector<std::string>{"job-1"});
  EXPECT_TRUE(std::filesystem::exists(slow + "/result.json"));
}

// Adds batches while the disk hangs, and returns how many calls for a checkpoint came through.
class HungDiskTest : public JobOutputTest {
 protected:
  int AddWhileTheDiskHangs(JobOutput::Options options, int traces, int curves) {
    HookedEnv env;
    std::promise<void> disk;
    std::shared_future<void> ready = disk.get_future().share();
    env.before = [&](const std::string&, const std::string&) {
      ready.wait();
      return absl::OkStatus();
    };
    options.env = &env;
    int checkpoints = 0;  // read after Stop
    options.on_checkpoint = [&](const OutputAction&, const absl::Status&, const std::string&) {
      ++checkpoints;
    };
    JobOutput output(std::move(options));
    output.Add({Action(OutputAction::kStarted, dir_)});
    for (int i = 0; i < traces; ++i) output.Add({Action(OutputAction::kTrace, dir_)});
    for (int i = 0; i < curves; ++i) output.Add({Action(OutputAction::kScalars, dir_)});
    for (int i = 0; i < 3; ++i) output.Add({Action(OutputAction::kCheckpoint, dir_)});
    output.Add({Action(OutputAction::kEnded, dir_)});
    disk.set_value();
    output.Stop();
    return checkpoints;
  }
  std::vector<std::string> DropWarnings() const {
    std::vector<std::string> found;
    for (const absl::Status& warning : warnings_) {
      if (absl::StrContains(warning.message(), "dropped")) found.emplace_back(warning.message());
    }
    return found;
  }
};

TEST_F(HungDiskTest, BatchesBeyondTheBoundAreDroppedAndCountedInOneLine) {
  JobOutput::Options options = Options();
  options.max_batches = 4;
  EXPECT_EQ(AddWhileTheDiskHangs(std::move(options), /*traces=*/100, /*curves=*/7), 3);
  ASSERT_EQ(DropWarnings().size(), 1u);
  EXPECT_THAT(DropWarnings()[0], testing::HasSubstr("96 batches of its trace"));
  EXPECT_THAT(DropWarnings()[0], testing::HasSubstr("7 batches of its curves"));
  // What the job cannot do without is written.
  EXPECT_EQ(ended_.size(), 1u);
  EXPECT_TRUE(std::filesystem::exists(dir_ + "/result.json"));
}

TEST_F(HungDiskTest, TheBytesOfBatchesAreBoundedToo) {
  JobOutput::Options options = Options();
  options.max_batch_bytes = 3 * sizeof(OutputAction);
  EXPECT_EQ(AddWhileTheDiskHangs(std::move(options), /*traces=*/50, /*curves=*/0), 3);
  ASSERT_EQ(DropWarnings().size(), 1u);
  EXPECT_TRUE(std::filesystem::exists(dir_ + "/result.json"));
}

TEST_F(HungDiskTest, BatchesWithinTheBoundAreKept) {
  EXPECT_EQ(AddWhileTheDiskHangs(Options(), /*traces=*/1000, /*curves=*/1000), 3);
  EXPECT_TRUE(DropWarnings().empty());
}

// A caller that learns of the end may submit the next job to the same folder at once.
TEST_F(JobOutputTest, AFolderIsFreeWhenOnEndedIsCalled) {
  JobOutput::Options options = Options();
  options.on_ended = [this](const std::string&, absl::Status) {
    Note(FolderLock::Take(dir_, Env::Real()).status(), &ended_);
  };
  JobOutput output(std::move(options));
  output.Add({Action(OutputAction::kStarted, dir_), Action(OutputAction::kEnded, dir_)});
  output.Stop();
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_TRUE(ended_[0].ok()) << ended_[0];
}

TEST_F(JobOutputTest, FinishedJobsLeaveNoThreads) {
  JobOutput output(Options());
  for (int i = 0; i < 200; ++i) {
    OutputAction started = Action(OutputAction::kStarted, absl::StrCat(dir_, "/", i));
    OutputAction ended = Action(OutputAction::kEnded, absl::StrCat(dir_, "/", i));
    started.job_id = ended.job_id = absl::StrCat("job-", i);
    output.Add({started});
    output.Add({ended});
    // The end of a job that never started.
    ended.job_id = absl::StrCat("queued-", i);
    ended.config.set_output_dir(absl::StrCat(dir_, "/queued-", i));
    output.Add({ended});
  }
  while (std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}) > 8) {
    output.Add({Action(OutputAction::kEnded, dir_ + "/last")});
    // Each of these writes a file, for which Stop waits.
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  output.Stop();
  EXPECT_TRUE(std::filesystem::exists(dir_ + "/199/result.json"));
  EXPECT_TRUE(std::filesystem::exists(dir_ + "/queued-199/result.json"));
}

TEST_F(JobOutputTest, ABrokenTraceIsReportedOnceAndTheJobContinues) {
  const std::string file = dir_ + "/t/trace.json";
  JobOutput output(Options());
  OutputAction started = Action(OutputAction::kStarted, dir_);
  started.config.set_trace_file(file);
  OutputAction good = Action(OutputAction::kTrace, dir_), bad = good;
  good.trace.batch.set_number(1);
  good.trace.batch.set_dropped(17);
  bad.trace.batch.set_number(0);
  output.Add({started, good, bad, bad, good, Action(OutputAction::kEnded, dir_)});
  output.Stop();
  EXPECT_TRUE(failed_.empty());
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_TRUE(ended_[0].ok());
  EXPECT_THAT(*Env::Real()->ReadFile(file), testing::HasSubstr(": 17}"));
  // The result was made before the trace failed, but contains the warning.
  const std::string result = *Env::Real()->ReadFile(dir_ + "/result.json");
  EXPECT_THAT(result, testing::HasSubstr(std::string(warnings_[0].message())));
  EXPECT_THAT(result, testing::Not(testing::HasSubstr("\"warnings\": []")));
}

TEST_F(JobOutputTest, ACheckpointThatFailsIsReportedAndTheJobContinues) {
  std::vector<std::pair<uint64_t, absl::Status>> written;
  JobOutput::Options options = Options();
  options.on_checkpoint = [&](const OutputAction& made, absl::Status status, const std::string&) {
    written.push_back({made.number, status});
  };
  JobOutput output(std::move(options));
  OutputAction good = Action(OutputAction::kCheckpoint, dir_);
  good.config.mutable_strategy()->set_a_sync(false);
  good.number = 1;
  good.save_id = "0123456789abcdef";
  good.manifest.set_global_step(3);
  good.manifest.mutable_checkpoint()->set_global_step(3);
  OutputAction bad = good;
  bad.number = 2;
  bad.manifest.set_global_step(4);
  bad.manifest.add_files()->set_name("gone-0.shard");
  OutputAction discard = bad;
  discard.kind = OutputAction::kDiscard;
  output.Add({Action(OutputAction::kStarted, dir_), good, bad, discard,
              Action(OutputAction::kEnded, dir_)});
  output.Stop();
  EXPECT_TRUE(failed_.empty());
  ASSERT_EQ(written.size(), 2u);
  EXPECT_EQ(written[0].first, 1u);
  EXPECT_TRUE(written[0].second.ok()) << written[0].second;
  EXPECT_EQ(written[1].first, 2u);
  EXPECT_FALSE(written[1].second.ok());
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_TRUE(ended_[0].ok());
  EXPECT_TRUE(std::filesystem::exists(dir_ + "/checkpoints/step-3/MANIFEST"));
}

// A store that does not take result.json before it was told of `times` tries.
class AwayTest : public JobOutputTest {
 protected:
  JobOutput::Options Away(int times) {
    times_ = times;
    env_.transport.answer = [this](const HttpRequest& request) -> absl::StatusOr<HttpResponse> {
      const bool result = request.method == "PUT" && absl::EndsWith(request.url, "/result.json");
      if (result && times_ > 0) return absl::UnavailableError("no answer");
      return env_.store(request);
    };
    JobOutput::Options options = Options();
    options.env = env_.get();
    options.staging = dir_;
    options.away_pause = std::chrono::milliseconds(1);
    options.on_away = [this](const std::string&, const absl::Status& s) {
      Note(s, &away_);
      --times_;
    };
    return options;
  }
  const std::string out_ = "s3://b/out";
  FakeStoreEnv env_;
  std::atomic<int> times_;
};

TEST_F(AwayTest, TheEndOfAJobWaitsForItsPlace) {
  JobOutput::Options options = Away(5);
  std::promise<void> ended;
  options.on_ended = [&](const std::string&, absl::Status s) {
    Note(s, &ended_);
    ended.set_value();
  };
  JobOutput output(options);
  output.Add({Action(OutputAction::kStarted, out_), Action(OutputAction::kEnded, out_)});
  ended.get_future().get();
  output.Stop();
  EXPECT_EQ(away_.size(), 5u);
  EXPECT_THAT(std::string(away_[0].message()), testing::HasSubstr("no answer"));
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_TRUE(ended_[0].ok()) << ended_[0];
  EXPECT_EQ(warnings_.size(), 1u);
  EXPECT_TRUE(failed_.empty());
}

TEST_F(AwayTest, AnEndThatWaitsWhenTheOutputStopsIsLeftToTheNextScheduler) {
  JobOutput::Options options = Away(1 << 30);
  options.away_pause = std::chrono::hours(1);
  std::promise<void> away;
  options.on_away = [&](const std::string&, const absl::Status&) { away.set_value(); };
  OutputAction started = Action(OutputAction::kStarted, out_);
  OutputAction ends = Action(OutputAction::kEnded, out_);
  started.instances = ends.instances = {7};  // by which the next scheduler knows the job's claim
  JobOutput output(options);
  output.Add({started, ends});
  away.get_future().get();
  output.Stop();
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_TRUE(absl::IsAborted(ended_[0])) << ended_[0];
  times_ = 0;
  JobOutput next(options);
  ends.again = true;
  next.Add({ends});
  next.Stop();
  ASSERT_EQ(ended_.size(), 2u);
  EXPECT_TRUE(ended_[1].ok()) << ended_[1];
  EXPECT_EQ(env_.store.objects().count("b/out/result.json"), 1u);
}

TEST_F(AwayTest, AJobThatFailedWaitsForABoundedTimeAndOneThatNeverBeganNotAtAll) {
  JobOutput::Options options = Away(1 << 30);
  options.away_wait = std::chrono::milliseconds(1);
  std::promise<void> both;
  options.on_ended = [&](const std::string&, absl::Status s) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_.push_back(s);
    if (ended_.size() == 2) both.set_value();
  };
  JobOutput output(options);
  OutputAction failed = Action(OutputAction::kEnded, out_);
  failed.result.set_status("failed");
  output.Add({Action(OutputAction::kStarted, out_), failed});
  OutputAction refused = Action(OutputAction::kEnded, out_ + "/other");
  refused.job_id = "job-2";
  output.Add({refused});
  both.get_future().get();  // before Stop, which would end the waits
  output.Stop();
  for (const absl::Status& end : ended_)
    EXPECT_THAT(std::string(end.message()), testing::HasSubstr("no answer"));
  EXPECT_GE(away_.size(), 1u);
}

TEST_F(JobOutputTest, FolderThatCannotBeMadeIsReportedOnceAndAtTheEnd) {
  ASSERT_TRUE(Env::Real()->MakeDirs(dir_).ok());
  ASSERT_TRUE(Env::Real()->WriteFile(dir_ + "/file", {absl::string_view("x")}).ok());
  JobOutput output(Options());
  const std::string bad = dir_ + "/file/sub";
  output.Add({Action(OutputAction::kStarted, bad), Action(OutputAction::kScalars, bad),
              Action(OutputAction::kEnded, bad)});
  output.Stop();
  ASSERT_EQ(failed_.size(), 1u);
  EXPECT_THAT(std::string(failed_[0].message()), testing::HasSubstr(dir_));
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_FALSE(ended_[0].ok());
}

}  // namespace
}  // namespace sluice
