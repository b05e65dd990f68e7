#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/config/job_validation.h"
#include "common/config/mode.h"
#include "common/config/own_data.h"

namespace sluice {
namespace {

constexpr uint32_t kMaxBatch = 1 << 20;  // examples, of a step too
constexpr uint32_t kMaxMerge = 1024;     // batches
constexpr uint32_t kMaxPrefetch = 1024;  // batches
constexpr uint32_t kMaxReaders = 64;     // threads
// Steps in flight. Bounds memory: a pserver parks this many pulls of a worker, and the worker's
// client keeps several times as many frames.
constexpr uint32_t kMaxPipeline = 64;
constexpr uint64_t kMaxHotRows = 1'000'000'000;

class TrainValidator {
 public:
  explicit TrainValidator(const JobConfig& job) : job_(job), mode_(ModeOf(job.strategy())) {}

  void HotRowIndex(const ModelParts& parts) {
    const std::string path = "strategy.a_sync_configs.hot_row_cache";
    const ASyncConfigs& a = job_.strategy().a_sync_configs();
    const HotRowCacheConfig& cache = a.hot_row_cache();
    // In the other modes the remaining checks would compare options that do not count.
    if (mode_ == Mode::kSync) {
      Add(path,
          "contradicts mode sync, where every step uses the values of the step before; it is for "
          "async (a_sync=true, k_steps=0): remove it");
      return;
    }
    if (mode_ == Mode::kGeo) {
      Add(path,
          "contradicts mode geo, which always keeps rows (geo_cache_rows says how many); it is for "
          "async (k_steps=0): remove it");
      return;
    }
    if (!parts.sparse()) {
      Add(path, !parts.no_sparse.empty() ? parts.no_sparse
                                         : "has no effect: the model has no sparse table, since no "
                                           "categorical, bucketed or crossed feature is used; "
                                           "remove it");
    }
    Range(path + ".rows", cache.rows(), 1, kMaxHotRows);
    if (a.has_max_staleness()) {
      Add(path,
          absl::StrCat("contradicts max_staleness ", a.max_staleness(),
                       ", which pservers can only enforce when rows are pulled, not when kept "
                       "rows are used again; remove one of them"));
    }
    // Steps in flight pull before the updates of earlier steps have arrived. So a row is that old
    // when it is used next.
    const uint32_t depth = std::max(job_.train().pipeline_depth(), 1u);
    if (cache.max_staleness_steps() < depth) {
      Add(path + ".max_staleness_steps",
          absl::StrCat(cache.max_staleness_steps(), " lets no row be used twice: with ",
                       "train.pipeline_depth ", depth, " the next step finds it ", depth,
                       depth == 1 ? " step" : " steps", " old; give at least ", depth));
    }
  }

  void Train() {
    const TrainConfig& t = job_.train();
    Range("train.batch_size", t.batch_size(), 1, kMaxBatch);
    if (job_.eval().has_batch_size())
      Range("eval.batch_size", job_.eval().batch_size(), 1, kMaxBatch);
    if (t.epochs() == 0 && !job_.evaluate_only()) {
      Add("train.epochs",
          "0 trains nothing; give 1 or more, or set evaluate_only with initial_model");
    }
    if (t.epochs() > kMaxEpochs) Range("train.epochs", t.epochs(), 1, kMaxEpochs);
    if (t.has_threads()) Range("train.threads", t.threads(), 1, 4096);
    Range("train.log_every", t.log_every(), 1, UINT32_MAX);
    Range("train.prefetch_batches", t.prefetch_batches(), 1, kMaxPrefetch);
    Range("train.reader_threads", t.reader_threads(), 1, kMaxReaders);
    Range("train.step_timeout_s", t.step_timeout_s(), 1, 86400);
    Range("train.pipeline_depth", t.pipeline_depth(), 1, kMaxPipeline);
    if (t.pipeline_depth() > 1 && mode_ != Mode::kAsync) {
      Add("train.pipeline_depth",
          absl::StrCat(t.pipeline_depth(), " contradicts mode ", ModeName(mode_),
                       "; only async has several steps in flight: give 1"));
    }
    const double fraction = t.device_memory_fraction();
    if (t.has_device_memory_fraction() && !(fraction > 0 && fraction <= 1)) {
      Add("train.device_memory_fraction",
          absl::StrCat(fraction,
                       " is not a share of a device's memory; give more than 0 and at most 1"));
    }
    const ASyncConfigs& a = job_.strategy().a_sync_configs();
    if (mode_ == Mode::kAsync && a.has_max_staleness() &&
        t.pipeline_depth() > uint64_t{a.max_staleness()} + 1) {
      Add("train.pipeline_depth",
          absl::StrCat(t.pipeline_depth(), " contradicts max_staleness ", a.max_staleness(),
                       ", since a worker would wait for itself; give at most ",
                       uint64_t{a.max_staleness()} + 1));
    }
  }

  void EarlyStopping() {
    if (!job_.train().has_early_stop()) return;
    const EarlyStop& rule = job_.train().early_stop();
    const std::string path = "train.early_stop";
    if (job_.evaluate_only()) {
      Add(path, "has no effect with evaluate_only, which trains nothing to be stopped; remove it");
    } else if (!HasEvaluationData(job_)) {
      Add(path, "needs evaluations to judge; set data.eval_files");
    } else if (job_.eval().has_every_epochs() && job_.eval().every_epochs() == 0) {
      Add(path,
          "contradicts eval.every_epochs 0, with which only the last epoch is evaluated; give 1 or "
          "more");
    }
    if (!EarlyStop::Metric_IsValid(rule.metric()))
      Add(path + ".metric", absl::StrCat(rule.metric(), " is unknown; give LOG_LOSS or AUC"));
    Range(path + ".patience", rule.patience(), 1, kMaxEpochs);
    if (!(rule.min_delta() >= 0 && std::isfinite(rule.min_delta()))) {
      Add(path + ".min_delta",
          absl::StrCat(rule.min_delta(), " is not the size of a change; give 0 or more"));
    }
  }

  void GradientMerge() {
    const SyncConfigs& sync = job_.strategy().sync_configs();
    if (!sync.has_gradient_merge_steps()) return;
    const uint32_t steps = sync.gradient_merge_steps();
    const std::string path = "strategy.sync_configs.gradient_merge_steps";
    if (mode_ != Mode::kSync) {
      Add(path,
          absl::StrCat(steps, " contradicts mode ", ModeName(mode_), ", in which ",
                       mode_ == Mode::kGeo
                           ? "every batch updates local values (k_steps says how many, until "
                             "workers exchange them)"
                           : "every batch is a push of its own (gradients_to_wait says how many "
                             "make one update)",
                       "; it is for sync (a_sync=false): remove it"));
      return;
    }
    if (steps == 0 || steps > kMaxMerge) return Range(path, steps, 1, kMaxMerge);
    const uint64_t examples = StepExamples(job_);
    // A batch that is too large by itself is refused already.
    if (examples > kMaxBatch && job_.train().batch_size() <= kMaxBatch) {
      Add(path, absl::StrCat(steps, " batches of train.batch_size ", job_.train().batch_size(),
                             " make a step of ", examples, " examples; a step has at most ",
                             kMaxBatch, ": lower one of them"));
    }
  }

  std::vector<ConfigProblem> Take() { return std::move(problems_); }

 private:
  void Add(const std::string& path, const std::string& text) { problems_.push_back({path, text}); }
  void Range(const std::string& path, uint64_t value, uint64_t low, uint64_t high) {
    AddIfOutOfRange(path, value, low, high, &problems_);
  }

  const JobConfig& job_;
  const Mode mode_;
  std::vector<ConfigProblem> problems_;
};

}  // namespace

std::vector<ConfigProblem> FindHotRowCacheProblems(const JobConfig& job, const ModelParts& parts) {
  TrainValidator check(job);
  check.HotRowIndex(parts);
  return check.Take();
}

std::vector<ConfigProblem> FindTrainProblems(const JobConfig& job) {
  TrainValidator check(job);
  check.Train();
  check.EarlyStopping();
  check.GradientMerge();
  return check.Take();
}

}  // namespace sluice
