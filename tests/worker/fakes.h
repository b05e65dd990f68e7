// Fakes of a worker's surroundings: a model whose gradients are all one, and a pserver client that
// records its calls. The fake scheduler is in fake_scheduler.h.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "client/parameter_client.h"
#include "model/model.h"
#include "worker/context/job_context.h"

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

// A model of these tables, of which at most one is sparse. The test makes the net, if it needs one.
class TablesModel : public Model {
 public:
  explicit TablesModel(std::vector<TableConfig> tables) : tables_(std::move(tables)) {
    for (size_t i = 0; i < tables_.size(); ++i) {
      if (tables_[i].kind() == TableConfig::DENSE) {
        dense_.push_back(static_cast<int>(i));
      } else {
        sparse_ = static_cast<int>(i);
      }
    }
  }
  const std::shared_ptr<const FeatureSchema>& schema() const override { return schema_; }
  const std::vector<TableConfig>& tables() const override { return tables_; }
  int sparse_table() const override { return sparse_; }
  const std::vector<int>& dense_tables() const override { return dense_; }
  std::map<std::string, std::vector<std::string>> ordered_inputs() const override { return {}; }
  absl::StatusOr<std::unique_ptr<DenseNet>> CreateNet(const NetOptions&) const override {
    return absl::UnimplementedError("the test makes the net");
  }

 private:
  std::shared_ptr<const FeatureSchema> schema_;
  const std::vector<TableConfig> tables_;
  int sparse_ = -1;
  std::vector<int> dense_;
};

// One sparse table of dim 1 and one dense table, plain SGD with rate 1.
class FakeModel : public TablesModel {
 public:
  explicit FakeModel(uint32_t dense = 2)
      : TablesModel({SgdTable("rows", TableConfig::SPARSE, 1, 1.0f),
                     SgdTable("dense", TableConfig::DENSE, dense, 1.0f)}) {}
};

// A net whose gradients are all one. It records the values that it sees.
class OnesNet : public DenseNet {
 public:
  void Announce(ComingBatch next) override { announced_ = std::move(next); }
  absl::Status TrainStep(const NetInput& input, uint64_t, uint32_t,
                         NetGradients* gradients) override {
    ahead.push_back(coming_.batch.get() == input.batch && coming_.row_index == input.row_index &&
                    coming_.num_rows == input.num_rows);
    coming_ = std::exchange(announced_, {});
    if (on_step) on_step();
    if (overflow_steps.erase(step_++) > 0) {
      gradients->skipped = true;
      return absl::OkStatus();
    }
    seen_rows.emplace_back(input.rows, input.rows + input.num_rows);
    seen_dense.push_back({input.dense[0][0], input.dense[0][1]});
    std::fill(gradients->rows, gradients->rows + input.num_rows, 1.0f);
    std::fill(gradients->dense[0], gradients->dense[0] + 2, 1.0f);
    gradients->weight_sum = input.batch->n;
    return absl::OkStatus();
  }
  absl::Status Forward(const NetInput& input, float* logits) override {
    std::fill(logits, logits + input.batch->n, 0.0f);
    return absl::OkStatus();
  }
  DeviceStats device_stats() const override { return device; }
  std::string SaveState() const override { return std::to_string(step_) + " steps"; }
  DeviceStats device;  // all 0: the CPU
  std::vector<std::vector<float>> seen_rows, seen_dense;
  std::vector<bool> ahead;       // by step: its batch was announced before the previous step
  std::set<int> overflow_steps;  // from 0: these overflow as in fp16
  std::function<void()> on_step;

 private:
  int step_ = 0;
  ComingBatch announced_, coming_;
};

// A pserver in the same process, which merges Geo's deltas with `scale`. Pulled values are those at
// the start of the call. They are NaN until WaitPull of its ticket, which must be called once.
class FakeClient : public ParameterClient {
 public:
  explicit FakeClient(const Model& model, float scale) : scale_(scale) {
    google::protobuf::RepeatedPtrField<TableConfig> tables(model.tables().begin(),
                                                           model.tables().end());
    layouts_ = *CreateTableLayouts(tables, 1);
    dense = {0, 0};
  }
  const TableLayouts& tables() const override { return layouts_; }
  Ticket StartPull(PullRequest request) override {
    pushes_before_pull.push_back(pushes.size());
    for (const auto& sparse : request.sparse) {
      buffers.insert(sparse.values);
      pulled_keys.insert(pulled_keys.end(), sparse.keys->keys.begin(), sparse.keys->keys.end());
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
    for (float& value : dense) value += others;
    std::map<uint64_t, float> sent;
    for (const auto& sparse : delta.sparse) {
      for (size_t i = 0; i < sparse.keys->keys.size(); ++i) {
        sent[sparse.keys->keys[i]] = sparse.values[i];
        rows[sparse.keys->keys[i]] += scale_ * sparse.values[i];
      }
    }
    for (const auto& d : delta.dense) {
      buffers.insert(d.values);
      for (int i = 0; i < 2; ++i) dense[i] += scale_ * d.values[i];
    }
    positions.push_back(delta.position);
    sent_rows.push_back(sent);
    sent_dense.push_back({delta.dense[0].values[0], delta.dense[0].values[1]});
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

  std::map<uint64_t, float> rows;
  std::vector<float> dense;
  float others = 0;  // other workers add this to every row and value before each exchange
  std::vector<uint64_t> pulled_keys;       // without those of exchanges
  std::set<const float*> buffers;          // of pulled rows and of dense deltas
  std::vector<size_t> pushes_before_pull;  // by pull
  std::vector<bool> fused;                 // by push of StartPush: a pull came with it
  std::vector<PushRequest> pushes, early;
  std::function<absl::Status(uint64_t step)> on_push_step;  // its result is that of PushStep
  std::vector<uint64_t> steps, commits;
  std::vector<uint64_t> checkpoints;  // of the commits
  std::vector<TrainTotals> commit_totals;
  // By global step: the checkpoint that another rank's commit of the step asked for.
  std::map<uint64_t, uint64_t> cuts;
  std::vector<uint32_t> ended;
  std::vector<TrainPosition> positions;  // of deltas
  std::vector<std::map<uint64_t, float>> sent_rows;
  std::vector<std::vector<float>> sent_dense;

 protected:
  virtual float ValueOf(uint64_t key) const { return rows.count(key) > 0 ? rows.at(key) : 0.0f; }

 private:
  Ticket Read(const PullRequest& request) {
    std::vector<std::pair<float*, std::vector<float>>>& answer = answers_[++last_ticket_];
    for (const auto& sparse : request.sparse) {
      std::vector<float> values;
      for (const uint64_t key : sparse.keys->keys) values.push_back(ValueOf(key));
      answer.emplace_back(sparse.values, std::move(values));
    }
    for (const auto& d : request.dense) answer.emplace_back(d.values, dense);
    for (const auto& [to, values] : answer)
      std::fill_n(to, values.size(), std::numeric_limits<float>::quiet_NaN());
    return last_ticket_;
  }

  const float scale_;
  TableLayouts layouts_;
  Ticket last_ticket_ = 0;
  uint64_t seen_ = 0;
  std::map<Ticket, std::vector<std::pair<float*, std::vector<float>>>> answers_;
};

}  // namespace sluice
