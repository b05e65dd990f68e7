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

absl::Status CheckNetwork(const std::string& dir, const JobConfig& job, const ModelList& models) {
  SLUICE_ASSIGN_OR_RETURN(const ModelEntry* const entry, models.Find(job.model()));
  if (entry->create_net != nullptr || !job.model().has_program()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "model ", dir, " is a program's: its network is a module in the script that has ",
      "trained it. Score data in Python, with sluice.torch.load(module, \"", dir,
      "\") (docs/python.md, python/README.md)"));
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
  SLUICE_RETURN_IF_ERROR(CheckNetwork(model_dir, predictor->job_, models));
  SLUICE_ASSIGN_OR_RETURN(predictor->model_, Model::Create(predictor->job_, models));
  const Model& model = *predictor->model_;
  SLUICE_ASSIGN_OR_RETURN(const TableLayouts saved,
                          CreateTableLayouts(manifest.tables(), predictor->job_.train().seed()));
  for (int t : model.dense_tables()) {
    SLUICE_ASSIGN_OR_RETURN(auto table, FindTable(model_dir, saved, model.tables()[t]));
    SLUICE_RETURN_IF_ERROR(predictor->LoadDense(model_dir, manifest, *table, env));
  }
  for (int t : model.sparse_tables()) {
    SLUICE_ASSIGN_OR_RETURN(auto table, FindTable(model_dir, saved, model.tables()[t]));
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
                                   std::shared_ptr<const TableLayout> layout, Env* env) {
  const std::string& name = layout->name();
  const size_t dim = layout->dim();
  SparseTable table;
  // Reserving first avoids growth while loading, which would hold the rows twice.
  SLUICE_ASSIGN_OR_RETURN(const uint64_t rows, CountRecords(dir, manifest, name, env));
  // Numbers of rows have 32 bits.
  if (rows > UINT32_MAX) return Damaged(dir, name, "has more than 2^32 rows");
  table.row_ids.reserve(rows);
  table.values.reserve(rows * dim);
  SLUICE_RETURN_IF_ERROR(
      VisitShards(dir, manifest, name, env, [&](uint32_t, ShardValues piece) -> absl::Status {
        if (piece.weights.size() != piece.keys.size() * dim)
          return Damaged(dir, name, "a shard's rows do not have the table's dim");
        for (uint64_t key : piece.keys) {
          if (!table.row_ids.emplace(key, static_cast<uint32_t>(table.row_ids.size())).second)
            return Damaged(dir, name, absl::StrCat("key ", key, " occurs twice"));
        }
        table.values.insert(table.values.end(), piece.weights.begin(), piece.weights.end());
        return absl::OkStatus();
      }));
  table.layout = std::move(layout);
  sparse_.push_back(std::move(table));
  return absl::OkStatus();
}

void Predictor::SparseTable::CopyRow(uint64_t key, float* to) const {
  const auto found = row_ids.find(key);
  if (found == row_ids.end()) return layout->RowBeforeUpdates(key, to);
  const size_t dim = layout->dim();
  std::copy_n(values.data() + found->second * dim, dim, to);
}

absl::StatusOr<std::unique_ptr<Predictor::Scorer>> Predictor::NewScorer(int threads) const {
  SLUICE_ASSIGN_OR_RETURN(auto net, model_->CreateNet(CpuNet(threads, kBatch)));
  return std::unique_ptr<Scorer>(new Scorer(this, std::move(net)));
}

Predictor::Scorer::Scorer(const Predictor* predictor, std::unique_ptr<DenseNet> net)
    : predictor_(*predictor), net_(std::move(net)), rows_(predictor->sparse_.size()) {
  input_.rows.resize(rows_.size());
  for (const auto& tensor : predictor_.dense_) input_.dense.push_back(tensor.data());
}

void Predictor::Scorer::FindRows(const Batch& batch) {
  const std::vector<FeatureSchema::Slot>& slots = predictor_.model().schema()->slots();
  // Calls visit(key, table) for all keys, by example and slot.
  const auto for_each_key = [&](const auto& visit) {
    const uint32_t* offset = batch.key_offsets.data();
    for (size_t i = 0; i < batch.n; ++i) {
      for (size_t s = 0; s < batch.num_slots; ++s, ++offset)
        for (uint32_t k = offset[0]; k < offset[1]; ++k) visit(k, slots[s].table);
    }
  };
  // Every key gets its own row: copying a repeated row is cheaper than finding repeats.
  row_index_.resize(batch.keys.size());
  for (RowsInput& rows : input_.rows) rows.n = 0;
  for_each_key([this](uint32_t k, uint32_t table) {
    row_index_[k] = static_cast<uint32_t>(input_.rows[table].n++);
  });
  for (size_t t = 0; t < rows_.size(); ++t) {
    const size_t values = input_.rows[t].n * predictor_.sparse_[t].layout->dim();
    if (rows_[t].size() < values) rows_[t].resize(values);
    input_.rows[t].values = rows_[t].data();
  }
  for_each_key([&](uint32_t k, uint32_t t) {
    const SparseTable& table = predictor_.sparse_[t];
    table.CopyRow(batch.keys[k], rows_[t].data() + row_index_[k] * table.layout->dim());
  });
  input_.row_index = row_index_.data();
}

absl::Status Predictor::Scorer::Score(const Batch& batch, float* probabilities) {
  input_.batch = &batch;
  if (!predictor_.sparse_.empty()) {
    const size_t slots = predictor_.model().schema()->slots().size();
    if (batch.num_slots != slots) {
      return absl::InvalidArgumentError(
          absl::StrCat("the batch has ", batch.num_slots, " slots, and the model ", slots));
    }
    FindRows(batch);
  }
  SLUICE_RETURN_IF_ERROR(net_->Forward(input_, probabilities));
  for (size_t i = 0; i < batch.n; ++i) probabilities[i] = Sigmoid(probabilities[i]);
  return absl::OkStatus();
}

}  // namespace sluice
