#include "scheduler/job/data_tasks.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/hash.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

// Keeps the order of the tasks independent of everything else that is drawn from the seed.
constexpr uint64_t kTaskOrder = 0x7461736B;
// Bounds a reply, whatever a rank asks for.
constexpr uint64_t kMostLeased = 1000;
}  // namespace

absl::StatusOr<DataTasks> DataTasks::Create(const Options& options,
                                            std::vector<IndexedFile> files) {
  SLUICE_ASSIGN_OR_RETURN(TaskCut cut, CutTasks(options.cut, std::move(files)));
  DataTasks made;
  made.options_ = options;
  made.cut_ = std::move(cut);
  made.leases_.resize(made.tasks().size());
  const uint32_t ranks = options.cut.worker_num;
  // A queue for each rank, or one that all share.
  made.free_.resize(made.pinned() ? ranks : 1);
  made.last_.resize(ranks);
  made.order_.resize(ranks);
  made.asked_.resize(ranks);
  made.acknowledged_.resize(ranks);
  return made;
}

void DataTasks::BeginEpoch(uint32_t epoch) {
  std::vector<uint32_t> order(tasks().size());
  std::iota(order.begin(), order.end(), 0);
  if (options_.cut.shuffle) {
    const uint64_t seed = CombineHash(CombineHash(options_.seed, kTaskOrder), epoch);
    std::vector<uint64_t> draw(tasks().size());
    for (uint32_t i = 0; i < draw.size(); ++i) draw[i] = CombineHash(seed, i);
    // Stable, so that equal draws have one order on every machine.
    std::stable_sort(order.begin(), order.end(),
                     [&draw](uint32_t a, uint32_t b) { return draw[a] < draw[b]; });
  }
  std::fill(leases_.begin(), leases_.end(), Lease());
  if (resumed_.has_value() && epoch == resumed_epoch_) {
    // The manifest lists the open tasks; all others were trained before the checkpoint.
    for (Lease& lease : leases_) lease.state = State::kDone;
    for (const DataTask& open : *resumed_) {
      leases_[open.id() - 1].state = State::kFree;
      leases_[open.id() - 1].first_offset = open.first_offset();
    }
  }
  for (auto& queue : free_) queue.clear();
  for (const uint32_t task : order) {
    if (leases_[task].state != State::kFree) continue;
    free_[pinned() ? cut_.owners[task] : 0].push_back(task);
  }
  std::fill(last_.begin(), last_.end(), LastAnswer());
  for (auto& order : order_) order.clear();
  asked_.assign(options_.cut.worker_num, false);
  acknowledged_.assign(options_.cut.worker_num, 0);
}

absl::Status DataTasks::Resume(uint32_t epoch,
                               const google::protobuf::RepeatedPtrField<DataTask>& open) {
  for (const DataTask& task : open) {
    if (task.id() == 0 || task.id() > tasks().size()) {
      return absl::DataLossError(absl::StrCat("data task ", task.id(), " is not finished, but the ",
                                              "data has ", tasks().size(), " tasks"));
    }
  }
  resumed_epoch_ = epoch;
  resumed_.emplace(open.begin(), open.end());
  return absl::OkStatus();
}

bool DataTasks::AllAsked() const {
  return std::all_of(asked_.begin(), asked_.end(), [](bool asked) { return asked; });
}

absl::StatusOr<NextTaskReply> DataTasks::Next(const NextTaskRequest& request) {
  // Also when the request is refused: the rank is in this epoch.
  asked_[request.rank()] = true;
  LastAnswer& last = last_[request.rank()];
  // A rank that lost the reply asks again. Leasing it another task would leave the first untrained.
  if (request.number() != 0 && request.number() == last.number) return last.reply;
  SLUICE_RETURN_IF_ERROR(
      Acknowledge(request, request.finished_task(), request.finished_examples()));
  for (const NextTaskRequest::Finished& more : request.more_finished())
    SLUICE_RETURN_IF_ERROR(Acknowledge(request, more.task(), more.examples()));
  NextTaskReply reply = LeaseTo(request.rank());
  // The last tasks of an epoch are given one by one, so that all ranks end at about the same time.
  const uint64_t free = stopped_ ? 0 : free_[pinned() ? request.rank() : 0].size();
  const uint64_t ranks = options_.cut.worker_num;
  const uint64_t share = pinned() || ranks == 1 ? free : free / (2 * ranks);
  const uint64_t wants = std::min<uint64_t>(request.wants(), kMostLeased);
  for (uint64_t n = 1; n < wants && n <= share; ++n)
    *reply.add_more() = std::move(*LeaseTo(request.rank()).mutable_task());
  last.number = request.number();
  last.reply = reply;
  return reply;
}

absl::Status DataTasks::Acknowledge(const NextTaskRequest& request, uint64_t id,
                                    uint64_t examples) {
  if (id == 0) return absl::OkStatus();
  if (id > tasks().size()) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", request.rank(), " finished task ", id,
                                                   ", but the job has ", tasks().size(), " tasks"));
  }
  Lease& lease = leases_[id - 1];
  if (lease.state == State::kFree || lease.rank != request.rank()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "task ", id, " of epoch ", request.epoch() + 1, " is not leased to rank ", request.rank()));
  }
  // A repeated acknowledgement must not move the order, by which a checkpoint knows what a rank had
  // finished.
  if (lease.state != State::kDone) lease.acknowledged = ++acknowledged_[request.rank()];
  lease.state = State::kDone;
  lease.examples = examples;
  return absl::OkStatus();
}

bool DataTasks::IsOpen(const RankPart& part, const std::vector<uint64_t>& order, size_t i,
                       size_t current, uint64_t* first_offset) const {
  const Lease& lease = leases_[order[i] - 1];
  const bool acknowledged = lease.state == State::kDone;
  // The shards hold everything of tasks before the current one, and nothing after it.
  *first_offset = lease.first_offset;
  if (current < order.size() && i < current)
    *first_offset = acknowledged ? lease.examples : kAllExamples;
  if (i == current) *first_offset = std::max(lease.first_offset, part.held.task_end());
  // The state in a rank's part lacks tasks that were acknowledged after the part was made.
  const bool covered = acknowledged && lease.acknowledged <= part.tasks;
  return !covered || lease.examples > *first_offset;
}

absl::StatusOr<std::vector<DataTask>> DataTasks::OpenAt(const std::vector<RankPart>& ranks) const {
  std::vector<std::optional<uint64_t>> open(tasks().size());  // first offset
  for (size_t i = 0; i < leases_.size(); ++i) {
    // No rank holds a free task, so everything behind its first offset is open.
    if (leases_[i].state == State::kFree) open[i] = leases_[i].first_offset;
  }
  for (size_t rank = 0; rank < order_.size(); ++rank) {
    const std::vector<uint64_t>& order = order_[rank];
    const uint64_t held = ranks[rank].held.task_id();
    const size_t current = std::find(order.begin(), order.end(), held) - order.begin();
    // Our own leases contradict the pservers. A checkpoint that guesses would skip examples.
    if (held != 0 && current == order.size()) {
      return absl::InternalError(absl::StrCat("the pservers hold frames of rank ", rank,
                                              " of task ", held, ", which was not leased to it"));
    }
    uint64_t offset = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      if (IsOpen(ranks[rank], order, i, current, &offset)) open[order[i] - 1] = offset;
    }
  }
  std::vector<DataTask> tasks;
  for (size_t i = 0; i < open.size(); ++i) {
    if (!open[i].has_value()) continue;
    DataTask& task = tasks.emplace_back(cut_.tasks[i]);
    // The same cut gives them again (task_bytes, part_bytes). They would be most of a checkpoint.
    task.clear_parts();
    task.set_first_offset(*open[i]);
  }
  return tasks;
}

NextTaskReply DataTasks::LeaseTo(uint32_t rank) {
  NextTaskReply reply;
  std::deque<uint32_t>& queue = free_[pinned() ? rank : 0];
  if (queue.empty() || stopped_) {
    reply.set_kind(NextTaskReply::EPOCH_DONE);
    return reply;
  }
  const uint32_t task = queue.front();
  queue.pop_front();
  leases_[task].state = State::kLeased;
  leases_[task].rank = rank;
  order_[rank].push_back(cut_.tasks[task].id());
  reply.set_kind(NextTaskReply::TASK);
  *reply.mutable_task() = cut_.tasks[task];
  reply.mutable_task()->set_first_offset(leases_[task].first_offset);
  return reply;
}

absl::Status DataTasks::Release(uint32_t rank, const RankPosition& held) {
  std::vector<uint64_t>& order = order_[rank];
  const auto at = std::find(order.begin(), order.end(), held.task_id());
  if (held.task_id() != 0 && at == order.end()) {
    return absl::InvalidArgumentError(absl::StrCat("the pservers hold frames of task ",
                                                   held.task_id(), " from a life of rank ", rank,
                                                   " to which it was not leased"));
  }
  const auto first_untrained = held.task_id() == 0 ? order.begin() : at;
  for (auto id = order.begin(); id != first_untrained; ++id) leases_[*id - 1].state = State::kDone;
  std::deque<uint32_t>& queue = free_[pinned() ? rank : 0];
  // Backwards to the front, so that they keep their order.
  for (auto id = order.end(); id != first_untrained;) {
    const auto task = static_cast<uint32_t>(*--id - 1);
    // An acknowledged task is on all shards, or had nothing to train.
    if (leases_[task].state == State::kDone) continue;
    leases_[task].state = State::kFree;
    if (*id == held.task_id())
      leases_[task].first_offset = std::max(leases_[task].first_offset, held.task_end());
    queue.push_front(task);
  }
  order.clear();
  last_[rank] = LastAnswer();
  // The next life has to ask before a checkpoint counts it as training.
  asked_[rank] = false;
  acknowledged_[rank] = 0;
  return absl::OkStatus();
}

absl::Status DataTasks::CheckEnded(uint32_t rank) const {
  for (size_t i = 0; i < leases_.size(); ++i) {
    if (leases_[i].state == State::kLeased && leases_[i].rank == rank) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", rank, " ended its epoch without acknowledging task ", i + 1,
                       ", which was leased to it"));
    }
  }
  return absl::OkStatus();
}

absl::Status DataTasks::CheckComplete() const {
  uint64_t open = 0;
  for (const Lease& lease : leases_) open += lease.state != State::kDone;
  if (open == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("all ranks have ended the epoch, but ", open, " of ",
                                          tasks().size(), " data tasks were not trained"));
}

}  // namespace sluice
