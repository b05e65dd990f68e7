#include "scheduler/job/job_attempt.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"

namespace sluice {

void JobAttempt::Specify(JobSpec spec, std::unique_ptr<const ResumePoint> point) {
  const uint64_t instance = spec_.instance();
  spec_ = std::move(spec);
  spec_.set_instance(instance);
  point_ = std::move(point);
  TellPoint();
}

void JobAttempt::SetInstance(uint64_t instance) {
  spec_.set_instance(instance);
  instances_.push_back(instance);
}

void JobAttempt::TellPoint() {
  if (point_ == nullptr) return;
  // Every field is set, because the attempt before may have started from initial_checkpoint.
  Restore* const restore = spec_.mutable_restore();
  restore->set_kind(Restore::RESUME);
  restore->set_directory(point_->dir);
  restore->set_step(point_->state().global_step());
}

absl::Status JobAttempt::PlaceTables(const Place& place, const std::vector<std::string>& former,
                                     const std::vector<std::string>& addresses,
                                     absl::Span<const uint32_t> ranks) {
  Route* const route = spec_.mutable_route();
  const uint64_t generation = route->generation();
  // Placement leaves a shard where it is if its owner's address is among the new ones. A pserver
  // may have another address now: that of a new process with the same rank.
  for (int i = 0; i < route->pservers_size(); ++i)
    route->set_pservers(i, i < static_cast<int>(former.size()) ? former[i] : "");
  SLUICE_RETURN_IF_ERROR(place(addresses, &spec_));
  route->set_generation(std::max(route->generation(), generation + 1));
  route->mutable_pserver_ranks()->Assign(ranks.begin(), ranks.end());
  return absl::OkStatus();
}

void JobAttempt::SetFollowers(absl::Span<const uint32_t> followers) {
  spec_.mutable_follower()->Assign(followers.begin(), followers.end());
}

void JobAttempt::Open(absl::Time now) {
  spec_.clear_incarnations();  // pservers know no earlier life in a new instance
  opening_.Begin(now);
  hosted_ = true;
}

void JobAttempt::Run(const JobRun::Options& options, absl::Time now) {
  before_.reset();
  run_ = std::make_unique<JobRun>(options, now);
  // Callers that follow the job count the steps that they have seen, so the numbering goes on.
  if (steps_) {
    steps_->Restart(options.worker_num);
  } else {
    steps_.emplace(options.worker_num);
  }
}

void JobAttempt::Adopt(const JobSpec& spec, std::unique_ptr<const ResumePoint> point,
                       std::unique_ptr<JobRun> run) {
  spec_ = spec;
  point_ = std::move(point);
  hosted_ = true;
  run_ = std::move(run);
  steps_.emplace(spec_.worker_num());
}

void JobAttempt::SetVacant(const std::vector<uint32_t>& vacant) {
  spec_.mutable_route()->mutable_vacant()->Assign(vacant.begin(), vacant.end());
}

void JobAttempt::TakeOver(uint32_t index, const std::string& address, Takeover takeover) {
  *spec_.mutable_takeover() = std::move(takeover);
  spec_.mutable_route()->set_pservers(static_cast<int>(index), address);
}

void JobAttempt::RaiseGeneration(absl::Span<const RankSlot> slots) {
  // The incarnations travel with the generation, so that a pserver whose report names the new
  // generation has fenced every earlier life of a rank. RankReplacement relies on that.
  spec_.clear_incarnations();
  for (const RankSlot& slot : slots) spec_.add_incarnations(slot.incarnation());
  Route* const route = spec_.mutable_route();
  route->set_generation(route->generation() + 1);
}

void JobAttempt::End() {
  if (run_ != nullptr) {
    before_ = run_->ResultWithEpochs();
    // Now, because the run refers to the point, which the next attempt replaces.
    run_.reset();
  }
  spec_.clear_takeover();
  spec_.mutable_route()->clear_vacant();
  hosted_ = false;
  const bool output_ready = opening_.output_ready();
  opening_ = JobOpening();
  if (output_ready) opening_.OutputReady();
}

void JobAttempt::Archive() {
  run_.reset();
  before_.reset();
  if (steps_) steps_->DropSteps();
  spec_ = JobSpec();
  point_.reset();
  opening_ = {};
}

}  // namespace sluice
