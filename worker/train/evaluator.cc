#include "worker/train/evaluator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/data_format.h"
#include "model/data/read_examples.h"
#include "model/data/row_groups.h"
#include "worker/data/own_data.h"
#include "worker/step/net_step.h"

namespace sluice {
namespace {
constexpr uint64_t kEvalPieceBytes = 4 << 20;  // data held at a time
}

absl::Status Evaluator::ListPieces() {
  if (!pieces_.empty()) return absl::OkStatus();
  std::vector<DataPiece> pieces;
  const bool rows = FormatOf(context_.config().data()).rows;
  for (const std::string& file : context_.files->eval()) {
    SLUICE_ASSIGN_OR_RETURN(const uint64_t size, context_.data->TextBytes(file));
    // Shares of bytes need no knowledge of lines: a line belongs to the share in which it starts.
    const uint64_t begin = size * context_.rank / context_.worker_num();
    const uint64_t end = size * (context_.rank + 1) / context_.worker_num();
    uint64_t step = kEvalPieceBytes;
    if (rows) {
      SLUICE_ASSIGN_OR_RETURN(const std::vector<RowGroup> groups, context_.data->RowGroups(file));
      step = RowsOfBytes(SumOf(groups), kEvalPieceBytes);
    }
    for (uint64_t at = begin; at < end; at += std::min(step, end - at))
      pieces.push_back({file, at, at + std::min(step, end - at)});
  }
  pieces_ = std::move(pieces);
  return absl::OkStatus();
}

absl::Status Evaluator::PullRows(const std::shared_ptr<PreparedBatch>& prepared) {
  if (context_.sparse_tables() == 0) return absl::OkStatus();
  keys_.Find(context_, prepared.get());
  NetStep::SizeRows(context_, *prepared, &values_);
  PullRequest pull;
  // Pulls of an evaluation do not count for the staleness of training.
  pull.evaluation = true;
  for (size_t i = 0; i < context_.sparse_tables(); ++i) {
    pull.sparse.push_back({context_.sparse(i).id(), KeysOf(prepared, i), values_.rows[i].data()});
  }
  return context_.client->WaitPull(context_.client->StartPull(std::move(pull)));
}

absl::Status Evaluator::BetweenBatches() const {
  if (*context_.cancelled) return absl::CancelledError("the job was cancelled");
  // Another rank may need the dense tables of this one. All are after the same step.
  RankMeetings* const meetings = context_.meetings;
  return meetings != nullptr && meetings->asked() ? meetings->Attend() : absl::OkStatus();
}

absl::Status Evaluator::ScoreBatch(const std::shared_ptr<PreparedBatch>& prepared,
                                   EvalAccumulator* sums) {
  const Batch& batch = prepared->batch;
  SLUICE_RETURN_IF_ERROR(PullRows(prepared));
  NetInput input;
  input.batch = &batch;
  input.row_index = prepared->row_index.data();
  for (size_t i = 0; i < context_.sparse_tables(); ++i)
    input.rows.push_back({values_.rows[i].data(), prepared->keys[i].keys.size()});
  input.dense = context_.dense->ValuesOf(dense_);
  logits_.resize(std::max(logits_.size(), batch.n));
  SLUICE_RETURN_IF_ERROR(context_.net->Forward(input, logits_.data()));
  for (size_t i = 0; i < batch.n; ++i) sums->Add(logits_[i], batch.label[i], batch.weight[i]);
  return absl::OkStatus();
}

absl::Status Evaluator::ScorePiece(const ExampleView& examples, EvalAccumulator* sums) {
  const size_t batch_size = context_.config().eval().batch_size();
  for (size_t begin = 0; begin < examples.n; begin += batch_size) {
    SLUICE_RETURN_IF_ERROR(BetweenBatches());
    std::shared_ptr<PreparedBatch> prepared = batches_.Take();
    Batch* batch = &prepared->batch;
    batch->Reset(examples.num_numeric, examples.num_slots);
    const size_t end = std::min(begin + batch_size, examples.n);
    for (size_t i = begin; i < end; ++i) SLUICE_RETURN_IF_ERROR(batch->Append(examples, i, i));
    SLUICE_RETURN_IF_ERROR(ScoreBatch(prepared, sums));
  }
  return absl::OkStatus();
}

absl::StatusOr<EvalSums> Evaluator::ScoreOwn() {
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<BatchSource> source,
                          context_.own_data->Evaluate(context_));
  EvalAccumulator sums;
  for (;;) {
    SLUICE_RETURN_IF_ERROR(BetweenBatches());
    SLUICE_ASSIGN_OR_RETURN(const BatchSource::Fill fill, source->Next());
    if (!fill) return sums.ToProto();
    const std::shared_ptr<PreparedBatch> prepared = batches_.Take();
    SLUICE_RETURN_IF_ERROR(fill(prepared.get()));
    if (prepared->batch.n > 0) SLUICE_RETURN_IF_ERROR(ScoreBatch(prepared, &sums));
  }
}

absl::StatusOr<EvalSums> Evaluator::Run(DataSummary* summary) {
  PullRequest pull;
  pull.evaluation = true;
  const std::vector<int>& tables = context_.model->dense_tables();
  dense_.dense.resize(tables.size());
  for (size_t i = 0; i < tables.size(); ++i) {
    const TableLayout& table = *context_.client->tables()[tables[i]];
    if (!IsFrozenTable(table.config())) dense_.dense[i].resize(table.elements());
  }
  context_.dense->AddToPull(&dense_, &pull);
  SLUICE_RETURN_IF_ERROR(context_.client->WaitPull(context_.client->StartPull(std::move(pull))));
  (void)context_.net->TakeSums();  // those of an evaluation that was interrupted
  SLUICE_ASSIGN_OR_RETURN(EvalSums sums,
                          context_.own_data != nullptr ? ScoreOwn() : ScoreFiles(summary));
  for (MetricSum& metric : context_.net->TakeSums()) {
    NamedSum* const user = sums.add_user();
    user->set_name(std::move(metric.name));
    user->set_sum(metric.sum);
    user->set_weight(metric.weight);
  }
  return sums;
}

absl::StatusOr<EvalSums> Evaluator::ScoreFiles(DataSummary* summary) {
  // Also the files of which this rank reads nothing: all evaluations must use the same data.
  SLUICE_RETURN_IF_ERROR(context_.files->CheckAllUnchanged(context_.files->eval()));
  SLUICE_RETURN_IF_ERROR(ListPieces());
  const FeatureSchema& schema = *context_.model->schema();
  EvalAccumulator sums;
  BadLines bad;
  Batch parsed;
  uint64_t read = 0;
  for (const DataPiece& piece : pieces_) {
    SLUICE_ASSIGN_OR_RETURN(const Examples examples,
                            ReadExamples(*context_.data, schema, context_.cache.get(), piece,
                                         &parsed, &bad, summarized_ ? nullptr : summary));
    read += examples.view.n;
    SLUICE_RETURN_IF_ERROR(ScorePiece(examples.view, &sums));
  }
  // The evaluation data is the same in each epoch, so its summary is made once.
  summarized_ = true;
  // The limit is for training and evaluation apart: each counts from 0.
  const uint64_t limit = context_.config().data().max_bad_lines();
  if (bad.count > limit)
    return TooManyBadLines("the evaluation data", limit, bad, bad.count > read);
  EvalSums proto = sums.ToProto();
  proto.set_bad_lines(bad.count);
  *proto.mutable_first_bad_lines() = {bad.first.begin(), bad.first.end()};
  return proto;
}

}  // namespace sluice
