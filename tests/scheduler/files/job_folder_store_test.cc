// A job whose output folder is on a store.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/saved_model/saved_model.h"
#include "scheduler/files/job_folder.h"
#include "tests/common/base/hooked_env.h"
#include "tests/common/places/fake_store_env.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kOut[] = "s3://b/out";
constexpr char kId[] = "0000000000000001", kNextId[] = "0000000000000002";

class JobFolderStoreTest : public ::testing::Test {
 protected:
  JobFolderStoreTest() {
    std::string pattern = ::testing::TempDir() + "/job_folder_store_test.XXXXXX";
    staging_ = ::mkdtemp(pattern.data());
  }
  ~JobFolderStoreTest() override { std::filesystem::remove_all(staging_); }

  OutputAction Action(OutputAction::Kind kind, const std::string& job, uint64_t instance) {
    OutputAction action;
    action.kind = kind;
    action.job_id = job;
    action.time = absl::FromUnixSeconds(++seconds_);
    action.instances = {instance};
    action.config.set_name("job");
    action.config.set_output_dir(kOut);
    action.config.set_trace_file("s3://b/trace.json");
    return action;
  }
  std::unique_ptr<JobFolder> Folder() {
    return std::make_unique<JobFolder>(env_.get(), "h", nullptr, staging_);
  }
  OutputAction Ended(const std::string& job, uint64_t instance) {
    OutputAction ended = Action(OutputAction::kEnded, job, instance);
    ended.result.set_job(job);
    ended.result.set_status("done");
    ended.result.set_model_dir(absl::StrCat(kOut, "/model"));
    ended.save_id = kId;
    PrepareModel(absl::StrCat(kOut, "/model"), ended.config, Manifest(), env_.get(), kId)
        .IgnoreError();
    return ended;
  }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (const auto& [name, bytes] : env_.store.objects()) {
      const bool events = absl::StrContains(name, "events.out");
      names.push_back(events ? name.substr(0, name.find("tfevents")) : name);
    }
    return names;
  }

  FakeStoreEnv env_;
  std::string staging_;
  int64_t seconds_ = 0;
};

TEST_F(JobFolderStoreTest, AllFilesOfAJobAreThereAtItsEndAndNoneIsHere) {
  for (const char* job : {"job-1", "job-2"}) {  // the second replaces what the first has left
    auto folder = Folder();
    const absl::Status begun = folder->Begin(Action(OutputAction::kStarted, job, 1));
    ASSERT_TRUE(begun.ok()) << begun;
    OutputAction points = Action(OutputAction::kScalars, job, 1);
    points.scalars = {{"train/loss", 1, 0.5}};
    folder->AddScalars(points);
    const absl::Status ended = folder->End(Ended(job, 1));
    EXPECT_TRUE(ended.ok()) << ended;
    folder.reset();
    EXPECT_THAT(Names(), ElementsAre("b/out/OWNER", "b/out/curves.jsonl", "b/out/events.out.",
                                     "b/out/job.textproto", "b/out/model/MANIFEST",
                                     absl::StrCat("b/out/model/job.", kId, ".textproto"),
                                     "b/out/result.json", "b/trace.json"));
    EXPECT_THAT(env_.store.objects()["b/out/result.json"], HasSubstr(job));
    EXPECT_TRUE(std::filesystem::is_empty(staging_));
  }
}

TEST_F(JobFolderStoreTest, UploadsOfKilledProcessesAreGivenUpByTheNextJobAndAtTheEnd) {
  const std::string shard = absl::StrCat("/t-0.", kId, ".shard");
  const auto killed = [&](const std::string& folder) {
    env_.store.BeginUpload("b/out/" + folder + shard);
  };
  const auto begin = [&] {
    for (const char* folder : {"checkpoints/step-3", "model", "export/0000000000000001-000002"})
      killed(folder);
  };
  OutputAction started = Action(OutputAction::kStarted, "job-1", 1);
  started.config.mutable_export_()->set_every_steps(1);
  begin();
  // These belong to other jobs and other programs.
  killed("next/checkpoints/step-3");
  killed("checkpoints/next/step-3");
  killed("checkpoints/small");
  env_.store.BeginUpload("b/out/model/copy.shard");
  auto folder = Folder();
  ASSERT_TRUE(folder->Begin(started).ok());
  EXPECT_EQ(env_.store.open_uploads(), 4u);

  // A pserver dies: its checkpoint is given up, and another is being written.
  killed("checkpoints/step-5");
  env_.store.BeginUpload(absl::StrCat("b/out/checkpoints/step-5/t-0.", kNextId, ".shard"));
  OutputAction dropped = Action(OutputAction::kDiscard, "job-1", 1);
  dropped.save_id = kId;
  dropped.manifest.set_global_step(5);
  folder->Discard(dropped);
  EXPECT_EQ(env_.store.open_uploads(), 5u);

  // A scheduler that goes on with the job leaves the uploads of its members alone.
  started.again = true;
  auto later = Folder();
  ASSERT_TRUE(later->Begin(started).ok());
  EXPECT_EQ(env_.store.open_uploads(), 5u);
  begin();
  OutputAction ended = Ended("job-1", 1);
  ended.config = started.config;
  const absl::Status end = later->End(ended);
  EXPECT_TRUE(end.ok()) << end;
  EXPECT_EQ(env_.store.open_uploads(), 4u);
  EXPECT_TRUE(later->TakeWarnings().empty());
}

TEST_F(JobFolderStoreTest, AJobThatNeverBeganLeavesTheUploadsOfAnotherInFoldersThatBothName) {
  const std::string shard = absl::StrCat("/t-0.", kId, ".shard");
  for (const char* folder : {"b/saves/step-3", "b/deltas/0000000000000001-000002"})
    env_.store.BeginUpload(folder + shard);
  OutputAction cancelled = Ended("job-1", 1);
  cancelled.result.set_status("cancelled");
  cancelled.config.mutable_checkpoint()->set_dir("s3://b/saves");
  cancelled.config.mutable_export_()->set_every_steps(1);
  cancelled.config.mutable_export_()->set_dir("s3://b/deltas");
  ASSERT_TRUE(Folder()->End(cancelled).ok());
  EXPECT_EQ(env_.store.open_uploads(), 2u);
}

TEST_F(JobFolderStoreTest, UploadsForCheckpointsInTheOutputFolderItselfAreGivenUp) {
  OutputAction started = Action(OutputAction::kStarted, "job-1", 1);
  started.config.mutable_checkpoint()->set_dir(started.config.output_dir());
  env_.store.BeginUpload(absl::StrCat("b/out/step-3/t-0.", kId, ".shard"));
  auto folder = Folder();
  ASSERT_TRUE(folder->Begin(started).ok());
  EXPECT_EQ(env_.store.open_uploads(), 0u);
}

TEST_F(JobFolderStoreTest, AStoreThatRefusesToListUploadsCostsOneWarning) {
  env_.transport.answer = [&](const HttpRequest& request) -> absl::StatusOr<HttpResponse> {
    if (absl::EndsWith(request.url, "uploads=")) return Answer(403);
    return env_.store(request);
  };
  auto folder = Folder();
  ASSERT_TRUE(folder->Begin(Action(OutputAction::kStarted, "job-1", 1)).ok());
  ASSERT_TRUE(folder->End(Ended("job-1", 1)).ok());
  const std::vector<std::string> warnings = folder->TakeWarnings();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("s3:ListBucketMultipartUploads"));
}

TEST_F(JobFolderStoreTest, AFolderThatIsLostDuringASaveKeepsTheFilesOfTheNextJob) {
  // The next job takes the folder over, and begins to save the same step and its model, just before
  // or just after the manifest of the first is published.
  for (const bool model : {false, true}) {
    for (const bool before : {true, false}) {
      SCOPED_TRACE(absl::StrCat(model, before));
      env_.store.Clear();
      auto first = Folder();
      ASSERT_TRUE(first->Begin(Action(OutputAction::kStarted, "job-1", 1)).ok());
      auto second = Folder();
      const std::string in_force = model ? "/model/MANIFEST" : "/step-0/MANIFEST";
      const std::string step = absl::StrCat(kOut, model ? "/model" : "/checkpoints/step-0");
      const OutputAction saved = Ended("job-1", 1);  // with a prepared model
      int looks = 0;
      bool taken = false;
      env_.transport.answer = [&](const HttpRequest& request) {
        const bool published = request.method == "PUT" && absl::EndsWith(request.url, in_force);
        const bool looked = request.method == "HEAD" && absl::EndsWith(request.url, in_force);
        // Answers first: the look does not see the next owner.
        const auto answer = env_.store(request);
        if (!taken && (before ? looked && ++looks == 1 : published)) {
          taken = true;
          OutputAction takes = Action(OutputAction::kStarted, "job-2", 2);
          takes.takes_over = true;
          takes.config.set_overwrite(true);
          EXPECT_TRUE(second->Begin(takes).ok());
          Manifest next;
          next.mutable_checkpoint()->set_order(9);
          EXPECT_TRUE(PrepareCheckpoint(step, takes.config, next, env_.get(), kNextId).ok());
        }
        return answer;
      };
      if (model) {
        EXPECT_EQ(first->End(saved).ok(), !before);
      } else {
        std::string warning;
        OutputAction checkpoint = Action(OutputAction::kCheckpoint, "job-1", 1);
        checkpoint.config.mutable_checkpoint()->set_keep(1);
        checkpoint.save_id = kId;
        const absl::Status written = first->Checkpoint(checkpoint, &warning);
        EXPECT_EQ(written.ok(), !before) << written;
        EXPECT_EQ(absl::IsAborted(written), before);
      }
      EXPECT_TRUE(taken);
      EXPECT_EQ(env_.store.objects().count(absl::StrCat("b/", step.substr(7), "/MANIFEST")),
                before ? 0u : 1u);
      EXPECT_TRUE(CommitModel(step, env_.get(), kNextId).ok());
      EXPECT_TRUE(CheckSaved(step, kNextId, env_.get()).ok());
    }
  }
}

TEST_F(JobFolderStoreTest, AManifestThatTakesEffectLateFindsItsFiles) {
  auto folder = Folder();
  ASSERT_TRUE(folder->Begin(Action(OutputAction::kStarted, "job-1", 1)).ok());
  std::optional<HttpRequest> late;
  env_.transport.answer = [&](const HttpRequest& request) -> absl::StatusOr<HttpResponse> {
    if (request.method != "PUT" || !absl::EndsWith(request.url, "/step-0/MANIFEST"))
      return env_.store(request);
    late = request;
    return absl::UnavailableError("no answer");
  };
  std::string warning;
  OutputAction checkpoint = Action(OutputAction::kCheckpoint, "job-1", 1);
  checkpoint.save_id = kId;
  EXPECT_FALSE(folder->Checkpoint(checkpoint, &warning).ok());
  folder->Discard(checkpoint);
  ASSERT_TRUE(late.has_value());
  ASSERT_TRUE(env_.store(*late).ok());
  const std::string step = absl::StrCat(kOut, "/checkpoints/step-0");
  EXPECT_TRUE(CheckSaved(step, kId, env_.get()).ok());
  const auto job = ReadModelJob(step, env_.get());  // its only file
  EXPECT_TRUE(job.ok()) << job.status();

  // Files of a save whose manifest never came go with the next checkpoint.
  ASSERT_TRUE(env_.get()->RemoveFile(step + "/MANIFEST").ok());
  env_.transport.answer = [&](const HttpRequest& request) { return env_.store(request); };
  checkpoint.save_id = kNextId;
  checkpoint.manifest.set_global_step(5);
  checkpoint.config.mutable_checkpoint()->set_keep(1);
  const absl::Status next = folder->Checkpoint(checkpoint, &warning);
  ASSERT_TRUE(next.ok()) << next;
  for (const std::string& name : Names()) EXPECT_THAT(name, Not(HasSubstr("step-0")));
}

TEST_F(JobFolderStoreTest, WhoHasLostTheFolderWritesNothingMore) {
  auto first = Folder();
  ASSERT_TRUE(first->Begin(Action(OutputAction::kStarted, "job-1", 1)).ok());
  const absl::Status refused = Folder()->Begin(Action(OutputAction::kStarted, "job-2", 2));
  EXPECT_TRUE(absl::IsAlreadyExists(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("job-1"));
  OutputAction takes = Action(OutputAction::kStarted, "job-2", 2);
  takes.takes_over = true;
  auto second = Folder();
  ASSERT_TRUE(second->Begin(takes).ok());
  const auto before = env_.store.objects();
  std::string warning;
  OutputAction checkpoint = Action(OutputAction::kCheckpoint, "job-1", 1);
  checkpoint.save_id = kId;
  EXPECT_TRUE(absl::IsAborted(first->Checkpoint(checkpoint, &warning)));
  OutputAction ended = Action(OutputAction::kEnded, "job-1", 1);
  ended.result.set_status("failed");
  EXPECT_THAT(std::string(first->End(ended).message()), HasSubstr("job-2"));
  EXPECT_EQ(env_.store.objects(), before);
  EXPECT_TRUE(second->End(Ended("job-2", 2)).ok());
}

TEST_F(JobFolderStoreTest, AnEndCompletesWhenTheStoreAnswersAgainWhateverStepItLeft) {
  // Away for all tries of one call, and until the end is tried again.
  for (const int away : {8, 1 << 30}) {
    int failed = 0;
    for (int answered = 0;; ++answered) {  // requests before the store goes away
      SCOPED_TRACE(absl::StrCat(away, " ", answered));
      env_.store.Clear();
      env_.transport.answer = [&](const HttpRequest& request) { return env_.store(request); };
      auto earlier = Folder();
      ASSERT_TRUE(earlier->Begin(Action(OutputAction::kStarted, "job-0", 9)).ok());
      ASSERT_TRUE(earlier->End(Ended("job-0", 9)).ok());
      auto folder = Folder();
      ASSERT_TRUE(folder->Begin(Action(OutputAction::kStarted, "job-1", 1)).ok());
      OutputAction ended = Ended("job-1", 1);
      ended.save_id = kNextId;
      ASSERT_TRUE(
          PrepareModel(absl::StrCat(kOut, "/model"), ended.config, Manifest(), env_.get(), kNextId)
              .ok());
      const std::string prepared =
          env_.store.objects()[absl::StrCat("b/out/model/MANIFEST.", kNextId)];
      ASSERT_FALSE(prepared.empty());
      int requests = 0;
      env_.transport.answer = [&](const HttpRequest& request) -> absl::StatusOr<HttpResponse> {
        const int number = requests++;
        if (number < answered || number >= answered + away) return env_.store(request);
        // The request at which it goes away may still be carried out, and its answer be lost.
        if (answered % 2 == 1 && number == answered) env_.store(request).IgnoreError();
        return absl::UnavailableError("no answer");
      };
      const absl::Status first = folder->End(ended);
      env_.transport.answer = [&](const HttpRequest& request) { return env_.store(request); };
      if (requests <= answered) break;
      failed += !first.ok();
      // Once the result is there, only curves and the mark of the end may lack, which is a warning.
      EXPECT_TRUE(first.ok() || folder->IsAway(first)) << first;
      if (!first.ok()) {
        EXPECT_THAT(env_.store.objects()["b/out/result.json"], Not(HasSubstr("failed")));
        EXPECT_THAT(env_.store.objects()["b/out/OWNER"], Not(HasSubstr("ended")));
        const absl::Status again = folder->End(ended);
        EXPECT_TRUE(again.ok()) << again;
      }
      EXPECT_EQ(env_.store.objects()["b/out/model/MANIFEST"], prepared);
      const std::string result = env_.store.objects()["b/out/result.json"];
      EXPECT_THAT(result, HasSubstr("\"job-1\""));
      EXPECT_THAT(result, HasSubstr("\"status\": \"done\""));
      if (!first.ok()) EXPECT_THAT(result, HasSubstr("did not answer"));
    }
    EXPECT_GT(failed, 3);
  }
}

TEST_F(JobFolderStoreTest, ADiskThatFailsIsNotAwayBesideCheckpointsOnAStore) {
  HookedEnv disk;
  bool fails = true;
  disk.before = [&](const std::string&, const std::string& path) {
    const bool result = absl::StrContains(path, "/result.json");
    return fails && result ? absl::InternalError("Input/output error") : absl::OkStatus();
  };
  FakeStoreEnv env(&disk);
  JobFolder folder(env.get(), "h", nullptr, staging_);
  OutputAction action = Action(OutputAction::kStarted, "job-1", 1);
  action.config.set_output_dir(staging_ + "/out");
  action.config.clear_trace_file();
  action.config.mutable_checkpoint()->set_dir("s3://b/checkpoints");
  const absl::Status begun = folder.Begin(action);
  ASSERT_TRUE(begun.ok()) << begun;
  action.result.set_status("failed");
  const absl::Status failed = folder.End(action);
  EXPECT_TRUE(absl::IsInternal(failed)) << failed;
  EXPECT_FALSE(folder.IsAway(failed));
}

TEST_F(JobFolderStoreTest, AnEndOnADiskWaitsForTheStoreOfTheCheckpoints) {
  JobFolder folder(env_.get(), "h", nullptr, staging_);
  OutputAction action = Action(OutputAction::kStarted, "job-1", 1);
  action.config.set_output_dir(staging_ + "/out");
  action.config.clear_trace_file();
  action.config.mutable_checkpoint()->set_dir("s3://b/checkpoints");
  ASSERT_TRUE(folder.Begin(action).ok());
  env_.transport.answer = [](const HttpRequest&) { return absl::UnavailableError("no answer"); };
  action.result.set_status("failed");
  const absl::Status away = folder.End(action);
  EXPECT_TRUE(folder.IsAway(away)) << away;
  env_.transport.answer = [&](const HttpRequest& request) { return env_.store(request); };
  const absl::Status ended = folder.End(action);
  EXPECT_TRUE(ended.ok()) << ended;
  EXPECT_TRUE(std::filesystem::exists(staging_ + "/out/result.json"));
}

}  // namespace
}  // namespace sluice
