#include "scheduler/job/task_cut.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/hash.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

// With so many parts, the share of a sorted label in a task differs by at most 1/64 from its share
// in the data.
constexpr uint64_t kPartsOfTask = 64;
// Shorter parts have few whole lines, and reading them costs more than parsing them.
constexpr uint64_t kLeastPartBytes = 1 << 10;
constexpr uint64_t kMaxParts = 2 << 20;
// Each task of compressed data decompresses all of it, so there are fewer and larger ones.
constexpr uint64_t kCompressedTasks = 4;  // tasks of usual size in one
// Compressed files of at most this fraction of a task are parts of their own.
constexpr uint64_t kWholeFiles = 16;
constexpr uint64_t kMostOfFiles = 16;  // tasks that small files make, so that ranks have work
// Keeps the deal independent of everything else that is drawn from hashes.
constexpr uint64_t kDeal = 0x6465616C;
// The largest sum of file sizes that is accepted: one file's size is a signed number of 64 bits.
constexpr uint64_t kMostBytes = INT64_MAX;

uint64_t TasksOf(uint64_t bytes, uint64_t task_bytes) {
  return bytes / task_bytes + (bytes % task_bytes != 0);
}

// OK when the row groups of a file can be.
absl::Status CheckGroups(const IndexedFile& indexed) {
  const DataFile& file = indexed.file;
  uint64_t rows = 0, bytes = 0;
  bool fits = file.group_rows_size() == file.group_bytes_size();
  for (int g = 0; fits && g < file.group_rows_size(); ++g) {
    fits = file.group_rows(g) <= kMostBytes - rows && file.group_bytes(g) <= file.bytes() - bytes;
    rows += file.group_rows(g);
    bytes += file.group_bytes(g);
  }
  // A file with rows has bytes, so that it is dealt.
  if (fits && (rows == 0 || bytes > 0) && (file.group_rows_size() == 0 || bytes == file.bytes()))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("rank ", indexed.rank,
                                                 " reports impossible row groups of the file ",
                                                 PrintableLine(file.path())));
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
    SLUICE_RETURN_IF_ERROR(CheckGroups(files[i]));
  }
  return total;
}

// OK when tasks of consecutive pieces fit into memory; dealt ones are no more than they.
absl::Status CheckNumber(uint64_t task_bytes, const std::vector<IndexedFile>& files,
                         uint64_t total) {
  uint64_t tasks = 0, path_bytes = 0, with_data = 0;
  for (const IndexedFile& indexed : files) {
    const uint64_t bytes = indexed.file.bytes();
    // At most one for each byte, so the sum cannot wrap.
    tasks += TasksOf(bytes, task_bytes);
    with_data += bytes > 0;
  }
  if (tasks <= TaskCut::kMaxTasks) {
    for (const IndexedFile& indexed : files) {
      path_bytes += TasksOf(indexed.file.bytes(), task_bytes) * indexed.file.path().size();
    }
    if (path_bytes <= TaskCut::kMaxTaskPathBytes) return absl::OkStatus();
  }
  const std::string made =
      absl::StrCat("data.train_files have ", total, " bytes in ", with_data, " files, which make ",
                   tasks, " tasks of ", task_bytes, " bytes (data.task_bytes)");
  if (tasks > TaskCut::kMaxTasks && with_data < TaskCut::kMaxTasks) {
    return absl::FailedPreconditionError(absl::StrCat(
        made, "; a job has at most ", TaskCut::kMaxTasks, ": raise data.task_bytes to ",
        total / (TaskCut::kMaxTasks - with_data) + 1, " or more"));
  }
  if (tasks > TaskCut::kMaxTasks) {
    return absl::FailedPreconditionError(absl::StrCat(
        made, "; a job has at most ", TaskCut::kMaxTasks, ": join small files together"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      made, " with ", path_bytes, " bytes of paths; at most ", TaskCut::kMaxTaskPathBytes,
      " are possible: raise data.task_bytes, or give the files shorter paths"));
}

// Whether the data is dealt, when no earlier cut says so.
bool Deals(const TaskCutOptions& options, uint64_t total) {
  return options.shuffle &&
         total / TaskCut::kDealtBytesPerWorker < std::max(options.worker_num, 1u);
}

bool MostlyCompressed(const std::vector<IndexedFile>& files, uint64_t total) {
  uint64_t compressed = 0;
  for (const IndexedFile& indexed : files)
    compressed += indexed.compressed ? indexed.file.bytes() : 0;
  return compressed > total / 2;
}

// 0: a task would have less than two parts.
uint64_t DefaultPartBytes(uint64_t task_bytes, uint64_t total) {
  const uint64_t bytes =
      std::max({task_bytes / kPartsOfTask, kLeastPartBytes, total / kMaxParts + 1});
  return bytes <= task_bytes / 2 ? bytes : 0;
}

void AddTask(DataTask task, uint32_t owner, TaskCut* cut) {
  task.set_id(cut->tasks.size() + 1);
  cut->tasks.push_back(std::move(task));
  cut->owners.push_back(owner);
}

void AddPiece(const IndexedFile& indexed, uint64_t begin, uint64_t end, TaskCut* cut) {
  DataTask task;
  task.set_path(indexed.file.path());
  task.set_begin(begin);
  task.set_end(end);
  AddTask(std::move(task), indexed.rank, cut);
}

bool HasRows(const IndexedFile& indexed) { return indexed.file.group_rows_size() > 0; }

// Row groups, small neighbours together.
void CutInGroups(const IndexedFile& indexed, TaskCut* cut) {
  const DataFile& file = indexed.file;
  uint64_t begin = 0, end = 0, bytes = 0;
  for (int g = 0; g < file.group_rows_size(); ++g) {
    if (begin < end && bytes + file.group_bytes(g) > cut->task_bytes) {
      AddPiece(indexed, begin, end, cut);
      begin = end;
      bytes = 0;
    }
    end += file.group_rows(g);
    bytes += file.group_bytes(g);
  }
  if (begin < end) AddPiece(indexed, begin, end, cut);
}

void CutInPieces(const std::vector<IndexedFile>& files, TaskCut* cut) {
  for (const IndexedFile& indexed : files) {
    if (HasRows(indexed)) {
      CutInGroups(indexed, cut);
      continue;
    }
    const uint64_t bytes = indexed.file.bytes();
    for (uint64_t begin = 0; begin < bytes;) {
      const uint64_t end = bytes - begin <= cut->task_bytes ? bytes : begin + cut->task_bytes;
      AddPiece(indexed, begin, end, cut);
      begin = end;
    }
  }
}

// The end of the file's positions.
uint64_t EndOf(const IndexedFile& indexed) {
  if (!HasRows(indexed)) return indexed.file.bytes();
  uint64_t rows = 0;
  for (const uint64_t group : indexed.file.group_rows()) rows += group;
  return rows;
}

// Positions in a part.
uint64_t PartOf(const IndexedFile& indexed, uint64_t end, uint64_t part_bytes) {
  if (!HasRows(indexed) || indexed.file.bytes() == 0) return part_bytes;
  const auto rows = static_cast<unsigned __int128>(part_bytes) * end / indexed.file.bytes();
  return static_cast<uint64_t>(std::max<unsigned __int128>(rows, 1));
}

// Deals the files that `takes` chooses to tasks of their own. `files` are all of them, since parts
// name a file by its place in this list. Files of few bytes make a task each, up to
// `most_of_files`.
template <typename Takes>
void Deal(const std::vector<IndexedFile>& files, const Takes& takes, uint64_t most_of_files,
          TaskCut* cut) {
  uint64_t bytes = 0, with_data = 0;
  uint32_t owner = 0;
  for (const IndexedFile& indexed : files) {
    if (!takes(indexed) || indexed.file.bytes() == 0) continue;
    bytes += indexed.file.bytes();
    ++with_data;
    owner = indexed.rank;
  }
  // Several small files keep several ranks busy, as they do when they are tasks of their own. The
  // number of ranks must not count: a job that continues on another number has the same tasks.
  const uint64_t n = std::max(TasksOf(bytes, cut->task_bytes), std::min(with_data, most_of_files));
  std::vector<DataTask> tasks(n);
  uint64_t dealt = 0;
  for (uint32_t f = 0; f < files.size(); ++f) {
    if (!takes(files[f])) continue;
    const uint64_t size = EndOf(files[f]);
    const uint64_t part = PartOf(files[f], size, cut->part_bytes);
    const bool whole = files[f].compressed && size <= cut->task_bytes / kWholeFiles;
    for (uint64_t begin = 0; begin < size; ++dealt) {
      const uint64_t end = whole ? size : begin + std::min(size - begin, part);
      // Each round begins with another task. Otherwise data that repeats every n parts, such as a
      // file for each hour, would give every task one hour of all days.
      const uint64_t first = CombineHash(kDeal, dealt / n) % n;
      DataPieces* const parts = tasks[(first + dealt % n) % n].mutable_parts();
      parts->add_file(f);
      parts->add_begin(begin);
      parts->add_end(end);
      begin = end;
    }
  }
  // With few long parts some tasks get none.
  for (DataTask& task : tasks) {
    if (task.parts().file_size() > 0) AddTask(std::move(task), owner, cut);
  }
}

}  // namespace

uint64_t DefaultTaskBytes(uint64_t total_bytes, uint32_t worker_num) {
  constexpr uint64_t kLeast = 64 << 10, kMost = 16 << 20;
  return std::clamp(total_bytes / (uint64_t{16} * std::max(worker_num, 1u)), kLeast, kMost);
}

absl::StatusOr<TaskCut> CutTasks(const TaskCutOptions& options, std::vector<IndexedFile> files) {
  // By path, whoever reported the files: a checkpoint names tasks by their ids, which must be the
  // same in every run, and parts name files by their place in this list.
  std::sort(files.begin(), files.end(), [](const IndexedFile& a, const IndexedFile& b) {
    return a.file.path() < b.file.path();
  });
  TaskCut cut;
  SLUICE_ASSIGN_OR_RETURN(cut.total_bytes, TotalBytes(files));
  const bool deals =
      options.part_bytes.has_value() ? *options.part_bytes > 0 : Deals(options, cut.total_bytes);
  cut.task_bytes = options.task_bytes;
  if (cut.task_bytes == 0) {
    cut.task_bytes = DefaultTaskBytes(cut.total_bytes, options.worker_num);
    if (deals && MostlyCompressed(files, cut.total_bytes)) cut.task_bytes *= kCompressedTasks;
  }
  SLUICE_RETURN_IF_ERROR(CheckNumber(cut.task_bytes, files, cut.total_bytes));
  if (deals)
    cut.part_bytes = options.part_bytes.value_or(DefaultPartBytes(cut.task_bytes, cut.total_bytes));
  if (cut.part_bytes == 0) {
    CutInPieces(files, &cut);
    return cut;
  }
  if (!options.pinned) {
    Deal(
        files, [](const IndexedFile&) { return true; }, kMostOfFiles, &cut);
    return cut;
  }
  for (uint32_t rank = 0; rank < options.worker_num; ++rank)
    Deal(
        files, [rank](const IndexedFile& file) { return file.rank == rank; }, 1, &cut);
  return cut;
}

}  // namespace sluice
