#include "scheduler/job/job_phases.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/config/own_data.h"

namespace sluice {
namespace {

uint32_t EpochsOf(const JobConfig& config) {
  return config.train().has_epochs() ? config.train().epochs() : 1;
}

}  // namespace

bool IsEvaluatedAfter(const JobConfig& config, uint32_t epoch) {
  if (!HasEvaluationData(config)) return false;
  if (epoch + 1 == EpochsOf(config)) return true;
  const uint32_t every = config.eval().has_every_epochs() ? config.eval().every_epochs() : 1;
  return every > 0 && (epoch + 1) % every == 0;
}

std::vector<Phase> ListPhases(const JobConfig& config, uint32_t first_epoch) {
  std::vector<Phase> phases;
  const auto add = [&phases](Phase::Kind kind, uint32_t epoch) {
    Phase phase;
    phase.set_number(phases.size() + 1);
    phase.set_kind(kind);
    phase.set_epoch(epoch);
    phases.push_back(std::move(phase));
  };
  if (config.evaluate_only()) {
    add(Phase::INDEX, 0);
    add(Phase::EVAL, 0);
    add(Phase::FINISH, 0);
    return phases;
  }
  const uint32_t epochs = EpochsOf(config);
  const uint32_t last = epochs > 0 ? epochs - 1 : 0;
  const CheckpointConfig& checkpoint = config.checkpoint();
  const bool best = checkpoint.save() == CheckpointConfig::BEST;
  add(Phase::INDEX, 0);
  for (uint32_t epoch = first_epoch; epoch < epochs; ++epoch) {
    add(Phase::TRAIN, epoch);
    if (!IsEvaluatedAfter(config, epoch)) continue;
    add(Phase::EVAL, epoch);
    // Listed for every evaluation, so that the numbers do not depend on which one is the best.
    if (best) add(Phase::SAVE, epoch);
  }
  if (!best && (!checkpoint.has_save_final_model() || checkpoint.save_final_model()))
    add(Phase::SAVE, last);
  add(Phase::FINISH, last);
  return phases;
}

JobPhases::JobPhases(std::vector<Phase> phases, uint32_t worker_num)
    : phases_(std::move(phases)), ended_(worker_num, false) {}

absl::StatusOr<bool> JobPhases::IsNews(uint32_t rank, uint64_t number) const {
  if (number > current().number()) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " reports the end of phase ",
                                                   number, ", but phase ", current().number(),
                                                   " is the last that was issued"));
  }
  // Nobody has to report the end of FINISH, so nothing about it is news.
  return number == current().number() && !ended_[rank] && !over();
}

bool JobPhases::AllEnded() const {
  return std::all_of(ended_.begin(), ended_.end(), [](bool ended) { return ended; });
}

bool JobPhases::TrainsMore() const {
  return std::any_of(phases_.begin() + current_, phases_.end(),
                     [](const Phase& phase) { return phase.kind() == Phase::TRAIN; });
}

std::vector<uint32_t> JobPhases::Missing() const {
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < ended_.size(); ++rank) {
    if (!ended_[rank]) ranks.push_back(rank);
  }
  return ranks;
}

void JobPhases::Advance() {
  ++current_;
  std::fill(ended_.begin(), ended_.end(), false);
}

void JobPhases::SkipTraining(bool save) {
  const size_t finish = phases_.size() - 1;
  const bool saves = save && phases_[finish - 1].kind() == Phase::SAVE;
  current_ = saves ? finish - 1 : finish;
}

void JobPhases::SkipToLastEvaluation() {
  current_ = phases_.size() - 1;
  while (current().kind() != Phase::EVAL) --current_;
}

absl::Status JobPhases::GoTo(uint64_t number) {
  if (number == 0 || number > phases_.size()) {
    return absl::DataLossError(
        absl::StrCat("the job has ", phases_.size(), " phases, but no phase ", number));
  }
  current_ = number - 1;
  std::fill(ended_.begin(), ended_.end(), false);
  return absl::OkStatus();
}

const char* PhaseName(Phase::Kind kind) {
  switch (kind) {
    case Phase::INDEX:
      return "index";
    case Phase::TRAIN:
      return "train";
    case Phase::EVAL:
      return "eval";
    case Phase::SAVE:
      return "save";
    case Phase::FINISH:
      return "finish";
    default:
      return "none";
  }
}

}  // namespace sluice
