#include "scheduler/data_tasks.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/hash.h"

namespace sluice {
namespace {

// Keeps the order of the tasks independent of everything else that is drawn from the seed.
constexpr uint64_t kTaskOrder = 0x7461736B;

}  // namespace

uint64_t DefaultTaskBytes(uint64_t total_bytes, uint32_t worker_num) {
  constexpr uint64_t kLeast = 64 << 10, kMost = 16 << 20;
  return std::clamp(total_bytes / (uint64_t{16} * std::max(worker_num, 1u)), kLeast, kMost);
}

absl::StatusOr<DataTasks> DataTasks::Create(Options options, std::vector<IndexedFile> files) {
  std::sort(files.begin(), files.end(), [](const IndexedFile& a, const IndexedFile& b) {
    return a.file.path() < b.file.path();
  });
  uint64_t total = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    total += files[i].file.bytes();
    if (i > 0 && files[i].file.path() == files[i - 1].file.path()) {
      return absl::InvalidArgumentError(absl::StrCat("ranks ", files[i - 1].rank, " and ",
                                                     files[i].rank, " both report the file ",
                                                     files[i].file.path()));
    }
  }
  if (options.task_bytes == 0) options.task_bytes = DefaultTaskBytes(total, options.worker_num);
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
  made.free_.resize(options.pinned ? options.worker_num : 1);
  made.last_.resize(options.worker_num);
  return made;
}

void DataTasks::BeginEpoch(uint32_t epoch) {
  std::vector<uint32_t> order(tasks_.size());
  std::iota(order.begin(), order.end(), 0);
  if (options_.shuffle) {
    const uint64_t seed = CombineHash(CombineHash(options_.seed, kTaskOrder), epoch);
    std::vector<uint64_t> draw(tasks_.size());
    for (uint32_t i = 0; i < draw.size(); ++i) draw[i] = CombineHash(seed, i);
    std::stable_sort(order.begin(), order.end(),
                     [&draw](uint32_t a, uint32_t b) { return draw[a] < draw[b]; });
  }
  std::fill(leases_.begin(), leases_.end(), Lease());
  for (auto& queue : free_) queue.clear();
  for (const uint32_t task : order) free_[options_.pinned ? owner_[task] : 0].push_back(task);
  std::fill(last_.begin(), last_.end(), LastAnswer());
}

absl::StatusOr<NextTaskReply> DataTasks::Next(const NextTaskRequest& request) {
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
  lease.state = State::kDone;
  return absl::OkStatus();
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
  reply.set_kind(NextTaskReply::TASK);
  *reply.mutable_task() = tasks_[task];
  return reply;
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
