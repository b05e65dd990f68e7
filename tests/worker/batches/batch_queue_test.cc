#include "worker/batches/batch_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

namespace sluice {
namespace {

BatchQueue::Item ItemOf(uint64_t number) {
  auto batch = std::make_shared<PreparedBatch>();
  batch->task_examples = number;
  return batch;
}

TEST(BatchQueueTest, ItemsComeInOrderAndThenTheEnd) {
  BatchQueue queue(3);
  for (uint64_t i = 1; i <= 3; ++i) ASSERT_TRUE(queue.Push(ItemOf(i)));
  queue.Close(absl::OkStatus());
  EXPECT_EQ(queue.size(), 3u);
  EXPECT_EQ(queue.Peek()->task_examples, 1u);
  EXPECT_EQ(queue.TryPop()->task_examples, 1u);
  for (uint64_t i = 2; i <= 3; ++i) EXPECT_EQ(queue.Pop().value()->task_examples, i);
  EXPECT_EQ(queue.Pop().value(), nullptr);
  EXPECT_EQ(queue.TryPop(), nullptr);
}

TEST(BatchQueueTest, TheReadersErrorComesAfterItsLastBatch) {
  BatchQueue queue(2);
  ASSERT_TRUE(queue.Push(ItemOf(1)));
  queue.Close(absl::DataLossError("broken"));
  EXPECT_EQ(queue.Pop().value()->task_examples, 1u);
  EXPECT_TRUE(absl::IsDataLoss(queue.Pop().status()));
}

TEST(BatchQueueTest, AFullQueueHoldsUpItsReader) {
  BatchQueue queue(1);
  ASSERT_TRUE(queue.Push(ItemOf(1)));
  std::atomic<bool> popped{false};
  std::thread reader([&] {
    EXPECT_TRUE(queue.Push(ItemOf(2)));
    EXPECT_TRUE(popped);
  });
  EXPECT_LE(queue.size(), queue.capacity());
  popped = true;
  EXPECT_EQ(queue.Pop().value()->task_examples, 1u);
  EXPECT_EQ(queue.Pop().value()->task_examples, 2u);
  reader.join();
}

TEST(BatchQueueTest, CancellationEndsTheReaderAndTheTrainer) {
  BatchQueue full(1), empty(1);
  ASSERT_TRUE(full.Push(ItemOf(1)));
  std::thread reader([&] { EXPECT_FALSE(full.Push(ItemOf(2))); });
  std::thread trainer([&] { EXPECT_TRUE(absl::IsCancelled(empty.Pop().status())); });
  full.Cancel();
  empty.Cancel();
  reader.join();
  trainer.join();
  EXPECT_EQ(full.TryPop(), nullptr);
  EXPECT_EQ(full.Peek(), nullptr);
}

TEST(BatchQueueTest, AwaitItemEndsWithAnItemOrTheEnd) {
  BatchQueue queue(1);
  EXPECT_FALSE(queue.AwaitItem(std::chrono::milliseconds(0)));
  ASSERT_TRUE(queue.Push(ItemOf(1)));
  EXPECT_TRUE(queue.AwaitItem(std::chrono::milliseconds(0)));
  ASSERT_NE(queue.TryPop(), nullptr);
  queue.Close(absl::OkStatus());
  EXPECT_TRUE(queue.AwaitItem(std::chrono::milliseconds(0)));
}

}  // namespace
}  // namespace sluice
