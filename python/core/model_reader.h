// A saved model or checkpoint, for programs that look at its values.
//
// Memory: a table is read when it is asked for, and then held as a whole.
//
// Thread safety: immutable; each SavedTable is, too.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/env.h"
#include "common/table/table_layout.h"
#include "model/model_spec.h"
#include "proto/model.pb.h"

namespace sluice {

// The rows of a sparse table, in the order of their keys.
class SavedRows {
 public:
  const std::vector<uint64_t>& keys() const { return keys_; }   // [rows], ascending
  const std::vector<float>& values() const { return values_; }  // [rows][dim]
  const TableLayout& layout() const { return *layout_; }

  // Copies the rows of `keys` to `to`, [keys.size()][dim]. A key that the table lacks gets its
  // initial row, as in training and prediction.
  void Find(absl::Span<const uint64_t> keys, float* to) const;
  // Sets found[i] to whether the table has keys[i].
  void Contains(absl::Span<const uint64_t> keys, bool* found) const;

 private:
  friend class ModelReader;
  // The place of the key's row; keys_.size(): there is none.
  size_t PlaceOf(uint64_t key) const;

  std::shared_ptr<const TableLayout> layout_;
  std::vector<uint64_t> keys_;
  std::vector<float> values_;
};

class ModelReader {
 public:
  // Reads the manifest and the job. `env` must outlive the reader. NOT_FOUND: the folder is not a
  // model. DATA_LOSS: it is damaged.
  static absl::StatusOr<std::unique_ptr<ModelReader>> Open(const std::string& dir, Env* env);

  const JobConfig& job() const { return job_; }
  const Manifest& manifest() const { return manifest_; }
  // By table id.
  const TableLayouts& layouts() const { return layouts_; }

  // The elements of a dense table, row-major. NOT_FOUND: there is no such dense table. DATA_LOSS
  // names what is damaged.
  absl::StatusOr<std::vector<float>> ReadDense(const std::string& table) const;
  // The rows of a sparse table; the same codes.
  absl::StatusOr<std::shared_ptr<const SavedRows>> ReadRows(const std::string& table) const;

  // The name of the sparse table that has the rows of `feature`. NOT_FOUND lists the features that
  // have rows.
  absl::StatusOr<std::string> TableOf(const std::string& feature) const;
  // The key of each of the values of `feature`, written as in a data file. INVALID_ARGUMENT: a
  // value is malformed or has not exactly one key, or the feature is a cross.
  absl::StatusOr<std::vector<uint64_t>> KeysOf(const std::string& feature,
                                               const std::vector<std::string>& values) const;

 private:
  explicit ModelReader(std::string dir, Env* env) : dir_(std::move(dir)), env_(env) {}
  absl::StatusOr<std::shared_ptr<const TableLayout>> Layout(const std::string& table,
                                                            bool sparse) const;
  // The number of the feature's slot.
  absl::StatusOr<size_t> SlotOf(const std::string& feature) const;

  const std::string dir_;
  Env* const env_;
  JobConfig job_;
  Manifest manifest_;
  TableLayouts layouts_;
  std::unique_ptr<ModelSpec> spec_;
};

}  // namespace sluice
