#include "scheduler/job/checkpoint_results.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/config/mode.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/saved_model.h"

namespace sluice {
namespace {

// A caller asks for the outcome of its checkpoint within seconds, so few have to be remembered.
constexpr size_t kOutcomes = 16;
// By then every pserver has learnt that a checkpoint was given up, and has stopped writing it.
constexpr absl::Duration kWritersStop = absl::Seconds(10);

// The epoch of whose end the checkpoint is; nullopt: training continues in the epoch.
std::optional<uint32_t> EndedEpoch(const CheckpointState& state) {
  const bool sync = state.mode() == ModeName(Mode::kSync);
  const bool ended =
      sync ? state.steps_done() == state.steps_per_epoch() : state.open_tasks().empty();
  return ended ? std::make_optional(state.epoch()) : std::nullopt;
}

uint64_t BytesOf(const Manifest& manifest) {
  uint64_t bytes = 0;
  for (const SavedFile& file : manifest.files()) bytes += file.bytes();
  return bytes;
}

}  // namespace

CheckpointResults::CheckpointResults(std::string root, absl::Time now)
    : root_(std::move(root)), newest_cut_at_(now), first_run_at_(now) {}

void CheckpointResults::SetNewest(const Manifest& manifest, absl::Time cut_at, bool of_job,
                                  std::optional<uint64_t> instance) {
  if (of_job) complete_ = manifest;
  if (instance) complete_instance_ = *instance;
  newest_end_ = EndedEpoch(manifest.checkpoint());
  newest_at_ = manifest.global_step();
  newest_.set_step(manifest.global_step());
  newest_.set_bytes(BytesOf(manifest));
  newest_.set_dir(CheckpointFolder(root_, manifest.global_step()));
  newest_cut_at_ = cut_at;
}

void CheckpointResults::Continue(const CheckpointStatus& before, absl::Time now) {
  newest_.set_made(before.made());
  newest_.set_failed(before.failed());
  newest_.set_last_error(before.last_error());
  // Without a checkpoint, the age counts from the first run. A restart of the scheduler must not
  // make the job look younger than it is.
  if (before.step() == 0) first_run_at_ = now - absl::Seconds(before.age_s());
}

void CheckpointResults::Add(Outcome outcome) {
  outcomes_.push_back(std::move(outcome));
  if (outcomes_.size() > kOutcomes) outcomes_.pop_front();
}

void CheckpointResults::Skip(uint64_t number, const std::string& error, uint64_t followed_by) {
  Add({number, error, /*dir=*/"", /*step=*/0, followed_by});
}

void CheckpointResults::Complete(uint64_t number, Manifest manifest, uint64_t instance,
                                 absl::Time begun_at, absl::Time now) {
  SetNewest(manifest, begun_at, /*of_job=*/false, instance);
  newest_.set_seconds(absl::ToDoubleSeconds(now - begun_at));
  newest_.set_made(newest_.made() + 1);
  newest_.clear_last_error();
  Add({number, /*error=*/"", newest_.dir(), newest_.step(), /*followed_by=*/0});
  complete_ = std::move(manifest);
}

void CheckpointResults::GiveUp(const Discard& given_up, bool counts, uint64_t followed_by,
                               absl::Time now) {
  if (counts) {
    newest_.set_failed(newest_.failed() + 1);
    const std::string said =
        absl::StrCat("the checkpoint of step ", given_up.step, " failed: ", given_up.why);
    if (newest_.last_error().empty()) warning_ = absl::StrCat(said, "; the job continues");
    newest_.set_last_error(said);
  }
  DiscardFiles(given_up, now);
  Add({given_up.number, given_up.why, CheckpointFolder(root_, given_up.step), given_up.step,
       followed_by});
}

void CheckpointResults::DiscardFiles(const Discard& given_up, absl::Time now) {
  ExpectWriters(now);
  discards_.push_back({now, given_up});
  discards_.push_back({writers_stop_at_, given_up});
  discards_.back().second.why.clear();
}

void CheckpointResults::ExpectWriters(absl::Time now) { writers_stop_at_ = now + kWritersStop; }

uint64_t CheckpointResults::Followed(uint64_t number) const {
  for (const Outcome& outcome : outcomes_) {
    if (outcome.number == number && outcome.followed_by != 0) number = outcome.followed_by;
  }
  return number;
}

const CheckpointResults::Outcome* CheckpointResults::OutcomeOf(uint64_t number) const {
  for (const Outcome& outcome : outcomes_) {
    if (outcome.number == number) return &outcome;
  }
  return nullptr;
}

std::vector<CheckpointResults::Discard> CheckpointResults::TakeDiscards(absl::Time now, bool all) {
  std::vector<Discard> due;
  std::vector<std::pair<absl::Time, Discard>> later;
  for (auto& [time, discard] : discards_) {
    if (time <= now || all) {
      due.push_back(std::move(discard));
    } else {
      later.push_back({time, std::move(discard)});
    }
  }
  discards_ = std::move(later);
  return due;
}

void CheckpointResults::GoBack(uint64_t step) {
  if (step >= newest_.step()) return;
  newest_end_.reset();
  newest_at_.reset();
}

CheckpointStatus CheckpointResults::status(bool has_rules, absl::Time now) const {
  CheckpointStatus status = newest_;
  const absl::Time since = status.step() > 0 ? newest_cut_at_ : first_run_at_;
  if (status.step() > 0 || has_rules)
    status.set_age_s(std::max(0.0, absl::ToDoubleSeconds(now - since)));
  return status;
}

}  // namespace sluice
