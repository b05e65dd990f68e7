#include "scheduler/job/epoch_judge.h"

#include <cmath>

namespace sluice {
namespace {

double ValueOf(EarlyStop::Metric metric, const EvalMetrics& eval) {
  if (metric == EarlyStop::LOG_LOSS) return eval.log_loss();
  return eval.has_auc() ? eval.auc() : std::nan("");
}

// Returns by how much `value` is better than `other`; NaN when one of them is not defined.
double Gain(EarlyStop::Metric metric, double value, double other) {
  return metric == EarlyStop::LOG_LOSS ? other - value : value - other;
}

void CountImprovement(const JobConfig& config, double value, JobResult* result) {
  const EarlyStop& rule = config.train().early_stop();
  EarlyStopHistory* const history = result->mutable_early_stop();
  history->set_metric(rule.metric());
  const double gain = Gain(rule.metric(), value, history->reference());
  const bool improved = !history->has_reference() || (gain > 0 && gain >= rule.min_delta());
  if (!improved) return history->set_without_improvement(history->without_improvement() + 1);
  history->set_reference(value);
  history->set_without_improvement(0);
}

}  // namespace

bool IsJudged(const JobConfig& config, const EvalMetrics& eval) {
  return std::isfinite(ValueOf(config.train().early_stop().metric(), eval));
}

bool JudgeEpoch(const JobConfig& config, const EvalMetrics& eval, uint32_t epoch, uint64_t step,
                JobResult* result) {
  if (!IsJudged(config, eval)) return false;
  const EarlyStop::Metric metric = config.train().early_stop().metric();
  const double value = ValueOf(metric, eval);
  if (config.train().has_early_stop()) {
    CountImprovement(config, value, result);
    // After the last epoch nothing is left to be stopped.
    result->set_stopped_early(epoch + 1 < config.train().epochs() && result->stopped_by().empty() &&
                              result->early_stop().without_improvement() >=
                                  config.train().early_stop().patience());
  }
  if (result->has_best()) {
    // Earlier versions took an undefined metric of the first evaluation for the best one.
    const double best = ValueOf(metric, result->best().eval());
    if (std::isfinite(best) && Gain(metric, value, best) <= 0) return false;
  }
  BestEpoch* const best = result->mutable_best();
  best->Clear();
  best->set_epoch(epoch + 1);
  best->set_step(step);
  *best->mutable_eval() = eval;
  return true;
}

bool MayStopNext(const JobConfig& config, const JobResult& result) {
  return config.train().has_early_stop() &&
         result.early_stop().without_improvement() + 1 >= config.train().early_stop().patience();
}

void AdaptJudgements(const JobConfig& config, JobResult* result) {
  result->clear_stopped_early();
  result->clear_stopped_by();
  if (config.checkpoint().save() == CheckpointConfig::BEST && result->best().save_id().empty())
    result->clear_best();
  if (!config.train().has_early_stop() ||
      result->early_stop().metric() != config.train().early_stop().metric())
    result->clear_early_stop();
}

}  // namespace sluice
