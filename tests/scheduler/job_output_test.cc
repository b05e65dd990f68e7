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
  std::vector<absl::Status> failed_, ended_;
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

TEST_F(JobOutputTest, CurvesOfAnEarlierJobAreRemoved) {
  ASSERT_TRUE(Env::Real()->MakeDirs(dir_).ok());
  for (const char* name : {"/events.out.tfevents.1.h", "/notes"}) {
    ASSERT_TRUE(Env::Real()->WriteFile(dir_ + name, {absl::string_view("x")}).ok());
  }
  JobOutput output(Options());
  output.Add({Action(OutputAction::kStarted, dir_), Action(OutputAction::kEnded, dir_)});
  output.Stop();
  const std::vector<std::string> names = *Env::Real()->List(dir_);
  EXPECT_THAT(names, testing::Contains("notes"));
  EXPECT_THAT(names, testing::Not(testing::Contains("events.out.tfevents.1.h")));
  EXPECT_THAT(names, testing::Contains(testing::HasSubstr("tfevents")));
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
