#include "python/core/model_reader.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/saved_model/saved_model.h"
#include "model/built_in_models.h"

namespace sluice {
namespace {

absl::Status DamagedTable(const std::string& dir, const std::string& table,
                          absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat("model ", dir, ", table \"", table, "\": ", what, "; save it again"));
}

// Sorts rows by key. The files of several shards interleave.
void SortRows(size_t dim, std::vector<uint64_t>* keys, std::vector<float>* values) {
  std::vector<size_t> order(keys->size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return (*keys)[a] < (*keys)[b]; });
  std::vector<uint64_t> sorted_keys(keys->size());
  std::vector<float> sorted_values(values->size());
  for (size_t i = 0; i < order.size(); ++i) {
    sorted_keys[i] = (*keys)[order[i]];
    std::copy_n(values->data() + order[i] * dim, dim, sorted_values.data() + i * dim);
  }
  keys->swap(sorted_keys);
  values->swap(sorted_values);
}

// Whether a cell with this text has no value, as readers of the data see it.
bool IsMissing(const DataConfig& data, const std::string& cell) {
  const auto& words = data.csv().missing();
  return cell.empty() || std::find(words.begin(), words.end(), cell) != words.end();
}

}  // namespace

size_t SavedRows::PlaceOf(uint64_t key) const {
  const auto found = std::lower_bound(keys_.begin(), keys_.end(), key);
  const bool there = found != keys_.end() && *found == key;
  return there ? static_cast<size_t>(found - keys_.begin()) : keys_.size();
}

void SavedRows::Find(absl::Span<const uint64_t> keys, float* to) const {
  const size_t dim = layout_->dim();
  for (const uint64_t key : keys) {
    const size_t place = PlaceOf(key);
    if (place == keys_.size()) {
      layout_->RowBeforeUpdates(key, to);
    } else {
      std::copy_n(values_.data() + place * dim, dim, to);
    }
    to += dim;
  }
}

void SavedRows::Contains(absl::Span<const uint64_t> keys, bool* found) const {
  for (const uint64_t key : keys) *found++ = PlaceOf(key) < keys_.size();
}

absl::StatusOr<std::unique_ptr<ModelReader>> ModelReader::Open(const std::string& dir, Env* env) {
  auto reader = absl::WrapUnique(new ModelReader(dir, env));
  SLUICE_ASSIGN_OR_RETURN(reader->manifest_, ReadManifest(dir, env));
  SLUICE_ASSIGN_OR_RETURN(reader->job_, ReadModelJob(dir, env));
  SLUICE_ASSIGN_OR_RETURN(reader->layouts_, CreateTableLayouts(reader->manifest_.tables(),
                                                               reader->job_.train().seed()));
  SLUICE_ASSIGN_OR_RETURN(reader->spec_, ModelSpec::Create(reader->job_, BuiltInSpecs()));
  return reader;
}

absl::StatusOr<std::shared_ptr<const TableLayout>> ModelReader::Layout(const std::string& table,
                                                                       bool sparse) const {
  std::vector<std::string> names;
  for (const auto& layout : layouts_) {
    if (layout->sparse() != sparse) continue;
    if (layout->name() == table) return layout;
    names.push_back(layout->name());
  }
  return absl::NotFoundError(absl::StrCat("model ", dir_, " has no ", sparse ? "sparse" : "dense",
                                          " table \"", table, "\"; it has ",
                                          names.empty() ? "none" : absl::StrJoin(names, ", ")));
}

absl::StatusOr<std::vector<float>> ModelReader::ReadDense(const std::string& table) const {
  SLUICE_ASSIGN_OR_RETURN(const auto layout, Layout(table, /*sparse=*/false));
  std::vector<float> tensor(layout->elements());
  uint64_t read = 0;
  SLUICE_RETURN_IF_ERROR(
      VisitShards(dir_, manifest_, table, env_, [&](uint32_t, ShardValues piece) -> absl::Status {
        const uint64_t n = piece.weights.size();
        // Written so that the sum cannot overflow: the numbers come from a file.
        if (piece.first_element > tensor.size() || n > tensor.size() - piece.first_element)
          return DamagedTable(dir_, table, "a block lies outside the tensor");
        std::copy(piece.weights.begin(), piece.weights.end(),
                  tensor.begin() + static_cast<std::ptrdiff_t>(piece.first_element));
        read += n;
        return absl::OkStatus();
      }));
  if (read == tensor.size()) return tensor;
  return DamagedTable(dir_, table,
                      absl::StrCat("the files have ", read, " of ", tensor.size(), " elements"));
}

absl::StatusOr<std::shared_ptr<const SavedRows>> ModelReader::ReadRows(
    const std::string& table) const {
  auto rows = std::make_shared<SavedRows>();
  SLUICE_ASSIGN_OR_RETURN(rows->layout_, Layout(table, /*sparse=*/true));
  const size_t dim = rows->layout_->dim();
  SLUICE_ASSIGN_OR_RETURN(const uint64_t n, CountRecords(dir_, manifest_, table, env_));
  rows->keys_.reserve(n);
  rows->values_.reserve(n * dim);
  SLUICE_RETURN_IF_ERROR(
      VisitShards(dir_, manifest_, table, env_, [&](uint32_t, ShardValues piece) -> absl::Status {
        if (piece.weights.size() != piece.keys.size() * dim)
          return DamagedTable(dir_, table, "a shard's rows do not have the table's dim");
        rows->keys_.insert(rows->keys_.end(), piece.keys.begin(), piece.keys.end());
        rows->values_.insert(rows->values_.end(), piece.weights.begin(), piece.weights.end());
        return absl::OkStatus();
      }));
  SortRows(dim, &rows->keys_, &rows->values_);
  const auto twice = std::adjacent_find(rows->keys_.begin(), rows->keys_.end());
  if (twice != rows->keys_.end())
    return DamagedTable(dir_, table, absl::StrCat("key ", *twice, " occurs twice"));
  return rows;
}

absl::StatusOr<size_t> ModelReader::SlotOf(const std::string& feature) const {
  std::vector<std::string> names;
  const std::vector<FeatureSchema::Slot>& slots = spec_->schema()->slots();
  for (size_t s = 0; s < slots.size(); ++s) {
    if (!slots[s].rows.empty()) continue;  // a dense feature: its rows are part of a dense table
    if (slots[s].name == feature) return s;
    names.push_back(slots[s].name);
  }
  return absl::NotFoundError(absl::StrCat("model ", dir_, " has no rows of a feature \"", feature,
                                          "\"; it has those of ",
                                          names.empty() ? "none" : absl::StrJoin(names, ", ")));
}

absl::StatusOr<std::string> ModelReader::TableOf(const std::string& feature) const {
  SLUICE_ASSIGN_OR_RETURN(const size_t slot, SlotOf(feature));
  const int table = spec_->sparse_tables().at(spec_->schema()->slots()[slot].table);
  return spec_->tables().at(static_cast<size_t>(table)).name();
}

absl::StatusOr<std::vector<uint64_t>> ModelReader::KeysOf(
    const std::string& feature, const std::vector<std::string>& values) const {
  SLUICE_ASSIGN_OR_RETURN(const size_t slot, SlotOf(feature));
  const FeatureSchema& schema = *spec_->schema();
  std::string column = feature;
  for (const Feature& one : job_.features()) {
    if (one.name() != feature) continue;
    if (one.has_cross()) {
      return absl::InvalidArgumentError(
          absl::StrCat("feature \"", feature, "\" is a cross: its keys come from several values"));
    }
    const std::string& named =
        one.has_numeric() ? one.numeric().column() : one.categorical().column();
    if (!named.empty()) column = named;
  }
  // Lines with nothing but this column, so that the keys are made as in training.
  const std::vector<std::string>& columns = schema.columns();
  std::vector<std::string_view> cells(columns.size());
  const auto missing = std::make_unique<bool[]>(columns.size());
  Batch batch;
  batch.Reset(schema.numerics().size(), schema.slots().size());
  for (const std::string& value : values) {
    // The first two columns are label and weight.
    for (size_t c = 0; c < columns.size(); ++c) {
      const bool is_value = c >= 2 && columns[c] == column;
      missing[c] = !is_value || IsMissing(job_.data(), value);
      cells[c] = is_value ? std::string_view(value) : std::string_view();
    }
    SLUICE_RETURN_IF_ERROR(
        schema.AppendExample(cells.data(), missing.get(), /*need_label=*/false, &batch));
  }
  std::vector<uint64_t> keys;
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t* const offset = batch.key_offsets.data() + i * batch.num_slots + slot;
    if (offset[1] - offset[0] != 1) {
      return absl::InvalidArgumentError(absl::StrCat("\"", values[i], "\" of feature \"", feature,
                                                     "\" has ", offset[1] - offset[0],
                                                     " keys; give values with one key each"));
    }
    keys.push_back(batch.keys[offset[0]]);
  }
  return keys;
}

}  // namespace sluice
