#include "scheduler/job/indexed_data.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/config/data_format.h"
#include "common/config/mode.h"
#include "common/config/own_data.h"
#include "common/config/resume_rules.h"
#include "scheduler/job/sync_index.h"

namespace sluice {
namespace {

// When the program gives the data, each rank's source is one task, cut from a file of this size
// that stands for it. The offsets in the task are numbers of batches.
constexpr uint64_t kSourceBytes = 1;

bool IsSync(const JobConfig& config) { return ModeOf(config.strategy()) == Mode::kSync; }

}  // namespace

IndexedData::IndexedData(const JobConfig* config, uint32_t worker_num, uint64_t global_batch,
                         const ResumePoint* resume)
    : config_(*config),
      worker_num_(worker_num),
      global_batch_(global_batch),
      resume_(resume),
      index_(worker_num) {}

bool IndexedData::DealsPieces() const {
  return IsSync(config_) && config_.data().assignment() != DataConfig::PER_RANK_FILES;
}

absl::Status IndexedData::Take(uint32_t rank, const IndexReport& report) {
  const absl::Status seen = seen_.Take(rank, report);
  index_[rank] = report;
  // seen_ holds one list for all ranks. With many files, a list per rank would fill the memory.
  index_[rank].clear_train_seen();
  index_[rank].clear_eval_seen();
  // Before all ranks have reported, so that their reports together stay small.
  if (!DealsPieces()) index_[rank].clear_pieces();
  reported_pieces_ += index_[rank].pieces().file_size();
  return seen.ok() ? CheckPieces(reported_pieces_) : seen;
}

absl::Status IndexedData::End() {
  if (config_.evaluate_only()) return absl::OkStatus();
  if (resume_ != nullptr)
    SLUICE_RETURN_IF_ERROR(CannotResume(seen_.CheckSameAs(resume_->state().train_files())));
  if (IsSync(config_)) return EndSync();
  std::optional<uint64_t> part_bytes;
  if (resume_ != nullptr) part_bytes = resume_->state().part_bytes();
  return MakeTasks(part_bytes);
}

absl::Status IndexedData::EndSync() {
  std::vector<uint64_t> examples;
  for (const IndexReport& report : index_) {
    examples.push_back(report.examples());
    // Batches, when the program gives the data.
    examples_ += ProgramGivesData(config_) ? 0 : report.examples();
  }
  if (DealsPieces()) {
    SLUICE_ASSIGN_OR_RETURN(pieces_,
                            MergePieces(index_, seen_.train(), FormatOf(config_.data()).rows));
    examples_ = CountExamples(pieces_);
    examples.assign(worker_num_, 0);
    // SyncSteps adds them up, and with dealt pieces only the sum has a meaning.
    examples[0] = examples_;
  }
  if (ProgramGivesData(config_)) {
    SLUICE_ASSIGN_OR_RETURN(steps_per_epoch_, StepsOfSources(index_));
  } else {
    SLUICE_ASSIGN_OR_RETURN(steps_per_epoch_, SyncSteps(config_, global_batch_, examples));
  }
  // The pieces have been merged. With many files they are large.
  index_.clear();
  if (resume_ == nullptr || steps_per_epoch_ == resume_->state().steps_per_epoch())
    return absl::OkStatus();
  return CannotResume(absl::FailedPreconditionError(absl::StrCat(
      "an epoch has ", steps_per_epoch_, " global steps, but had ",
      resume_->state().steps_per_epoch(), " when the checkpoint was made; the training data",
      ProgramGivesData(config_) ? " or epoch_steps of the program has changed" : " has changed",
      "; give those of the checkpoint's job")));
}

absl::Status IndexedData::CannotResume(const absl::Status& why) const {
  if (why.ok()) return why;
  return absl::Status(why.code(),
                      absl::StrCat("cannot resume from ", resume_->dir, ": ", why.message(),
                                   absl::IsDataLoss(why)
                                       ? "; --allow_older resumes from the newest intact checkpoint"
                                       : OrStartAnew(resume_->dir)));
}

absl::Status IndexedData::MakeTasks(std::optional<uint64_t> part_bytes) {
  DataTasks::Options options;
  options.cut.worker_num = worker_num_;
  options.cut.task_bytes =
      // Open tasks are named by their numbers, so the files have to be cut as before.
      resume_ != nullptr ? resume_->state().task_bytes() : config_.data().task_bytes();
  if (ProgramGivesData(config_)) options.cut.task_bytes = kSourceBytes;
  options.cut.part_bytes = part_bytes;
  options.cut.shuffle =
      (!config_.data().has_shuffle() || config_.data().shuffle()) && !ProgramGivesData(config_);
  options.cut.pinned = config_.data().assignment() == DataConfig::PER_RANK_FILES;
  options.seed = config_.train().seed();
  absl::StatusOr<DataTasks> tasks = DataTasks::Create(options, Files());
  if (!tasks.ok()) return resume_ == nullptr ? tasks.status() : CannotResume(tasks.status());
  tasks_ = *std::move(tasks);
  if (tasks_->tasks().empty()) {
    return absl::FailedPreconditionError("the training data is empty; see data.train_files");
  }
  if (resume_ == nullptr) return absl::OkStatus();
  return CannotResume(tasks_->Resume(resume_->state().epoch(), resume_->state().open_tasks()));
}

std::vector<IndexedFile> IndexedData::Files() const {
  absl::flat_hash_map<absl::string_view, uint64_t> on_disk;
  for (const SeenFile& seen : seen_.train()) on_disk[seen.path()] = seen.bytes();
  std::vector<IndexedFile> files;
  for (uint32_t rank = 0; rank < worker_num_ && ProgramGivesData(config_); ++rank) {
    DataFile source;
    // With zeros in front, so that the tasks have the order of the ranks.
    source.set_path(absl::StrFormat("the source of rank %010u", rank));
    source.set_bytes(kSourceBytes);
    files.push_back({std::move(source), rank, /*compressed=*/false});
  }
  for (uint32_t rank = 0; rank < worker_num_; ++rank) {
    for (const DataFile& file : index_[rank].files()) {
      const auto seen = on_disk.find(file.path());
      const bool compressed =
          file.group_rows_size() == 0 && seen != on_disk.end() && seen->second != file.bytes();
      files.push_back({file, rank, compressed});
    }
  }
  return files;
}

std::string IndexedData::WarningOfOrder() const {
  if (!tasks_) return "";
  const TaskCut& cut = tasks_->cut();
  if (ProgramGivesData(config_) || cut.part_bytes > 0 ||
      (config_.data().has_shuffle() && !config_.data().shuffle()) ||
      cut.total_bytes / TaskCut::kDealtBytesPerWorker < worker_num_) {
    return "";
  }
  return absl::StrCat(
      "the order of the lines matters: data.train_files have more than ",
      TaskCut::kDealtBytesPerWorker >> 20,
      " MiB a worker, so lines that are neighbours are trained together; if the files are "
      "sorted, such as by label or time, shuffle them once (shuf), or train in sync mode");
}

void IndexedData::Drop() {
  seen_ = {};
  index_ = {};
  tasks_.reset();
  pieces_.Clear();
}

}  // namespace sluice
