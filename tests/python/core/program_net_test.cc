// A thread of the test plays the program: it takes turns and answers them, as the loop in Python
// does.
#include "python/core/program_net.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "python/core/program_exchange.h"

namespace sluice {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Eq;

constexpr absl::Duration kLook = absl::Milliseconds(1);

// One table of dim 2 with two slots, a parameter of 3 elements, one number.
ProgramShape Shape() {
  ProgramShape shape;
  shape.numbers = {{"age"}};
  shape.slots = {{"a", 0, false}, {"b", 0, false}};
  shape.tables = {{"embedding", 2, {{0, 0, 2}}}};
  shape.parameters = {{"w", {3}, false, false, 3}};
  return shape;
}

// Two examples: a = row 0 and row 1; b = rows 1 and 2, and none.
class Step {
 public:
  Step() {
    batch_.Reset(1, 2);
    batch_.n = 2;
    batch_.label = {0, 1};
    batch_.weight = {1, 1};
    batch_.numeric = {0.5f, 0.25f};
    batch_.keys = {10, 11, 12, 11};
    batch_.key_offsets = {0, 1, 3, 4, 4};
    input_.batch = &batch_;
    input_.row_index = rows_of_keys_.data();
    input_.rows = {{values_.data(), 3}};
    input_.dense = {dense_.data()};
    gradients_.rows = {row_gradients_.data()};
    gradients_.dense = {dense_gradients_.data()};
  }
  const NetInput& input() const { return input_; }
  NetGradients* gradients() { return &gradients_; }
  const std::vector<float>& row_gradients() const { return row_gradients_; }
  const std::vector<float>& dense_gradients() const { return dense_gradients_; }

 private:
  Batch batch_;
  std::vector<uint32_t> rows_of_keys_ = {0, 1, 2, 1};
  std::vector<float> values_ = {0, 1, 2, 3, 4, 5}, dense_ = {7, 8, 9};
  std::vector<float> row_gradients_ = std::vector<float>(6, -1);
  std::vector<float> dense_gradients_ = std::vector<float>(3, -1);
  NetInput input_;
  NetGradients gradients_;
};

// The program's thread: answers each turn with the result of `compute`, until the job ends.
class Program {
 public:
  Program(ProgramExchange* exchange, std::function<absl::Status(const ProgramTurn&)> compute)
      : thread_([this, exchange, compute = std::move(compute)] {
          for (;;) {
            const auto turn = exchange->Take(kLook);
            if (!turn.ok()) {
              end_ = turn.status();
              return;
            }
            if (*turn != nullptr) exchange->Answer(compute(**turn));
          }
        }) {}
  ~Program() { EXPECT_FALSE(thread_.joinable()) << "call Join"; }
  // How the job has ended for the program.
  absl::Status Join() {
    thread_.join();
    return end_;
  }

 private:
  absl::Status end_;
  std::thread thread_;
};

TEST(ProgramNetTest, AStepHasTheBatchAndGivesTheProgramsGradients) {
  ProgramExchange exchange;
  std::vector<int64_t> rows_of_b, offsets_of_b;
  std::vector<float> zeros;
  Program program(&exchange, [&](const ProgramTurn& turn) {
    EXPECT_TRUE(turn.trains());
    EXPECT_EQ(turn.seed, 5u);
    EXPECT_EQ(turn.epoch, 2u);
    EXPECT_FALSE(turn.rows->single());
    rows_of_b.assign(&turn.rows->rows()[turn.rows->begin(1)],
                     &turn.rows->rows()[turn.rows->begin(1)] + 2);
    offsets_of_b.assign(turn.rows->offsets(1), turn.rows->offsets(1) + 3);
    zeros.assign(turn.gradients->rows(0), turn.gradients->rows(0) + 6);
    EXPECT_EQ(turn.input->rows[0].values[4], 4);
    turn.gradients->rows(0)[1] += 0.5f;
    turn.gradients->rows(0)[1] += 0.25f;  // asked for again, it stays
    std::fill_n(turn.gradients->dense()[0], 3, 3);
    turn.gradients->step()->loss_sum = 1.5;
    turn.gradients->step()->weight_sum = 2;
    return absl::OkStatus();
  });
  ProgramNet net(Shape(), &exchange);
  Step step;
  EXPECT_TRUE(net.TrainStep(step.input(), 5, 2, step.gradients()).ok());
  exchange.End(absl::OkStatus());
  EXPECT_TRUE(absl::IsOutOfRange(program.Join()));
  EXPECT_THAT(zeros, Each(0));
  EXPECT_THAT(rows_of_b, ElementsAre(1, 2));
  EXPECT_THAT(offsets_of_b, ElementsAre(0, 2, 2));
  EXPECT_THAT(step.row_gradients(), ElementsAre(0, 0.75f, 0, 0, 0, 0));
  EXPECT_THAT(step.dense_gradients(), Each(3));
  EXPECT_EQ(step.gradients()->loss_sum, 1.5);
}

TEST(ProgramNetTest, WhatAProgramLeavesAloneHasGradientZero) {
  ProgramExchange exchange;
  bool skips = false;
  Program program(&exchange, [&](const ProgramTurn& turn) {
    turn.gradients->step()->skipped = skips;
    return absl::OkStatus();
  });
  ProgramNet net(Shape(), &exchange);
  Step step, skipped;
  EXPECT_TRUE(net.TrainStep(step.input(), 1, 0, step.gradients()).ok());
  skips = true;  // nobody reads its gradients
  EXPECT_TRUE(net.TrainStep(skipped.input(), 1, 0, skipped.gradients()).ok());
  exchange.End(absl::OkStatus());
  (void)program.Join();
  EXPECT_THAT(step.row_gradients(), Each(0));
  EXPECT_THAT(step.dense_gradients(), Each(0));
  EXPECT_THAT(skipped.row_gradients(), Each(-1));
}

// There are two frozen parameters. Nobody takes the gradient of the second, so it has no memory.
TEST(ProgramNetTest, GradientsOfFrozenParametersAreZero) {
  ProgramExchange exchange;
  bool asks = false;
  Program program(&exchange, [&](const ProgramTurn& turn) {
    if (asks) std::fill_n(turn.gradients->dense()[0], 3, 3);
    return absl::OkStatus();
  });
  ProgramShape shape = Shape();
  shape.parameters.push_back({"kept", {2}, false, true, 2});
  shape.parameters.push_back({"pulled once", {2}, false, true, 2});
  ProgramNet net(shape, &exchange);
  for (const bool asked : {false, true}) {
    asks = asked;
    Step step;
    NetInput input = step.input();
    input.dense.resize(3, input.dense[0]);
    std::vector<float> kept(2, -1);
    step.gradients()->dense.push_back(kept.data());
    step.gradients()->dense.push_back(nullptr);
    EXPECT_TRUE(net.TrainStep(input, 1, 0, step.gradients()).ok());
    EXPECT_THAT(kept, Each(0));
    EXPECT_THAT(step.dense_gradients(), Each(asked ? 3 : 0));
  }
  exchange.End(absl::OkStatus());
  (void)program.Join();
}

TEST(ProgramNetTest, AnEvaluationAsksForLogits) {
  ProgramExchange exchange;
  Program program(&exchange, [](const ProgramTurn& turn) {
    EXPECT_FALSE(turn.trains());
    for (size_t i = 0; i < turn.input->batch->n; ++i) turn.logits[i] = 10 + i;
    return absl::OkStatus();
  });
  ProgramNet net(Shape(), &exchange);
  Step step;
  float logits[2] = {};
  EXPECT_TRUE(net.Forward(step.input(), logits).ok());
  exchange.End(absl::OkStatus());
  (void)program.Join();
  EXPECT_THAT(logits, ElementsAre(10, 11));
}

TEST(ProgramNetTest, AnotherShapeIsRefusedBeforeTheProgramSeesIt) {
  ProgramExchange exchange;
  ProgramShape shape = Shape();
  shape.numbers.push_back({"height"});
  ProgramNet net(shape, &exchange);
  Step step;
  EXPECT_TRUE(absl::IsInvalidArgument(net.TrainStep(step.input(), 1, 0, step.gradients())));
}

TEST(ProgramNetTest, AnErrorOfTheProgramEndsThisStepAndAllLaterOnes) {
  ProgramExchange exchange;
  ProgramNet net(Shape(), &exchange);
  Step step;
  std::thread program([&] {
    while (*exchange.Take(kLook) == nullptr) {
    }
    exchange.Fail(absl::UnknownError("Traceback: ZeroDivisionError"));
  });
  EXPECT_THAT(net.TrainStep(step.input(), 1, 0, step.gradients()).message(),
              Eq("Traceback: ZeroDivisionError"));
  program.join();
  EXPECT_EQ(net.TrainStep(step.input(), 1, 0, step.gradients()).code(), absl::StatusCode::kUnknown);
}

// Whether it has taken the step, was offered it, or is offered it later.
TEST(ProgramNetTest, AProgramThatHasLeftItsLoopMakesNoStep) {
  for (const char* when : {"taken", "offered", "later"}) {
    SCOPED_TRACE(when);
    ProgramExchange exchange;
    ProgramNet net(Shape(), &exchange);
    Step step;
    std::thread program([&] {
      if (when[0] == 't') {
        while (*exchange.Take(kLook) == nullptr) {
        }
      }
      exchange.Leave();
    });
    if (when[0] == 'l') program.join();
    EXPECT_TRUE(net.TrainStep(step.input(), 1, 0, step.gradients()).ok());
    EXPECT_TRUE(step.gradients()->ends_training);
    if (program.joinable()) program.join();
    // It still evaluates.
    Program evaluates(&exchange, [](const ProgramTurn& turn) {
      EXPECT_FALSE(turn.trains());
      return absl::OkStatus();
    });
    float logits[2] = {};
    EXPECT_TRUE(net.Forward(step.input(), logits).ok());
    exchange.End(absl::OkStatus());
    EXPECT_TRUE(absl::IsOutOfRange(evaluates.Join()));
  }
}

TEST(ProgramNetTest, StepsThatAProgramHasLeftBehindCannotBeMadeAgain) {
  ProgramExchange exchange;
  ProgramNet::Newest newest;
  Step step;
  std::thread program([&] {
    for (int made = 0; made < 2;) {
      if (*exchange.Take(kLook) == nullptr) continue;
      exchange.Answer(absl::OkStatus());
      ++made;
    }
    exchange.Leave();
  });
  const auto train = [&](ProgramNet* net, uint32_t epoch, uint64_t at) {
    NetInput input = step.input();
    input.step = at;
    step.gradients()->ends_training = false;
    return net->TrainStep(input, 1, epoch, step.gradients());
  };
  {
    ProgramNet net(Shape(), &exchange, &newest);
    EXPECT_TRUE(train(&net, 1, 6).ok());
    EXPECT_TRUE(train(&net, 1, 7).ok());
    program.join();
  }
  // The net of the next attempt.
  ProgramNet net(Shape(), &exchange, &newest);
  EXPECT_TRUE(absl::IsFailedPrecondition(train(&net, 1, 7)));
  EXPECT_TRUE(absl::IsFailedPrecondition(train(&net, 0, 9)));
  EXPECT_TRUE(train(&net, 1, 8).ok());
  EXPECT_TRUE(step.gradients()->ends_training);
  EXPECT_TRUE(train(&net, 2, 0).ok());
  ProgramNet async(Shape(), &exchange);
  EXPECT_TRUE(train(&async, 0, 0).ok());
}

TEST(ProgramNetTest, ACancelledStepThatNobodyHasTakenReturns) {
  ProgramExchange exchange;
  ProgramNet net(Shape(), &exchange);
  Step step;
  absl::Status status;
  std::thread training([&] { status = net.TrainStep(step.input(), 1, 0, step.gradients()); });
  net.Cancel();
  training.join();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_EQ(*exchange.Take(kLook), nullptr);  // the turn is withdrawn
}

TEST(ProgramNetTest, ACancelledStepThatIsTakenWaitsForTheProgram) {
  ProgramExchange exchange;
  ProgramNet net(Shape(), &exchange);
  Step step;
  std::atomic<bool> answered{false};
  Program program(&exchange, [&](const ProgramTurn&) {
    // The program reads the step's memory here, whatever happens to the job.
    net.Cancel();
    answered = true;
    return absl::OkStatus();
  });
  EXPECT_TRUE(net.TrainStep(step.input(), 1, 0, step.gradients()).ok());
  EXPECT_TRUE(answered);
  exchange.End(absl::OkStatus());
  (void)program.Join();
}

TEST(ProgramNetTest, TheProgramLearnsHowTheJobHasFailed) {
  ProgramExchange exchange;
  Program program(&exchange, [](const ProgramTurn&) { return absl::OkStatus(); });
  exchange.End(absl::InternalError("pserver 0 is lost"));
  EXPECT_THAT(program.Join().message(), Eq("pserver 0 is lost"));
}

TEST(ProgramNetTest, AnEvaluationAddsUpTheProgramsSums) {
  ProgramExchange exchange;
  Program program(&exchange, [](const ProgramTurn& turn) {
    turn.sums->push_back({"hits", 1, 2});
    turn.sums->push_back({"error", 0.5, 2});
    return absl::OkStatus();
  });
  ProgramNet net(Shape(), &exchange);
  Step step;
  float logits[2] = {};
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(net.Forward(step.input(), logits).ok());
  const std::vector<MetricSum> sums = net.TakeSums();
  EXPECT_THAT(net.TakeSums(), testing::IsEmpty());
  exchange.End(absl::OkStatus());
  (void)program.Join();
  ASSERT_EQ(sums.size(), 2u);
  EXPECT_EQ(sums[0].name, "hits");
  EXPECT_EQ(sums[0].sum, 3);
  EXPECT_EQ(sums[0].weight, 6);
  EXPECT_EQ(sums[1].sum, 1.5);
}

// A program that counts its batches, and keeps the count as its state.
class CountingProgram {
 public:
  explicit CountingProgram(ProgramExchange* exchange) : exchange_(*exchange) {
    exchange_.KeepState();
  }
  absl::Status Answer(const ProgramTurn& turn) {
    if (turn.saves()) {
      ++asked_;
      *turn.state = std::string(bytes_, 'x') + std::to_string(count_);
      return absl::OkStatus();
    }
    if (turn.begins) began_with_.push_back(turn.restored == nullptr ? "none" : *turn.restored);
    ++count_;
    return absl::OkStatus();
  }
  ProgramExchange& exchange_;
  size_t bytes_ = 0;
  int count_ = 0, asked_ = 0;
  std::vector<std::string> began_with_;
};

TEST(ProgramNetTest, TheStateIsAskedForOnceAfterEachStep) {
  ProgramExchange exchange;
  CountingProgram counting(&exchange);
  Program program(&exchange, [&](const ProgramTurn& turn) { return counting.Answer(turn); });
  ProgramNet net(Shape(), &exchange);
  Step step;
  EXPECT_EQ(*net.SaveState(), "") << "before the first step";
  for (int i = 1; i <= 2; ++i) {
    EXPECT_TRUE(net.TrainStep(step.input(), 1, 0, step.gradients()).ok());
    EXPECT_EQ(*net.SaveState(), absl::StrCat("p", i));
    EXPECT_EQ(*net.SaveState(), absl::StrCat("p", i));
  }
  const int asked = counting.asked_;
  counting.bytes_ = ProgramNet::kMaxStateBytes;
  EXPECT_TRUE(net.TrainStep(step.input(), 1, 0, step.gradients()).ok());
  EXPECT_THAT(net.SaveState().status().message(), testing::HasSubstr("has 65537 bytes"));
  exchange.End(absl::OkStatus());
  (void)program.Join();
  EXPECT_EQ(asked, 2);
  EXPECT_THAT(counting.began_with_, ElementsAre("none"));
}

TEST(ProgramNetTest, TheNextAttemptBeginsWithItsState) {
  ProgramExchange exchange;
  CountingProgram counting(&exchange);
  Program program(&exchange, [&](const ProgramTurn& turn) { return counting.Answer(turn); });
  Step step;
  for (const char* state : {"", "p", "p7"}) {
    ProgramNet net(Shape(), &exchange);
    if (*state != '\0') {
      EXPECT_TRUE(net.RestoreState(state).ok());
    }
    EXPECT_EQ(*net.SaveState(), state) << "what it began with";
    for (int i = 0; i < 2; ++i)
      EXPECT_TRUE(net.TrainStep(step.input(), 1, 0, step.gradients()).ok());
  }
  ProgramNet net(Shape(), &exchange);
  EXPECT_TRUE(absl::IsInvalidArgument(net.RestoreState("scale 1024")));
  exchange.End(absl::OkStatus());
  (void)program.Join();
  EXPECT_THAT(counting.began_with_, ElementsAre("none", "", "7"));
}

// A worker that takes over a rank may begin with the evaluation between two epochs, or the last
// one.
TEST(ProgramNetTest, ARestoredStateReachesTheProgramOnceAlsoInAnEvaluation) {
  ProgramExchange exchange;
  CountingProgram counting(&exchange);
  Program program(&exchange, [&](const ProgramTurn& turn) { return counting.Answer(turn); });
  ProgramNet net(Shape(), &exchange);
  EXPECT_TRUE(net.RestoreState("p7").ok());
  Step step;
  float logits[2] = {};
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(net.Forward(step.input(), logits).ok());
  EXPECT_EQ(*net.SaveState(), "p7") << "no step was made yet";
  EXPECT_TRUE(net.RestoreState("p7").ok()) << "with the next epoch";
  EXPECT_TRUE(net.TrainStep(step.input(), 1, 0, step.gradients()).ok());
  exchange.End(absl::OkStatus());
  (void)program.Join();
  EXPECT_THAT(counting.began_with_, ElementsAre("7"));
}

TEST(ProgramNetTest, AProgramWithoutStateIsNeverAskedForIt) {
  ProgramExchange exchange;
  int turns = 0;
  Program program(&exchange, [&](const ProgramTurn&) {
    ++turns;
    return absl::OkStatus();
  });
  ProgramNet net(Shape(), &exchange);
  Step step;
  EXPECT_TRUE(net.TrainStep(step.input(), 1, 0, step.gradients()).ok());
  EXPECT_EQ(*net.SaveState(), "");
  exchange.End(absl::OkStatus());
  (void)program.Join();
  EXPECT_EQ(turns, 1);
}

// The program is in its own code after the step, and never asks for the next batch.
TEST(ProgramNetTest, AStateThatNobodyGivesIsReleased) {
  for (const bool fails : {false, true}) {
    ProgramExchange exchange;
    ProgramNet net(Shape(), &exchange);
    Step step;
    exchange.KeepState();
    std::thread program([&] {
      while (*exchange.Take(kLook) == nullptr) {
      }
      exchange.Answer(absl::OkStatus());
    });
    EXPECT_TRUE(net.TrainStep(step.input(), 1, 0, step.gradients()).ok());
    program.join();
    absl::Status status;
    std::thread training([&] { status = net.SaveState().status(); });
    if (fails) {
      exchange.Fail(absl::UnknownError("Traceback"));
    } else {
      net.Cancel();
    }
    training.join();
    EXPECT_EQ(status.code(), fails ? absl::StatusCode::kUnknown : absl::StatusCode::kCancelled);
    // Not an empty state, which a checkpoint would keep.
    EXPECT_FALSE(net.SaveState().ok());
  }
}

TEST(SlotRowsTest, OneKeyPerSlotIsAMatrix) {
  Batch batch;
  batch.Reset(0, 2);
  batch.n = 2;
  batch.keys = {1, 2, 3, 4};
  batch.key_offsets = {0, 1, 2, 3, 4};
  const uint32_t index[] = {5, 6, 7, 8};
  SlotRows rows;
  rows.Fill(batch, index);
  EXPECT_TRUE(rows.single());
  EXPECT_THAT(rows.rows(), ElementsAre(5, 7, 6, 8));
}

// More examples than are transposed at a time.
TEST(SlotRowsTest, AMatrixHasTheRowsThatListsHave) {
  constexpr size_t kExamples = 77, kSlots = 3;
  for (const bool single : {true, false}) {
    Batch batch;
    batch.Reset(0, kSlots);
    batch.n = kExamples;
    std::vector<uint32_t> index;
    batch.key_offsets = {0};
    for (size_t k = 0; k < kExamples * kSlots; ++k) {
      index.push_back(static_cast<uint32_t>(k * 7 % 50));
      batch.key_offsets.push_back(static_cast<uint32_t>(k + 1));
    }
    if (!single) {
      index.push_back(9);  // a second key of the last example in the last slot
      ++batch.key_offsets.back();
    }
    batch.keys.resize(index.size());
    SlotRows rows;
    rows.Fill(batch, index.data());
    EXPECT_EQ(rows.single(), single);
    for (size_t s = 0; s < kSlots; ++s) {
      ASSERT_EQ(rows.begin(s), s * kExamples);
      for (size_t i = 0; i < kExamples; ++i) {
        ASSERT_EQ(rows.offsets(s)[i], static_cast<int64_t>(i));
        ASSERT_EQ(rows.rows()[rows.begin(s) + i], index[i * kSlots + s]) << s << " " << i;
      }
    }
    EXPECT_EQ(rows.end(kSlots - 1), index.size());
    EXPECT_EQ(rows.rows().back(), index.back());
  }
}

TEST(SlotRowsTest, ABatchWithoutExamplesHasOffsets) {
  Batch batch;
  batch.Reset(0, 1);
  SlotRows rows;
  rows.Fill(batch, nullptr);
  EXPECT_EQ(rows.begin(0), rows.end(0));
  EXPECT_EQ(rows.offsets(0)[0], 0);
}

TEST(ProgramNetTest, TheEndOfAnEpochIsATurnDuringWhichOthersAreAnswered) {
  ProgramExchange exchange;
  ProgramNet net(Shape(), &exchange);
  std::atomic<int> answered{0};
  std::vector<uint32_t> epochs;
  Program program(&exchange, [&](const ProgramTurn& turn) {
    EXPECT_TRUE(turn.ends_epoch());
    epochs.push_back(turn.epoch);
    while (answered < 2) std::this_thread::yield();
    EXPECT_TRUE(exchange.MayWait().ok());
    return absl::OkStatus();
  });
  const auto meanwhile = [&] {
    ++answered;
    return absl::OkStatus();
  };
  EXPECT_TRUE(net.EndEpoch(4, meanwhile).ok());
  exchange.End(absl::OkStatus());
  (void)program.Join();
  EXPECT_THAT(epochs, ElementsAre(4));
  EXPECT_TRUE(absl::IsOutOfRange(exchange.MayWait()));
}

TEST(ProgramNetTest, AStateAtTheEndOfAnEpochIsThatOfBefore) {
  ProgramExchange exchange;
  exchange.KeepState();
  ProgramNet net(Shape(), &exchange);
  Step step;
  std::string state = "step", restored;
  Program program(&exchange, [&](const ProgramTurn& turn) {
    if (turn.saves()) *turn.state = state;
    if (turn.begins && turn.restored != nullptr) restored = *turn.restored;
    if (turn.ends_epoch()) state = "end";
    return absl::OkStatus();
  });
  EXPECT_TRUE(net.RestoreState("pearlier").ok());
  // A checkpoint may be made meanwhile.
  const auto save = [&] { return net.SaveState().status(); };
  // A resumed epoch of which no step is left ends again, with the state of then.
  EXPECT_TRUE(net.EndEpoch(0, save).ok());
  EXPECT_EQ(restored, "earlier");
  EXPECT_EQ(*net.SaveState(), "pearlier");
  EXPECT_TRUE(net.TrainStep(step.input(), 1, 1, step.gradients()).ok());
  EXPECT_EQ(*net.SaveState(), "pend");
  state = "step";
  EXPECT_TRUE(net.EndEpoch(1, save).ok());
  EXPECT_EQ(*net.SaveState(), "pend") << "asked for once after the step";
  EXPECT_EQ(state, "end");
  exchange.End(absl::OkStatus());
  (void)program.Join();
}

// A rank that resumes has no step left in the epoch, and the script is not in its loop yet.
TEST(ProgramNetTest, ARestoredStateIsKnownUntilTheProgramIsInItsLoop) {
  ProgramExchange exchange;
  ProgramNet net(Shape(), &exchange);
  EXPECT_TRUE(net.RestoreState("pearlier").ok());
  std::atomic<bool> looked{false};
  std::thread program([&] {
    while (!looked) std::this_thread::yield();
    while (*exchange.Take(kLook) == nullptr) {
    }
    exchange.Answer(absl::OkStatus());
  });
  const auto save = [&] {
    EXPECT_EQ(*net.SaveState(), "pearlier");
    looked = true;
    return absl::OkStatus();
  };
  EXPECT_TRUE(net.EndEpoch(0, save).ok());
  program.join();
}

TEST(ProgramNetTest, AProgramWaitsNoLongerInATurnThatIsWithdrawn) {
  for (const bool fails : {false, true}) {
    ProgramExchange exchange;
    ProgramNet net(Shape(), &exchange);
    absl::Status may_wait;
    Program program(&exchange, [&](const ProgramTurn&) {
      if (!fails) net.Cancel();
      while ((may_wait = exchange.MayWait()).ok()) std::this_thread::yield();
      return may_wait;
    });
    const absl::Status end = net.EndEpoch(
        0, [&] { return fails ? absl::UnavailableError("a rank is lost") : absl::OkStatus(); });
    EXPECT_TRUE(absl::IsAborted(may_wait)) << may_wait;
    EXPECT_EQ(end, fails ? absl::UnavailableError("a rank is lost") : may_wait);
    exchange.End(absl::OkStatus());
    (void)program.Join();
  }
}

}  // namespace
}  // namespace sluice
