#include "model/features/feature_schema.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "model/features/cell_text.h"
#include "model/features/feature_compiler.h"
#include "model/features/feature_keys.h"
#include "model/features/parse_value.h"

namespace sluice {
namespace {

// The one key of a single-valued category; none when the value is missing.
struct PartKey {
  uint64_t key = 0;
  bool present = false;
};
using PartKeys = absl::InlinedVector<PartKey, 32>;

// The line's cells in the order of columns().
struct Cells {
  const std::string_view* values;
  const bool* missing;
};

absl::Status CellError(const std::string& feature, const std::string& column, std::string_view cell,
                       std::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("feature \"", feature, "\", column \"", column,
                                                 "\": ", QuotedCell(cell), " ",
                                                 std::string(problem)));
}

class CompiledSchema : public FeatureSchema {
 public:
  explicit CompiledSchema(CompiledFeatures features) : f_(std::move(features)) {}

  const std::vector<Numeric>& numerics() const override { return f_.numeric_info; }
  const std::vector<Slot>& slots() const override { return f_.slot_info; }
  const std::vector<std::string>& columns() const override { return f_.columns; }
  absl::Status AppendExample(const std::string_view* values, const bool* missing, bool need_label,
                             Batch* batch) const override;

 private:
  absl::Status AppendAll(const Cells& cells, bool need_label, Batch* batch) const;
  absl::Status AppendLabelAndWeight(const Cells& cells, bool need_label, Batch* batch) const;
  // The raw number of a cell, or of the part of its date.
  absl::Status RawNumber(const std::string& feature, int column, DatePart part, const Cells& cells,
                         double* value) const;
  absl::Status AppendNumeric(const CompiledNumeric& numeric, const Cells& cells,
                             Batch* batch) const;
  absl::Status SingleKey(const CompiledCategory& category, const Cells& cells, PartKey* key) const;
  void AppendMultiKeys(const CompiledCategory& category, std::string_view cell, Batch* batch) const;
  absl::Status AppendCategory(const CompiledCategory& category, const Cells& cells,
                              const PartKeys& parts, Batch* batch) const;
  void AppendCross(const CompiledCross& cross, const PartKeys& parts, Batch* batch) const;

  const CompiledFeatures f_;
};

uint64_t KeyOfValue(const CompiledCategory& category, std::string_view value) {
  const bool known = category.vocabulary.empty() ||
                     category.vocabulary.contains(absl::string_view(value.data(), value.size()));
  const uint64_t key = known ? ValueKey(value, category.seed) : OutOfVocabularyKey(category.seed);
  return FoldKey(key, category.hash_buckets, category.seed);
}

absl::Status CompiledSchema::RawNumber(const std::string& feature, int column, DatePart part,
                                       const Cells& cells, double* value) const {
  const std::string_view cell = cells.values[column];
  if (part != WHOLE) {
    int number;
    if (!ParseDatePart(cell, part, &number)) {
      return CellError(feature, f_.columns[column], cell, "is not a date \"YYYY-MM-DD HH:MM\"");
    }
    *value = number;
    return absl::OkStatus();
  }
  if (!ParseNumber(cell, value))
    return CellError(feature, f_.columns[column], cell, "is not a finite number");
  return absl::OkStatus();
}

absl::Status CompiledSchema::AppendNumeric(const CompiledNumeric& numeric, const Cells& cells,
                                           Batch* batch) const {
  double value = numeric.default_value;
  if (!cells.missing[numeric.column]) {
    SLUICE_RETURN_IF_ERROR(
        RawNumber(numeric.feature, numeric.column, numeric.date_part, cells, &value));
  }
  if (numeric.log) value = std::log1p(std::max(value, 0.0));
  value = (value - numeric.offset) * numeric.scale;
  if (!(std::abs(value) <= std::numeric_limits<float>::max())) {
    return CellError(numeric.feature, f_.columns[numeric.column], cells.values[numeric.column],
                     "is too large for a float");
  }
  batch->numeric.push_back(static_cast<float>(value));
  return absl::OkStatus();
}

absl::Status CompiledSchema::SingleKey(const CompiledCategory& category, const Cells& cells,
                                       PartKey* key) const {
  if (cells.missing[category.column]) {
    key->present = category.missing_is_value;
    key->key = FoldKey(MissingKey(category.seed), category.hash_buckets, category.seed);
    return absl::OkStatus();
  }
  key->present = true;
  if (!category.bucketed && category.date_part == WHOLE) {
    key->key = KeyOfValue(category, cells.values[category.column]);
    return absl::OkStatus();
  }
  double value;
  SLUICE_RETURN_IF_ERROR(
      RawNumber(category.feature, category.column, category.date_part, cells, &value));
  if (category.bucketed) {
    const auto& bounds = category.boundaries;
    key->key =
        category
            .bucket_keys[std::upper_bound(bounds.begin(), bounds.end(), value) - bounds.begin()];
    return absl::OkStatus();
  }
  char text[16];
  const auto end = std::to_chars(text, text + sizeof(text), static_cast<int>(value)).ptr;
  key->key = KeyOfValue(category, std::string_view(text, end - text));
  return absl::OkStatus();
}

void CompiledSchema::AppendMultiKeys(const CompiledCategory& category, std::string_view cell,
                                     Batch* batch) const {
  while (!cell.empty()) {
    const size_t end = std::min(cell.find(category.multi_value_delimiter), cell.size());
    if (end > 0) batch->keys.push_back(KeyOfValue(category, cell.substr(0, end)));
    cell.remove_prefix(std::min(end + 1, cell.size()));
  }
}

absl::Status CompiledSchema::AppendCategory(const CompiledCategory& category, const Cells& cells,
                                            const PartKeys& parts, Batch* batch) const {
  if (category.multi_value_delimiter != 0 && !cells.missing[category.column]) {
    AppendMultiKeys(category, cells.values[category.column], batch);
    return absl::OkStatus();
  }
  PartKey key;
  if (category.part != kNone) {
    key = parts[category.part];
  } else {
    SLUICE_RETURN_IF_ERROR(SingleKey(category, cells, &key));
  }
  if (key.present) batch->keys.push_back(key.key);
  return absl::OkStatus();
}

void CompiledSchema::AppendCross(const CompiledCross& cross, const PartKeys& parts,
                                 Batch* batch) const {
  uint64_t key = cross.seed;
  for (const int part : cross.parts) {
    if (!parts[part].present) return;
    key = CombineHash(key, parts[part].key);
  }
  batch->keys.push_back(FoldKey(key, cross.hash_buckets, cross.seed));
}

absl::Status CompiledSchema::AppendLabelAndWeight(const Cells& cells, bool need_label,
                                                  Batch* batch) const {
  // Without need_label (prediction) neither is used, so neither can make a line a bad one.
  float label = 0;
  if (!cells.missing[0]) {
    const absl::Status status = f_.label.Apply(cells.values[0], &label);
    if (need_label && !status.ok()) return status;
  } else if (need_label) {
    return absl::InvalidArgumentError(
        absl::StrCat("label column \"", f_.columns[0], "\" is missing"));
  }
  double weight = 1;
  if (!f_.columns[1].empty()) {
    const bool valid = !cells.missing[1] && ParseNumber(cells.values[1], &weight) && weight >= 0 &&
                       weight <= std::numeric_limits<float>::max();
    if (!valid && need_label) {
      return absl::InvalidArgumentError(
          absl::StrCat("weight column \"", f_.columns[1],
                       "\": ", cells.missing[1] ? "missing" : QuotedCell(cells.values[1]),
                       " is not a number of at least 0"));
    }
    if (!valid) weight = 1;
  }
  batch->label.push_back(label);
  batch->weight.push_back(static_cast<float>(weight));
  return absl::OkStatus();
}

absl::Status CompiledSchema::AppendAll(const Cells& cells, bool need_label, Batch* batch) const {
  SLUICE_RETURN_IF_ERROR(AppendLabelAndWeight(cells, need_label, batch));
  for (const CompiledNumeric& numeric : f_.numerics) {
    SLUICE_RETURN_IF_ERROR(AppendNumeric(numeric, cells, batch));
  }
  PartKeys parts(f_.part_categories.size());
  for (size_t p = 0; p < parts.size(); ++p) {
    SLUICE_RETURN_IF_ERROR(SingleKey(f_.categories[f_.part_categories[p]], cells, &parts[p]));
  }
  for (const CompiledSlot& slot : f_.slots) {
    if (slot.cross != kNone) {
      AppendCross(f_.crosses[slot.cross], parts, batch);
    } else {
      SLUICE_RETURN_IF_ERROR(AppendCategory(f_.categories[slot.category], cells, parts, batch));
    }
    batch->key_offsets.push_back(static_cast<uint32_t>(batch->keys.size()));
  }
  if (batch->keys.size() > std::numeric_limits<uint32_t>::max()) {
    return absl::ResourceExhaustedError(
        "more than 2^32 keys in one piece of data; read smaller pieces");
  }
  ++batch->n;
  return absl::OkStatus();
}

absl::Status CompiledSchema::AppendExample(const std::string_view* values, const bool* missing,
                                           bool need_label, Batch* batch) const {
  const size_t numbers = batch->numeric.size(), offsets = batch->key_offsets.size(),
               keys = batch->keys.size();
  absl::Status status = AppendAll({values, missing}, need_label, batch);
  if (!status.ok()) {
    batch->label.resize(batch->n);
    batch->weight.resize(batch->n);
    batch->numeric.resize(numbers);
    batch->key_offsets.resize(offsets);
    batch->keys.resize(keys);
  }
  return status;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const FeatureSchema>> FeatureSchema::Create(const JobConfig& job) {
  SLUICE_ASSIGN_OR_RETURN(CompiledFeatures features, CompileFeatures(job));
  return std::shared_ptr<const FeatureSchema>(
      std::make_shared<CompiledSchema>(std::move(features)));
}

}  // namespace sluice
