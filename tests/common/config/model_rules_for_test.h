// Rules of a model that exists in tests of the configuration only.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/config/model_rules.h"

namespace sluice {

// Jobs name it by model { custom { name: "fake" } }; its one option is the text of
// model.custom.options.
class FakeRules : public ModelRules {
 public:
  ModelParts parts;  // of every job

  void FillDefaults(JobConfig* job) const override {
    CustomModelConfig* config = job->mutable_model()->mutable_custom();
    if (config->options().empty()) config->set_options("filled in");
  }
  ModelParts PartsOf(const JobConfig&) const override { return parts; }
  std::vector<ConfigProblem> FindProblems(const JobConfig& job) const override {
    std::vector<ConfigProblem> problems;
    for (int i = 0; i < job.features_size(); ++i) {
      if (job.features(i).embedding_dim() != 3) continue;
      problems.push_back({absl::StrCat("features[", i, "].embedding_dim"), "3 is refused"});
    }
    if (job.model().custom().options() == "impossible")
      problems.push_back({"model.custom.options", "is impossible"});
    return problems;
  }
  std::vector<ConfigProblem> FindUnused(const JobConfig& job) const override {
    if (job.model().custom().options() != "unused") return {};
    return {{"model.custom.options", "has no effect"}};
  }
};

}  // namespace sluice
