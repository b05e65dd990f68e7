#include "scheduler/job/task_cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

constexpr uint64_t kMiB = 1 << 20;

IndexedFile FileOf(const std::string& path, uint64_t bytes, uint32_t rank = 0,
                   bool compressed = false) {
  IndexedFile file;
  file.file.set_path(path);
  file.file.set_bytes(bytes);
  file.rank = rank;
  file.compressed = compressed;
  return file;
}

TaskCutOptions Workers(uint32_t n) {
  TaskCutOptions options;
  options.worker_num = n;
  return options;
}

TaskCut Cut(const TaskCutOptions& options, const std::vector<IndexedFile>& files) {
  const auto cut = CutTasks(options, files);
  EXPECT_TRUE(cut.ok()) << cut.status();
  return cut.ok() ? *cut : TaskCut();
}

std::vector<std::string> TextsOf(const TaskCut& cut) {
  std::vector<std::string> texts;
  for (const DataTask& task : cut.tasks) texts.push_back(task.ShortDebugString());
  return texts;
}

// How often each KiB of each file, by its place in the list, is in a task's parts.
std::map<uint32_t, std::vector<int>> Touched(const TaskCut& cut,
                                             const std::vector<IndexedFile>& sorted) {
  std::map<uint32_t, std::vector<int>> touched;
  for (uint32_t f = 0; f < sorted.size(); ++f)
    touched[f].resize((sorted[f].file.bytes() + 1023) / 1024);
  for (const DataTask& task : cut.tasks) {
    for (int i = 0; i < task.parts().file_size(); ++i) {
      for (uint64_t at = task.parts().begin(i); at < task.parts().end(i); at += 1024)
        ++touched.at(task.parts().file(i)).at(at / 1024);
    }
  }
  return touched;
}

// Row groups of this many rows, each of `bytes` bytes.
IndexedFile RowsFile(const std::string& path, const std::vector<uint64_t>& rows, uint64_t bytes) {
  IndexedFile file = FileOf(path, bytes * rows.size());
  for (const uint64_t of_group : rows) {
    file.file.add_group_rows(of_group);
    file.file.add_group_bytes(bytes);
  }
  return file;
}

TEST(TaskCutTest, SmallDataOfRowsIsDealtByRows) {
  const std::vector<IndexedFile> files = {RowsFile("a", {5000, 5000, 77}, kMiB),
                                          RowsFile("b", {3000}, kMiB / 2)};
  const TaskCut cut = Cut(Workers(2), files);
  EXPECT_GT(cut.part_bytes, 0u);
  std::map<uint32_t, std::vector<int>> touched = {{0, std::vector<int>(10077)},
                                                  {1, std::vector<int>(3000)}};
  for (const DataTask& task : cut.tasks) {
    for (int i = 0; i < task.parts().file_size(); ++i) {
      for (uint64_t row = task.parts().begin(i); row < task.parts().end(i); ++row)
        ++touched.at(task.parts().file(i)).at(row);
    }
  }
  for (const auto& [file, rows] : touched) {
    for (const int times : rows) EXPECT_EQ(times, 1);
  }
}

TEST(TaskCutTest, LargeDataOfRowsIsCutAtRowGroups) {
  TaskCutOptions options = Workers(1);
  options.task_bytes = 4 * kMiB;
  // The first file: a large group, then two small ones; the second: many small ones.
  IndexedFile first = RowsFile("a", {1000, 10, 20}, 40 * kMiB);
  first.file.set_group_bytes(1, kMiB);
  first.file.set_group_bytes(2, kMiB);
  first.file.set_bytes(42 * kMiB);
  const TaskCut cut =
      Cut(options, {first, RowsFile("b", std::vector<uint64_t>(60, 100), 3 * kMiB / 2)});
  EXPECT_EQ(cut.part_bytes, 0u);
  ASSERT_GE(cut.tasks.size(), 4u);
  const auto text = [&](size_t i) {
    return absl::StrCat(cut.tasks[i].path(), " ", cut.tasks[i].begin(), " ", cut.tasks[i].end());
  };
  EXPECT_EQ(text(0), "a 0 1000");
  EXPECT_EQ(text(1), "a 1000 1030");
  EXPECT_EQ(text(2), "b 0 200");
  EXPECT_EQ(text(3), "b 200 400");
  EXPECT_EQ(cut.tasks.back().end(), 6000u);
}

TEST(TaskCutTest, ImpossibleRowGroupsAreRefused) {
  IndexedFile file = RowsFile("a", {5, 6}, 10);
  file.file.set_group_bytes(0, 11);
  EXPECT_EQ(CutTasks(Workers(1), {file}).status().code(), absl::StatusCode::kInvalidArgument);
  file = RowsFile("a", {5, UINT64_MAX}, 10);
  EXPECT_EQ(CutTasks(Workers(1), {file}).status().code(), absl::StatusCode::kInvalidArgument);
  file = RowsFile("a", {5}, 10);
  file.file.add_group_rows(1);
  EXPECT_EQ(CutTasks(Workers(1), {file}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(TaskCutTest, DealtTasksCoverEveryByteOnceInAscendingParts) {
  const std::vector<IndexedFile> files = {FileOf("a", 3 * kMiB + 5), FileOf("b", 0, 1),
                                          FileOf("c", 1000, 1), FileOf("d.gz", 700'000, 0, true),
                                          FileOf("e.gz", 2000, 1, true)};
  const TaskCut cut = Cut(Workers(2), files);
  EXPECT_GT(cut.part_bytes, 0u);
  uint64_t id = 0, bytes = 0;
  std::set<std::pair<uint32_t, uint64_t>> begins;
  std::map<uint32_t, uint64_t> by_file;
  for (const DataTask& task : cut.tasks) {
    EXPECT_EQ(task.id(), ++id);
    EXPECT_TRUE(task.path().empty());
    const DataPieces& parts = task.parts();
    for (int i = 0; i < parts.file_size(); ++i) {
      ASSERT_LT(parts.begin(i), parts.end(i));
      EXPECT_TRUE(begins.emplace(parts.file(i), parts.begin(i)).second);
      by_file[parts.file(i)] += parts.end(i) - parts.begin(i);
      if (i == 0) continue;
      ASSERT_LE(parts.file(i - 1), parts.file(i));
      if (parts.file(i - 1) == parts.file(i)) {
        EXPECT_LE(parts.end(i - 1), parts.begin(i));
      }
    }
  }
  // No two parts begin at one place, so equal sums mean that they neither overlap nor leave gaps.
  for (uint32_t f = 0; f < files.size(); ++f) {
    EXPECT_EQ(by_file[f], files[f].file.bytes()) << f;
    bytes += by_file[f];
  }
  EXPECT_EQ(bytes, cut.total_bytes);
}

TEST(TaskCutTest, EveryTaskLooksLikeTheWholeOfSortedData) {
  // The first quarter of the bytes has the positive labels.
  for (const uint64_t bytes : {uint64_t{300'000}, 4 * kMiB, 100 * kMiB}) {
    const TaskCut cut = Cut(Workers(2), {FileOf("a", bytes)});
    ASSERT_GT(cut.tasks.size(), 3u);
    for (const DataTask& task : cut.tasks) {
      double positive = 0, all = 0;
      for (int i = 0; i < task.parts().file_size(); ++i) {
        const double size = task.parts().end(i) - task.parts().begin(i);
        all += size;
        positive += task.parts().begin(i) < bytes / 4 ? size : 0;
      }
      EXPECT_NEAR(positive / all, 0.25, 0.02) << bytes << " " << task.id();
    }
  }
}

TEST(TaskCutTest, TasksHaveAboutTheSameSize) {
  const TaskCut cut = Cut(Workers(2), {FileOf("a", 4 * kMiB)});
  EXPECT_EQ(cut.task_bytes, 4 * kMiB / 32);
  EXPECT_EQ(cut.tasks.size(), 32u);
  for (const DataTask& task : cut.tasks) EXPECT_NEAR(task.parts().file_size(), 64, 1);
}

TEST(TaskCutTest, DataThatRepeatsWithThePeriodOfTheTasksIsMixed) {
  std::vector<IndexedFile> files;
  // A file for each hour of 40 days. With 24 tasks, a fixed turn would give each task one hour.
  for (int day = 10; day < 50; ++day) {
    for (int hour = 10; hour < 34; ++hour) files.push_back(FileOf(absl::StrCat(day, hour), 1000));
  }
  TaskCutOptions options = Workers(1);
  options.task_bytes = 40'000;
  options.part_bytes = 1024;
  const TaskCut cut = Cut(options, files);
  ASSERT_EQ(cut.tasks.size(), 24u);
  for (const DataTask& task : cut.tasks) {
    std::set<uint32_t> hours;
    for (const uint32_t file : task.parts().file()) hours.insert(file % 24);
    EXPECT_GT(hours.size(), 12u) << task.id();
  }
}

TEST(TaskCutTest, LargeDataAndDataInItsOrderIsCutIntoConsecutivePieces) {
  const std::vector<IndexedFile> large = {FileOf("a", 2 * TaskCut::kDealtBytesPerWorker)};
  EXPECT_EQ(Cut(Workers(2), large).part_bytes, 0u);
  EXPECT_GT(Cut(Workers(3), large).part_bytes, 0u);
  TaskCutOptions in_order = Workers(3);
  in_order.shuffle = false;
  const TaskCut cut = Cut(in_order, large);
  EXPECT_EQ(cut.part_bytes, 0u);
  uint64_t at = 0;
  for (const DataTask& task : cut.tasks) {
    EXPECT_EQ(task.path(), "a");
    EXPECT_EQ(task.begin(), at);
    EXPECT_EQ(task.parts().file_size(), 0);
    at = task.end();
  }
  EXPECT_EQ(at, large[0].file.bytes());
}

TEST(TaskCutTest, AnEarlierCutIsRepeatedOnAnyNumberOfWorkers) {
  const std::vector<IndexedFile> files = {FileOf("a", 5 * kMiB), FileOf("b", 3 * kMiB, 0, true)};
  const TaskCut first = Cut(Workers(2), files);
  for (const uint32_t workers : {1, 3, 8}) {
    TaskCutOptions again = Workers(workers);
    again.task_bytes = first.task_bytes;
    again.part_bytes = first.part_bytes;
    EXPECT_EQ(TextsOf(Cut(again, files)), TextsOf(first)) << workers;
  }
  // Small files make a task each, whatever the number of workers.
  std::vector<IndexedFile> small;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"})
    small.push_back(FileOf(name, 40 << 10));
  const TaskCut of_small = Cut(Workers(8), small);
  EXPECT_EQ(of_small.tasks.size(), 8u);
  TaskCutOptions fewer = Workers(4);
  fewer.task_bytes = of_small.task_bytes;
  fewer.part_bytes = of_small.part_bytes;
  EXPECT_EQ(TextsOf(Cut(fewer, small)), TextsOf(of_small));
  // A checkpoint of a version that did not deal.
  TaskCutOptions pieces = Workers(2);
  pieces.task_bytes = kMiB;
  pieces.part_bytes = 0;
  EXPECT_EQ(Cut(pieces, files).tasks.size(), 8u);
  EXPECT_EQ(Cut(pieces, files).tasks[5].path(), "b");
}

TEST(TaskCutTest, ATaskOfPinnedDataHasFilesOfOneRank) {
  TaskCutOptions options = Workers(2);
  options.pinned = true;
  const std::vector<IndexedFile> files = {FileOf("a", kMiB), FileOf("b", kMiB, 1),
                                          FileOf("c", kMiB), FileOf("d", 2 * kMiB, 1)};
  const TaskCut cut = Cut(options, files);
  std::set<uint32_t> owners;
  for (size_t i = 0; i < cut.tasks.size(); ++i) {
    owners.insert(cut.owners[i]);
    for (const uint32_t file : cut.tasks[i].parts().file())
      EXPECT_EQ(files[file].rank, cut.owners[i]);
  }
  EXPECT_EQ(owners.size(), 2u);
  for (const auto& [file, counts] : Touched(cut, files)) {
    for (const int n : counts) ASSERT_GE(n, 1) << file;
  }
}

TEST(TaskCutTest, CompressedDataIsReadInFewPasses) {
  // Every task decompresses all files that it has parts of.
  const TaskCut plain = Cut(Workers(2), {FileOf("a", 32 * kMiB)});
  const TaskCut compressed = Cut(Workers(2), {FileOf("a.gz", 32 * kMiB, 0, true)});
  EXPECT_EQ(plain.tasks.size(), 32u);
  EXPECT_EQ(compressed.tasks.size(), 8u);
  std::vector<IndexedFile> small;
  for (int i = 1000; i < 2000; ++i) small.push_back(FileOf(absl::StrCat(i), 32'000, i % 2, true));
  int parts = 0;
  for (const DataTask& task : Cut(Workers(2), small).tasks) parts += task.parts().file_size();
  EXPECT_EQ(parts, 1000) << "small files are not cut";
}

TEST(TaskCutTest, SeveralSmallFilesKeepSeveralWorkersBusy) {
  EXPECT_EQ(Cut(Workers(2), {FileOf("a", 5000), FileOf("b", 5000)}).tasks.size(), 2u);
  EXPECT_EQ(Cut(Workers(2), {FileOf("a", 5000)}).tasks.size(), 1u);
}

TEST(TaskCutTest, TasksOfLessThanTwoPartsAreConsecutivePieces) {
  TaskCutOptions options = Workers(2);
  options.task_bytes = 1500;
  EXPECT_EQ(Cut(options, {FileOf("a", 9000)}).part_bytes, 0u);
  options.task_bytes = 2500;
  EXPECT_EQ(Cut(options, {FileOf("a", 9000)}).part_bytes, 1024u);
}

}  // namespace
}  // namespace sluice
