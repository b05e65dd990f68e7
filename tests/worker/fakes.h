// Stand-ins for what a worker talks to: a model with gradients of one, a pserver client that
// records, a scheduler that leases a list of tasks.
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "client/parameter_client.h"
#include "common/daemon/scheduler_client.h"
#include "model/model.h"
#include "worker/job_context.h"

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

// One sparse table of dim 1 and one dense table of 2 elements, plain SGD with rate 1.
class FakeModel : public Model {
 public:
  explicit FakeModel(uint32_t dense = 2)
      : tables_({SgdTable("rows", TableConfig::SPARSE, 1, 1.0f),
                 SgdTable("dense", TableConfig::DENSE, dense, 1.0f)}) {}
  const std::shared_ptr<const FeatureSchema>& schema() const override { return schema_; }
  const std::vector<TableConfig>& tables() const override { return tables_; }
  int sparse_table() const override { return 0; }
  const std::vector<int>& dense_tables() const override { return dense_; }
  absl::StatusOr<std::unique_ptr<DenseNet>> CreateNet(const NetOptions&) const override {
    return absl::UnimplementedError("the fake net is made by the test");
  }

 private:
  std::shared_ptr<const FeatureSchema> schema_;
  const std::vector<TableConfig> tables_;
  const std::vector<int> dense_ = {1};
};

// Every gradient is one; remembers the values it saw.
class OnesNet : public DenseNet {
 public:
  absl::Status TrainStep(const NetInput& input, uint64_t, uint32_t,
                         NetGradients* gradients) override {
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
  DeviceStats device;  // all 0: the CPU
  std::vector<std::vector<float>> seen_rows, seen_dense;
  std::set<int> overflow_steps;  // from 0: these overflow as in fp16

 private:
  int step_ = 0;
};

// A pserver in the same process: Geo's merge with `scale`, everything else at once.
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
    for (const auto& sparse : request.sparse) {
      ++sparse_pulls;
      for (size_t i = 0; i < sparse.keys->keys.size(); ++i) {
        pulled_keys.push_back(sparse.keys->keys[i]);
        sparse.values[i] = rows.count(sparse.keys->keys[i]) ? rows[sparse.keys->keys[i]] : 0.0f;
      }
    }
    for (const auto& d : request.dense) std::copy(dense.begin(), dense.end(), d.values);
    return 1;
  }
  absl::Status WaitPull(Ticket) override { return absl::OkStatus(); }
  absl::Status StartPush(PushRequest request, PullRequest* next, Ticket* ticket) override {
    pushes.push_back(std::move(request));
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
    return absl::OkStatus();
  }
  Ticket StartCommit(uint64_t global_step, PullRequest next) override {
    commits.push_back(global_step);
    return StartPull(std::move(next));
  }
  Ticket StartExchange(PushRequest delta, PullRequest current) override {
    std::map<uint64_t, float> sent;
    for (const auto& sparse : delta.sparse) {
      for (size_t i = 0; i < sparse.keys->keys.size(); ++i) {
        sent[sparse.keys->keys[i]] = sparse.values[i];
        rows[sparse.keys->keys[i]] += scale_ * sparse.values[i];
      }
    }
    for (const auto& d : delta.dense) {
      for (int i = 0; i < 2; ++i) dense[i] += scale_ * d.values[i];
    }
    sent_rows.push_back(sent);
    sent_dense.push_back({delta.dense[0].values[0], delta.dense[0].values[1]});
    const size_t before = pulled_keys.size();
    StartPull(std::move(current));
    pulled_keys.resize(before);
    --sparse_pulls;
    return 1;
  }
  absl::Status EndEpoch(uint32_t epoch) override {
    ended.push_back(epoch);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<SavedFile>> SaveShards(const std::string&) override {
    return std::vector<SavedFile>();
  }
  void Cancel() override {}
  std::string WaitingFor() const override { return ""; }

  std::map<uint64_t, float> rows;
  std::vector<float> dense;
  std::vector<uint64_t> pulled_keys;
  int sparse_pulls = 0;
  std::vector<PushRequest> pushes, early;
  std::vector<uint64_t> steps, commits;
  std::vector<uint32_t> ended;
  std::vector<std::map<uint64_t, float>> sent_rows;
  std::vector<std::vector<float>> sent_dense;

 private:
  const float scale_;
  TableLayouts layouts_;
};

// Leases `tasks` in order; remembers what was reported as trained; a request repeated with its
// number gets its answer again.
class FakeScheduler : public SchedulerClient {
 public:
  const std::string& address() const override { return address_; }
  absl::Status WaitReady(absl::Duration, const std::function<void(const std::string&)>&) override {
    return absl::OkStatus();
  }
  absl::StatusOr<RegisterReply> Register(const RegisterRequest&) override {
    return RegisterReply();
  }
  absl::StatusOr<PollReply> Poll(const PollRequest&) override { return PollReply(); }
  absl::Status Leave(const LeaveRequest&) override { return absl::OkStatus(); }
  absl::StatusOr<NextPhaseReply> NextPhase(const NextPhaseRequest&) override {
    return NextPhaseReply();
  }
  absl::StatusOr<NextTaskReply> NextTask(const NextTaskRequest& request) override {
    if (failures > 0) {
      --failures;
      return absl::UnavailableError("the scheduler is away");
    }
    if (request.number() == 0 || request.number() != answered_) {
      answered_ = request.number();
      answer_ = Answer(request);
    }
    if (lost_replies > 0) {
      --lost_replies;
      return absl::UnavailableError("the reply was lost");
    }
    return answer_;
  }
  NextTaskReply Answer(const NextTaskRequest& request) {
    if (request.finished_task() != 0)
      finished[request.finished_task()] = request.finished_examples();
    NextTaskReply reply;
    if (waits > 0) {
      --waits;
      reply.set_kind(NextTaskReply::WAIT);
    } else if (tasks.empty()) {
      reply.set_kind(NextTaskReply::EPOCH_DONE);
    } else {
      reply.set_kind(NextTaskReply::TASK);
      *reply.mutable_task() = tasks.front();
      tasks.pop_front();
    }
    return reply;
  }
  absl::StatusOr<GetRouteReply> GetRoute(const GetRouteRequest&) override {
    return GetRouteReply();
  }
  absl::Status FailJob(const FailJobRequest&) override { return absl::OkStatus(); }
  absl::StatusOr<SubmitJobReply> SubmitJob(const SubmitJobRequest&) override {
    return SubmitJobReply();
  }
  absl::StatusOr<WatchJobReply> WatchJob(const WatchJobRequest&) override {
    return WatchJobReply();
  }
  absl::Status CancelJob(const CancelJobRequest&) override { return absl::OkStatus(); }
  absl::StatusOr<ClusterStatus> GetStatus() override { return ClusterStatus(); }
  absl::Status Shutdown() override { return absl::OkStatus(); }

  std::deque<DataTask> tasks;
  std::map<uint64_t, uint64_t> finished;
  int failures = 0;      // requests that do not arrive
  int lost_replies = 0;  // requests that take effect, but are not answered
  int waits = 0;         // answers that ask for patience

 private:
  const std::string address_ = "fake:1";
  uint64_t answered_ = 0;  // number of the last request
  NextTaskReply answer_;
};

}  // namespace sluice
