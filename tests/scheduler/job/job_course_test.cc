#include "scheduler/job/job_course.h"

#include <gmock/gmock.h>

namespace sluice {
namespace {

using testing::HasSubstr;

const absl::Time kJobCourseNow = absl::UnixEpoch();

TEST(JobCourseTest, OnlyANewPlaceOrReasonInTheQueueIsNews) {
  JobCourse course;
  EXPECT_TRUE(course.Wait("waits for 1 free worker", 2));
  EXPECT_FALSE(course.Wait("waits for 1 free worker", 2));
  EXPECT_TRUE(course.Wait("waits for 1 free worker", 1));
  EXPECT_EQ(course.queue_position(), 1u);
  course.LeaveQueue();
  EXPECT_EQ(course.message(), "");
  EXPECT_EQ(course.queue_position(), 0u);
  EXPECT_FALSE(course.begun());
  course.Start();
  EXPECT_TRUE(course.begun());
}

TEST(JobCourseTest, AbsenceCountsFromItsBeginning) {
  JobCourse course;
  EXPECT_EQ(course.NoteAbsent(false, kJobCourseNow), absl::InfiniteFuture());
  EXPECT_EQ(course.NoteAbsent(true, kJobCourseNow), kJobCourseNow);
  EXPECT_EQ(course.NoteAbsent(true, kJobCourseNow + absl::Seconds(5)), kJobCourseNow);
  EXPECT_EQ(course.NoteAbsent(false, kJobCourseNow + absl::Seconds(6)), absl::InfiniteFuture());
}

TEST(JobCourseTest, AJobIsOverBeforeItsStateSaysSo) {
  JobCourse course;
  course.Run();
  course.End(JOB_DONE, "", kJobCourseNow);
  EXPECT_TRUE(course.over());
  EXPECT_EQ(course.state(), JOB_RUNNING);
  EXPECT_FALSE(course.written());
  course.Written();
  EXPECT_EQ(course.state(), JOB_DONE);
  EXPECT_TRUE(course.written());
}

TEST(JobCourseTest, AResultThatCannotBeWrittenFailsTheJob) {
  JobCourse course;
  course.Run();
  course.End(JOB_DONE, "", kJobCourseNow);
  JobResult result;
  result.set_status("done");
  result.set_model_dir("/output/model");
  result.set_model_digest("d1");
  course.SetResult(result);
  course.WriteFailed("the disk is full");
  course.Written();
  EXPECT_EQ(course.state(), JOB_FAILED);
  EXPECT_THAT(course.message(), HasSubstr("the disk is full"));
  EXPECT_EQ(course.result().status(), "failed");
  EXPECT_EQ(course.result().message(), course.message());
  EXPECT_EQ(course.result().model_dir(), "");
  EXPECT_EQ(course.result().model_digest(), "");
}

TEST(JobCourseTest, AReasonIsGivenOnce) {
  JobCourse course;
  course.End(JOB_FAILED, "the disk is full", kJobCourseNow);
  course.WriteFailed("the disk is full");
  EXPECT_EQ(course.message(), "the disk is full");
}

TEST(JobCourseTest, ARecordedEndIsNotYetWritten) {
  JobRecord record;
  record.set_begun(true);
  record.set_outcome(JOB_DONE);
  record.set_message("m\x1b[2J");
  record.set_save_id("abc");
  record.mutable_result()->set_global_step(12);
  JobCourse course;
  course.RestoreEnd(record, kJobCourseNow);
  EXPECT_TRUE(course.over());
  EXPECT_FALSE(course.written());
  EXPECT_EQ(course.state(), JOB_RUNNING);
  EXPECT_EQ(course.result().global_step(), 12u);
  EXPECT_EQ(course.recorded_save_id(), "abc");
  EXPECT_EQ(course.message().find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace sluice
