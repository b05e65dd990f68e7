#include "model/model_list.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/config_problem.h"
#include "google/protobuf/descriptor.h"

namespace sluice {
namespace {

bool HasField(const std::string& name) {
  return ModelConfig::descriptor()->FindFieldByName(name) != nullptr;
}

}  // namespace

std::string ModelNameOf(const ModelConfig& config) {
  if (config.has_custom()) return config.custom().name();
  // The name of the field is the name of the model, so that a new model needs no other list of
  // names.
  const google::protobuf::FieldDescriptor* field =
      ModelConfig::descriptor()->FindFieldByNumber(config.model_case());
  return field == nullptr ? "" : field->name();
}

ModelList::ModelList(std::vector<ModelEntry> entries) : entries_(std::move(entries)) {}

const ModelEntry* ModelList::Lookup(const ModelConfig& config) const {
  const std::string name = ModelNameOf(config);
  // A model with a field has its options there. Naming it in `custom` would ignore them.
  if (config.has_custom() && HasField(name)) return nullptr;
  for (const ModelEntry& entry : entries_) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

ConfigProblem ModelList::NotFound(const ModelConfig& config) const {
  const std::string name = ModelNameOf(config);
  if (config.model_case() == ModelConfig::MODEL_NOT_SET) {
    const std::string example = entries_.empty() ? "..." : entries_[0].name + " { ... }";
    return {"model", absl::StrCat("is missing; add model { ", example, " }")};
  }
  if (config.has_custom() && HasField(name)) {
    return {"model.custom.name",
            absl::StrCat("'", name, "' has its own field; write model { ", name, " { ... } }")};
  }
  const std::string known = absl::StrJoin(
      entries_, ", ",
      [](std::string* out, const ModelEntry& entry) { absl::StrAppend(out, entry.name); });
  return {config.has_custom() ? "model.custom.name" : "model",
          absl::StrCat("this program has no model '", name, "'; it has ", known)};
}

absl::StatusOr<const ModelEntry*> ModelList::Find(const ModelConfig& config) const {
  if (const ModelEntry* entry = Lookup(config)) return entry;
  const ConfigProblem problem = NotFound(config);
  return AtField(problem.path,
                 absl::InvalidArgumentError(absl::StrCat(problem.path, ": ", problem.text)));
}

void ModelList::FillDefaults(JobConfig* job) const {
  if (const ModelEntry* entry = Lookup(job->model())) entry->rules->FillDefaults(job);
}

ModelParts ModelList::PartsOf(const JobConfig& job) const {
  const ModelEntry* entry = Lookup(job.model());
  return entry == nullptr ? ModelParts() : entry->rules->PartsOf(job);
}

std::vector<ConfigProblem> ModelList::FindProblems(const JobConfig& job) const {
  if (const ModelEntry* entry = Lookup(job.model())) return entry->rules->FindProblems(job);
  return {NotFound(job.model())};
}

std::vector<ConfigProblem> ModelList::FindUnused(const JobConfig& job) const {
  if (const ModelEntry* entry = Lookup(job.model())) return entry->rules->FindUnused(job);
  return {};
}

}  // namespace sluice
