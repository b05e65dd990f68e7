#include "cli/plan/plan_json.h"

#include <gtest/gtest.h>

#include <fstream>

namespace sluice::plan {
namespace {

PlanCosts Costs() {
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
    const std::string path = testing::TempDir() + "plan_json_test.json";
    std::ofstream(path) << text;
    return path;
  }
};

TEST_F(PlanJsonTest, CostsSurviveAPlanAndAScaling) {
  Plan plan;
  *plan.mutable_costs() = Costs();
  plan.add_rows()->set_workers(3);
  Scaling scaling;
  *scaling.mutable_costs() = Costs();
  scaling.add_points()->set_workers(3);
  for (const google::protobuf::Message* message :
       std::initializer_list<const google::protobuf::Message*>{&plan, &scaling}) {
    const auto read = ReadCosts(Write(PlanJson(*message).value()), Env::Real());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->SerializeAsString(), Costs().SerializeAsString());
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
