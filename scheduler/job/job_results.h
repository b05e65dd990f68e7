// The results of a job: sums of its ranks' reports, epoch by epoch, as result.json shows them.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "model/data/bad_lines.h"
#include "model/eval/eval_accumulator.h"
#include "proto/scheduler.pb.h"
#include "proto/state.pb.h"
#include "scheduler/job/epoch_judge.h"

namespace sluice {

// Returns the malformed lines of a rank's IndexReport, TrainReport or EvalSums.
template <typename Report>
BadLines BadLinesOf(const Report& report) {
  BadLines bad;
  bad.count = report.bad_lines();
  bad.first.assign(report.first_bad_lines().begin(), report.first_bad_lines().end());
  if (bad.first.size() > BadLines::kNamed) bad.first.resize(BadLines::kNamed);
  return bad;
}

class JobResults {
 public:
  // `config` outlives the results.
  JobResults(const JobConfig& config, uint32_t worker_num);
  // Continues from the result of a job that was interrupted, whose checkpoint is `folder`.
  void Resume(const JobResult& so_far, const std::string& folder);

  // Everything that is known when no phase has added anything yet, for Restore; without the epochs.
  ResultState Save() const;
  void Restore(const ResultState& state);

  // Adds examples that parts of the tables contain twice, because they were trained again.
  void AddReplayed(uint64_t examples) {
    result_.set_examples_replayed(result_.examples_replayed() + examples);
  }

  // `before`: time that an interrupted run has trained in this epoch.
  void BeginTrain(absl::Time now, absl::Duration before = absl::ZeroDuration());
  // INVALID_ARGUMENT when the data summary is impossible; then nothing was added.
  absl::Status AddTrain(uint32_t rank, const TrainReport& report);
  // Steps of the epoch that is open, of all ranks together, as far as they have reported its end.
  uint64_t steps() const { return steps_; }
  // The user's program has ended the training.
  void StopByProgram() { result_.set_stopped_by("program"); }
  bool stopped_by_program() const { return !result_.stopped_by().empty(); }
  // The sum of the weights of the examples of the epoch that was closed last.
  double trained_weight() const { return trained_weight_; }
  // Closes `epoch` (counted from 0; the log counts from 1). `global_steps`: of the epoch in sync;
  // ignored in other modes, where the workers' steps are summed.
  const EpochResult& EndTrain(uint32_t epoch, uint64_t global_steps, absl::Time now);

  // A worker of this rank was lost with the counts of the data that it had read. They are not in
  // the summary of the training data and the malformed lines.
  void SummaryLacks(uint32_t rank);
  // The same, without a warning.
  void SetSummaryLacks() { summary_lacks_ = true; }
  bool summary_lacks() const { return summary_lacks_; }

  void BeginEval();
  // `data`: the summary of the evaluation data; only the first evaluation's counts.
  // INVALID_ARGUMENT when the sums or the summary are impossible.
  absl::Status AddEval(uint32_t rank, const EvalSums& sums, const DataSummary& data);
  const EvalMetrics& EndEval(uint32_t epoch);

  void AddBadLines(const BadLines& bad);
  // FAILED_PRECONDITION when there are more bad lines than data.max_bad_lines.
  absl::Status CheckBadLines() const;
  // Judges the evaluation that has ended this epoch (epoch_judge.h). True: it is the best so far.
  bool Judge(uint32_t epoch, uint64_t step);
  void Saved(const SaveReport& report);
  // The model of the best epoch is saved.
  void SavedBest(const std::string& save_id, const SaveReport& report);
  // It becomes the model of the job, in `folder`.
  void TakeBestModel(const std::string& folder);
  // Frees the sums of an evaluation (16 MiB) that will not end.
  void DropSums() { eval_.reset(); }

  // Adds the warning, unless an interrupted run has added it.
  void Warn(const std::string& warning);

  // The bad lines of training and evaluation, each counted once.
  const BadLines& bad_lines() const { return all_bad_; }
  // The result without status, message and epochs_log. The log grows with the job, so it is copied
  // only when it is needed: WithEpochs.
  const JobResult& result() const { return result_; }
  // The log of the epochs.
  const google::protobuf::RepeatedPtrField<EpochResult>& epochs() const { return epochs_; }
  // `result`, of this job, with the log up to epoch `last` (from 1).
  JobResult WithEpochs(JobResult result, uint32_t last = UINT32_MAX) const;

 private:
  // Adds the program's own metrics to the result of the evaluation.
  void EndUserMetrics();
  // `result` has its epochs_log.
  void SetResult(const JobResult& result);
  bool evaluate_only() const { return config_.evaluate_only(); }
  // To be called once all data that data.label applies to has been read.
  void WarnOfLabel();

  const JobConfig& config_;
  const uint64_t max_bad_lines_;
  JobResult result_;  // without epochs_log
  google::protobuf::RepeatedPtrField<EpochResult> epochs_;
  absl::Time train_began_;
  struct LossSums {
    double loss = 0, weight = 0;
  };
  // Sums of the epoch being trained.
  uint64_t examples_ = 0, steps_ = 0;
  double trained_weight_ = 0;
  BadLines bad_;
  // By rank. EndTrain adds them in the order of the ranks: the order of their reports, in which
  // f64 sums would differ in their last bits, changes from run to run.
  std::vector<LossSums> losses_;
  std::vector<StageSeconds> stages_;  // by rank, over all epochs
  std::unique_ptr<EvalAccumulator> eval_;
  // By rank, as losses_: the sums of the program's own metrics.
  std::vector<google::protobuf::RepeatedPtrField<NamedSum>> user_sums_;
  BadLines eval_bad_;
  bool eval_counted_ = false;
  bool summary_lacks_ = false;  // see SummaryLacks
  DataSummary eval_data_;       // of the first evaluation
  BadLines all_bad_;
};

// Warnings about a job that is done although its model is of no use: it has seen one class only, or
// its loss is far above that of a guess.
std::vector<std::string> WarningsOfOutcome(const JobConfig& config, const JobResult& result);

}  // namespace sluice
