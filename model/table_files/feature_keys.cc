#include "model/table_files/feature_keys.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/config/closest_name.h"
#include "model/features/cell.h"
#include "model/features/feature_compiler.h"
#include "model/features/sparse_table_plan.h"

namespace sluice {
namespace {

const Feature* FindFeature(const JobConfig& job, const std::string& name) {
  const auto found = std::find_if(job.features().begin(), job.features().end(),
                                  [&](const Feature& one) { return one.name() == name; });
  return found == job.features().end() ? nullptr : &*found;
}

const std::string& TableOfSlot(const ModelSpec& spec, const FeatureSchema::Slot& slot) {
  return spec.tables()[spec.sparse_tables()[slot.table]].name();
}

}  // namespace

absl::StatusOr<FeatureKeys> FeatureKeys::Create(const JobConfig& job, const ModelSpec& spec,
                                                const std::string& name) {
  const Feature* const feature = FindFeature(job, name);
  if (feature == nullptr) {
    std::vector<std::string> names;
    for (const Feature& one : job.features()) names.push_back(one.name());
    return absl::InvalidArgumentError(
        absl::StrCat("the job has no feature '", name, "'", DidYouMeanOrAll(name, names)));
  }
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("feature '", name, "' ", why));
  };
  if (feature->has_cross())
    return refuse("is a cross, whose rows are known by several values; use their keys");
  FeatureKeys keys;
  keys.feature_ = name;
  const auto& slots = spec.schema()->slots();
  const auto slot = std::find_if(slots.begin(), slots.end(),
                                 [&](const FeatureSchema::Slot& one) { return one.name == name; });
  if (slot == slots.end()) return refuse("has no rows: no part of the model looks it up");
  if (!slot->rows.empty()) return refuse("is dense: its rows are in a dense table");
  keys.table_ = TableOfSlot(spec, *slot);
  keys.raw_ = feature->key() == Feature::RAW;
  keys.seed_ = SlotSeed(EmbeddingNameOf(*feature));
  keys.hash_buckets_ = feature->categorical().hash_buckets();
  const auto& words = feature->categorical().vocabulary();
  keys.vocabulary_.insert(words.begin(), words.end());
  return keys;
}

std::optional<uint64_t> FeatureKeys::KeyOf(absl::string_view value) const {
  const std::string_view text(value.data(), value.size());
  if (raw_) {
    uint64_t key = 0;
    return ParseKey(text, &key) ? std::optional<uint64_t>(key) : std::nullopt;
  }
  if (text.empty() || (!vocabulary_.empty() && !vocabulary_.contains(value))) return std::nullopt;
  return FoldKey(ValueKey(text, seed_), hash_buckets_, seed_);
}

bool HasRawKeys(const JobConfig& job, const ModelSpec& spec, const std::string& table) {
  bool any = false;
  for (const std::string& name : FeaturesOf(spec, table)) {
    const Feature* const feature = FindFeature(job, name);
    if (feature == nullptr || feature->key() != Feature::RAW) return false;
    any = true;
  }
  return any;
}

std::vector<std::string> FeaturesOf(const ModelSpec& spec, const std::string& table) {
  std::vector<std::string> names;
  for (const FeatureSchema::Slot& slot : spec.schema()->slots()) {
    if (slot.rows.empty() && TableOfSlot(spec, slot) == table) names.push_back(slot.name);
  }
  return names;
}

}  // namespace sluice
