#include "cli/data_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/progress.h"

namespace sluice::cli {
namespace {

constexpr size_t kNamed = 3;  // features on one line

std::string Percent(uint64_t part, uint64_t whole) {
  return absl::StrFormat("%.1f %%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

// "missing: age 5.7 %, job 0.1 %, and 2 more features\n"; "" when all are 0.
std::string Worst(const std::string& title, std::vector<std::pair<uint64_t, std::string>> features,
                  uint64_t examples) {
  std::stable_sort(features.begin(), features.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  while (!features.empty() && features.back().first == 0) features.pop_back();
  if (features.empty()) return "";
  std::vector<std::string> parts;
  for (size_t i = 0; i < std::min(features.size(), kNamed); ++i)
    parts.push_back(absl::StrCat(features[i].second, " ", Percent(features[i].first, examples)));
  if (features.size() > kNamed)
    parts.push_back(absl::StrCat("and ", Counted(features.size() - kNamed, "more feature")));
  return absl::StrCat(title, ": ", absl::StrJoin(parts, ", "), "\n");
}

}  // namespace

std::string DataText(const DataSummary& data, const JobConfig& config) {
  if (data.examples() == 0) return "";
  std::string text = absl::StrCat("training data: ", Percent(data.positive(), data.examples()),
                                  " of the examples have label 1\n");
  if (data.features_size() != config.features_size()) return text;
  std::vector<std::pair<uint64_t, std::string>> missing, unknown;
  for (int i = 0; i < data.features_size(); ++i) {
    missing.emplace_back(data.features(i).missing(), config.features(i).name());
    unknown.emplace_back(data.features(i).out_of_vocabulary(), config.features(i).name());
  }
  return absl::StrCat(text, Worst("missing values", std::move(missing), data.examples()),
                      Worst("values outside the vocabulary", std::move(unknown), data.examples()));
}

}  // namespace sluice::cli
