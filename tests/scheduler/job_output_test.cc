#include "scheduler/job_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

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
    options.on_failed = [this](const std::string&, absl::Status s) { failed_.push_back(s); };
    options.on_trace_failed = [this](const std::string&, absl::Status s) { traces_.push_back(s); };
    options.on_ended = [this](const std::string&, absl::Status s) { ended_.push_back(s); };
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
  // Read after Stop.
  std::vector<absl::Status> failed_, ended_, traces_;
  const std::string dir_;
};

TEST_F(JobOutputTest, AFolderThatAnotherSchedulersJobHasIsLeftAsItIs) {
  JobOutput first(Options());
  first.Add({Action(OutputAction::kStarted, dir_)});
  first.Add({Action(OutputAction::kScalars, dir_)});
  // Its thread has locked the folder before it writes the configuration.
  while (!std::filesystem::exists(dir_ + "/job.textproto")) std::this_thread::yield();
  JobOutput second(Options());
  OutputAction begin = Action(OutputAction::kStarted, dir_);
  begin.config.set_name("other");
  second.Add({begin, Action(OutputAction::kScalars, dir_), Action(OutputAction::kEnded, dir_)});
  second.Stop();
  ASSERT_EQ(failed_.size(), 1u);
  EXPECT_THAT(std::string(failed_[0].message()),
              testing::HasSubstr("writes to the same output_dir " + dir_));
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/result.json"));
  EXPECT_THAT(*Env::Real()->ReadFile(dir_ + "/job.textproto"), testing::HasSubstr("name: \"job\""));
  first.Add({Action(OutputAction::kEnded, dir_)});
  first.Stop();
  // It is free again.
  JobOutput third(Options());
  third.Add({Action(OutputAction::kStarted, dir_), Action(OutputAction::kEnded, dir_)});
  third.Stop();
  EXPECT_EQ(failed_.size(), 1u);
}

TEST_F(JobOutputTest, WritesConfigurationCurvesAndResult) {
  JobOutput output(Options());
  output.Add({Action(OutputAction::kStarted, dir_), Action(OutputAction::kScalars, dir_),
              Action(OutputAction::kEnded, dir_)});
  output.Stop();
  EXPECT_TRUE(failed_.empty());
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_TRUE(ended_[0].ok()) << ended_[0];
  EXPECT_THAT(*Env::Real()->ReadFile(dir_ + "/job.textproto"), testing::HasSubstr("name: \"job\""));
  EXPECT_THAT(*Env::Real()->ReadFile(dir_ + "/result.json"), testing::HasSubstr("\"done\""));
  EXPECT_THAT(*Env::Real()->List(dir_), testing::Contains(testing::HasSubstr("tfevents")));
}

TEST_F(JobOutputTest, WritesATraceWhenAskedAndGoesOnWithoutABrokenOne) {
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
  EXPECT_EQ(traces_.size(), 1u);
  EXPECT_TRUE(ended_[0].ok());
  EXPECT_THAT(*Env::Real()->ReadFile(file), testing::HasSubstr(": 17}"));
}

TEST_F(JobOutputTest, ATraceThatCannotBeMadeFailsTheJob) {
  OutputAction started = Action(OutputAction::kStarted, dir_);
  started.config.set_trace_file(dir_);
  JobOutput output(Options());
  output.Add({started, Action(OutputAction::kTrace, dir_), Action(OutputAction::kEnded, dir_)});
  output.Stop();
  ASSERT_EQ(failed_.size(), 1u);
  EXPECT_THAT(std::string(failed_[0].message()), testing::HasSubstr("trace_file"));
  EXPECT_TRUE(traces_.empty());
}

TEST_F(JobOutputTest, WhatAnEarlierJobLeftIsRemovedButNotTheModelThatThisOneStartsFrom) {
  Env* const env = Env::Real();
  for (const bool starts_from_it : {true, false}) {
    ASSERT_TRUE(env->MakeDirs(dir_ + "/model").ok());
    for (const char* name :
         {"/events.out.tfevents.1.h", "/notes", "/result.json", "/model/MANIFEST"})
      ASSERT_TRUE(env->WriteFile(dir_ + name, {absl::string_view("x")}).ok());
    OutputAction started = Action(OutputAction::kStarted, dir_);
    if (starts_from_it) started.config.set_initial_model(dir_ + "/model");
    JobOutput output(Options());
    output.Add({started});
    output.Stop();
    EXPECT_TRUE(failed_.empty());
    const std::vector<std::string> names = *env->List(dir_);
    EXPECT_THAT(names, testing::Contains("notes"));
    EXPECT_THAT(names, testing::Not(testing::Contains("result.json")));
    EXPECT_THAT(names, testing::Not(testing::Contains("events.out.tfevents.1.h")));
    EXPECT_THAT(names, testing::Contains(testing::HasSubstr("tfevents")));
    EXPECT_EQ(env->List(dir_ + "/model")->size(), starts_from_it ? 1u : 0u);
  }
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
