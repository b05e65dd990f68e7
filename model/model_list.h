// The models that a program knows, and the rules of the model that a job names.
//
// A program passes its list wherever a job's model is checked or made. built_in_models.h has the
// lists of the shipped programs; a test may add its own model.
//
// Thread safety: immutable.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/model_rules.h"
#include "proto/config.pb.h"

namespace sluice {

class DenseNet;
class ModelSpec;
struct NetOptions;

// Everything that the folder of a model offers to the other folders.
struct ModelEntry {
  // The name of its field in ModelConfig, or CustomModelConfig.name when it has no field there.
  std::string name;
  std::shared_ptr<const ModelRules> rules;
  // `job` is effective and names this model.
  absl::StatusOr<std::unique_ptr<ModelSpec>> (*create_spec)(const JobConfig& job) = nullptr;
  // `spec` was made by create_spec. Null in programs that do not compute.
  std::function<absl::StatusOr<std::unique_ptr<DenseNet>>(const ModelSpec& spec,
                                                          const NetOptions& options)>
      create_net;
};

class ModelList : public ModelRules {
 public:
  // REQUIRES: names are unique.
  explicit ModelList(std::vector<ModelEntry> entries);

  // The entry lives as long as the list. INVALID_ARGUMENT if the job names no model or one that is
  // not in the list.
  absl::StatusOr<const ModelEntry*> Find(const ModelConfig& config) const;

  // The rules of the job's model. If Find fails, FindProblems reports the reason; the other calls
  // then change and report nothing.
  void FillDefaults(JobConfig* job) const override;
  ModelParts PartsOf(const JobConfig& job) const override;
  std::vector<ConfigProblem> FindProblems(const JobConfig& job) const override;
  std::vector<ConfigProblem> FindUnused(const JobConfig& job) const override;

 private:
  const ModelEntry* Lookup(const ModelConfig& config) const;  // null: not in the list
  ConfigProblem NotFound(const ModelConfig& config) const;

  const std::vector<ModelEntry> entries_;
};

// The model that a job names, such as "wide_deep"; "" when it names none.
std::string ModelNameOf(const ModelConfig& config);

}  // namespace sluice
