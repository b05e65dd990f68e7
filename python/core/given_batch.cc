#include "python/core/given_batch.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "model/program/program_rules.h"

namespace sluice {
namespace {

uint64_t KeyOf(const CompiledCategory& category, int64_t value) {
  if (category.raw) return static_cast<uint64_t>(value);
  char text[24];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  const std::string_view digits(text, static_cast<size_t>(end - text));
  return FoldKey(ValueKey(digits, category.seed), category.hash_buckets, category.seed);
}

absl::Status WrongSize(const std::string& name, size_t has, size_t needs) {
  return absl::InvalidArgumentError(absl::StrCat("the batch's \"", name, "\" has ", has,
                                                 " values; its other values are of ", needs,
                                                 " examples"));
}

absl::Status CheckOffsets(const std::string& name, const GivenBatch::Values& values, size_t n) {
  if (values.offsets.empty())
    return values.values.size() == n ? absl::OkStatus() : WrongSize(name, values.values.size(), n);
  const std::vector<int64_t>& at = values.offsets;
  const bool covers = at.size() == n + 1 && at.front() == 0 &&
                      at.back() == static_cast<int64_t>(values.values.size()) &&
                      std::is_sorted(at.begin(), at.end());
  if (covers) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the batch's \"", name, "\" has offsets that are not ", n + 1,
      " ascending numbers from 0 to ", values.values.size(), ", the number of its values"));
}

// Why plain values cannot be those of the feature; "": they can.
std::string WhyNotGiven(const Feature& feature) {
  if (feature.name() == "label" || feature.name() == "weight")
    return "has the name of the batch's label or weight";
  if (feature.has_cross()) return "is a cross";
  if (feature.has_numeric()) {
    const NumericFeature& numeric = feature.numeric();
    if (!numeric.boundaries().empty()) return "has boundaries";
    if (!numeric.multi_value_delimiter().empty()) return "has a multi_value_delimiter";
    return numeric.date_part() != WHOLE ? "has a date_part" : "";
  }
  const CategoricalFeature& values = feature.categorical();
  if (!values.vocabulary().empty()) return "has a vocabulary";
  if (!values.multi_value_delimiter().empty()) return "has a multi_value_delimiter";
  if (!values.weight_delimiter().empty()) return "has a weight_delimiter";
  if (values.date_part() != WHOLE) return "has a date_part";
  return values.missing_is_value() ? "has missing_is_value" : "";
}

// All but the identities of the examples.
void FillMade(const Batch& made, Batch* batch) {
  batch->Reset(made.num_numeric, made.num_slots);
  batch->n = made.n;
  batch->label = made.label;
  batch->weight = made.weight;
  batch->numeric = made.numeric;
  batch->key_offsets = made.key_offsets;
  batch->keys = made.keys;
  batch->key_weights = made.key_weights;
}

// OK when every value is a finite number and, with `least_0`, not below 0.
absl::Status CheckFinite(const std::string& name, const std::vector<float>& values, bool least_0) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i]) && !(least_0 && values[i] < 0)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the batch's \"", name, "\" is ", values[i], " in example ", i,
                     least_0 ? "; weights are numbers from 0 on" : "; give finite numbers"));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<ConfigProblem> FindOfColumns(const JobConfig& job) {
  std::vector<ConfigProblem> problems;
  const auto refuse = [&](const char* field, bool given) {
    if (!given) return;
    problems.push_back({absl::StrCat("data.", field),
                        "is about columns, but the program gives batches of values (source=); "
                        "remove it, or give a table"});
  };
  const DataConfig& data = job.data();
  refuse("csv", data.has_csv());
  refuse("label", data.has_label());
  refuse("weight_column", !data.weight_column().empty());
  return problems;
}

std::vector<ConfigProblem> FindNotGiven(const JobConfig& job) {
  std::vector<ConfigProblem> problems;
  for (int i = 0; i < job.features_size(); ++i) {
    const std::string why = WhyNotGiven(job.features(i));
    if (why.empty()) continue;
    problems.push_back(
        {absl::StrCat("features[", i, "]"),
         absl::StrCat("'", job.features(i).name(), "' ", why,
                      ", but the program gives batches of values (source= or eval_source=); "
                      "compute it there, or give a table")});
  }
  return problems;
}

absl::StatusOr<std::shared_ptr<const GivenFeatures>> GivenFeatures::Create(const JobConfig& job) {
  SLUICE_ASSIGN_OR_RETURN(CompiledFeatures features, CompileFeatures(job, ProgramUseOf(job)));
  return std::shared_ptr<const GivenFeatures>(
      new GivenFeatures(std::move(features), FindNotGiven(job)));
}

absl::Status GivenFeatures::CheckSizes(const GivenBatch& given) const {
  if (given.numbers.size() != features_.numerics.size() ||
      given.values.size() != features_.slots.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the batch has ", given.numbers.size(), " numbers and ", given.values.size(),
                     " categorical features; the job has ", features_.numerics.size(), " and ",
                     features_.slots.size()));
  }
  for (size_t f = 0; f < given.numbers.size(); ++f) {
    const CompiledNumeric& numeric = features_.numerics[f];
    if (given.numbers[f].size() == given.n * numeric.size()) continue;
    if (numeric.dim == 0) return WrongSize(numeric.feature, given.numbers[f].size(), given.n);
    return absl::InvalidArgumentError(absl::StrCat("the batch's \"", numeric.feature, "\" has ",
                                                   given.numbers[f].size(), " values; its dim is ",
                                                   numeric.dim, ", and the other values are of ",
                                                   given.n, " examples"));
  }
  uint64_t keys = 0;
  for (size_t s = 0; s < given.values.size(); ++s) {
    SLUICE_RETURN_IF_ERROR(CheckOffsets(features_.slot_info[s].name, given.values[s], given.n));
    keys += given.values[s].values.size();
  }
  if (keys > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("a batch has ", keys, " keys; at most ",
                                                   std::numeric_limits<uint32_t>::max(),
                                                   " are possible: give smaller batches"));
  }
  if (!given.label.empty() && given.label.size() != given.n)
    return WrongSize("label", given.label.size(), given.n);
  if (!given.weight.empty() && given.weight.size() != given.n)
    return WrongSize("weight", given.weight.size(), given.n);
  SLUICE_RETURN_IF_ERROR(CheckFinite("label", given.label, false));
  return CheckFinite("weight", given.weight, true);
}

absl::Status GivenFeatures::FillNumbers(const GivenBatch& given, Batch* batch) const {
  const size_t columns = features_.numeric_info.size();
  batch->numeric.resize(given.n * columns);
  for (size_t f = 0; f < features_.numerics.size(); ++f) {
    const CompiledNumeric& numeric = features_.numerics[f];
    const size_t size = numeric.size();
    const std::vector<double>& values = given.numbers[f];
    for (size_t i = 0; i < given.n * size; ++i) {
      double value = values[i];
      if (numeric.log) value = std::log1p(std::max(value, 0.0));
      value = (value - numeric.offset) * numeric.scale;
      // Written as a negation so that NaN is refused too.
      if (!(std::abs(value) <= std::numeric_limits<float>::max())) {
        return absl::InvalidArgumentError(absl::StrCat("the batch's \"", numeric.feature, "\" is ",
                                                       values[i], " in example ", i / size,
                                                       "; give finite numbers"));
      }
      batch->numeric[i / size * columns + numeric.first + i % size] = static_cast<float>(value);
    }
  }
  return absl::OkStatus();
}

void GivenFeatures::FillKeys(const GivenBatch& given, Batch* batch) const {
  const size_t slots = features_.slots.size();
  const auto one_each = [](const GivenBatch::Values& of) { return of.offsets.empty(); };
  if (std::all_of(given.values.begin(), given.values.end(), one_each)) {
    batch->key_offsets.resize(given.n * slots + 1);
    std::iota(batch->key_offsets.begin(), batch->key_offsets.end(), 0);
    batch->keys.resize(given.n * slots);
    for (size_t s = 0; s < slots; ++s) {
      const CompiledCategory& category = features_.categories[features_.slots[s].category];
      const std::vector<int64_t>& values = given.values[s].values;
      for (size_t i = 0; i < given.n; ++i) batch->keys[i * slots + s] = KeyOf(category, values[i]);
    }
    return;
  }
  batch->key_offsets.assign(given.n * slots + 1, 0);
  // How many keys each (example, slot) has, then where they begin.
  for (size_t s = 0; s < slots; ++s) {
    const std::vector<int64_t>& at = given.values[s].offsets;
    for (size_t i = 0; i < given.n; ++i) {
      batch->key_offsets[i * slots + s + 1] =
          at.empty() ? 1 : static_cast<uint32_t>(at[i + 1] - at[i]);
    }
  }
  for (size_t k = 1; k < batch->key_offsets.size(); ++k)
    batch->key_offsets[k] += batch->key_offsets[k - 1];
  batch->keys.resize(batch->key_offsets.back());
  for (size_t s = 0; s < slots; ++s) {
    const CompiledCategory& category = features_.categories[features_.slots[s].category];
    const int64_t* value = given.values[s].values.data();
    for (size_t i = 0; i < given.n; ++i) {
      const uint32_t* const range = &batch->key_offsets[i * slots + s];
      for (uint32_t k = range[0]; k < range[1]; ++k, ++value) {
        batch->keys[k] = KeyOf(category, *value);
      }
    }
  }
}

absl::Status GivenFeatures::Fill(const GivenBatch& given, Batch* batch) const {
  if (given.examples != nullptr) {
    FillMade(*given.examples, batch);
    batch->example_id.assign(given.n, given.given_as);
    return absl::OkStatus();
  }
  if (!not_given_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(not_given_.front().path, ": ", not_given_.front().text));
  }
  SLUICE_RETURN_IF_ERROR(CheckSizes(given));
  batch->Reset(features_.numeric_info.size(), features_.slots.size());
  batch->n = given.n;
  batch->label = given.label;
  batch->label.resize(given.n, 0);
  batch->weight = given.weight;
  batch->weight.resize(given.n, 1);
  // Programs draw their masks themselves, so that nothing else needs an identity.
  batch->example_id.assign(given.n, given.given_as);
  SLUICE_RETURN_IF_ERROR(FillNumbers(given, batch));
  FillKeys(given, batch);
  return absl::OkStatus();
}

}  // namespace sluice
