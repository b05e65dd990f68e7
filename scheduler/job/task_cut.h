// Cuts the training data of an async or Geo job into tasks.
//
// Shuffled data of up to kDealtBytesPerWorker a worker is dealt: it is cut into small parts, and
// each task gets one part of every run of consecutive parts. So every task looks like the whole
// data, whatever the order of its lines. Other data is cut into consecutive pieces: the parts of a
// task of large data would be many short reads, or, from compressed files, many passes over all of
// the text. Tasks of less than two parts are also consecutive pieces.
//
// Of files of rows the positions are rows: a part has so many rows as have about part_bytes, and a
// consecutive piece is a row group, or small neighbours of up to task_bytes.
//
// Invariants: the tasks cover each byte (or row) of each file exactly once. The same files,
// task_bytes and part_bytes give the same tasks, whatever worker_num (PER_RANK_FILES: with the same
// worker_num). The parts of a task ascend, and those of one file stand together.
//
// Memory: about 200 bytes and the file's path, or 20 bytes a part, for each task.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"

namespace sluice {

struct IndexedFile {
  DataFile file;
  uint32_t rank = 0;        // the rank that reported the file
  bool compressed = false;  // text is found only by decompressing all text before it
};

struct TaskCutOptions {
  uint32_t worker_num = 1;
  uint64_t task_bytes = 0;  // 0: the default rule
  // Of an earlier cut, which is repeated. 0: it had consecutive pieces.
  std::optional<uint64_t> part_bytes;
  bool shuffle = true;
  bool pinned = false;  // PER_RANK_FILES: a task has files of one rank only
};

struct TaskCut {
  static constexpr uint64_t kMaxTasks = 1 << 20;
  static constexpr uint64_t kMaxTaskPathBytes = 256 << 20;
  static constexpr uint64_t kDealtBytesPerWorker = 64 << 20;

  uint64_t total_bytes = 0;
  uint64_t task_bytes = 0;
  uint64_t part_bytes = 0;       // 0: consecutive pieces
  std::vector<DataTask> tasks;   // tasks[i].id() == i + 1
  std::vector<uint32_t> owners;  // by task: the rank that reported its files
};

// 1/16 of each worker's share of the data, at least 64 KiB and at most 16 MiB.
uint64_t DefaultTaskBytes(uint64_t total_bytes, uint32_t worker_num);

// INVALID_ARGUMENT when two ranks report the same file, or more bytes than files can have.
// FAILED_PRECONDITION when there would be more than kMaxTasks tasks, or more than kMaxTaskPathBytes
// of their paths; the message says which task_bytes helps.
absl::StatusOr<TaskCut> CutTasks(const TaskCutOptions& options, std::vector<IndexedFile> files);

}  // namespace sluice
