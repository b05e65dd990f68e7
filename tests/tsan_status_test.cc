// The replacement in tsan_status.cc. Without the thread sanitizer, this tests Abseil.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "absl/status/status.h"

namespace sluice {
namespace {

TEST(TsanStatusTest, TheLastCopyIsDestroyedWithoutAReport) {
  absl::Status first = absl::InternalError(std::string(100, 'x'));
  absl::Status last = first;
  // Orders nothing: only the count of copies does.
  std::atomic<bool> destroyed{false};
  std::thread thread([&] {
    EXPECT_EQ(first.message().size(), 100u);
    first = absl::OkStatus();
    destroyed.store(true, std::memory_order_relaxed);
  });
  while (!destroyed.load(std::memory_order_relaxed)) std::this_thread::yield();
  EXPECT_EQ(last.message().size(), 100u);
  last = absl::OkStatus();
  thread.join();
}

TEST(TsanStatusTest, AMessageOutlivesAllCopiesButOne) {
  absl::Status last;
  {
    const absl::Status first = absl::InternalError("why");
    last = first;
  }
  EXPECT_EQ(last, absl::InternalError("why"));
}

}  // namespace
}  // namespace sluice
