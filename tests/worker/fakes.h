// Fakes of a worker's surroundings: a model whose gradients are all one, and a pserver client that
// records its calls. The fake scheduler is in fake_scheduler.h.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "client/parameter_client.h"
#include "model/model.h"
#include "worker/context/job_context.h"
#include "worker/data/own_data.h"

namespace sluice {

inline TableConfig SgdTable(const std::string& name, TableConfig::Kind kind, uint64_t size,
                            float rate) {
  TableConfig table;
  table.set_name(name);
  table.set_kind(kind);
  OptimizerConfig optimizer;
  optimizer.mutable_sgd();
  optimizer.set_learning_rate(rate);
  Initializer zero;
  zero.set_constant(0);
  if (kind == TableConfig::DENSE) {
    table.add_shape(size);
    *table.mutable_optimizer() = optimizer;
    *table.mutable_initializer() = zero;
  } else {
    ColumnGroup* column = table.add_columns();
    column->set_name("c");
    column->set_dim(size);
    *column->mutable_optimizer() = optimizer;
    *column->mutable_initializer() = zero;
    table.set_num_shards(4);
  }
  return table;
}

// Slots without features, of which only the sparse tables count. No example has anything to append.
class SlotsSchema : public FeatureSchema {
 public:
  // By slot: its sparse table.
  explicit SlotsSchema(const std::vector<uint32_t>& tables) {
    for (const uint32_t table : tables) {
      slots_.emplace_back();
      slots_.back().table = table;
    }
  }
  const std::vector<Numeric>& numerics() const override { return numerics_; }
  const std::vector<Slot>& slots() const override { return slots_; }
  const std::vector<std::string>& columns() const override { return columns_; }
  using FeatureSchema::AppendExample;
  absl::Status AppendExample(const ExampleCells&, bool, Batch*) const override {
    return absl::OkStatus();
  }

 private:
  std::vector<Numeric> numerics_;
  std::vector<Slot> slots_;
  std::vector<std::string> columns_;
};

// A model of these tables. The test makes the net, if it needs one. The schema has a slot for each
// of `slot_tables`, its sparse table; without any it is null.
class TablesModel : public Model {
 public:
  explicit TablesModel(std::vector<TableConfig> tables,
                       const std::vector<uint32_t>& slot_tables = {})
      : tables_(std::move(tables)) {
    if (!slot_tables.empty()) schema_ = std::make_shared<SlotsSchema>(slot_tables);
    for (size_t i = 0; i < tables_.size(); ++i) {
      const bool dense = tables_[i].kind() == TableConfig::DENSE;
      (dense ? dense_ : sparse_).push_back(static_cast<int>(i));
    }
  }
  const std::shared_ptr<const FeatureSchema>& schema() const override { return schema_; }
  const std::vector<TableConfig>& tables() const override { return tables_; }
  const std::vector<int>& sparse_tables() const override { return sparse_; }
  const std::vector<int>& dense_tables() const override { return dense_; }
  std::map<std::string, std::vector<std::string>> ordered_inputs() const override { return {}; }
  absl::StatusOr<std::unique_ptr<DenseNet>> CreateNet(const NetOptions&) const override {
    return absl::UnimplementedError("the test makes the net");
  }

 private:
  std::shared_ptr<const FeatureSchema> schema_;
  const std::vector<TableConfig> tables_;
  std::vector<int> sparse_, dense_;
};

// One sparse table of dim 1 and one dense table, plain SGD with rate 1.
class FakeModel : public TablesModel {
 public:
  explicit FakeModel(uint32_t dense = 2)
      : TablesModel({SgdTable("rows", TableConfig::SPARSE, 1, 1.0f),
                     SgdTable("dense", TableConfig::DENSE, dense, 1.0f)}) {}
};

// The tables "rows" of dim 1 and "wide" of dim 3, with a dense table between them. Slots 0 and 2
// have their keys in "wide", slot 1 in "rows".
inline constexpr size_t kWideDim = 3;
class TwoTablesModel : public TablesModel {
 public:
  TwoTablesModel()
      : TablesModel({SgdTable("rows", TableConfig::SPARSE, 1, 1.0f),
                     SgdTable("dense", TableConfig::DENSE, 2, 1.0f),
                     SgdTable("wide", TableConfig::SPARSE, kWideDim, 1.0f)},
                    {1, 0, 1}) {}
};

// Adds an example to a batch of three slots, with these keys in each.
inline void AppendKeys(const std::vector<std::vector<uint64_t>>& by_slot, Batch* batch) {
  if (batch->n == 0) batch->Reset(0, by_slot.size());
  ++batch->n;
  batch->label.push_back(0);
  batch->weight.push_back(1);
  batch->example_id.push_back(0);
  for (const std::vector<uint64_t>& keys : by_slot) {
    batch->keys.insert(batch->keys.end(), keys.begin(), keys.end());
    batch->key_offsets.push_back(static_cast<uint32_t>(batch->keys.size()));
  }
}

// A program's data of which only the states of its source count.
class StatesOfSource : public OwnData {
 public:
  uint64_t epoch_steps() const override { return 0; }
  absl::StatusOr<uint64_t> CountBatches(const JobContext&) override { return 0; }
  absl::StatusOr<std::unique_ptr<BatchSource>> Train(const JobContext&, uint32_t, uint64_t,
                                                     const std::atomic<bool>*) override {
    return absl::UnimplementedError("no batches");
  }
  absl::StatusOr<std::unique_ptr<BatchSource>> Evaluate(const JobContext&) override {
    return absl::UnimplementedError("no batches");
  }
  SourceStates* states() override { return &states_; }

 private:
  SourceStates states_;
};

// A net whose gradients are all one. It records the values that it sees.
class OnesNet : public DenseNet {
 public:
  // The dims of the sparse tables.
  explicit OnesNet(std::vector<size_t> dims = {1}) : dims(std::move(dims)) {}
  void Announce(ComingBatch next) override { announced_ = std::move(next); }
  absl::Status TrainStep(const NetInput& input, uint64_t, uint32_t,
                         NetGradients* gradients) override {
    std::vector<size_t> num_rows;
    for (const RowsInput& rows : input.rows) num_rows.push_back(rows.n);
    ahead.push_back(coming_.batch.get() == input.batch && coming_.row_index == input.row_index &&
                    coming_.num_rows == num_rows);
    coming_ = std::exchange(announced_, {});
    if (on_step) on_step();
    if (leaves_at == step_) {
      gradients->ends_training = true;
      return absl::OkStatus();
    }
    if (overflow_steps.erase(step_++) > 0) {
      gradients->skipped = true;
      return absl::OkStatus();
    }
    std::vector<std::vector<float>> rows;
    for (size_t i = 0; i < input.rows.size(); ++i) {
      const size_t n = input.rows[i].n * dims[i];
      rows.emplace_back(input.rows[i].values, input.rows[i].values + n);
      std::fill_n(gradients->rows[i], n, 1.0f);
    }
    seen_rows.push_back(rows.empty() ? std::vector<float>() : rows[0]);
    seen_tables.push_back(std::move(rows));
    seen_dense.push_back({input.dense[0][0], input.dense[0][1]});
    std::fill(gradients->dense[0], gradients->dense[0] + 2, 1.0f);
    gradients->weight_sum = input.batch->n;
    return absl::OkStatus();
  }
  absl::Status Forward(const NetInput& input, float* logits) override {
    std::fill(logits, logits + input.batch->n, 0.0f);
    std::vector<std::vector<float>> rows;
    for (size_t i = 0; i < input.rows.size(); ++i) {
      const float* const values = input.rows[i].values;
      rows.emplace_back(values, values + input.rows[i].n * dims[i]);
    }
    evaluated.push_back(std::move(rows));
    sums.push_back({"examples", static_cast<double>(input.batch->n), 1});
    return absl::OkStatus();
  }
  DeviceStats device_stats() const override { return device; }
  absl::StatusOr<std::string> SaveState() const override {
    if (!state_status.ok()) return state_status;
    return std::to_string(step_) + " steps";
  }
  std::vector<MetricSum> TakeSums() override { return std::exchange(sums, {}); }
  absl::Status state_status;    // of SaveState
  std::vector<MetricSum> sums;  // Forward adds the number of its examples
  DeviceStats device;           // all 0: the CPU
  std::vector<size_t> dims;
  std::vector<std::vector<float>> seen_rows, seen_dense;     // of the first table, by step
  std::vector<std::vector<std::vector<float>>> seen_tables;  // by step, then by sparse table
  std::vector<std::vector<std::vector<float>>> evaluated;    // by Forward, then by sparse table
  std::vector<bool> ahead;       // by step: its batch was announced before the previous step
  std::set<int> overflow_steps;  // from 0: these overflow as in fp16
  int leaves_at = -1;            // the program has left its loop before this step (from 0)
  std::function<void()> on_step;

 private:
  int step_ = 0;
  ComingBatch announced_, coming_;
};

// A pserver in the same process, which merges Geo's deltas with `scale`. Pulled values are those at
// the start of the call. They are NaN until WaitPull of its ticket, which must be called once. All
// values of a row are the same; a delta with different ones counts as NaN.
class FakeClient : public ParameterClient {
 public:
  explicit FakeClient(const Model& model, float scale) : scale_(scale) {
    google::protobuf::RepeatedPtrField<TableConfig> tables(model.tables().begin(),
                                                           model.tables().end());
    layouts_ = *CreateTableLayouts(tables, 1);
    if (!model.sparse_tables().empty()) first_ = model.sparse_tables()[0];
    dense = {0, 0};
  }
  const TableLayouts& tables() const override { return layouts_; }
  Ticket StartPull(PullRequest request) override {
    pushes_before_pull.push_back(pushes.size());
    for (const auto& sparse : request.sparse) {
      buffers.insert(sparse.values);
      const std::vector<uint64_t>& keys = sparse.keys->keys;
      std::vector<uint64_t>& pulled =
          sparse.table == first_ ? pulled_keys : more_pulled_keys[sparse.table];
      pulled.insert(pulled.end(), keys.begin(), keys.end());
    }
    return Read(request);
  }
  absl::Status WaitPull(Ticket ticket) override {
    const auto answer = answers_.find(ticket);
    if (answer == answers_.end()) return absl::InternalError("no such pull is under way");
    for (const auto& [to, values] : answer->second) std::copy(values.begin(), values.end(), to);
    answers_.erase(answer);
    return absl::OkStatus();
  }
  std::optional<absl::Status> WaitPullUnless(Ticket ticket,
                                             const std::atomic<bool>& stop) override {
    if (on_wait) on_wait();
    if (stop && commits.size() > closing) return std::nullopt;
    return WaitPull(ticket);
  }
  void DropPull(Ticket ticket) override { answers_.erase(ticket); }
  absl::Status StartPush(PushRequest request, PullRequest* next, Ticket* ticket) override {
    pushes.push_back(std::move(request));
    fused.push_back(next != nullptr);
    if (next != nullptr) *ticket = StartPull(std::move(*next));
    return absl::OkStatus();
  }
  absl::Status PushEarly(PushRequest request) override {
    early.push_back(std::move(request));
    return absl::OkStatus();
  }
  absl::Status WaitPushes(int) override { return absl::OkStatus(); }
  absl::Status PushStep(uint64_t global_step, PushRequest request) override {
    steps.push_back(global_step);
    pushes.push_back(std::move(request));
    return on_push_step ? on_push_step(global_step) : absl::OkStatus();
  }
  Ticket StartCommit(uint64_t global_step, PullRequest next, uint64_t checkpoint,
                     TrainTotals totals) override {
    commits.push_back(global_step);
    checkpoints.push_back(checkpoint);
    commit_totals.push_back(std::move(totals));
    seen_ = checkpoint != 0 ? checkpoint : cuts.count(global_step) > 0 ? cuts[global_step] : 0;
    return StartPull(std::move(next));
  }
  uint64_t checkpoint_seen() const override { return seen_; }
  Ticket StartExchange(PushRequest delta, PullRequest current) override {
    for (auto& row : rows) row.second += others;
    for (auto& table : more_rows) {
      for (auto& row : table.second) row.second += others;
    }
    for (float& value : dense) value += others;
    std::map<uint64_t, float> sent;
    more_sent_rows.emplace_back();
    for (const auto& sparse : delta.sparse) {
      const bool first = sparse.table == first_;
      const size_t dim = layouts_[sparse.table]->dim();
      for (size_t i = 0; i < sparse.keys->keys.size(); ++i) {
        const uint64_t key = sparse.keys->keys[i];
        const float* const values = sparse.values + i * dim;
        const float moved = std::count(values, values + dim, values[0]) == dim
                                ? values[0]
                                : std::numeric_limits<float>::quiet_NaN();
        (first ? sent : more_sent_rows.back()[sparse.table])[key] = moved;
        (first ? rows : more_rows[sparse.table])[key] += scale_ * moved;
      }
    }
    for (const auto& d : delta.dense) {
      if (d.values == nullptr) continue;
      exchanged_floats += layouts_[d.table]->elements();
      buffers.insert(d.values);
      for (int i = 0; i < 2; ++i) dense[i] += scale_ * d.values[i];
    }
    positions.push_back(delta.position);
    sent_rows.push_back(sent);
    sent_dense.push_back({delta.dense[0].values[0], delta.dense[0].values[1]});
    for (const auto& d : current.dense) exchanged_floats += layouts_[d.table]->elements();
    return Read(current);
  }
  absl::Status EndEpoch(uint32_t epoch) override {
    ended.push_back(epoch);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<SavedFile>> SaveShards(const std::string&,
                                                    const std::string&) override {
    return std::vector<SavedFile>();
  }
  void NoteGeneration(uint64_t) override {}
  void Cancel() override {}
  std::string WaitingFor() const override { return ""; }
  size_t pulls_under_way() const { return answers_.size(); }

  // Of the first sparse table, and of the others by id.
  std::map<uint64_t, float> rows;
  std::map<uint32_t, std::map<uint64_t, float>> more_rows;
  std::vector<float> dense;
  float others = 0;  // other workers add this to every row and value before each exchange
  // Without those of exchanges: of the first sparse table, and of the others by id.
  std::vector<uint64_t> pulled_keys;
  std::map<uint32_t, std::vector<uint64_t>> more_pulled_keys;
  std::set<const float*> buffers;          // of pulled rows and of dense deltas
  std::vector<size_t> pushes_before_pull;  // by pull
  std::vector<bool> fused;                 // by push of StartPush: a pull came with it
  std::vector<PushRequest> pushes, early;
  std::function<absl::Status(uint64_t step)> on_push_step;  // its result is that of PushStep
  std::vector<uint64_t> steps, commits;
  size_t closing = SIZE_MAX;          // only so many of the commits close their step
  std::function<void()> on_wait;      // of WaitPullUnless
  std::vector<uint64_t> checkpoints;  // of the commits
  std::vector<TrainTotals> commit_totals;
  // By global step: the checkpoint that another rank's commit of the step asked for.
  std::map<uint64_t, uint64_t> cuts;
  std::vector<uint32_t> ended;
  std::vector<TrainPosition> positions;  // of deltas
  // By exchange: of the first sparse table, and of the others by id.
  std::vector<std::map<uint64_t, float>> sent_rows;
  std::vector<std::map<uint32_t, std::map<uint64_t, float>>> more_sent_rows;
  std::vector<std::vector<float>> sent_dense;
  uint64_t exchanged_floats = 0;  // of dense tables, both ways

 protected:
  virtual float ValueOf(uint32_t table, uint64_t key) {
    const std::map<uint64_t, float>& values = table == first_ ? rows : more_rows[table];
    const auto row = values.find(key);
    return row == values.end() ? 0.0f : row->second;
  }

 private:
  Ticket Read(const PullRequest& request) {
    std::vector<std::pair<float*, std::vector<float>>>& answer = answers_[++last_ticket_];
    for (const auto& sparse : request.sparse) {
      std::vector<float> values;
      for (const uint64_t key : sparse.keys->keys)
        values.insert(values.end(), layouts_[sparse.table]->dim(), ValueOf(sparse.table, key));
      answer.emplace_back(sparse.values, std::move(values));
    }
    for (const auto& d : request.dense) answer.emplace_back(d.values, dense);
    for (const auto& [to, values] : answer)
      std::fill_n(to, values.size(), std::numeric_limits<float>::quiet_NaN());
    return last_ticket_;
  }

  const float scale_;
  uint32_t first_ = UINT32_MAX;  // the first sparse table
  TableLayouts layouts_;
  Ticket last_ticket_ = 0;
  uint64_t seen_ = 0;
  std::map<Ticket, std::vector<std::pair<float*, std::vector<float>>>> answers_;
};

}  // namespace sluice
