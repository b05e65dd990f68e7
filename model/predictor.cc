#include "model/predictor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/saved_model/saved_model.h"
#include "model/net/log_loss.h"
#include "model/net/net_options.h"

namespace sluice {
namespace {

absl::Status Damaged(const std::string& dir, const std::string& table, absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat("model ", dir, ", table \"", table, "\": ", what,
                   "; the folder mixes files of several models, or is damaged: save it again"));
}

// Finds the saved table for `wanted`, a table of the model's job, and checks that both have the
// same shape.
absl::StatusOr<std::shared_ptr<const TableLayout>> FindTable(const std::string& dir,
                                                             const TableLayouts& saved,
                                                             const TableConfig& wanted) {
  for (const auto& table : saved) {
    if (table->name() != wanted.name()) continue;
    bool same = table->config().kind() == wanted.kind() &&
                std::equal(wanted.shape().begin(), wanted.shape().end(),
                           table->config().shape().begin(), table->config().shape().end()) &&
                wanted.columns_size() == table->config().columns_size();
    for (int i = 0; same && i < wanted.columns_size(); ++i) {
      same = wanted.columns(i).name() == table->config().columns(i).name() &&
             wanted.columns(i).dim() == table->config().columns(i).dim();
    }
    if (!same)
      return Damaged(dir, wanted.name(), "its shape in the manifest differs from job.textproto");
    return table;
  }
  return Damaged(dir, wanted.name(), "is not in the manifest");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Predictor>> Predictor::Load(const std::string& model_dir,
                                                           const ModelList& models, Env* env) {
  SLUICE_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(model_dir, env));
  std::unique_ptr<Predictor> predictor(new Predictor);
  SLUICE_ASSIGN_OR_RETURN(predictor->job_, ReadModelJob(model_dir, env));
  SLUICE_ASSIGN_OR_RETURN(predictor->model_, Model::Create(predictor->job_, models));
  const Model& model = *predictor->model_;
  SLUICE_ASSIGN_OR_RETURN(const TableLayouts saved,
                          CreateTableLayouts(manifest.tables(), predictor->job_.train().seed()));
  for (int t : model.dense_tables()) {
    SLUICE_ASSIGN_OR_RETURN(auto table, FindTable(model_dir, saved, model.tables()[t]));
    SLUICE_RETURN_IF_ERROR(predictor->LoadDense(model_dir, manifest, *table, env));
  }
  if (model.sparse_table() >= 0) {
    SLUICE_ASSIGN_OR_RETURN(auto table,
                            FindTable(model_dir, saved, model.tables()[model.sparse_table()]));
    SLUICE_RETURN_IF_ERROR(predictor->LoadSparse(model_dir, manifest, std::move(table), env));
  }
  return predictor;
}

absl::Status Predictor::LoadDense(const std::string& dir, const Manifest& manifest,
                                  const TableLayout& table, Env* env) {
  std::vector<float> tensor(table.elements());
  uint64_t loaded = 0;
  SLUICE_RETURN_IF_ERROR(VisitShards(
      dir, manifest, table.name(), env, [&](uint32_t, ShardValues shard) -> absl::Status {
        const uint64_t n = shard.weights.size();
        // Written so that the sum cannot overflow: the numbers come from a file.
        if (shard.first_element > tensor.size() || n > tensor.size() - shard.first_element) {
          return Damaged(dir, table.name(), "a block lies outside the tensor");
        }
        std::copy(shard.weights.begin(), shard.weights.end(), tensor.begin() + shard.first_element);
        loaded += n;
        return absl::OkStatus();
      }));
  // Missing blocks give too few elements, and repeated ones too many.
  if (loaded != tensor.size()) {
    return Damaged(dir, table.name(),
                   absl::StrCat("the files have ", loaded, " of ", tensor.size(), " elements"));
  }
  dense_.push_back(std::move(tensor));
  return absl::OkStatus();
}

absl::Status Predictor::LoadSparse(const std::string& dir, const Manifest& manifest,
                                   std::shared_ptr<const TableLayout> table, Env* env) {
  sparse_ = std::move(table);
  // Reserving first avoids growth while loading, which would hold the rows twice.
  SLUICE_ASSIGN_OR_RETURN(const uint64_t rows, CountRecords(dir, manifest, sparse_->name(), env));
  // Numbers of rows have 32 bits.
  if (rows > UINT32_MAX) return Damaged(dir, sparse_->name(), "has more than 2^32 rows");
  row_ids_.reserve(rows);
  values_.reserve(rows * sparse_->dim());
  return VisitShards(
      dir, manifest, sparse_->name(), env, [&](uint32_t, ShardValues piece) -> absl::Status {
        if (piece.weights.size() != piece.keys.size() * sparse_->dim()) {
          return Damaged(dir, sparse_->name(), "a shard's rows do not have the table's dim");
        }
        for (uint64_t key : piece.keys) {
          if (!row_ids_.emplace(key, static_cast<uint32_t>(row_ids_.size())).second) {
            return Damaged(dir, sparse_->name(), absl::StrCat("key ", key, " occurs twice"));
          }
        }
        values_.insert(values_.end(), piece.weights.begin(), piece.weights.end());
        return absl::OkStatus();
      });
}

absl::StatusOr<std::unique_ptr<Predictor::Scorer>> Predictor::NewScorer(int threads) const {
  SLUICE_ASSIGN_OR_RETURN(auto net, model_->CreateNet(CpuNet(threads, kBatch)));
  return std::unique_ptr<Scorer>(new Scorer(this, std::move(net)));
}

Predictor::Scorer::Scorer(const Predictor* predictor, std::unique_ptr<DenseNet> net)
    : predictor_(*predictor), net_(std::move(net)) {
  for (const auto& tensor : predictor_.dense_) input_.dense.push_back(tensor.data());
}

absl::Status Predictor::Scorer::Score(const Batch& batch, float* probabilities) {
  input_.batch = &batch;
  if (predictor_.sparse_ != nullptr) {
    // Every key gets its own row: copying a repeated row is cheaper than finding repeats.
    const TableLayout& table = *predictor_.sparse_;
    const size_t dim = table.dim(), n = batch.keys.size();
    rows_.resize(n * dim);
    while (row_index_.size() < n) row_index_.push_back(static_cast<uint32_t>(row_index_.size()));
    for (size_t k = 0; k < n; ++k) {
      float* row = rows_.data() + k * dim;
      const auto found = predictor_.row_ids_.find(batch.keys[k]);
      if (found == predictor_.row_ids_.end()) {
        table.InitialRow(batch.keys[k], row);
      } else {
        std::copy_n(predictor_.values_.data() + found->second * dim, dim, row);
      }
    }
    input_.row_index = row_index_.data();
    input_.rows = rows_.data();
    input_.num_rows = n;
  }
  SLUICE_RETURN_IF_ERROR(net_->Forward(input_, probabilities));
  for (size_t i = 0; i < batch.n; ++i) probabilities[i] = Sigmoid(probabilities[i]);
  return absl::OkStatus();
}

}  // namespace sluice
