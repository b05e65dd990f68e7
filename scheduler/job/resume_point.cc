#include "scheduler/job/resume_point.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_split.h"
#include "common/config/mode.h"
#include "common/daemon/hot_row_use.h"
#include "common/saved_model/checkpoint.h"
#include "model/features/data_summary.h"

namespace sluice {
namespace {

void AddStages(const StageSeconds& from, StageSeconds* to) {
  to->set_read(to->read() + from.read());
  to->set_dedup(to->dedup() + from.dedup());
  to->set_pull_wait(to->pull_wait() + from.pull_wait());
  to->set_compute(to->compute() + from.compute());
  to->set_push_wait(to->push_wait() + from.push_wait());
}

void AddReport(const TrainReport& from, bool sync, TrainReport* to) {
  to->set_examples(to->examples() + from.examples());
  to->set_dropped(to->dropped() + from.dropped());
  to->set_bad_lines(to->bad_lines() + from.bad_lines());
  to->set_loss_sum(to->loss_sum() + from.loss_sum());
  to->set_weight_sum(to->weight_sum() + from.weight_sum());
  // In sync all ranks do every step.
  to->set_steps(sync ? std::max(to->steps(), from.steps()) : to->steps() + from.steps());
  AddStages(from.stages(), to->mutable_stages());
  to->mutable_first_bad_lines()->MergeFrom(from.first_bad_lines());
  if (from.has_hot_rows()) Add(from.hot_rows(), to->mutable_hot_rows());
  if (from.has_summary()) AddSummary(from.summary(), to->mutable_summary());
}

}  // namespace

uint64_t MeanSteps(const CheckpointState& state) {
  uint64_t steps = state.result().global_step();
  for (const WorkerState& worker : state.workers()) steps += worker.train().steps();
  return steps / std::max(state.worker_num(), 1u);
}

StepCount::StepCount(const CheckpointState* from, uint64_t before, uint32_t worker_num)
    : before_of_all_(before), worker_num_(std::max(worker_num, 1u)) {
  if (from == nullptr) return;
  base_ = from->global_step();
  base_of_all_ = from->result().global_step();
  for (const WorkerState& worker : from->workers()) base_of_all_ += worker.train().steps();
}

uint64_t StepCount::At(uint64_t steps_of_epoch) const {
  // In the epoch of the checkpoint, a rank may not have reported yet what it continues from.
  const uint64_t all = std::max(before_of_all_ + steps_of_epoch, base_of_all_);
  return base_ + (all - base_of_all_) / worker_num_;
}

std::vector<WorkerState> StatesOfRanks(const CheckpointState& state, uint32_t worker_num) {
  std::vector<WorkerState> states(worker_num);
  const uint32_t known = std::min(worker_num, static_cast<uint32_t>(state.workers_size()));
  for (uint32_t rank = 0; rank < known; ++rank) states[rank] = state.workers(rank);
  if (worker_num == static_cast<uint32_t>(state.workers_size()) || worker_num == 0) return states;
  const bool sync = state.mode() == ModeName(Mode::kSync);
  TrainReport sum;
  for (const WorkerState& worker : state.workers()) AddReport(worker.train(), sync, &sum);
  for (WorkerState& one : states) {
    one.clear_train();
    // Geo: the file has the optimizer state of one rank's rows, which no other rank can use.
    one.clear_file();
  }
  *states[0].mutable_train() = std::move(sum);
  return states;
}

bool IsOfInstances(const Manifest& manifest, const std::vector<uint64_t>& instances) {
  // The names of a save's files contain its id, which follows from the instance and a number. The
  // id of another instance would give a number that no job reaches, but for one in 2^32 of them.
  constexpr uint64_t kMostCheckpoints = uint64_t{1} << 32;
  for (const SavedFile& file : manifest.files()) {
    const std::vector<std::string> parts = absl::StrSplit(file.name(), '.');
    for (const std::string& id : parts) {
      const auto made = [&](uint64_t instance) {
        const std::optional<uint64_t> number = CheckpointNumber(instance, id);
        return number.has_value() && *number >= 1 && *number <= kMostCheckpoints;
      };
      if (std::any_of(instances.begin(), instances.end(), made)) return true;
    }
  }
  return false;
}

}  // namespace sluice
