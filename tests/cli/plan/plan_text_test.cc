#include "cli/plan/plan_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/plan/plan_search.h"

namespace sluice::plan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(PlanTextTest, BandwidthsAreBitsWithAUnit) {
  EXPECT_EQ(ParseBits("bandwidth", "10G").value(), 1e10);
  EXPECT_EQ(ParseBits("bandwidth", "400M").value(), 4e8);
  EXPECT_EQ(ParseBits("bandwidth", "1e9").value(), 1e9);
  EXPECT_EQ(ParseBits("bandwidth", "2.5k").value(), 2500);
  for (const char* text : {"", "G", "-1G", "0", "10GB", "fast", "nan", "inf"})
    EXPECT_EQ(ParseBits("bandwidth", text).status().code(), absl::StatusCode::kInvalidArgument)
        << text;
}

TEST(PlanTextTest, NumbersAreInTheirRange) {
  EXPECT_THAT(ParseNumbers("workers", "1,2,40", 1, 40).value(), ElementsAre(1, 2, 40));
  EXPECT_THAT(ParseNumbers("workers", "", 1, 40).value(), ElementsAre());
  for (const char* text : {"0", "41", "1,x", "-1"})
    EXPECT_FALSE(ParseNumbers("workers", text, 1, 40).ok()) << text;
  EXPECT_THAT(ParseNumbers("pservers", "0,1", 0, 40).value(), ElementsAre(0, 1));
}

TEST(PlanTextTest, HostsHaveCores) {
  const auto hosts = ParseHosts("hosts", "a:16,10.0.0.2:8").value();
  ASSERT_EQ(hosts.size(), 2u);
  EXPECT_EQ(hosts[1].name(), "10.0.0.2");
  EXPECT_EQ(hosts[1].cores(), 8u);
  for (const char* text : {"a", "a:", ":4", "a:0", "a:4,a:4", "a:99999"})
    EXPECT_FALSE(ParseHosts("hosts", text).ok()) << text;
}

TEST(PlanTextTest, CostsOfAnotherTransportAreNotTakenSilently) {
  PlanCosts costs;
  costs.set_transport("grpc");
  EXPECT_EQ(WarningOfTransport(costs, "grpc", false), "");
  EXPECT_THAT(WarningOfTransport(costs, "auto", false), HasSubstr("--costs"));
  EXPECT_THAT(WarningOfTransport(costs, "shm", false), HasSubstr("--costs"));
  costs.set_transport("shm");
  EXPECT_EQ(WarningOfTransport(costs, "auto", false), "");
  EXPECT_EQ(WarningOfTransport(costs, "shm", false), "");
  EXPECT_THAT(WarningOfTransport(costs, "grpc", false), HasSubstr("--costs"));
  EXPECT_EQ(WarningOfTransport(costs, "shm", true), "") << "it is not encrypted";
  costs.set_transport("grpc");
  EXPECT_THAT(WarningOfTransport(costs, "grpc", true), HasSubstr("over gRPC with TLS"));
  costs.set_tls(true);
  EXPECT_EQ(WarningOfTransport(costs, "grpc", true), "");
  costs.clear_transport();
  EXPECT_THAT(WarningOfTransport(costs, "grpc", false), HasSubstr("--costs"));
  EXPECT_THAT(WarningOfTransport(costs, "auto", false), HasSubstr("--costs"));
}

TEST(PlanTextTest, CostsSayHowTheyWereMeasured) {
  PlanCosts costs;
  EXPECT_THAT(CostsText(costs), testing::Not(HasSubstr("gRPC")));
  costs.set_transport("grpc");
  EXPECT_THAT(CostsText(costs), testing::AllOf(HasSubstr("gRPC"), testing::Not(HasSubstr("TLS"))));
  costs.set_tls(true);
  EXPECT_THAT(CostsText(costs), HasSubstr("gRPC with TLS"));
  costs.set_transport("shm");
  EXPECT_THAT(CostsText(costs), HasSubstr("shared memory"));
}

TEST(PlanTextTest, FitsEightyColumnsAndContradictsNothing) {
  PlanCosts costs;
  costs.set_examples(100);
  costs.set_step_s(0.010);
  costs.set_pushed_bytes(1e6);
  costs.set_pulled_bytes(1e6);
  costs.set_rows(1e12);
  PlanQuestion question;
  question.workers = {1, 8, 1000};
  question.pservers = {1, 16};
  question.network.bytes_per_s = PayloadRate(8e9);
  const std::string text = PlanText(AnswerPlan(costs, question), PlanMode::kAsync);
  for (const absl::string_view line : absl::StrSplit(absl::StrCat(text, CostsText(costs)), '\n'))
    EXPECT_LE(line.size(), 80u) << line;
  // The formula leaves out what the search counts, so it would name another split.
  EXPECT_THAT(text, testing::Not(HasSubstr("formula")));
}

TEST(PlanTextTest, TheBestRowIsMarked) {
  PlanCosts costs;
  costs.set_examples(100);
  costs.set_step_s(0.010);
  costs.set_pushed_bytes(1e6);
  costs.set_pulled_bytes(1e6);
  PlanQuestion question;
  question.workers = {1, 8};
  question.pservers = {1};
  question.network.bytes_per_s = PayloadRate(8e9);
  const std::string text = PlanText(AnswerPlan(costs, question), PlanMode::kAsync);
  EXPECT_THAT(text, HasSubstr("\n*       1       8"));
  EXPECT_THAT(text, HasSubstr("best: 1 pserver and 8 workers"));
  EXPECT_THAT(text, HasSubstr("8Gbit/s"));
}

TEST(PlanTextTest, ARowWithoutPserversShowsNoMemoryOfThem) {
  PlanCosts costs;
  costs.set_examples(100);
  costs.set_step_s(0.010);
  costs.set_pushed_bytes(1e6);
  costs.set_pulled_bytes(1e6);
  costs.set_dense_bytes(1e6);
  costs.set_process_memory_bytes(1e6);
  PlanQuestion question;
  question.mode = PlanMode::kCollective;
  question.workers = {3};
  question.network.bytes_per_s = 1e9;
  const std::string text = PlanText(AnswerPlan(costs, question), question.mode);
  EXPECT_THAT(text, HasSubstr("collective ex/s"));
  EXPECT_THAT(text, HasSubstr("\n*       0       3"));
  EXPECT_THAT(text, HasSubstr("best: 0 pservers and 3 workers"));
  EXPECT_THAT(text, testing::Not(HasSubstr("0 B")));
}

TEST(PlanTextTest, ThePlotHasALineForEachMode) {
  Scaling scaling;
  for (const uint32_t pservers : {1, 10}) {
    for (const uint32_t workers : {1, 100}) {
      ScalingPoint* point = scaling.add_points();
      point->set_pservers(pservers);
      point->set_workers(workers);
      point->set_sync(pservers * workers);
    }
  }
  const Plot plot = ScalingPlot(scaling);
  ASSERT_EQ(plot.lines.size(), 6u);
  EXPECT_EQ(plot.lines[0].name, "sync");
  EXPECT_THAT(plot.lines[0].points, ElementsAre(testing::Pair(1, 10), testing::Pair(100, 1000)));
  EXPECT_EQ(plot.lines[5].name, "sync, 1 pserver");
  EXPECT_THAT(plot.lines[5].points, ElementsAre(testing::Pair(1, 1), testing::Pair(100, 100)));
}

PlanCosts CostsToKeep() {
  PlanCosts costs;
  costs.set_job("j");
  costs.set_examples(512);
  costs.set_step_s(0.1 / 3);
  costs.set_pushed_bytes(1e12);
  costs.mutable_geo()->set_k_steps(100);
  return costs;
}

class PlanJsonTest : public testing::Test {
 protected:
  std::string Write(const std::string& text) {
    const std::string path = testing::TempDir() + "plan_text_test.json";
    std::ofstream(path) << text;
    return path;
  }
};

TEST_F(PlanJsonTest, CostsSurviveAPlanAndAScaling) {
  Plan plan;
  *plan.mutable_costs() = CostsToKeep();
  plan.add_rows()->set_workers(3);
  Scaling scaling;
  *scaling.mutable_costs() = CostsToKeep();
  scaling.add_points()->set_workers(3);
  for (const google::protobuf::Message* message :
       std::initializer_list<const google::protobuf::Message*>{&plan, &scaling}) {
    const auto read = ReadCosts(Write(PlanJson(*message).value()), Env::Real());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->SerializeAsString(), CostsToKeep().SerializeAsString());
  }
}

TEST_F(PlanJsonTest, UnusableFilesAreRefused) {
  const std::string missing = testing::TempDir() + "no_such_plan.json";
  EXPECT_EQ(ReadCosts(missing, Env::Real()).status().code(), absl::StatusCode::kInvalidArgument);
  for (const char* text :
       {"", "[]", "not json", "{}", "{\"costs\": {\"examples\": 1}}",
        "{\"costs\": {\"examples\": 1, \"step_s\": 1, \"rows\": -1}}",
        "{\"costs\": {\"examples\": 1, \"step_s\": \"NaN\"}}",
        "{\"costs\": {\"examples\": 1, \"step_s\": 1, \"geo\": {\"step_s\": \"Infinity\"}}}"}) {
    EXPECT_EQ(ReadCosts(Write(text), Env::Real()).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

}  // namespace
}  // namespace sluice::plan
