#include "scheduler/job/checkpoint_parts.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/wire/train_position.h"

namespace sluice {

CheckpointParts::CheckpointParts(Mode mode, uint32_t worker_num, uint32_t pserver_num,
                                 const std::vector<uint32_t>& without_shards)
    : mode_(mode),
      hosted_(pserver_num),
      workers_(worker_num),
      tasks_(worker_num),
      went_on_(worker_num) {
  // A pserver without shards counts as having written its part, so nothing waits for it.
  for (const uint32_t pserver : without_shards) hosted_[pserver].set_state(HostedCut::WRITTEN);
}

bool CheckpointParts::TakeHosted(uint32_t pserver, const HostedCut& cut) {
  HostedCut& known = hosted_[pserver];
  // Its files are final. A late report of an earlier state must not take them back.
  if (known.state() == HostedCut::WRITTEN) return false;
  const bool progress = cut.state() != known.state() || cut.written_bytes() > known.written_bytes();
  if (progress) known = cut;
  return progress;
}

bool CheckpointParts::TakeWorker(const WorkerCut& cut) {
  const uint32_t rank = cut.rank();
  // Reports can overtake each other: a rank that went on was parked before, and this is its part.
  const bool goes_on = mode_ == Mode::kGeo && !cut.parked() && !went_on_[rank];
  if (goes_on) went_on_[rank] = true;
  // The first report is the part. A repeated one may have been made after the rank went on.
  if (workers_[rank]) return goes_on;
  workers_[rank] = cut.state();
  tasks_[rank] = cut.step();
  return true;
}

bool CheckpointParts::AllRanksAnswered() const {
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const auto& worker) { return worker.has_value(); });
}

bool CheckpointParts::AllCutsBegun() const {
  return std::all_of(hosted_.begin(), hosted_.end(), [](const HostedCut& cut) {
    return cut.state() != HostedCut::STATE_UNSPECIFIED;
  });
}

bool CheckpointParts::RankComplete(uint32_t rank) const {
  return workers_[rank] && (mode_ != Mode::kGeo || went_on_[rank]);
}

bool CheckpointParts::Complete() const {
  for (uint32_t pserver = 0; pserver < hosted_.size(); ++pserver) {
    if (!Written(pserver)) return false;
  }
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
    if (!RankComplete(rank)) return false;
  }
  return true;
}

std::string CheckpointParts::Missing(bool of_pservers) const {
  constexpr size_t kNamed = 8;
  std::vector<std::string> names;
  for (uint32_t pserver = 0; of_pservers && pserver < hosted_.size(); ++pserver) {
    if (!Written(pserver)) names.push_back(absl::StrCat("pserver ", pserver));
  }
  // Until all cuts have begun, a rank that is parked does what it should.
  const bool released = AllCutsBegun();
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
    if (!workers_[rank] || (released && !RankComplete(rank)))
      names.push_back(absl::StrCat("rank ", rank));
  }
  const size_t more = names.size() > kNamed ? names.size() - kNamed : 0;
  names.resize(names.size() - more);
  if (more > 0) names.push_back(absl::StrCat(more, " more"));
  return absl::StrJoin(names, ", ");
}

uint64_t CheckpointParts::written_bytes() const {
  uint64_t written = 0;
  for (const HostedCut& cut : hosted_) written += cut.written_bytes();
  return written;
}

uint64_t CheckpointParts::Steps() const {
  uint64_t steps = 0;
  for (const auto& worker : workers_) steps += worker ? worker->train().steps() : 0;
  return steps;
}

absl::StatusOr<std::vector<RankPart>> CheckpointParts::RankParts() const {
  std::vector<RankPart> parts;
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
    SLUICE_ASSIGN_OR_RETURN(RankPart part, PartOf(rank));
    parts.push_back(std::move(part));
  }
  return parts;
}

absl::StatusOr<RankPart> CheckpointParts::PartOf(uint32_t rank) const {
  RankPart part;
  part.tasks = tasks_[rank];
  part.state = *workers_[rank];
  bool first = true;
  for (size_t i = 0; i < hosted_.size(); ++i) {
    const HostedCut& cut = hosted_[i];
    // A pserver without shards of the job holds everything.
    if (cut.least().empty()) continue;
    // Indexed by rank below.
    if (cut.least_size() != static_cast<int>(workers_.size())) {
      return absl::InternalError(absl::StrCat("pserver ", i, " reported the positions of ",
                                              cut.least_size(), " of ", workers_.size(), " ranks"));
    }
    const RankPosition& held = cut.least(static_cast<int>(rank));
    if (mode_ == Mode::kGeo && !first && held.sequence() != part.held.sequence()) {
      return absl::InternalError(absl::StrCat(
          "the cuts do not belong together: pservers hold frames ", part.held.sequence(), " and ",
          held.sequence(), " of rank ", rank, ", which should have sent nothing"));
    }
    if (first) {
      part.held = held;
    } else {
      // The shards of a checkpoint are cut at different moments. Only what the slowest one holds is
      // on all of them.
      KeepLeast(held, &part.held);
    }
    first = false;
  }
  return part;
}

void CheckpointParts::MoveTo(Manifest* manifest) {
  for (auto& worker : workers_) {
    // The list of files is what readers open and what is removed later, so it has to be complete.
    if (worker->has_file()) *manifest->add_files() = worker->file();
    for (SavedFile& file : *worker->mutable_dense_files()) *manifest->add_files() = std::move(file);
    worker->clear_dense_files();
    if (mode_ == Mode::kSync) *manifest->mutable_checkpoint()->add_workers() = *std::move(worker);
  }
  for (HostedCut& cut : hosted_) {
    for (SavedFile& file : *cut.mutable_files()) *manifest->add_files() = std::move(file);
  }
}

}  // namespace sluice
