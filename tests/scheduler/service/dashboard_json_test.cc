#include "scheduler/service/dashboard_json.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <limits>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;

// Parses with a reader that is not ours.
Struct Parse(const std::string& json) {
  Struct parsed;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &parsed);
  EXPECT_TRUE(status.ok()) << status.ToString() << "\n" << json.substr(0, 2000);
  return parsed;
}
const Value& At(const Struct& object, const std::string& name) {
  static const Value nothing;
  const auto it = object.fields().find(name);
  EXPECT_NE(it, object.fields().end()) << name;
  return it == object.fields().end() ? nothing : it->second;
}
const Struct& Nth(const Struct& object, const std::string& name, int i) {
  return At(object, name).list_value().values(i).struct_value();
}

JobStatus* AddJob(const std::string& job_id, ClusterStatus* status) {
  JobStatus* const job = status->add_jobs();
  job->set_job_id(job_id);
  job->set_state(JOB_RUNNING);
  job->set_mode("sync");
  job->set_epochs(3);
  job->set_epoch(2);
  job->set_worker_num(2);
  return job;
}

TEST(DashboardJsonTest, ManyJobsAndMembersAreBounded) {
  ClusterStatus status;
  for (int i = 0; i < 2000; ++i) {
    AddJob(absl::StrCat("a-", i), &status)->set_message(std::string(10'000, 'm'));
    MemberStatus* const member = status.add_members();
    member->set_role(ROLE_WORKER);
    member->set_rank(i);
    member->set_alive(i >= 1000);
    member->set_doing(std::string(10'000, 'd'));
  }
  const std::string json = JobsJson(status, DashboardContext());
  EXPECT_LT(json.size(), 3u << 20);
  const Struct parsed = Parse(json);
  EXPECT_EQ(At(parsed, "jobs").list_value().values_size(), 300);
  EXPECT_EQ(At(parsed, "jobs_left_out").number_value(), 1700);
  EXPECT_EQ(At(Nth(parsed, "jobs", 0), "job_id").string_value(), "a-1999");  // the newest first
  EXPECT_EQ(At(parsed, "members").list_value().values_size(), 1000);
  EXPECT_EQ(At(parsed, "members_left_out").number_value(), 1000);
  EXPECT_TRUE(At(Nth(parsed, "members", 999), "alive").bool_value());
}

TEST(DashboardJsonTest, AJobWithManyPartsIsBounded) {
  ClusterStatus status;
  JobStatus* const job = AddJob("a-1", &status);
  for (int i = 0; i < 3000; ++i) {
    job->add_workers()->set_rank(i);
    job->add_warnings(std::string(5000, 'w'));
  }
  job->mutable_config()->set_output_dir("/out");
  for (int i = 0; i < 3000; ++i)
    job->mutable_config()->mutable_data()->add_train_files(std::string(100, 'f'));
  for (int p = 0; p < 30; ++p) {
    MemberStatus* const member = status.add_members();
    member->set_role(ROLE_PSERVER);
    member->set_rank(p);
    HostedJob* const hosted = member->add_hosted();
    hosted->set_job_id("a-1");
    for (int t = 0; t < 100; ++t) {
      TableStatus* const table = hosted->add_tables();
      table->set_name(absl::StrCat("t", t));
      table->add_each()->set_shard(p);
      table->mutable_each(0)->set_rows_pushed(1000 + t);
    }
    member->add_hosted()->set_job_id("another-1");
  }
  const std::string json = JobJson(status, *job, DashboardContext());
  EXPECT_LT(json.size(), 2u << 20);
  const Struct parsed = Parse(json);
  EXPECT_EQ(At(parsed, "workers").list_value().values_size(), 1000);
  EXPECT_EQ(At(parsed, "workers_left_out").number_value(), 2000);
  EXPECT_EQ(At(parsed, "warnings").list_value().values_size(), 100);
  EXPECT_EQ(At(parsed, "warning_count").number_value(), 3000);
  EXPECT_EQ(At(parsed, "pservers").list_value().values_size(), 30);
  EXPECT_EQ(At(parsed, "shards").list_value().values_size(), 2000);
  EXPECT_EQ(At(parsed, "shards_left_out").number_value(), 1000);
  EXPECT_EQ(At(parsed, "each_shard").list_value().values_size(), 2000);
  EXPECT_EQ(At(Nth(parsed, "each_shard", 105), "shard").number_value(), 1);
  EXPECT_EQ(At(Nth(parsed, "each_shard", 105), "rows_pushed").number_value(), 1005);
  EXPECT_TRUE(At(parsed, "config_cut").bool_value());
  EXPECT_EQ(At(parsed, "output_dir").string_value(), "/out");
}

TEST(DashboardJsonTest, LongCurvesAreBoundedAndParse) {
  JobCurves curves;
  std::vector<Scalar> points;
  for (uint64_t step = 1; step <= 500'000; ++step)
    points.push_back({"train/loss", step, 0.123456789 / step});
  points.push_back({"eval/auc", 1, 0.75});
  points.push_back({"eval/auc", 2, std::numeric_limits<double>::quiet_NaN()});
  curves.Add("a-1", points);
  const std::string json = CurvesJson("a-1", curves.Of("a-1", 2000), 2000);
  EXPECT_LT(json.size(), 64u << 10);
  const Struct parsed = Parse(json);
  const Struct& auc = Nth(parsed, "curves", 0);
  EXPECT_EQ(At(auc, "name").string_value(), "eval/auc");
  EXPECT_EQ(At(auc, "x").string_value(), "epoch");
  const auto& auc_points = At(auc, "points").list_value();
  EXPECT_EQ(auc_points.values(0).list_value().values(1).number_value(), 0.75);
  EXPECT_EQ(auc_points.values(1).list_value().values(1).kind_case(), Value::kNullValue);
  const Struct& loss = Nth(parsed, "curves", 1);
  EXPECT_EQ(At(loss, "x").string_value(), "step");
  const int n = At(loss, "points").list_value().values_size();
  EXPECT_LE(n, 2000);
  EXPECT_GE(n, 500);
  EXPECT_EQ(At(loss, "points").list_value().values(n - 1).list_value().values(0).number_value(),
            500'000);
}

TEST(DashboardJsonTest, TextsThatCouldMisleadAreEscaped) {
  ClusterStatus status;
  JobStatus* const job = AddJob("<b>a</b>-1", &status);
  job->set_message(
      "quote \" back\\slash\nline \xE2\x80\xAE"
      "reversed");
  job->set_loss(std::numeric_limits<double>::infinity());
  job->set_waiting_for(absl::StrCat(std::string(999, 'x'), "\xC3\xA9\xC3\xA9"));
  const std::string json = JobJson(status, *job, DashboardContext());
  const Struct parsed = Parse(json);
  EXPECT_EQ(At(parsed, "job_id").string_value(), "<b>a</b>-1");
  EXPECT_EQ(At(parsed, "message").string_value(),
            "quote \" back\\slash\\x0aline \\xe2\\x80\\xaereversed");
  EXPECT_EQ(At(parsed, "loss").kind_case(), Value::kNullValue);
  // Cut before the character that would not fit whole.
  EXPECT_EQ(At(parsed, "waiting_for").string_value(), std::string(999, 'x') + "...");
}

TEST(DashboardJsonTest, AMemberShowsWhatIsKnownOfIt) {
  ClusterStatus status;
  JobStatus* const job = AddJob("a-1", &status);
  WorkerProgress* const progress = job->add_workers();
  progress->set_rank(1);
  progress->set_examples_per_second(250);
  for (const uint32_t rank : {0, 1}) {
    MemberStatus* const member = status.add_members();
    member->set_role(ROLE_WORKER);
    member->set_rank(rank);
    member->set_job_id("a-1");
    member->set_job_rank(rank);
    member->set_memory_bytes(100 + rank);
    member->set_alive(true);
    if (rank == 1) member->set_cpu_seconds(2.5);
  }
  MemberStatus* const note = status.add_members();
  note->set_role(ROLE_SCHEDULER);
  note->set_doing("cannot keep its state");
  DashboardContext context;
  context.facts = [](const MemberStatus& member) {
    MemberFacts facts;
    if (member.rank() == 1) facts = {"workerlog.1"};
    return facts;
  };
  const Struct parsed = Parse(JobsJson(status, context));
  EXPECT_EQ(At(parsed, "notes").list_value().values(0).string_value(), "cannot keep its state");
  const Struct& first = Nth(parsed, "members", 0);
  EXPECT_EQ(At(first, "cpu_seconds").kind_case(), Value::kNullValue);
  EXPECT_EQ(At(first, "log_name").kind_case(), Value::kNullValue);
  EXPECT_EQ(At(first, "examples_per_second").kind_case(), Value::kNullValue);
  const Struct& second = Nth(parsed, "members", 1);
  EXPECT_EQ(At(second, "cpu_seconds").number_value(), 2.5);
  EXPECT_EQ(At(second, "log_name").string_value(), "workerlog.1");
  EXPECT_EQ(At(second, "examples_per_second").number_value(), 250);
  EXPECT_EQ(At(second, "memory_bytes").number_value(), 101);
}

}  // namespace
}  // namespace sluice
