#include "model/features/feature_schema.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "model/features/cell.h"
#include "model/features/column_examples.h"
#include "model/features/example_keys.h"
#include "model/features/example_numbers.h"
#include "model/features/example_values.h"
#include "model/features/feature_compiler.h"
#include "model/features/value_keys.h"

namespace sluice {
namespace {

// In columns(): label and weight come before the features.
constexpr size_t kFirstFeature = 2;

using PartKeys = ExampleKeys::PartKeys;

class CompiledSchema final : public FeatureSchema {
 public:
  explicit CompiledSchema(CompiledFeatures features)
      : f_(std::move(features)),
        weighted_(weighted()),
        numbers_(f_),
        keys_(f_, numbers_, weighted_) {}

  const std::vector<Numeric>& numerics() const override { return f_.numeric_info; }
  const std::vector<Slot>& slots() const override { return f_.slot_info; }
  const std::vector<std::string>& columns() const override { return f_.columns; }
  using FeatureSchema::AppendExample;
  absl::Status AppendExample(const ExampleCells& cells, bool need_label,
                             Batch* batch) const override;
  std::vector<absl::Status> FindProblems(const ExampleCells& cells) const override;
  DataSummary Summarize(const DataCounts& counts) const override;
  std::unique_ptr<ColumnAppender> NewColumnAppender() const override {
    return MakeColumnAppender(f_, *this, numbers_, keys_);
  }

 private:
  // Sets which of the typed cells are missing, by columns(), and returns it.
  const bool* FindMissing(const ExampleCells& cells) const;
  template <typename Value>
  absl::Status Append(const ExampleValues<Value>& cells, bool need_label, Batch* batch) const;
  template <typename Value>
  absl::Status AppendAll(const ExampleValues<Value>& cells, bool need_label, Batch* batch) const;
  template <typename Value>
  absl::Status AppendLabel(const ExampleValues<Value>& cells, bool need_label, Batch* batch) const;
  template <typename Value>
  absl::Status AppendWeight(const ExampleValues<Value>& cells, bool need_label, Batch* batch) const;
  template <typename Value>
  std::vector<absl::Status> ProblemsOf(const ExampleValues<Value>& cells) const;

  const CompiledFeatures f_;
  const bool weighted_;  // some values have weights
  const ExampleNumbers numbers_;
  const ExampleKeys keys_;
};

// Without need_label (prediction) label and weight are not used, so they cannot make a line bad.
template <typename Value>
absl::Status CompiledSchema::AppendLabel(const ExampleValues<Value>& cells, bool need_label,
                                         Batch* batch) const {
  float label = 0;
  if (!cells.missing[0]) {
    int value = -1;
    NumberText memory;
    const absl::Status status = f_.label.Apply(TextOf(cells.values[0], &memory), &label, &value);
    if (need_label && !status.ok()) return status;
    if (cells.counts != nullptr && value >= 0) cells.counts->AddLabelValue(value);
  } else if (need_label) {
    return absl::InvalidArgumentError(
        absl::StrCat("label column \"", f_.columns[0], "\" is missing"));
  }
  batch->label.push_back(label);
  return absl::OkStatus();
}

template <typename Value>
absl::Status CompiledSchema::AppendWeight(const ExampleValues<Value>& cells, bool need_label,
                                          Batch* batch) const {
  double weight = 1;
  // LIBSVM may have a weight behind the label, without a name.
  if (!f_.columns[1].empty() || (!cells.missing[1] && HasText(cells.values[1]))) {
    // A negative weight would turn the loss of an example around. Sums hold the others exactly
    // (EvalAccumulator).
    const bool valid = !cells.missing[1] && numbers_.Number(cells.values[1], &weight) &&
                       (weight == 0 || (weight >= kMinWeight && weight <= kMaxWeight));
    if (!valid && need_label) {
      NumberText memory;
      return absl::InvalidArgumentError(absl::StrCat(
          f_.columns[1].empty() ? "the weight of the label: "
                                : absl::StrCat("weight column \"", f_.columns[1], "\": "),
          cells.missing[1] ? "a missing value" : QuotedCell(TextOf(cells.values[1], &memory)),
          " is no weight; give 0, or a number from 1e-15 to 1e12"));
    }
    if (!valid) weight = 1;
  }
  batch->weight.push_back(static_cast<float>(weight));
  return absl::OkStatus();
}

template <typename Value>
absl::Status CompiledSchema::AppendAll(const ExampleValues<Value>& cells, bool need_label,
                                       Batch* batch) const {
  SLUICE_RETURN_IF_ERROR(AppendLabel(cells, need_label, batch));
  SLUICE_RETURN_IF_ERROR(AppendWeight(cells, need_label, batch));
  const size_t numbers = f_.numeric_info.size();
  batch->numeric.resize(batch->numeric.size() + numbers);
  float* const number = batch->numeric.data() + batch->numeric.size() - numbers;
  for (const CompiledNumeric& numeric : f_.numerics)
    SLUICE_RETURN_IF_ERROR(numbers_.NumbersOf(numeric, cells, number + numeric.first));
  // Parts of crosses first: a slot and several crosses may use the same one.
  PartKeys parts(f_.part_categories.size());
  for (size_t p = 0; p < parts.size(); ++p) {
    SLUICE_RETURN_IF_ERROR(keys_.SingleKey(f_.categories[f_.part_categories[p]], cells, &parts[p]));
  }
  for (size_t s = 0; s < f_.slots.size(); ++s) {
    const CompiledSlot& slot = f_.slots[s];
    if constexpr (std::is_same_v<Value, std::string_view>) {
      if (keys_.IsPlain(s)) {
        s = keys_.AppendPlainRun(s, cells, batch) - 1;
        continue;
      }
    }
    if (slot.cross != kNone) {
      keys_.AppendCross(f_.crosses[slot.cross], parts, batch);
    } else {
      SLUICE_RETURN_IF_ERROR(
          keys_.AppendCategory(f_.categories[slot.category], cells, parts, batch));
    }
    batch->key_offsets.push_back(static_cast<uint32_t>(batch->keys.size()));
  }
  // The keys of other slots count once.
  if (weighted_) FillKeyWeights(batch);
  // Offsets of keys have 32 bits.
  if (batch->keys.size() > std::numeric_limits<uint32_t>::max()) {
    return absl::ResourceExhaustedError(
        "more than 2^32 keys in one piece of data; read smaller pieces");
  }
  ++batch->n;
  return absl::OkStatus();
}

const bool* CompiledSchema::FindMissing(const ExampleCells& example) const {
  const Cell* const cells = example.typed;
  bool* const missing = example.scratch;
  for (size_t c = 0; c < f_.columns.size(); ++c) {
    missing[c] = false;
    switch (cells[c].kind()) {
      case Cell::Kind::kMissing:
        missing[c] = true;
        break;
      case Cell::Kind::kText:
        // Formats with a place for the label have it as it is: `missing: "-1"` is about features.
        missing[c] = cells[c].text().empty() ||
                     ((c >= kFirstFeature || f_.absent_labels) && f_.IsAbsent(cells[c].text()));
        break;
      case Cell::Kind::kDouble:
        missing[c] = std::isnan(cells[c].number());
        break;
      default:
        break;
    }
  }
  return missing;
}

absl::Status CompiledSchema::AppendExample(const ExampleCells& cells, bool need_label,
                                           Batch* batch) const {
  if (cells.typed == nullptr)
    return Append(ExampleText{cells.text, cells.missing, batch->counts}, need_label, batch);
  return Append(ExampleValues<Cell>{cells.typed, FindMissing(cells), batch->counts}, need_label,
                batch);
}

template <typename Value>
absl::Status CompiledSchema::Append(const ExampleValues<Value>& cells, bool need_label,
                                    Batch* batch) const {
  const size_t numbers = batch->numeric.size(), offsets = batch->key_offsets.size(),
               keys = batch->keys.size();
  DataCounts* const counts = cells.counts;
  absl::Status status = AppendAll(cells, need_label, batch);
  if (status.ok()) {
    if (counts != nullptr)
      counts->CountExample(cells.missing, f_.columns.size(), batch->label.back() == 1);
  } else {
    // A bad line must leave nothing in the batch.
    if (counts != nullptr) counts->DropLine();
    batch->label.resize(batch->n);
    batch->weight.resize(batch->n);
    batch->numeric.resize(numbers);
    batch->key_offsets.resize(offsets);
    batch->keys.resize(keys);
    batch->key_weights.resize(std::min(batch->key_weights.size(), keys));
  }
  return status;
}

std::vector<absl::Status> CompiledSchema::FindProblems(const ExampleCells& cells) const {
  if (cells.typed == nullptr)
    return ProblemsOf(ExampleText{cells.text, cells.missing, /*counts=*/nullptr});
  return ProblemsOf(ExampleValues<Cell>{cells.typed, FindMissing(cells), /*counts=*/nullptr});
}

template <typename Value>
std::vector<absl::Status> CompiledSchema::ProblemsOf(const ExampleValues<Value>& cells) const {
  std::vector<absl::Status> problems;
  const auto note = [&problems](absl::Status status) {
    // A slot may use the same column as a part of a cross.
    if (!status.ok() && std::find(problems.begin(), problems.end(), status) == problems.end())
      problems.push_back(std::move(status));
  };
  Batch scratch;
  note(AppendLabel(cells, /*need_label=*/true, &scratch));
  note(AppendWeight(cells, /*need_label=*/true, &scratch));
  std::vector<float> numbers;
  for (const CompiledNumeric& numeric : f_.numerics) {
    numbers.resize(numeric.size());
    note(numbers_.NumbersOf(numeric, cells, numbers.data()));
  }
  PartKeys parts(f_.part_categories.size());
  for (size_t p = 0; p < parts.size(); ++p)
    note(keys_.SingleKey(f_.categories[f_.part_categories[p]], cells, &parts[p]));
  for (const CompiledSlot& slot : f_.slots) {
    if (slot.category != kNone)
      note(keys_.AppendCategory(f_.categories[slot.category], cells, parts, &scratch));
  }
  return problems;
}

DataSummary CompiledSchema::Summarize(const DataCounts& counts) const {
  DataSummary summary;
  summary.set_examples(counts.examples());
  summary.set_positive(counts.positive());
  summary.set_repeated_headers(counts.repeated_headers());
  summary.set_label_values_seen(counts.label_values_seen());
  for (const FeatureSource& source : f_.sources) {
    FeatureSummary* feature = summary.add_features();
    if (source.column != kNone) feature->set_missing(counts.MissingIn(source.column));
    const DataCounts::Vocabulary* vocabulary =
        source.category == kNone ? nullptr : counts.OfCategory(source.category);
    if (vocabulary == nullptr) continue;
    feature->set_out_of_vocabulary(vocabulary->out_of_vocabulary);
    feature->set_vocabulary_seen(vocabulary->seen);
  }
  return summary;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const FeatureSchema>> FeatureSchema::Create(const JobConfig& job,
                                                                           const FeatureUse& use) {
  SLUICE_ASSIGN_OR_RETURN(CompiledFeatures features, CompileFeatures(job, use));
  return std::shared_ptr<const FeatureSchema>(
      std::make_shared<CompiledSchema>(std::move(features)));
}

}  // namespace sluice
