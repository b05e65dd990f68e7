#include "scheduler/job/job_results.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/config/mode.h"
#include "common/config/own_data.h"
#include "common/daemon/hot_row_use.h"
#include "model/features/data_summary.h"

namespace sluice {
namespace {

// More than ln 2 with room for small data: nobody wants such a model.
constexpr double kUselessLoss = 1;
// ln 2: the log loss of answering 0.5 to every example.
constexpr double kLossOfGuessing = 0.693;

StageSeconds Mean(const std::vector<StageSeconds>& stages) {
  StageSeconds mean;
  const double n = static_cast<double>(stages.size());
  for (const StageSeconds& one : stages) {
    mean.set_read(mean.read() + one.read() / n);
    mean.set_dedup(mean.dedup() + one.dedup() / n);
    mean.set_pull_wait(mean.pull_wait() + one.pull_wait() / n);
    mean.set_compute(mean.compute() + one.compute() / n);
    mean.set_push_wait(mean.push_wait() + one.push_wait() / n);
  }
  return mean;
}

}  // namespace

JobResults::JobResults(const JobConfig& config, uint32_t worker_num)
    : config_(config),
      max_bad_lines_(config.data().max_bad_lines()),
      losses_(worker_num),
      stages_(worker_num) {
  result_.set_mode(ModeName(ModeOf(config.strategy())));
  result_.set_k_steps(config.strategy().a_sync_configs().k_steps());
}

void JobResults::Resume(const JobResult& so_far, const std::string& folder) {
  SetResult(so_far);
  result_.set_resumed_from(folder);
  AdaptJudgements(config_, &result_);
  all_bad_.count = so_far.bad_lines();
  // The bad lines of the evaluation files are in the sums already.
  eval_counted_ = so_far.has_eval();
}

void JobResults::Warn(const std::string& warning) {
  const auto& known = result_.warnings();
  if (std::find(known.begin(), known.end(), warning) == known.end()) result_.add_warnings(warning);
}

void JobResults::SetResult(const JobResult& result) {
  result_ = result;
  epochs_.Clear();
  epochs_.Swap(result_.mutable_epochs_log());
}

JobResult JobResults::WithEpochs(JobResult result, uint32_t last) const {
  result.clear_epochs_log();
  for (const EpochResult& epoch : epochs_) {
    if (epoch.epoch() <= last) *result.add_epochs_log() = epoch;
  }
  return result;
}

ResultState JobResults::Save() const {
  ResultState state;
  *state.mutable_result() = result_;
  state.mutable_stages()->Assign(stages_.begin(), stages_.end());
  state.set_bad_lines(all_bad_.count);
  state.mutable_first_bad_lines()->Assign(all_bad_.first.begin(), all_bad_.first.end());
  state.set_eval_counted(eval_counted_);
  *state.mutable_eval_data() = eval_data_;
  state.set_summary_lacks(summary_lacks_);
  return state;
}

void JobResults::Restore(const ResultState& state) {
  SetResult(state.result());
  // A record may name another number of ranks than the run has.
  for (int rank = 0; rank < std::min(state.stages_size(), static_cast<int>(stages_.size())); ++rank)
    stages_[rank] = state.stages(rank);
  all_bad_.count = state.bad_lines();
  all_bad_.first.assign(state.first_bad_lines().begin(), state.first_bad_lines().end());
  eval_counted_ = state.eval_counted();
  eval_data_ = state.eval_data();
  summary_lacks_ = state.summary_lacks();
}

void JobResults::BeginTrain(absl::Time now, absl::Duration before) {
  train_began_ = now - before;
  examples_ = steps_ = 0;
  bad_ = BadLines();
  losses_.assign(losses_.size(), LossSums());
}

absl::Status JobResults::AddTrain(uint32_t rank, const TrainReport& report) {
  // First: a report that is refused must not leave half of its figures.
  SLUICE_RETURN_IF_ERROR(CheckSummary(config_, report.summary()));
  if (report.has_summary()) AddSummary(report.summary(), result_.mutable_data());
  examples_ += report.examples();
  steps_ += report.steps();
  bad_.Merge(BadLinesOf(report));
  losses_[rank].loss += report.loss_sum();
  losses_[rank].weight += report.weight_sum();
  stages_[rank] = report.stages();
  *result_.mutable_stages() = Mean(stages_);
  if (report.has_hot_rows()) Add(report.hot_rows(), result_.mutable_hot_rows());
  result_.set_examples_dropped(result_.examples_dropped() + report.dropped());
  return absl::OkStatus();
}

const EpochResult& JobResults::EndTrain(uint32_t epoch, uint64_t global_steps, absl::Time now) {
  const bool sync = result_.mode() == ModeName(Mode::kSync);
  // Every pass meets the same bad lines, so only the first pass counts them.
  if (epoch == 0) AddBadLines(bad_);
  if (epochs_.empty() && !summary_lacks_) {
    for (const std::string& warning : WarningsOfTraining(config_, result_.data())) Warn(warning);
    // With evaluation files the label is judged after their first pass, by both counts.
    if (!HasEvaluationData(config_)) WarnOfLabel();
  }
  EpochResult* log = epochs_.Add();
  log->set_epoch(epoch + 1);
  log->set_examples(examples_);
  log->set_seconds(absl::ToDoubleSeconds(now - train_began_));
  LossSums sums;
  for (const LossSums& rank : losses_) {
    sums.loss += rank.loss;
    sums.weight += rank.weight;
  }
  trained_weight_ = sums.weight;
  log->set_loss(sums.weight > 0 ? sums.loss / sums.weight : 0);
  result_.set_epochs(epoch + 1);
  result_.set_global_step(result_.global_step() + (sync ? global_steps : steps_));
  result_.set_examples(result_.examples() + examples_);
  result_.set_seconds(result_.seconds() + log->seconds());
  // A clock that stood still would give infinity, which JSON does not have.
  if (result_.seconds() > 0) {
    result_.set_examples_per_second(static_cast<double>(result_.examples()) / result_.seconds());
  }
  return *log;
}

void JobResults::SummaryLacks(uint32_t rank) {
  summary_lacks_ = true;
  Warn(absl::StrCat("rank ", rank,
                    " was replaced in the first epoch, so the data counts and malformed ",
                    "lines do not include what the lost worker read"));
}

void JobResults::BeginEval() {
  eval_ = std::make_unique<EvalAccumulator>();
  user_sums_.assign(losses_.size(), {});
  eval_bad_ = BadLines();
}

absl::Status JobResults::AddEval(uint32_t rank, const EvalSums& sums, const DataSummary& data) {
  SLUICE_RETURN_IF_ERROR(CheckSummary(config_, data));
  SLUICE_RETURN_IF_ERROR(eval_->Merge(sums));
  user_sums_[rank] = sums.user();
  eval_bad_.Merge(BadLinesOf(sums));
  if (!eval_counted_) AddSummary(data, &eval_data_);
  return absl::OkStatus();
}

void JobResults::WarnOfLabel() {
  if (summary_lacks_) return;  // half of the counts would mislead
  for (const std::string& warning : WarningsOfLabel(config_, result_.data(), eval_data_))
    Warn(warning);
}

void JobResults::EndUserMetrics() {
  // A name has the place of its first use. The lists are short.
  google::protobuf::RepeatedPtrField<NamedSum> sums;
  for (const auto& of_rank : user_sums_) {
    for (const NamedSum& one : of_rank) {
      auto sum = std::find_if(sums.begin(), sums.end(),
                              [&](const NamedSum& known) { return known.name() == one.name(); });
      if (sum == sums.end()) {
        *sums.Add() = one;
      } else {
        sum->set_sum(sum->sum() + one.sum());
        sum->set_weight(sum->weight() + one.weight());
      }
    }
  }
  user_sums_.clear();
  for (const NamedSum& sum : sums) {
    NamedValue* const metric = result_.mutable_eval()->add_user();
    metric->set_name(sum.name());
    metric->set_value(sum.weight() == 0 ? std::numeric_limits<double>::quiet_NaN()
                                        : sum.sum() / sum.weight());
    if (!std::isfinite(sum.sum()) || !std::isfinite(sum.weight())) {
      Warn(absl::StrCat("evaluation: the metric '", sum.name(), "' of the program is ",
                        std::isnan(sum.sum()) || std::isnan(sum.weight()) ? "NaN" : "infinite",
                        " for some examples, so it is not defined"));
    }
  }
}

const EvalMetrics& JobResults::EndEval(uint32_t epoch) {
  *result_.mutable_eval() = eval_->Metrics();
  const std::vector<CalibrationBin> bins = eval_->Calibration();
  result_.mutable_calibration_bins()->Assign(bins.begin(), bins.end());
  EndUserMetrics();
  // Its bins are large, and the metrics are all that stays.
  eval_.reset();
  // As in training, only the first pass over the files counts.
  if (!eval_counted_) {
    AddBadLines(eval_bad_);
    if (!result_.eval().auc_undefined().empty())
      Warn(absl::StrCat("evaluation: ", result_.eval().auc_undefined(), ", so there is no AUC"));
    // A job that only evaluates has no training data to judge the label by.
    if (!evaluate_only()) WarnOfLabel();
  }
  eval_counted_ = true;
  if (!evaluate_only() && !epochs_.empty())
    *epochs_.Mutable(epochs_.size() - 1)->mutable_eval() = result_.eval();
  return result_.eval();
}

bool JobResults::Judge(uint32_t epoch, uint64_t step) {
  const bool stops = config_.train().has_early_stop();
  const bool keeps = config_.checkpoint().save() == CheckpointConfig::BEST;
  if (!IsJudged(config_, result_.eval()) && (stops || keeps)) {
    const bool auc = config_.train().early_stop().metric() == EarlyStop::AUC;
    Warn(absl::StrCat("evaluation: the ", auc ? "AUC" : "log loss", " is not defined (",
                      result_.eval().auc_undefined(), "), so ", stops ? "train.early_stop" : "",
                      stops && keeps ? " and " : "", keeps ? "checkpoint.save: BEST" : "",
                      stops && keeps ? " pass" : " passes", " over such an evaluation"));
  }
  return JudgeEpoch(config_, result_.eval(), epoch, step, &result_);
}

void JobResults::AddBadLines(const BadLines& bad) {
  all_bad_.Merge(bad);
  result_.set_bad_lines(all_bad_.count);
}

absl::Status JobResults::CheckBadLines() const {
  // Checked at the end of a pass and not at each report, so that the message names lines of all
  // ranks.
  if (all_bad_.count <= max_bad_lines_) return absl::OkStatus();
  return TooManyBadLines("the data", max_bad_lines_, all_bad_, all_bad_.count > result_.examples());
}

std::vector<std::string> WarningsOfOutcome(const JobConfig& config, const JobResult& result) {
  std::vector<std::string> warnings;
  const DataSummary& data = result.data();
  // A summary that lacks something says so in a warning of its own.
  if (data.examples() > 0 && (data.positive() == 0 || data.positive() == data.examples())) {
    const int other = data.positive() == 0 ? 1 : 0;
    warnings.push_back(absl::StrCat("the model is of no use: no training example had label ", other,
                                    ", so it has learned to answer ", 1 - other,
                                    "; check data.label"));
  }
  const bool evaluated = result.has_eval() && result.eval().examples() > 0;
  // A program's training loss is its own, such as a squared error; its evaluations are like all.
  const bool trained = !result.epochs_log().empty() && !config.model().has_program();
  if (!evaluated && !trained) return warnings;
  const double loss =
      evaluated ? result.eval().log_loss() : result.epochs_log(result.epochs_log_size() - 1).loss();
  const char* const what = evaluated ? "log loss of the evaluation" : "loss of the last epoch";
  const std::string fix =
      config.evaluate_only()
          ? "compare the data with that of initial_model"
          : "scale large numbers (numeric { log: true }, or normalize), lower the learning rate, "
            "or look for wrong cells";
  if (!std::isfinite(loss)) {
    const std::string& why = evaluated ? result.eval().auc_undefined() : "";
    warnings.push_back(absl::StrCat("the ", what, " is not defined",
                                    why.empty() ? "" : absl::StrCat(": ", why), "; ", fix));
  } else if (loss > kUselessLoss && result.best().eval().examples() > 0 &&
             result.best().eval().log_loss() < kLossOfGuessing) {
    // An earlier epoch was good, so neither the data nor the learning rate is to blame.
    if (config.checkpoint().save() == CheckpointConfig::BEST) return warnings;
    warnings.push_back(absl::StrFormat(
        "the model has learned its training data by heart: the log loss of the evaluation is %.6g, "
        "and was %.6g after epoch %u; train fewer epochs, or set train.early_stop and "
        "checkpoint.save: BEST",
        loss, result.best().eval().log_loss(), result.best().epoch()));
  } else if (loss > kUselessLoss) {
    warnings.push_back(
        absl::StrFormat("the model is of no use: the %s is %.6g, and answering 0.5 to every "
                        "example gives 0.693; %s",
                        what, loss, fix));
  }
  return warnings;
}

void JobResults::SavedBest(const std::string& save_id, const SaveReport& report) {
  result_.mutable_best()->set_save_id(save_id);
  result_.mutable_best()->set_model_digest(report.model_digest());
}

void JobResults::TakeBestModel(const std::string& folder) {
  if (result_.best().save_id().empty()) return;
  result_.set_model_dir(folder);
  result_.set_model_digest(result_.best().model_digest());
}

void JobResults::Saved(const SaveReport& report) {
  result_.set_model_dir(report.model_dir());
  result_.set_model_digest(report.model_digest());
}

}  // namespace sluice
