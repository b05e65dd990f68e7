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
// The largest sum of file sizes that is accepted: one file's size is a signed number of 64 bits.
constexpr uint64_t kMostBytes = INT64_MAX;

uint64_t TasksOf(uint64_t bytes, uint64_t task_bytes) {
  return bytes / task_bytes + (bytes % task_bytes != 0);
}

// Returns the bytes of all files, which are sorted by path.
absl::StatusOr<uint64_t> TotalBytes(const std::vector<IndexedFile>& files) {
  uint64_t total = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    const DataFile& file = files[i].file;
    if (i > 0 && file.path() == files[i - 1].file.path()) {
      return absl::InvalidArgumentError(absl::StrCat("ranks ", files[i - 1].rank, " and ",
                                                     files[i].rank, " both report the file ",
                                                     PrintableLine(file.path())));
    }
    if (file.bytes() > kMostBytes - total) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", files[i].rank, " reports ", file.bytes(), " bytes of the file ",
                       PrintableLine(file.path()), ", with which data.train_files would have more ",
                       "than the possible ", kMostBytes, " bytes; check that file on its host"));
    }
    total += file.bytes();
  }
  return total;
}

// OK when the tasks fit into memory. `options.task_bytes` is not 0.
absl::Status CheckNumber(const DataTasks::Options& options, const std::vector<IndexedFile>& files,
                         uint64_t total) {
  uint64_t tasks = 0, path_bytes = 0, with_data = 0;
  for (const IndexedFile& indexed : files) {
    const uint64_t bytes = indexed.file.bytes();
    // At most one for each byte, so the sum cannot wrap.
    tasks += TasksOf(bytes, options.task_bytes);
    with_data += bytes > 0;
  }
  if (tasks <= DataTasks::kMaxTasks) {
    for (const IndexedFile& indexed : files) {
      path_bytes += TasksOf(indexed.file.bytes(), options.task_bytes) * indexed.file.path().size();
    }
    if (path_bytes <= DataTasks::kMaxTaskPathBytes) return absl::OkStatus();
  }
  const std::string made =
      absl::StrCat("data.train_files have ", total, " bytes in ", with_data, " files, which make ",
                   tasks, " tasks of ", options.task_bytes, " bytes (data.task_bytes)");
  if (tasks > DataTasks::kMaxTasks && with_data < DataTasks::kMaxTasks) {
    return absl::FailedPreconditionError(absl::StrCat(
        made, "; a job has at most ", DataTasks::kMaxTasks, ": raise data.task_bytes to ",
        total / (DataTasks::kMaxTasks - with_data) + 1, " or more"));
  }
  if (tasks > DataTasks::kMaxTasks) {
    return absl::FailedPreconditionError(absl::StrCat(
        made, "; a job has at most ", DataTasks::kMaxTasks, ": join small files together"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      made, " with ", path_bytes, " bytes of paths; at most ", DataTasks::kMaxTaskPathBytes,
      " are possible: raise data.task_bytes, or give the files shorter paths"));
}

}  // namespace

uint64_t DefaultTaskBytes(uint64_t total_bytes, uint32_t worker_num) {
  constexpr uint64_t kLeast = 64 << 10, kMost = 16 << 20;
  return std::clamp(total_bytes / (uint64_t{16} * std::max(worker_num, 1u)), kLeast, kMost);
}

absl::StatusOr<DataTasks> DataTasks::Create(Options options, std::vector<IndexedFile> files) {
  // By path, whoever reported the files: a checkpoint names tasks by their ids, which must be the
  // same in every run.
  std::sort(files.begin(), files.end(), [](const IndexedFile& a, const IndexedFile& b) {
    return a.file.path() < b.file.path();
  });
  SLUICE_ASSIGN_OR_RETURN(const uint64_t total, TotalBytes(files));
  if (options.task_bytes == 0) options.task_bytes = DefaultTaskBytes(total, options.worker_num);
  SLUICE_RETURN_IF_ERROR(CheckNumber(options, files, total));
  DataTasks made;
  for (const IndexedFile& indexed : files) {
    const uint64_t bytes = indexed.file.bytes();
    for (uint64_t begin = 0; begin < bytes;) {
      const uint64_t end = bytes - begin <= options.task_bytes ? bytes : begin + options.task_bytes;
      DataTask task;
      task.set_id(made.tasks_.size() + 1);
      task.set_path(indexed.file.path());
      task.set_begin(begin);
      task.set_end(end);
      made.tasks_.push_back(std::move(task));
      made.owner_.push_back(indexed.rank);
      begin = end;
    }
  }
  made.options_ = options;
  made.leases_.resize(made.tasks_.size());
  // A queue for each rank, or one that all share.
  made.free_.resize(options.pinned ? options.worker_num : 1);
  made.last_.resize(options.worker_num);
  made.order_.resize(options.worker_num);
  made.asked_.resize(options.worker_num);
  made.acknowledged_.resize(options.worker_num);
  return made;
}

void DataTasks::BeginEpoch(uint32_t epoch) {
  std::vector<uint32_t> order(tasks_.size());
  std::iota(order.begin(), order.end(), 0);
  if (options_.shuffle) {
    const uint64_t seed = CombineHash(CombineHash(options_.seed, kTaskOrder), epoch);
    std::vector<uint64_t> draw(tasks_.size());
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
    free_[options_.pinned ? owner_[task] : 0].push_back(task);
  }
  std::fill(last_.begin(), last_.end(), LastAnswer());
  for (auto& order : order_) order.clear();
  asked_.assign(options_.worker_num, false);
  acknowledged_.assign(options_.worker_num, 0);
}

absl::Status DataTasks::Resume(uint32_t epoch,
                               const google::protobuf::RepeatedPtrField<DataTask>& open) {
  for (const DataTask& task : open) {
    if (task.id() == 0 || task.id() > tasks_.size()) {
      return absl::DataLossError(absl::StrCat("data task ", task.id(), " is not finished, but the ",
                                              "data has ", tasks_.size(), " tasks"));
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
  const absl::Status acknowledged = Acknowledge(request);
  if (!acknowledged.ok()) return acknowledged;
  NextTaskReply reply = LeaseTo(request.rank());
  last.number = request.number();
  last.reply = reply;
  return reply;
}

absl::Status DataTasks::Acknowledge(const NextTaskRequest& request) {
  const uint64_t id = request.finished_task();
  if (id == 0) return absl::OkStatus();
  if (id > tasks_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", request.rank(), " finished task ", id,
                                                   ", but the job has ", tasks_.size(), " tasks"));
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
  lease.examples = request.finished_examples();
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
  std::vector<std::optional<uint64_t>> open(tasks_.size());  // first offset
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
    tasks.push_back(tasks_[i]);
    tasks.back().set_first_offset(*open[i]);
  }
  return tasks;
}

NextTaskReply DataTasks::LeaseTo(uint32_t rank) {
  NextTaskReply reply;
  std::deque<uint32_t>& queue = free_[options_.pinned ? rank : 0];
  if (queue.empty()) {
    reply.set_kind(NextTaskReply::EPOCH_DONE);
    return reply;
  }
  const uint32_t task = queue.front();
  queue.pop_front();
  leases_[task].state = State::kLeased;
  leases_[task].rank = rank;
  order_[rank].push_back(tasks_[task].id());
  reply.set_kind(NextTaskReply::TASK);
  *reply.mutable_task() = tasks_[task];
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
  std::deque<uint32_t>& queue = free_[options_.pinned ? rank : 0];
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
                                          tasks_.size(), " data tasks were not trained"));
}

}  // namespace sluice
