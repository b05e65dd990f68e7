// A small job that is valid, for tests that change it.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "common/config/job_config.h"
#include "common/config/textproto_file.h"
#include "tests/common/config/model_rules_for_test.h"

namespace sluice {

inline constexpr char kGoodJob[] = R"(
name: "good"
data {
  format: CSV
  train_files: "train.csv"
  eval_files: "sub/../eval-*.csv"
  csv { header: true }
  label { column: "y" }
}
features { name: "age" numeric {} }
features { name: "job" categorical {} }
model { custom { name: "fake" } }
)";

inline JobConfig GoodJob() {
  JobConfig job;
  EXPECT_TRUE(ParseTextproto(kGoodJob, "good", &job, nullptr).ok());
  return job;
}

// The job with its defaults, validated by the rules of the model that exists in tests only.
inline absl::StatusOr<JobConfig> Effective(const JobConfig& job, const std::string& base_dir) {
  return EffectiveJobConfig(job, base_dir, FakeRules());
}

}  // namespace sluice
