#include "scheduler/job/data_tasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/wire/train_position.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

IndexedFile File(const std::string& path, uint64_t bytes, uint32_t rank) {
  IndexedFile file;
  file.file.set_path(path);
  file.file.set_bytes(bytes);
  file.rank = rank;
  return file;
}

DataTasks::Options TwoWorkers(uint64_t task_bytes) {
  DataTasks::Options options;
  options.cut.worker_num = 2;
  options.cut.task_bytes = task_bytes;
  return options;
}

NextTaskRequest Ask(uint32_t rank, uint64_t finished, uint64_t number) {
  NextTaskRequest request;
  request.set_rank(rank);
  request.set_finished_task(finished);
  request.set_number(number);
  return request;
}

TEST(DataTasksTest, CoverEveryByteOnce) {
  auto tasks =
      DataTasks::Create(TwoWorkers(10), {File("b", 25, 1), File("a", 10, 0), File("c", 0, 0)});
  ASSERT_TRUE(tasks.ok()) << tasks.status();
  std::map<std::string, std::vector<int>> touched = {{"a", std::vector<int>(10)},
                                                     {"b", std::vector<int>(25)}};
  uint64_t id = 0;
  for (const DataTask& task : tasks->tasks()) {
    EXPECT_EQ(task.id(), ++id);
    for (uint64_t i = task.begin(); i < task.end(); ++i) ++touched.at(task.path()).at(i);
  }
  for (const auto& [path, bytes] : touched) {
    for (const int n : bytes) EXPECT_EQ(n, 1) << path;
  }
}

TEST(DataTasksTest, DefaultSizeIsAShareOfTheDataWithinBounds) {
  EXPECT_EQ(DefaultTaskBytes(100, 2), 64u << 10);
  EXPECT_EQ(DefaultTaskBytes(uint64_t{64} << 20, 2), 2u << 20);
  EXPECT_EQ(DefaultTaskBytes(uint64_t{1} << 40, 2), 16u << 20);
}

TEST(DataTasksTest, ARankThatWantsSeveralLeavesMostToTheOthers) {
  for (const uint32_t workers : {1u, 2u}) {
    DataTasks::Options options = TwoWorkers(1);
    options.cut.worker_num = workers;
    auto tasks = DataTasks::Create(options, {File("a", 16, 0)});
    ASSERT_TRUE(tasks.ok());
    tasks->BeginEpoch(0);
    NextTaskRequest request = Ask(0, 0, 1);
    request.set_wants(64);
    const auto reply = tasks->Next(request);
    ASSERT_TRUE(reply.ok());
    ASSERT_EQ(reply->more_size(), workers == 1 ? 15 : 15 / 4);
    EXPECT_EQ(tasks->Next(request)->more_size(), reply->more_size()) << "repeated";
    // All of them are acknowledged with one request.
    request = Ask(0, reply->task().id(), 2);
    for (const DataTask& task : reply->more()) request.add_more_finished()->set_task(task.id());
    const auto next = tasks->Next(request);
    ASSERT_TRUE(next.ok()) << next.status();
    if (workers == 1) {
      EXPECT_EQ(next->kind(), NextTaskReply::EPOCH_DONE);
      EXPECT_TRUE(tasks->CheckComplete().ok());
    }
    request.mutable_more_finished(0)->set_task(99);
    request.set_number(3);
    EXPECT_FALSE(tasks->Next(request).ok());
  }
}

TEST(DataTasksTest, EachEpochLeasesEveryTaskOnceInItsOwnOrder) {
  auto tasks = DataTasks::Create(TwoWorkers(1), {File("a", 64, 0)});
  ASSERT_TRUE(tasks.ok());
  std::vector<std::vector<uint64_t>> orders;
  for (const uint32_t epoch : {0, 1, 0}) {
    tasks->BeginEpoch(epoch);
    std::vector<uint64_t> order;
    for (uint64_t number = 1;; ++number) {
      const auto reply = tasks->Next(Ask(number % 2, 0, number));
      ASSERT_TRUE(reply.ok());
      if (reply->kind() == NextTaskReply::EPOCH_DONE) break;
      order.push_back(reply->task().id());
    }
    EXPECT_EQ(std::set<uint64_t>(order.begin(), order.end()).size(), 64u);
    orders.push_back(order);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_EQ(orders[0], orders[2]);
}

TEST(DataTasksTest, WithoutShuffleTasksFollowTheOrderOfTheFiles) {
  DataTasks::Options options = TwoWorkers(1);
  options.cut.shuffle = false;
  auto tasks = DataTasks::Create(options, {File("a", 3, 0)});
  ASSERT_TRUE(tasks.ok());
  tasks->BeginEpoch(5);
  for (uint64_t id = 1; id <= 3; ++id) EXPECT_EQ(tasks->Next(Ask(0, 0, id))->task().id(), id);
}

TEST(DataTasksTest, PinnedTasksGoToTheRankThatHasTheFile) {
  DataTasks::Options options = TwoWorkers(10);
  options.cut.pinned = true;
  auto tasks = DataTasks::Create(options, {File("a", 10, 0), File("b", 20, 0), File("c", 10, 1)});
  ASSERT_TRUE(tasks.ok());
  tasks->BeginEpoch(0);
  EXPECT_EQ(tasks->Next(Ask(1, 0, 1))->task().path(), "c");
  EXPECT_EQ(tasks->Next(Ask(1, 0, 2))->kind(), NextTaskReply::EPOCH_DONE);
  for (uint64_t n = 1; n <= 3; ++n)
    EXPECT_EQ(tasks->Next(Ask(0, 0, n))->kind(), NextTaskReply::TASK);
  EXPECT_EQ(tasks->Next(Ask(0, 0, 4))->kind(), NextTaskReply::EPOCH_DONE);
}

TEST(DataTasksTest, RepeatedRequestGetsTheSameAnswer) {
  auto tasks = DataTasks::Create(TwoWorkers(10), {File("a", 20, 0)});
  ASSERT_TRUE(tasks.ok());
  tasks->BeginEpoch(0);
  const uint64_t first = tasks->Next(Ask(0, 0, 1))->task().id();
  EXPECT_EQ(tasks->Next(Ask(0, 0, 1))->task().id(), first);
  const uint64_t second = tasks->Next(Ask(0, first, 2))->task().id();
  EXPECT_NE(second, first);
  EXPECT_EQ(tasks->Next(Ask(0, first, 2))->task().id(), second);
  EXPECT_FALSE(tasks->CheckEnded(0).ok());
  EXPECT_EQ(tasks->Next(Ask(0, second, 3))->kind(), NextTaskReply::EPOCH_DONE);
  EXPECT_TRUE(tasks->CheckEnded(0).ok());
  EXPECT_TRUE(tasks->CheckComplete().ok());
}

TEST(DataTasksTest, ARankMayHoldSeveralTasksAndAcknowledgeThemLate) {
  auto tasks = DataTasks::Create(TwoWorkers(10), {File("a", 20, 0)});
  ASSERT_TRUE(tasks.ok());
  tasks->BeginEpoch(0);
  const uint64_t first = tasks->Next(Ask(0, 0, 1))->task().id();
  const uint64_t second = tasks->Next(Ask(0, 0, 2))->task().id();
  EXPECT_NE(first, second);
  EXPECT_EQ(tasks->Next(Ask(0, first, 3))->kind(), NextTaskReply::EPOCH_DONE);
  EXPECT_FALSE(tasks->CheckComplete().ok());
  EXPECT_EQ(tasks->Next(Ask(0, second, 4))->kind(), NextTaskReply::EPOCH_DONE);
  EXPECT_TRUE(tasks->CheckComplete().ok());
}

TEST(DataTasksTest, ARankCannotAcknowledgeATaskOfAnotherRank) {
  auto tasks = DataTasks::Create(TwoWorkers(10), {File("a", 20, 0)});
  ASSERT_TRUE(tasks.ok());
  tasks->BeginEpoch(0);
  const uint64_t task = tasks->Next(Ask(0, 0, 1))->task().id();
  EXPECT_TRUE(absl::IsFailedPrecondition(tasks->Next(Ask(1, task, 1)).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(tasks->Next(Ask(1, 99, 2)).status()));
  EXPECT_FALSE(tasks->CheckEnded(0).ok());
}

RankPosition HeldPosition(uint64_t task, uint64_t end) {
  RankPosition held;
  held.set_task_id(task);
  held.set_task_end(end);
  return held;
}

// Six tasks of 10 bytes, leased in the order of their ids.
DataTasks SixTasks(bool pinned = false) {
  DataTasks::Options options = TwoWorkers(10);
  options.cut.shuffle = false;
  options.cut.pinned = pinned;
  auto tasks = DataTasks::Create(options, {File("a", 60, 0)});
  EXPECT_TRUE(tasks.ok()) << tasks.status();
  tasks->BeginEpoch(0);
  return *std::move(tasks);
}

// Leases a task to the rank and returns it; id 0: there is none.
DataTask Lease(DataTasks* tasks, uint32_t rank, uint64_t finished, uint64_t number) {
  const auto reply = tasks->Next(Ask(rank, finished, number));
  EXPECT_TRUE(reply.ok()) << reply.status();
  return reply.ok() && reply->kind() == NextTaskReply::TASK ? reply->task() : DataTask();
}

TEST(DataTasksTest, ReleaseFreesWhatTheLifeHasNotTrainedAheadOfTheOthers) {
  DataTasks tasks = SixTasks();
  EXPECT_EQ(Lease(&tasks, 0, 0, 1).id(), 1u);
  EXPECT_EQ(Lease(&tasks, 0, 0, 2).id(), 2u);
  EXPECT_EQ(Lease(&tasks, 1, 0, 1).id(), 3u);
  EXPECT_EQ(Lease(&tasks, 0, 0, 3).id(), 4u);
  EXPECT_EQ(tasks.LeaseOrderForTest(0), (std::vector<uint64_t>{1, 2, 4}));
  // Task 1 was never acknowledged, but frames of task 2 follow all of its frames.
  ASSERT_TRUE(tasks.Release(0, HeldPosition(2, 7)).ok());
  EXPECT_TRUE(tasks.LeaseOrderForTest(0).empty());
  EXPECT_TRUE(tasks.CheckEnded(0).ok());
  const DataTask rest = Lease(&tasks, 1, 0, 2);
  EXPECT_EQ(rest.id(), 2u);
  EXPECT_EQ(rest.first_offset(), 7u);
  const DataTask whole = Lease(&tasks, 0, 0, 1);  // the next life, which begins its numbers anew
  EXPECT_EQ(whole.id(), 4u);
  EXPECT_EQ(whole.first_offset(), 0u);
  EXPECT_EQ(Lease(&tasks, 0, 0, 2).id(), 5u);
  EXPECT_EQ(Lease(&tasks, 1, 0, 3).id(), 6u);
  for (const uint64_t id : {2, 3, 6}) EXPECT_TRUE(tasks.Next(Ask(1, id, 3 + id)).ok());
  for (const uint64_t id : {4, 5}) EXPECT_TRUE(tasks.Next(Ask(0, id, id)).ok());
  EXPECT_TRUE(tasks.CheckComplete().ok());
}

TEST(DataTasksTest, ReleaseOfALifeWithoutFramesFreesAllButTheAcknowledgedTasks) {
  DataTasks tasks = SixTasks();
  EXPECT_EQ(Lease(&tasks, 0, 0, 1).id(), 1u);
  EXPECT_EQ(Lease(&tasks, 0, 0, 2).id(), 2u);
  EXPECT_EQ(Lease(&tasks, 0, 1, 3).id(), 3u);  // task 1 had no examples, so no frame names it
  ASSERT_TRUE(tasks.Release(0, HeldPosition(0, 0)).ok());
  EXPECT_EQ(Lease(&tasks, 1, 0, 1).id(), 2u);
  EXPECT_EQ(Lease(&tasks, 1, 0, 2).id(), 3u);
  EXPECT_EQ(Lease(&tasks, 1, 0, 3).id(), 4u);
}

TEST(DataTasksTest, OffsetsOfEarlierLivesStay) {
  DataTasks tasks = SixTasks();
  EXPECT_EQ(Lease(&tasks, 0, 0, 1).id(), 1u);
  ASSERT_TRUE(tasks.Release(0, HeldPosition(1, 5)).ok());
  EXPECT_EQ(Lease(&tasks, 0, 0, 1).first_offset(), 5u);
  ASSERT_TRUE(
      tasks.Release(0, HeldPosition(0, 0)).ok());  // no shard has a frame of the second life
  EXPECT_EQ(Lease(&tasks, 1, 0, 1).first_offset(), 5u);
  ASSERT_TRUE(tasks.Release(1, HeldPosition(1, 8)).ok());
  const DataTask third = Lease(&tasks, 0, 0, 1);
  EXPECT_EQ(third.id(), 1u);
  EXPECT_EQ(third.first_offset(), 8u);
  tasks.BeginEpoch(1);
  EXPECT_EQ(Lease(&tasks, 0, 0, 1).first_offset(), 0u);
}

TEST(DataTasksTest, ReleasedTasksOfAPinnedRankWaitForItsNextLife) {
  DataTasks tasks = SixTasks(/*pinned=*/true);
  EXPECT_EQ(Lease(&tasks, 0, 0, 1).id(), 1u);
  ASSERT_TRUE(tasks.Release(0, HeldPosition(1, 3)).ok());
  EXPECT_EQ(Lease(&tasks, 1, 0, 1).id(), 0u);
  EXPECT_EQ(Lease(&tasks, 0, 0, 1).id(), 1u);
}

TEST(DataTasksTest, ReleaseRefusesATaskThatTheLifeNeverHad) {
  DataTasks tasks = SixTasks();
  EXPECT_EQ(Lease(&tasks, 0, 0, 1).id(), 1u);
  EXPECT_EQ(Lease(&tasks, 1, 0, 1).id(), 2u);
  EXPECT_TRUE(absl::IsInvalidArgument(tasks.Release(0, HeldPosition(2, 1))));
  EXPECT_EQ(tasks.LeaseOrderForTest(0), (std::vector<uint64_t>{1}));
  EXPECT_FALSE(tasks.CheckEnded(0).ok());
}

// Ranks die at random and report positions as their shards would hold them. Every example of every
// task is trained exactly once.
TEST(DataTasksTest, RandomLossesLeaveNoExampleOutAndRepeatNone) {
  constexpr uint64_t kExamples = 10;  // of each task
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    DataTasks tasks = SixTasks();
    std::vector<std::vector<int>> trained(6, std::vector<int>(kExamples));
    struct Life {
      std::deque<DataTask> leased;
      uint64_t next = 0, number = 0, finished = 0;
      RankPosition held;
      bool done = false;
    } lives[2];
    while (!lives[0].done || !lives[1].done) {
      const uint32_t rank = random() % 2;
      Life& life = lives[rank];
      switch (random() % 8) {
        case 0:
          ASSERT_TRUE(tasks.Release(rank, life.held).ok());
          life = Life();
          break;
        case 1:
        case 2: {
          const auto reply = tasks.Next(Ask(rank, std::exchange(life.finished, 0), ++life.number));
          ASSERT_TRUE(reply.ok()) << reply.status();
          if (reply->kind() == NextTaskReply::TASK) life.leased.push_back(reply->task());
          life.done = reply->kind() == NextTaskReply::EPOCH_DONE && life.leased.empty();
          break;
        }
        default: {
          if (life.leased.empty() || life.finished != 0) break;
          const DataTask& task = life.leased.front();
          life.next = std::max(life.next, task.first_offset());
          if (life.next < kExamples) ++trained[task.id() - 1][life.next++];
          life.held = HeldPosition(task.id(), life.next);
          if (life.next < kExamples) break;
          life.finished = task.id();
          life.next = 0;
          life.leased.pop_front();
        }
      }
    }
    EXPECT_TRUE(tasks.CheckComplete().ok());
    for (const auto& task : trained) EXPECT_EQ(task, std::vector<int>(kExamples, 1));
  }
}

RankPart PartOf(uint64_t task, uint64_t end, uint64_t tasks) {
  RankPart part;
  part.held.set_task_id(task);
  part.held.set_task_end(end);
  part.tasks = tasks;
  return part;
}

std::map<uint64_t, uint64_t> Offsets(const absl::StatusOr<std::vector<DataTask>>& tasks) {
  EXPECT_TRUE(tasks.ok()) << tasks.status();
  std::map<uint64_t, uint64_t> offsets;
  if (tasks.ok()) {
    for (const DataTask& task : *tasks) offsets[task.id()] = task.first_offset();
  }
  return offsets;
}

NextTaskRequest Finish(uint32_t rank, uint64_t finished, uint64_t examples, uint64_t number) {
  NextTaskRequest request = Ask(rank, finished, number);
  request.set_finished_examples(examples);
  return request;
}

TEST(DataTasksTest, ACheckpointLeavesOpenWhatSomeShardLacks) {
  DataTasks::Options options = TwoWorkers(10);
  options.cut.shuffle = false;
  auto tasks = DataTasks::Create(options, {File("a", 60, 0)});
  tasks->BeginEpoch(0);
  EXPECT_FALSE(tasks->AllAsked());
  for (const uint64_t number : {1, 2}) ASSERT_TRUE(tasks->Next(Ask(0, 0, number)).ok());
  EXPECT_FALSE(tasks->AllAsked());
  ASSERT_TRUE(tasks->Next(Ask(1, 0, 1)).ok());  // rank 0 has 1 and 2, rank 1 has 3
  EXPECT_TRUE(tasks->AllAsked());
  constexpr uint64_t kAll = DataTasks::kAllExamples;
  using Map = std::map<uint64_t, uint64_t>;
  EXPECT_EQ(Offsets(tasks->OpenAt({PartOf(0, 0, 0), PartOf(3, 7, 0)})),
            (Map{{1, 0}, {2, 0}, {3, 7}, {4, 0}, {5, 0}, {6, 0}}));
  // Task 1 is trained, but not acknowledged: what was read of it is in no state.
  EXPECT_EQ(Offsets(tasks->OpenAt({PartOf(2, 4, 0), PartOf(3, 7, 0)})),
            (Map{{1, kAll}, {2, 4}, {3, 7}, {4, 0}, {5, 0}, {6, 0}}));
  ASSERT_TRUE(tasks->Next(Finish(0, 1, 12, 3)).ok());  // and leases 4
  EXPECT_EQ(Offsets(tasks->OpenAt({PartOf(2, 4, 1), PartOf(3, 7, 0)})),
            (Map{{2, 4}, {3, 7}, {4, 0}, {5, 0}, {6, 0}}));
  // The rank's state was recorded before the acknowledgement.
  EXPECT_EQ(Offsets(tasks->OpenAt({PartOf(2, 4, 0), PartOf(3, 7, 0)}))[1], 12u);
  // gradients_to_wait: acknowledged, but some shard holds back the last frame.
  EXPECT_EQ(Offsets(tasks->OpenAt({PartOf(1, 8, 1), PartOf(3, 7, 0)}))[1], 8u);
  // A task without a batch is trained before the one in front of it.
  ASSERT_TRUE(tasks->Next(Finish(0, 4, 0, 4)).ok());  // and leases 5
  EXPECT_EQ(Offsets(tasks->OpenAt({PartOf(2, 4, 2), PartOf(3, 7, 0)})),
            (Map{{2, 4}, {3, 7}, {5, 0}, {6, 0}}));
  EXPECT_EQ(tasks->OpenAt({PartOf(6, 1, 0), PartOf(0, 0, 0)}).status().code(),
            absl::StatusCode::kInternal);
}

TEST(DataTasksTest, AResumedEpochHasOnlyTheOpenTasks) {
  DataTasks::Options options = TwoWorkers(10);
  options.cut.shuffle = false;
  auto tasks = DataTasks::Create(options, {File("a", 60, 0)});
  EXPECT_EQ(tasks->cut().task_bytes, 10u);
  google::protobuf::RepeatedPtrField<DataTask> open;
  open.Add()->set_id(7);
  EXPECT_EQ(tasks->Resume(2, open).code(), absl::StatusCode::kDataLoss);
  open.Mutable(0)->set_id(2);
  open.Mutable(0)->set_first_offset(4);
  open.Add()->set_id(6);
  ASSERT_TRUE(tasks->Resume(2, open).ok());
  tasks->BeginEpoch(2);
  const auto first = tasks->Next(Ask(0, 0, 1));
  EXPECT_EQ(first->task().id(), 2u);
  EXPECT_EQ(first->task().first_offset(), 4u);
  EXPECT_FALSE(tasks->CheckComplete().ok());
  EXPECT_EQ(tasks->Next(Finish(0, 2, 10, 2))->task().id(), 6u);
  EXPECT_EQ(tasks->Next(Finish(0, 6, 10, 3))->kind(), NextTaskReply::EPOCH_DONE);
  EXPECT_TRUE(tasks->CheckComplete().ok());
  // The next epoch has all of them, from their beginning.
  tasks->BeginEpoch(3);
  for (uint64_t id = 1; id <= 6; ++id) {
    const auto next = tasks->Next(Ask(1, 0, id));
    EXPECT_EQ(next->task().id(), id);
    EXPECT_EQ(next->task().first_offset(), 0u);
  }
}

// Ranks train tasks in batches. Each batch is a frame that every shard applies, in the rank's order
// but at any time. With `wait` above 1 a shard applies that many frames at once.
class TrainingModel {
 public:
  TrainingModel(uint32_t seed, DataTasks* tasks, uint32_t ranks, size_t shards, uint64_t wait)
      : random_(seed), tasks_(*tasks), ranks_(ranks), wait_(wait) {
    for (const DataTask& task : tasks_.tasks()) examples_[task.id()] = Draw(3) == 0 ? 0 : Draw(40);
    for (size_t s = 0; s < shards; ++s)
      shards_.push_back({std::vector<size_t>(ranks), std::vector<size_t>(ranks), 0});
  }

  uint64_t Draw(uint64_t n) { return random_() % n; }
  size_t shards() const { return shards_.size(); }

  // One rank leases a task, or one shard takes a frame, or one rank acknowledges a task.
  void Step() {
    const auto rank = static_cast<uint32_t>(Draw(ranks_.size()));
    switch (Draw(6)) {
      case 0:
        return Lease(rank);
      case 1:
        return Acknowledge(rank);
      default:
        return Take(&shards_[Draw(shards_.size())], rank);
    }
  }
  // What shard `s` holds, by rank.
  std::vector<RankPosition> Cut(size_t s) const {
    std::vector<RankPosition> cut(ranks_.size());
    for (size_t r = 0; r < ranks_.size(); ++r) {
      const size_t n = shards_[s].applied[r];
      if (n == 0) continue;
      cut[r].set_sequence(n);
      cut[r].set_task_id(ranks_[r].frames[n - 1].task);
      cut[r].set_task_end(ranks_[r].frames[n - 1].end);
    }
    return cut;
  }
  // The examples behind a cut, each as its task and its place there.
  std::set<std::pair<uint64_t, uint64_t>> ExamplesOf(const std::vector<RankPosition>& cut) const {
    std::set<std::pair<uint64_t, uint64_t>> examples;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      for (size_t f = 0; f < cut[r].sequence(); ++f) {
        const Frame& frame = ranks_[r].frames[f];
        for (uint64_t i = frame.begin; i < frame.end; ++i) examples.insert({frame.task, i});
      }
    }
    return examples;
  }
  uint64_t acknowledged(size_t rank) const { return ranks_[rank].acknowledged.size(); }
  // Tasks that the rank's state covers.
  std::set<uint64_t> Covered(size_t rank, uint64_t n) const {
    return {ranks_[rank].acknowledged.begin(), ranks_[rank].acknowledged.begin() + n};
  }
  const std::map<uint64_t, uint64_t>& examples() const { return examples_; }

 private:
  struct Frame {
    uint64_t task, begin, end;
  };
  struct Rank {
    std::vector<Frame> frames;
    std::deque<std::pair<uint64_t, size_t>> waiting;  // task and the frame that ends it
    std::vector<uint64_t> acknowledged;
    uint64_t calls = 0;
  };
  struct Shard {
    std::vector<size_t> taken;    // frames by rank
    std::vector<size_t> applied;  // of these, in the values
    uint64_t held = 0;
  };

  void Lease(uint32_t r) {
    Rank& rank = ranks_[r];
    const auto reply = tasks_.Next(Ask(r, 0, ++rank.calls));
    ASSERT_TRUE(reply.ok());
    Begin(&rank, *reply);
  }
  void Begin(Rank* rank, const NextTaskReply& reply) {
    constexpr uint64_t kBatch = 7;
    if (reply.kind() != NextTaskReply::TASK) return;
    const uint64_t id = reply.task().id(), n = examples_[id];
    for (uint64_t at = 0; at < n; at += kBatch)
      rank->frames.push_back({id, at, std::min(at + kBatch, n)});
    // A task without a batch is trained at once, ahead of those before it.
    if (n == 0) {
      rank->waiting.push_front({id, 0});
    } else {
      rank->waiting.push_back({id, rank->frames.size()});
    }
  }
  void Take(Shard* shard, uint32_t r) {
    if (shard->taken[r] == ranks_[r].frames.size()) return;
    ++shard->taken[r];
    if (++shard->held < wait_) return;
    shard->held = 0;
    shard->applied = shard->taken;
  }
  void Acknowledge(uint32_t r) {
    Rank& rank = ranks_[r];
    if (rank.waiting.empty()) return;
    const auto [id, frames] = rank.waiting.front();
    for (const Shard& shard : shards_) {
      if (shard.taken[r] < frames) return;
    }
    rank.waiting.pop_front();
    rank.acknowledged.push_back(id);
    const auto reply = tasks_.Next(Finish(r, id, examples_[id], ++rank.calls));
    ASSERT_TRUE(reply.ok()) << reply.status();
    Begin(&rank, *reply);  // the same call has leased another one
  }

  std::mt19937 random_;
  DataTasks& tasks_;
  std::vector<Rank> ranks_;
  std::vector<Shard> shards_;
  const uint64_t wait_;
  std::map<uint64_t, uint64_t> examples_;  // by task
};

TEST(DataTasksTest, NoInterleavingSkipsAnExampleOrRepeatsOneThatAllShardsHold) {
  for (uint32_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    const uint32_t ranks = 1 + seed % 4;
    const uint64_t wait = seed % 3 == 0 ? 1 + seed % 5 : 1;
    DataTasks::Options options;
    options.cut.worker_num = ranks;
    options.cut.task_bytes = 10;
    auto tasks = DataTasks::Create(options, {File("a", 200, 0)});
    tasks->BeginEpoch(0);
    TrainingModel model(seed, &*tasks, ranks, 1 + seed % 5, wait);
    for (uint64_t i = model.Draw(400); i > 0; --i) model.Step();
    // Every rank records its part, then every shard cuts, all at times of their own.
    std::vector<RankPart> parts(ranks);
    for (uint32_t r = 0; r < ranks; ++r) {
      for (uint64_t i = model.Draw(20); i > 0; --i) model.Step();
      parts[r].tasks = model.acknowledged(r);
    }
    std::vector<std::vector<RankPosition>> cuts;
    for (size_t s = 0; s < model.shards(); ++s) {
      for (uint64_t i = model.Draw(20); i > 0; --i) model.Step();
      cuts.push_back(model.Cut(s));
    }
    std::vector<RankPosition> least = cuts[0];
    for (const auto& cut : cuts) {
      for (uint32_t r = 0; r < ranks; ++r) KeepLeast(cut[r], &least[r]);
    }
    for (uint32_t r = 0; r < ranks; ++r) parts[r].held = least[r];
    const auto open = tasks->OpenAt(parts);
    ASSERT_TRUE(open.ok()) << open.status();

    std::set<std::pair<uint64_t, uint64_t>> again;
    std::set<uint64_t> read;
    for (const DataTask& task : *open) {
      read.insert(task.id());
      for (uint64_t i = task.first_offset(); i < model.examples().at(task.id()); ++i)
        again.insert({task.id(), i});
    }
    const auto held = model.ExamplesOf(least);
    for (const auto& example : again) EXPECT_EQ(held.count(example), 0u) << "repeated for nothing";
    for (const auto& cut : cuts) {
      const auto has = model.ExamplesOf(cut);
      for (const auto& [task, n] : model.examples()) {
        for (uint64_t i = 0; i < n; ++i)
          EXPECT_TRUE(has.count({task, i}) + again.count({task, i}) > 0) << task << ", " << i;
      }
    }
    // What is read of a task is counted once: by a rank's state, or when it is read again.
    std::map<uint64_t, int> counted;
    for (const uint64_t id : read) ++counted[id];
    for (uint32_t r = 0; r < ranks; ++r) {
      for (const uint64_t id : model.Covered(r, parts[r].tasks)) ++counted[id];
    }
    for (const auto& [task, n] : model.examples()) {
      if (wait == 1) {
        EXPECT_EQ(counted[task], 1) << task;
      } else {
        EXPECT_GE(counted[task], 1) << task;
      }
    }
  }
}

TEST(DataTasksTest, FileReportedByTwoRanksIsRefused) {
  const auto tasks = DataTasks::Create(TwoWorkers(10), {File("a", 20, 0), File("a", 20, 1)});
  EXPECT_TRUE(absl::IsInvalidArgument(tasks.status()));
}

TEST(DataTasksTest, MoreTasksThanAJobMayHaveAreRefusedWithTheTaskBytesThatHelp) {
  const uint64_t most = TaskCut::kMaxTasks;
  const auto at_most =
      DataTasks::Create(TwoWorkers(1024), {File("a", (most - 1) * 1024, 0), File("b", 1, 1)});
  ASSERT_TRUE(at_most.ok()) << at_most.status();
  EXPECT_EQ(at_most->tasks().size(), most);
  const std::vector<IndexedFile> files = {File("a", most * 1024, 0), File("b", 1, 1)};
  const auto too_many = DataTasks::Create(TwoWorkers(1024), files);
  ASSERT_TRUE(absl::IsFailedPrecondition(too_many.status())) << too_many.status();
  const std::string why(too_many.status().message());
  EXPECT_THAT(why, HasSubstr(absl::StrCat(most * 1024 + 1, " bytes")));
  EXPECT_THAT(why, HasSubstr(absl::StrCat(most + 1, " tasks of 1024")));
  const size_t at = why.find("task_bytes to ");
  ASSERT_NE(at, why.npos) << why;
  const uint64_t advice = std::stoull(why.substr(at + strlen("task_bytes to ")));
  EXPECT_TRUE(DataTasks::Create(TwoWorkers(advice), files).ok()) << advice;
}

TEST(DataTasksTest, HugeReportsAreRefusedBeforeAnyTaskIsMade) {
  const auto code_of = [](std::vector<IndexedFile> files, uint64_t task_bytes) {
    return DataTasks::Create(TwoWorkers(task_bytes), std::move(files)).status().code();
  };
  EXPECT_EQ(code_of({File("a", uint64_t{1} << 62, 0)}, 0), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code_of({File("a", INT64_MAX, 0)}, 1), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code_of({File("a", INT64_MAX, 0)}, INT64_MAX), absl::StatusCode::kOk);
  // Sums of which one is too large, and one would wrap to a small number.
  EXPECT_EQ(code_of({File("a", INT64_MAX, 0), File("b", 1, 1)}, INT64_MAX),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of({File("a", UINT64_MAX, 0), File("b", 2, 1)}, 1024),
            absl::StatusCode::kInvalidArgument);
  const auto refused =
      DataTasks::Create(TwoWorkers(1024), {File("a", 5, 0), File("huge", UINT64_MAX, 1)});
  EXPECT_THAT(std::string(refused.status().message()),
              AllOf(HasSubstr("rank 1"), HasSubstr("huge")));
}

TEST(DataTasksTest, LongPathsBoundTheNumberOfTasksToo) {
  const std::string path(4096, 'p');
  const uint64_t most = TaskCut::kMaxTaskPathBytes / path.size();
  EXPECT_TRUE(DataTasks::Create(TwoWorkers(10), {File(path, 10 * most, 0)}).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(
      DataTasks::Create(TwoWorkers(10), {File(path, 10 * most + 1, 0)}).status()));
}

}  // namespace
}  // namespace sluice
