#include "common/config/feature_keys.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

class KeyOptions {
 public:
  KeyOptions(const Feature& feature, std::string path, std::vector<ConfigProblem>* problems)
      : feature_(feature), path_(std::move(path)), problems_(*problems) {}

  void Check() {
    if (!Feature::KeyRule_IsValid(feature_.key())) {
      Add("key", absl::StrCat(feature_.key(), " of '", feature_.name(),
                              "' is unknown; give HASHED or RAW"));
    } else if (feature_.key() == Feature::RAW) {
      CheckRaw();
    }
    const std::string no_rows = WhyNoSparseRows();
    if (no_rows.empty()) return;
    if (!feature_.table().empty()) Add("table", no_rows);
    // The keys of features that only crosses use are hashed with the name of their embedding.
    if (!feature_.embedding().empty() && !OnlyInCrosses()) Add("embedding", no_rows);
  }

 private:
  void Add(const char* field, std::string text) {
    problems_.push_back({absl::StrCat(path_, ".", field), std::move(text)});
  }

  bool IsNumber() const {
    return feature_.has_numeric() && feature_.numeric().boundaries().empty();
  }
  bool IsDense() const {
    return feature_.numeric().dense() || feature_.categorical().dense() || feature_.cross().dense();
  }
  bool OnlyInCrosses() const {
    return !IsNumber() && feature_.has_in_wide() && !feature_.in_wide() && feature_.has_in_deep() &&
           !feature_.in_deep();
  }

  // Why the feature has no rows in a sparse table, and the fix; "" if it may have some.
  std::string WhyNoSparseRows() const {
    const std::string named = absl::StrCat("of '", feature_.name(), "' has no effect");
    if (IsNumber()) return named + ": a plain number has no rows; remove it, or add boundaries";
    if (IsDense()) return named + " with dense: true, whose rows are its own; remove one of them";
    if (OnlyInCrosses())
      return named + ": only crosses use this feature, so it has no rows; remove it";
    return "";
  }

  void CheckRaw() {
    const std::string raw = absl::StrCat("RAW of '", feature_.name(), "' ");
    if (IsNumber()) return Add("key", raw + "has no effect on a plain number; remove it");
    if (feature_.has_numeric())
      return Add("key",
                 raw + "contradicts boundaries, whose buckets are hashed; remove one of them");
    if (feature_.has_cross())
      return Add("key", raw +
                            "is impossible: the key of a cross is a hash of the keys of its parts; "
                            "remove it");
    const CategoricalFeature& categorical = feature_.categorical();
    const auto contradicts = [&](bool set, const char* field, const char* why) {
      if (!set) return;
      Add(field, absl::StrCat("of '", feature_.name(), "' contradicts key: RAW, ", why,
                              "; remove one of them"));
    };
    const char* const is_key = "with which the value itself is the key";
    contradicts(!categorical.vocabulary().empty(), "categorical.vocabulary", is_key);
    contradicts(categorical.hash_buckets() > 0, "categorical.hash_buckets", is_key);
    contradicts(categorical.dense(), "categorical.dense", "whose keys have no bound");
    contradicts(categorical.date_part() != WHOLE, "categorical.date_part", is_key);
    contradicts(categorical.missing_is_value(), "categorical.missing_is_value",
                "with which a missing value has no key");
    contradicts(categorical.separate_unknown(), "categorical.separate_unknown",
                "with which no value is unknown");
  }

  const Feature& feature_;
  const std::string path_;
  std::vector<ConfigProblem>& problems_;
};

}  // namespace

std::vector<ConfigProblem> FindKeyProblems(const JobConfig& job) {
  std::vector<ConfigProblem> problems;
  for (int i = 0; i < job.features_size(); ++i)
    KeyOptions(job.features(i), absl::StrCat("features[", i, "]"), &problems).Check();
  return problems;
}

}  // namespace sluice
