#include "common/optimizer/update_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "common/optimizer/learning_rate.h"
#include "tests/common/optimizer/every_rule.h"
#include "tests/common/optimizer/reference_rules.h"
#include "tests/common/optimizer/rule_cases.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr size_t kRow = 7, kRows = 5, kParameters = kRow * kRows;
constexpr int kSteps = 1000;

std::unique_ptr<const UpdateRule> MakeRule(const OptimizerConfig& config) {
  auto rule = UpdateRule::Create(config);
  EXPECT_TRUE(rule.ok()) << rule.status();
  return *std::move(rule);
}

// Parameters with their state, in the layout of a block.
struct Block {
  Block(const UpdateRule& rule, std::vector<float> initial)
      : weights(std::move(initial)),
        state(static_cast<size_t>(rule.state_floats()), std::vector<float>(weights.size(), -1.0f)) {
    for (auto& array : state) pointers.push_back(array.data());
    rule.InitState(pointers.data(), weights.size());
  }
  std::vector<float> weights;
  std::vector<std::vector<float>> state;
  std::vector<float*> pointers;
};

std::vector<float> Normal(std::mt19937_64* random, size_t n, float scale) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(n);
  for (float& v : values) v = normal(*random);
  return values;
}

// Compares in this direction, so that NaN is never near.
bool Near(double value, double reference, double tolerance) {
  return std::isfinite(value) &&
         std::abs(value - reference) <= tolerance * (1 + std::abs(reference));
}

// Describes the first parameter that differs after kSteps on the same gradients, or returns "".
std::string Compare(const OptimizerConfig& given, float gradient_scale, double tolerance) {
  const OptimizerConfig config = WithDefaults(given);
  auto rule = MakeRule(given);
  std::mt19937_64 random(20240607);
  const std::vector<float> initial = Normal(&random, kParameters, 0.5f);
  Block block(*rule, initial);
  ReferenceRule reference(config, std::vector<double>(initial.begin(), initial.end()));
  for (int t = 0; t < kSteps; ++t) {
    std::vector<float> gradient = Normal(&random, kParameters, gradient_scale);
    // A pull towards the middle keeps the weights in the range where a difference shows.
    for (size_t i = 0; i < kParameters; ++i)
      gradient[i] += 0.1f * static_cast<float>(reference.w[i]);
    if (t % 10 == 3) gradient[4] = 0;
    const float rate =
        LearningRateAt(config.schedule(), config.learning_rate(), static_cast<uint64_t>(t));
    rule->Apply(block.weights.data(), block.pointers.data(), gradient.data(), kParameters, kRow,
                rate, static_cast<uint64_t>(t) + 1);
    reference.Step(std::vector<double>(gradient.begin(), gradient.end()), kRow, rate,
                   static_cast<uint64_t>(t) + 1);
    for (size_t i = 0; i < kParameters; ++i) {
      if (!Near(block.weights[i], reference.w[i], tolerance)) {
        return "step " + std::to_string(t) + " parameter " + std::to_string(i) + ": " +
               std::to_string(block.weights[i]) + " instead of " + std::to_string(reference.w[i]);
      }
    }
  }
  return "";
}

// The usual config of each rule with each of these endings.
std::vector<std::string> UsualConfigs(const std::vector<std::string>& endings) {
  std::vector<std::string> all;
  for (const RuleCase& rule : RuleCases()) {
    for (const std::string& ending : endings) all.push_back(rule.usual + ending);
  }
  return all;
}

class GoldenTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenTest, AgreesWithFloat64OverAThousandSteps) {
  for (const InstructionSet set : SupportedInstructionSetsForTest()) {
    SCOPED_TRACE(KernelsFor(set).name);
    UseInstructionSetForTest(set);
    EXPECT_EQ(Compare(ParseOptimizer(GetParam()), 0.3f, 2e-5), "");
  }
  UseInstructionSetForTest(std::nullopt);
}

std::vector<const char*> GoldenConfigs() {
  std::vector<const char*> all = {
      "adam {} learning_rate: 0.01 schedule { exponential { steps: 100 rate: 0.8 } warmup_steps: "
      "20 }",
      "sgd {} learning_rate: 0.3 schedule { cosine_restarts { first_steps: 50 } }"};
  for (const RuleCase& rule : RuleCases())
    all.insert(all.end(), rule.golden.begin(), rule.golden.end());
  return all;
}

INSTANTIATE_TEST_SUITE_P(Rules, GoldenTest, ::testing::ValuesIn(GoldenConfigs()));

TEST(UpdateRuleTest, WrongHyperparametersAreFarFromTheReference) {
  // If a rule ignored the user's values, the golden tests would see such differences.
  auto rule = MakeRule(ParseOptimizer("adam { beta1: 0.8 }"));
  Block block(*rule, {1.0f});
  ReferenceRule other(WithDefaults(ParseOptimizer("adam {}")), {1.0});
  for (uint64_t t = 1; t <= 3; ++t) {
    const float gradient = t == 1 ? 1.0f : -0.5f;
    rule->Apply(block.weights.data(), block.pointers.data(), &gradient, 1, 1, 0.1f, t);
    other.Step({gradient}, 1, 0.1, t);
  }
  EXPECT_FALSE(Near(block.weights[0], other.w[0], 1e-3));
}

TEST(UpdateRuleTest, NaNFailsTheComparison) {
  EXPECT_FALSE(Near(std::nan(""), 0, 1e9));
  EXPECT_FALSE(Near(0, std::nan(""), 1e9));
  EXPECT_FALSE(Near(std::numeric_limits<double>::infinity(), 0, 1e9));
}

TEST(UpdateRuleTest, ClippingDoesNotHideNaNInTheGradient) {
  for (const char* text : {"sgd {} clip_value: 1", "sgd {} clip_row_norm: 1"}) {
    auto rule = MakeRule(ParseOptimizer(text));
    Block block(*rule, {1, 2});
    const float gradient[] = {std::nanf(""), 0.5f};
    rule->Apply(block.weights.data(), block.pointers.data(), gradient, 2, 2, 0.1f, 1);
    EXPECT_TRUE(std::isnan(block.weights[0])) << text;
  }
}

TEST(UpdateRuleTest, RowByRowEqualsTheWholeBlockToTheBit) {
  for (const std::string& text : UsualConfigs({"", " weight_decay: 0.1", " clip_row_norm: 0.5"})) {
    auto rule = MakeRule(ParseOptimizer(text));
    std::mt19937_64 random(7);
    const std::vector<float> initial = Normal(&random, kParameters, 1);
    Block whole(*rule, initial), rows(*rule, initial);
    for (uint64_t t = 1; t <= 20; ++t) {
      const std::vector<float> gradient = Normal(&random, kParameters, 1);
      rule->Apply(whole.weights.data(), whole.pointers.data(), gradient.data(), kParameters, kRow,
                  0.1f, t);
      for (size_t begin = 0; begin < kParameters; begin += kRow) {
        std::vector<float*> state;
        for (float* array : rows.pointers) state.push_back(array + begin);
        rule->Apply(rows.weights.data() + begin, state.data(), gradient.data() + begin, kRow, kRow,
                    0.1f, t);
      }
    }
    EXPECT_EQ(whole.weights, rows.weights) << text;
    EXPECT_EQ(whole.state, rows.state) << text;
  }
}

TEST(UpdateRuleTest, AdamCorrectsTheBiasByTheCountOfEachRow) {
  auto rule = MakeRule(ParseOptimizer("adam {}"));
  // There are two rows. Only every third step touches the second.
  Block often(*rule, {0.5f, -0.25f}), seldom(*rule, {0.5f, -0.25f});
  ReferenceRule reference(WithDefaults(ParseOptimizer("adam {}")), {0.5, -0.25});
  std::mt19937_64 random(3);
  uint64_t seldom_count = 0;
  for (uint64_t t = 1; t <= 300; ++t) {
    const std::vector<float> gradient = Normal(&random, 2, 1);
    rule->Apply(often.weights.data(), often.pointers.data(), gradient.data(), 2, 2, 0.01f, t);
    if (t % 3 != 0) continue;
    ++seldom_count;
    rule->Apply(seldom.weights.data(), seldom.pointers.data(), gradient.data(), 2, 2, 0.01f,
                seldom_count);
    reference.Step({gradient[0], gradient[1]}, 2, 0.01, seldom_count);
    EXPECT_TRUE(Near(seldom.weights[0], reference.w[0], 1e-5));
    EXPECT_TRUE(Near(seldom.weights[1], reference.w[1], 1e-5));
  }
  EXPECT_EQ(seldom_count, 100u);
}

TEST(UpdateRuleTest, AdamCorrectsTheBiasOfLongLivedRows) {
  // The counts are far larger than those of a golden test. beta2 is so close to 1 that its power
  // still matters.
  const OptimizerConfig config = WithDefaults(ParseOptimizer("adam { beta2: 0.9999 }"));
  auto rule = MakeRule(config);
  for (const uint64_t first : {1000, 2000, 4000, 20000}) {
    Block block(*rule, {0.5f});
    ReferenceRule reference(config, {0.5});
    for (uint64_t count = first; count < first + 100; ++count) {
      const float gradient = count % 3 == 0 ? -0.5f : 1.0f;
      rule->Apply(block.weights.data(), block.pointers.data(), &gradient, 1, 1, 0.01f, count);
      reference.Step({gradient}, 1, 0.01f, count);
      ASSERT_TRUE(Near(block.weights[0], reference.w[0], 1e-5)) << "count " << count;
    }
  }
}

TEST(UpdateRuleTest, FirstMomentumStepIsThePlainGradient) {
  auto rule = MakeRule(ParseOptimizer("momentum { momentum: 0.9 }"));
  Block block(*rule, {1.0f});
  const float gradient = 2.0f;
  rule->Apply(block.weights.data(), block.pointers.data(), &gradient, 1, 1, 0.5f, 1);
  EXPECT_EQ(block.weights[0], 0.0f);
  EXPECT_EQ(block.state[0][0], 2.0f);
}

// The configs of FTRL that the tests below compare.
std::vector<const char*> FtrlConfigs() {
  return {"ftrl {}",          "ftrl { l1: 0.01 }",
          "ftrl { l2: 0.5 }", "ftrl { l1: 0.02 l2: 0.1 beta: 0 }",
          "ftrl { beta: 0 }", "ftrl { l1: 0.01 } weight_decay: 0.02"};
}

// A block after `steps` updates at `rate`.
Block AfterUpdates(const UpdateRule& rule, std::vector<float> initial, int steps, float rate) {
  Block block(rule, std::move(initial));
  std::mt19937_64 random(5);
  for (int t = 1; t <= steps; ++t) {
    const std::vector<float> gradient = Normal(&random, block.weights.size(), 1);
    rule.Apply(block.weights.data(), block.pointers.data(), gradient.data(), gradient.size(),
               gradient.size(), rate, static_cast<uint64_t>(t));
  }
  return block;
}

TEST(UpdateRuleTest, TheMoveOfAnUpdateIsProportionalToItsRate) {
  // A rule that folded the rate into its state would go on at the earlier rate.
  for (const char* text : {"sgd {}", "sgd {} weight_decay: 0.1", "momentum {}",
                           "momentum { nesterov: true }", "adam {}", "adagrad {}", "ftrl {}"}) {
    auto rule = MakeRule(ParseOptimizer(text));
    const std::vector<float> gradient = {0.5f, -0.25f, 2.0f};
    for (const float other : {0.01f, 1.0f}) {
      std::vector<double> moves[2];
      for (const float rate : {0.1f, other}) {
        Block block = AfterUpdates(*rule, {1.0f, -2.0f, 0.5f}, 20, 0.1f);
        const std::vector<float> before = block.weights;
        rule->Apply(block.weights.data(), block.pointers.data(), gradient.data(), 3, 3, rate, 21);
        for (size_t i = 0; i < 3; ++i)
          moves[rate == other].push_back(double{block.weights[i]} - before[i]);
      }
      for (size_t i = 0; i < 3; ++i)
        EXPECT_NEAR(moves[1][i], moves[0][i] * other / 0.1, 1e-5 * other / 0.1) << text;
    }
  }
}

TEST(UpdateRuleTest, FtrlFromZeroAtAConstantRateHasTheBitsOfThePaper) {
  for (const char* text : FtrlConfigs()) {
    const OptimizerConfig config = WithDefaults(ParseOptimizer(text));
    auto rule = MakeRule(config);
    Block block(*rule, {0.0f});
    const float rate = 0.3f, decay = config.weight_decay(), l1 = config.ftrl().l1(),
                l2 = config.ftrl().l2(), beta = config.ftrl().beta(), inverse = 1 / rate;
    float w = 0, z = 0, n = 0;
    std::mt19937_64 random(9);
    for (uint64_t t = 1; t <= 2000; ++t) {
      const float gradient = t % 7 == 0 ? 0.0f : Normal(&random, 1, 0.2f)[0];
      rule->Apply(block.weights.data(), block.pointers.data(), &gradient, 1, 1, rate, t);
      const float d = gradient + decay * w, root = std::sqrt(n);
      n += d * d;
      z += d - (std::sqrt(n) > 0 ? d * d / (std::sqrt(n) + root) : 0.0f) * inverse * w;
      w = std::abs(z) > l1
              ? -std::copysign(std::abs(z) - l1, z) / ((beta + std::sqrt(n)) * inverse + l2)
              : 0.0f;
      ASSERT_EQ(block.weights[0], w) << text << " update " << t;
      ASSERT_EQ(block.state[0][0], z) << text << " update " << t;
      ASSERT_EQ(block.state[1][0], n) << text << " update " << t;
    }
  }
}

TEST(UpdateRuleTest, FtrlChangeOfTheRateAloneMovesNoWeight) {
  for (const char* text : FtrlConfigs()) {
    auto rule = MakeRule(ParseOptimizer(text));
    for (const float rate : {0.7f, 0.1f, 1e-3f, 1e-15f, 1e-30f, 0.0f, 1e4f}) {
      Block block = AfterUpdates(*rule, std::vector<float>(50), 30, 0.5f);
      const std::vector<float> before = block.weights;
      std::vector<float> gradient(50);
      for (size_t i = 0; i < 50; ++i) gradient[i] = -0.02f * before[i];  // d = 0 with the decay
      if (WithDefaults(ParseOptimizer(text)).weight_decay() == 0) gradient.assign(50, 0.0f);
      rule->Apply(block.weights.data(), block.pointers.data(), gradient.data(), 50, 50, rate, 31);
      EXPECT_EQ(block.weights, before) << text << " rate " << rate;
      // No update moves a weight by more than its rate.
      gradient.assign(50, 0.5f);
      rule->Apply(block.weights.data(), block.pointers.data(), gradient.data(), 50, 50, rate, 32);
      for (size_t i = 0; i < 50; ++i) {
        EXPECT_NEAR(block.weights[i], before[i], rate + 1e-6 * std::abs(before[i]))
            << text << " rate " << rate;
      }
    }
  }
}

TEST(UpdateRuleTest, FtrlApproachesAMinimumUnderEverySchedule) {
  for (const char* schedule : kSchedules) {
    OptimizerConfig config = Optimizer("ftrl", schedule);
    config.mutable_ftrl()->set_l1(0);
    auto rule = MakeRule(config);
    Block block(*rule, {0.0f});
    float distance = 1;
    for (uint64_t t = 0; t < 500; ++t) {
      const float gradient = block.weights[0] - 1;
      rule->Apply(block.weights.data(), block.pointers.data(), &gradient, 1, 1,
                  LearningRateAt(config.schedule(), config.learning_rate(), t), t + 1);
      EXPECT_LE(std::abs(block.weights[0] - 1), distance + 1e-6f) << schedule << " update " << t;
      distance = std::abs(block.weights[0] - 1);
    }
    EXPECT_LT(distance, 0.9f) << schedule;
  }
}

TEST(UpdateRuleTest, FtrlContinuesFromAWeightWithoutState) {
  // An initial value, an initial_model, or Geo on another number of workers.
  for (const char* text : FtrlConfigs()) {
    const OptimizerConfig config = WithDefaults(ParseOptimizer(text));
    auto rule = MakeRule(config);
    for (const float initial : {3.0f, -3.0f}) {
      Block block(*rule, {initial});
      float gradient = -config.weight_decay() * initial;
      rule->Apply(block.weights.data(), block.pointers.data(), &gradient, 1, 1, 0.5f, 1);
      EXPECT_EQ(block.weights[0], initial) << text;
      gradient = 2.0f - config.weight_decay() * initial;
      rule->Apply(block.weights.data(), block.pointers.data(), &gradient, 1, 1, 0.5f, 2);
      const auto& ftrl = config.ftrl();
      EXPECT_TRUE(Near(block.weights[0], initial - 2 / ((ftrl.beta() + 2) / 0.5 + ftrl.l2()), 1e-6))
          << text << ": " << block.weights[0];
    }
  }
}

TEST(UpdateRuleTest, FtrlFollowsAWeightThatOthersHaveMoved) {
  for (const char* text : FtrlConfigs()) {
    auto rule = MakeRule(ParseOptimizer(text));
    for (const float moved : {2.0f, -0.5f, 0.0f}) {
      Block block = AfterUpdates(*rule, {0.0f}, 30, 0.5f);
      block.weights[0] = moved;
      const float gradient = 1e-4f;
      rule->Apply(block.weights.data(), block.pointers.data(), &gradient, 1, 1, 0.5f, 31);
      EXPECT_TRUE(Near(block.weights[0], moved, 1e-2)) << text << ": " << block.weights[0];
    }
  }
}

TEST(UpdateRuleTest, FtrlIsFiniteForGradientsWhoseSquareUnderflows) {
  auto rule = MakeRule(ParseOptimizer("ftrl { beta: 0 }"));
  Block block(*rule, {0.0f});
  for (const float gradient : {1e-30f, 1e-25f, 0.5f}) {
    EXPECT_TRUE(std::isfinite(block.weights[0]));
    rule->Apply(block.weights.data(), block.pointers.data(), &gradient, 1, 1, 0.5f, 1);
  }
  EXPECT_TRUE(Near(block.weights[0], -0.5, 1e-6)) << block.weights[0];
}

TEST(UpdateRuleTest, FtrlWithL1MakesWeightsExactlyZero) {
  auto rule = MakeRule(ParseOptimizer("ftrl { l1: 10 }"));
  Block block(*rule, {0.0f});
  const float gradient = 1.0f;
  rule->Apply(block.weights.data(), block.pointers.data(), &gradient, 1, 1, 0.5f, 1);
  EXPECT_EQ(block.weights[0], 0.0f);
  EXPECT_EQ(block.state[0][0], 1.0f);
}

TEST(UpdateRuleTest, RateZeroMovesNoWeight) {
  for (const std::string& text : UsualConfigs({""})) {
    auto rule = MakeRule(ParseOptimizer(text));
    Block block(*rule, {0.5f});
    const float gradient = 1.0f;
    rule->Apply(block.weights.data(), block.pointers.data(), &gradient, 1, 1, 0.0f, 1);
    EXPECT_EQ(block.weights[0], 0.5f) << text;
  }
}

TEST(UpdateRuleTest, ZeroGradientsAreFinite) {
  std::vector<std::string> texts = UsualConfigs({"", " clip_row_norm: 1"});
  texts.push_back("ftrl { beta: 0 l2: 0 }");
  for (const std::string& text : texts) {
    auto rule = MakeRule(ParseOptimizer(text));
    Block block(*rule, {0.5f, -0.5f});
    const float gradient[] = {0, 0};
    rule->Apply(block.weights.data(), block.pointers.data(), gradient, 2, 2, 0.1f, 1);
    EXPECT_TRUE(std::isfinite(block.weights[0]) && std::isfinite(block.weights[1])) << text;
  }
}

TEST(UpdateRuleTest, ApplyDoesNotChangeTheGradient) {
  auto rule = MakeRule(ParseOptimizer("sgd {} clip_value: 0.1 clip_row_norm: 0.1"));
  Block block(*rule, {0, 0});
  const float gradient[] = {5, -5};
  rule->Apply(block.weights.data(), block.pointers.data(), gradient, 2, 2, 1.0f, 1);
  EXPECT_EQ(gradient[0], 5);
  EXPECT_EQ(gradient[1], -5);
}

TEST(UpdateRuleTest, ImpossibleValuesAreRefusedByField) {
  std::vector<std::pair<const char*, const char*>> cases = {
      {"", "sgd, momentum"},
      {"sgd {} learning_rate: -1", "learning_rate"},
      {"sgd {} learning_rate: nan", "learning_rate"},
      {"sgd {} weight_decay: -0.1", "weight_decay"},
      {"sgd {} clip_value: -1", "clip_value"},
      {"sgd {} clip_row_norm: inf", "clip_row_norm"},
      {"sgd {} schedule { cosine {} }", "cosine.steps"},
  };
  for (const RuleCase& rule : RuleCases())
    cases.insert(cases.end(), rule.refused.begin(), rule.refused.end());
  for (const auto& [text, field] : cases) {
    const auto rule = UpdateRule::Create(ParseOptimizer(text));
    EXPECT_EQ(rule.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(rule.status().message()), HasSubstr(field)) << text;
  }
}

TEST(UpdateRuleTest, RulesAreTheFieldsOfTheOneof) {
  const auto* oneof = OptimizerConfig::descriptor()->FindOneofByName("rule");
  std::vector<std::string> fields;
  for (int i = 0; i < oneof->field_count(); ++i) fields.push_back(oneof->field(i)->name());
  EXPECT_EQ(RuleNames(), fields) << "common/optimizer/rules.h and proto/config.proto differ";
  for (const RuleCase& rule : RuleCases())
    EXPECT_EQ(RuleName(ParseOptimizer(rule.usual)), rule.name);
  EXPECT_EQ(RuleName(OptimizerConfig()), "none");
}

TEST(UpdateRuleTest, StepsDependOnTheCountInOfCountOnly) {
  // A GPU gets RuleStep::of_count for each row, and the rest of the step once.
  for (const RuleCase& c : RuleCases()) {
    for (const char* text : c.golden) {
      auto rule = MakeRule(ParseOptimizer(text));
      const RuleStep step = rule->StepAt(0.1f, 7);
      RuleStep first = rule->StepAt(0.1f, 1);
      if (rule->step_depends_on_count()) {
        first.of_count[0] = step.of_count[0];
        first.of_count[1] = step.of_count[1];
      }
      float w[] = {0.5f, 0.5f}, a[] = {0.3f, 0.3f}, b[] = {0.2f, 0.2f};
      formula::Update(step, 0.7f, &w[0], &a[0], &b[0]);
      formula::Update(first, 0.7f, &w[1], &a[1], &b[1]);
      EXPECT_NE(w[0], 0.5f) << text;
      EXPECT_EQ(w[0], w[1]) << text;
      EXPECT_EQ(a[0], a[1]) << text;
      EXPECT_EQ(b[0], b[1]) << text;
    }
  }
}

TEST(DefaultsTest, AbsentFieldsGetTheDocumentedValues) {
  EXPECT_FLOAT_EQ(WithDefaults(OptimizerConfig()).learning_rate(), 0.001f);
  EXPECT_TRUE(WithDefaults(OptimizerConfig()).has_adam());
  for (const RuleCase& rule : RuleCases()) {
    EXPECT_EQ(WithDefaults(ParseOptimizer(rule.name + " {}")).ShortDebugString(),
              ParseOptimizer(rule.defaults).ShortDebugString());
  }
}

TEST(DefaultsTest, FieldsThatTheUserSetAreKept) {
  const auto config = WithDefaults(ParseOptimizer("adam { beta1: 0 } learning_rate: 0"));
  EXPECT_EQ(config.adam().beta1(), 0);
  EXPECT_EQ(config.learning_rate(), 0);
}

}  // namespace
}  // namespace sluice
