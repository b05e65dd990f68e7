// The test plays the scheduler: it answers each question with what its function returns.
#include "python/core/program_group.h"

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "tests/common/base/fake_clock.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

// A group of rank `rank`, whose questions `answer` answers.
class Group {
 public:
  using Answer = std::function<absl::StatusOr<GatherReply>(const GatherRequest&, int n)>;
  explicit Group(Answer answer) : group_(OptionsFor(std::move(answer))) {}

  // Makes the call and waits for its end.
  absl::StatusOr<ProgramGroup::Given> Call(uint32_t epochs_done, uint32_t rank = 1) {
    group_.Begin({epochs_done, 2, "sum", "data", rank});
    for (;;) {
      auto given = group_.Await(absl::Milliseconds(5));
      if (!given.ok()) return given.status();
      if (given->has_value()) return **std::move(given);
    }
  }
  ProgramGroup& group() { return group_; }
  int asked() const { return asked_; }
  void ServeAs(uint32_t rank) { rank_ = rank; }

 private:
  ProgramGroup::Options OptionsFor(Answer answer) {
    ProgramGroup::Options options;
    options.ask = [this, answer = std::move(answer)](const GatherRequest& request) {
      return answer(request, asked_++);
    };
    options.self = [this]() -> std::optional<GatherRequest> {
      const int rank = rank_;
      if (rank < 0) return std::nullopt;
      GatherRequest self;
      self.set_job_id("j-1");
      self.set_rank(rank);
      self.set_incarnation(7);
      self.set_pass("pass");
      return self;
    };
    options.clock = &clock_;
    options.pause = absl::Milliseconds(1);
    return options;
  }

  FakeClock clock_;
  std::atomic<int> asked_{0};
  std::atomic<int> rank_{1};
  ProgramGroup group_;  // last: its thread uses the others
};

GatherReply Ready(const std::vector<std::string>& data) {
  GatherReply reply;
  reply.set_ready(true);
  reply.mutable_data()->Assign(data.begin(), data.end());
  return reply;
}

TEST(ProgramGroupTest, ACallIsRepeatedUntilAllHaveGiven) {
  Group group([](const GatherRequest& request, int n) -> absl::StatusOr<GatherReply> {
    EXPECT_EQ(request.job_id(), "j-1");
    EXPECT_EQ(request.rank(), 1);
    EXPECT_EQ(request.incarnation(), 7);
    EXPECT_EQ(request.pass(), "pass");
    EXPECT_EQ(request.epochs_done(), 3);
    EXPECT_EQ(request.number(), 2);
    EXPECT_EQ(request.what(), "sum");
    EXPECT_EQ(request.data(), "data");
    if (n == 0) return absl::UnavailableError("no scheduler");
    if (n == 1) return absl::ResourceExhaustedError("no room");
    return n == 2 ? GatherReply() : Ready({"a", "b"});
  });
  const auto given = group.Call(3);
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_THAT(*given, ElementsAre("a", "b"));
  EXPECT_EQ(group.asked(), 4);
}

TEST(ProgramGroupTest, AWithdrawnRankGoesOnBeforeTheFirstBatchAndStopsAtTheEndOfAnEpoch) {
  const auto withdrawn = [](const GatherRequest&, int n) -> absl::StatusOr<GatherReply> {
    if (n == 0) return absl::AbortedError("rank 1 is withdrawn");
    return Ready({"a"});
  };
  Group first(withdrawn), later(withdrawn);
  EXPECT_TRUE(first.Call(0).ok());
  EXPECT_TRUE(absl::IsAborted(later.Call(1).status()));
}

TEST(ProgramGroupTest, AWorkerDoesNotGiveAsTheRankThatItWas) {
  Group group([](const GatherRequest&, int) { return Ready({"a"}); });
  group.ServeAs(0);
  EXPECT_TRUE(absl::IsAborted(group.Call(0, /*rank=*/1).status()));
  EXPECT_EQ(group.asked(), 0);
  EXPECT_TRUE(group.Call(0, /*rank=*/0).ok());
}

TEST(ProgramGroupTest, AnAnswerThatTellsOfAMistakeIsTheResult) {
  Group group([](const GatherRequest&, int) -> absl::StatusOr<GatherReply> {
    return absl::InvalidArgumentError("rank 1 is at sum and rank 0 at barrier");
  });
  EXPECT_EQ(group.Call(0).status(),
            absl::InvalidArgumentError("rank 1 is at sum and rank 0 at barrier"));
}

TEST(ProgramGroupTest, PassingIsSaidOnceWhenTheSchedulerHearsIt) {
  std::atomic<uint32_t> wait_ms{1};
  Group group([&](const GatherRequest& request, int n) -> absl::StatusOr<GatherReply> {
    wait_ms = request.wait_ms();
    if (n == 0) return absl::UnavailableError("no scheduler");
    return GatherReply();
  });
  group.ServeAs(-1);  // it has no job yet
  group.group().Pass({0, 0, "its first batch", "", std::nullopt});
  EXPECT_EQ(group.asked(), 0);
  group.ServeAs(1);
  while (group.asked() < 2) std::this_thread::yield();
  EXPECT_EQ(wait_ms, 0u);
}

}  // namespace
}  // namespace sluice
