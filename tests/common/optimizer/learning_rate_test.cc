#include "common/optimizer/learning_rate.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace sluice {
namespace {

using ::testing::HasSubstr;

LearningRateSchedule Parse(const std::string& text) {
  LearningRateSchedule schedule;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &schedule)) << text;
  return schedule;
}

// A float64 reference of SGDR that walks through the periods.
double Sgdr(double lr, double end, double first, double multiplier, double decay, int s) {
  double begin = 0, length = first, start = lr;
  while (s >= begin + length) {
    begin += length;
    length *= multiplier;
    start *= decay;
  }
  return end + (start - end) * (1 + std::cos(M_PI * (s - begin) / length)) / 2;
}

constexpr double kBase = 0.25;

struct Case {
  const char* schedule;
  std::function<double(int)> reference;
};

std::vector<Case> Cases() {
  return {
      {"", [](int) { return kBase; }},
      {"constant {}", [](int) { return kBase; }},
      {"exponential { steps: 100 rate: 0.5 }",
       [](int s) { return kBase * std::pow(0.5, s / 100.0); }},
      {"exponential { steps: 100 rate: 0.5 staircase: true }",
       [](int s) { return kBase * std::pow(0.5, s / 100); }},
      {"inverse_time { steps: 50 rate: 0.5 }", [](int s) { return kBase / (1 + 0.5 * s / 50.0); }},
      {"inverse_time { steps: 50 rate: 0.5 staircase: true }",
       [](int s) { return kBase / (1 + 0.5 * (s / 50)); }},
      {"natural_exponential { steps: 50 rate: 0.5 }",
       [](int s) { return kBase * std::exp(-0.5 * s / 50.0); }},
      {"natural_exponential { steps: 50 rate: 0.5 staircase: true }",
       [](int s) { return kBase * std::exp(-0.5 * (s / 50)); }},
      {"noam { warmup: 200 model_dim: 64 }",
       [](int s) {
         return kBase / 8.0 * std::min(std::pow(s + 1, -0.5), (s + 1) * std::pow(200.0, -1.5));
       }},
      {"polynomial { steps: 600 end: 0.0625 }",
       [](int s) { return (kBase - 0.0625) * (1 - std::min(s, 600) / 600.0) + 0.0625; }},
      {"polynomial { steps: 600 power: 2 }",
       [](int s) { return kBase * std::pow(1 - std::min(s, 600) / 600.0, 2); }},
      {"cosine { steps: 700 end: 0.0625 }",
       [](int s) {
         return 0.0625 + (kBase - 0.0625) * (1 + std::cos(M_PI * std::min(s, 700) / 700)) / 2;
       }},
      {"cosine_restarts { first_steps: 30 }", [](int s) { return Sgdr(kBase, 0, 30, 2, 1, s); }},
      {"cosine_restarts { first_steps: 30 multiplier: 1 decay: 0.5 end: 0.0078125 }",
       [](int s) { return Sgdr(kBase, 0.0078125, 30, 1, 0.5, s); }},
      {"cosine_restarts { first_steps: 16 multiplier: 1.5 decay: 0.75 }",
       [](int s) { return Sgdr(kBase, 0, 16, 1.5, 0.75, s); }},
      {"constant {} warmup_steps: 40 warmup_start: 0.25",
       [](int s) { return s < 40 ? kBase * (0.25 + 0.75 * s / 40.0) : kBase; }},
      {"cosine_restarts { first_steps: 30 } warmup_steps: 10",
       [](int s) { return s < 10 ? kBase * s / 10.0 : Sgdr(kBase, 0, 30, 2, 1, s - 10); }},
  };
}

TEST(LearningRateTest, AgreesWithFloat64OverAThousandSteps) {
  for (const Case& c : Cases()) {
    const auto schedule = Parse(c.schedule);
    ASSERT_TRUE(ValidateSchedule(schedule).ok()) << c.schedule;
    for (int s = 0; s < 1000; ++s) {
      const double rate =
          LearningRateAt(schedule, static_cast<float>(kBase), static_cast<uint64_t>(s));
      const double reference = c.reference(s);
      ASSERT_TRUE(std::isfinite(rate) && std::abs(rate - reference) <= 1e-7 * kBase)
          << c.schedule << " step " << s << ": " << rate << " instead of " << reference;
    }
  }
}

TEST(LearningRateTest, CosineRestartsAtTheBaseRateInEveryPeriod) {
  const auto schedule = Parse("cosine_restarts { first_steps: 10 }");
  uint64_t begin = 0;
  for (uint64_t length = 10; begin < (1ull << 50); begin += length, length *= 2) {
    EXPECT_EQ(LearningRateAt(schedule, 1.0f, begin), 1.0f) << begin;
    if (begin == 0) continue;
    EXPECT_LT(LearningRateAt(schedule, 1.0f, begin - 1), 0.05f) << begin;
  }
}

TEST(LearningRateTest, HugeStepsStayFinite) {
  for (const Case& c : Cases()) {
    const float rate = LearningRateAt(Parse(c.schedule), 0.25f, 1ull << 62);
    EXPECT_TRUE(std::isfinite(rate) && rate >= 0 && rate <= 0.25f) << c.schedule << ": " << rate;
  }
}

TEST(ValidateScheduleTest, NamesTheField) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"exponential { rate: 0.5 }", "exponential.steps"},
      {"exponential { steps: 1 rate: -1 }", "exponential.rate"},
      {"exponential { steps: 10 }", "exponential.rate"},
      {"inverse_time { steps: 10 }", "inverse_time.rate"},
      {"natural_exponential { steps: 10 }", "natural_exponential.rate"},
      {"inverse_time { steps: 0 }", "inverse_time.steps"},
      {"natural_exponential { steps: 1 rate: nan }", "natural_exponential.rate"},
      {"noam { model_dim: 4 }", "noam.warmup"},
      {"noam { warmup: 4 }", "noam.model_dim"},
      {"polynomial { end: 0.1 }", "polynomial.steps"},
      {"polynomial { steps: 5 power: -1 }", "polynomial.power"},
      {"polynomial { steps: 5 end: -1 }", "polynomial.end"},
      {"cosine { steps: 0 }", "cosine.steps"},
      {"cosine { steps: 1 end: inf }", "cosine.end"},
      {"cosine_restarts {}", "cosine_restarts.first_steps"},
      {"cosine_restarts { first_steps: 1 multiplier: 0.5 }", "cosine_restarts.multiplier"},
      {"cosine_restarts { first_steps: 1 decay: -1 }", "cosine_restarts.decay"},
      {"constant {} warmup_steps: 5 warmup_start: 2", "warmup_start"},
      {"constant {} warmup_start: 0.5", "warmup_steps"},
  };
  for (const auto& [text, field] : cases) {
    const absl::Status status = ValidateSchedule(Parse(text));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(field)) << text;
  }
}

}  // namespace
}  // namespace sluice
