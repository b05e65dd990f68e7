// A small job for tests of what `sluice plan` makes of jobs.
#pragma once

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

#include "common/config/job_config.h"
#include "model/built_in_models.h"

namespace sluice::plan {

// The effective configuration with `more` in the job file. `units`: of the hidden layers. Each has
// a weight and a bias, and so has the output of one unit. The categories' embeddings have 4 values.
inline JobConfig PlannedJob(const std::string& more, const std::string& units = "hidden_units: 8") {
  JobConfig job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(name: "j"
         data { format: CSV train_files: "/d/t.csv" eval_files: "/d/e.csv" csv { header: true }
                label { column: "y" } }
         features { name: "c" categorical {} }
         model { wide_deep { embedding_dim: 4 )" +
          units + " } } " + more,
      &job));
  const auto effective = EffectiveJobConfig(job, "", BuiltInSpecs());
  EXPECT_TRUE(effective.ok()) << effective.status();
  return effective.value_or(job);
}

}  // namespace sluice::plan
