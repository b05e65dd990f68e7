// Checks a block under asynchronous pushes: its bits are those of the update rule applied to a
// whole gradient, no matter how the message was cut into slices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/base/slice.h"
#include "common/optimizer/update_rule.h"
#include "common/saved_model/saved_model.h"
#include "server/shards/not_finite_change.h"
#include "server/shards/shard.h"
#include "tests/common/optimizer/rule_cases.h"
#include "tests/common/saved_model/memory_env.h"
#include "tests/common/saved_model/read_shard_file.h"

namespace sluice {
namespace {

constexpr uint32_t kElements = 7 * 1511;  // more than a piece that is copied

TableConfig BlockTable(const OptimizerConfig& optimizer, uint32_t width, bool bf16) {
  TableConfig table;
  table.set_name("w");
  table.set_kind(TableConfig::DENSE);
  table.add_shape(kElements / width);
  table.add_shape(width);
  table.mutable_initializer()->set_constant(0.5f);
  *table.mutable_optimizer() = optimizer;
  if (bf16) table.set_wire_type(TableConfig::BF16);
  return table;
}

std::vector<float> Gradient(std::mt19937* random) {
  std::vector<float> gradient(kElements);
  std::normal_distribution<float> normal;
  for (float& g : gradient)
    g = Bf16ToFloat(FloatToBf16(normal(*random)));  // the same in both forms
  return gradient;
}

// Returns `bytes` in slices of 1 to `largest` bytes, each in its own memory and at any address.
Message CutAnywhere(const std::string& bytes, size_t largest, std::mt19937* random) {
  Message message;
  for (size_t at = 0; at < bytes.size();) {
    const size_t n = std::min(bytes.size() - at, 1 + (*random)() % largest);
    const size_t shift = (*random)() % 4;
    auto memory = std::make_shared<std::string>(shift, '?');
    memory->append(bytes, at, n);
    message.push_back(Slice(memory->data() + shift, n, memory));
    at += n;
  }
  return message;
}

// Returns the weights that a save of the cut writes.
std::vector<float> SavedWeights(const TableLayout& table, ShardCut* cut) {
  MemoryEnv env;
  const auto file = WriteShardFile("m", table, 0, cut, &env);
  EXPECT_TRUE(file.ok()) << file.status();
  uint32_t shard = 7;
  const auto values = ReadShardFile("m", table.config(), *file, &shard, &env);
  EXPECT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(shard, 0u);
  return values.ok() ? values->weights : std::vector<float>();
}

class DenseShardTest : public testing::TestWithParam<std::string> {
 protected:
  static OptimizerConfig Rule(const std::string& name) {
    OptimizerConfig config = ParseOptimizer(RuleCaseOf(name).usual);
    config.set_learning_rate(0.1f);
    return WithDefaults(config);
  }

  static void ExpectTheRulesBits(const OptimizerConfig& config, uint32_t width, bool bf16,
                                 size_t largest_slice) {
    google::protobuf::RepeatedPtrField<TableConfig> tables;
    *tables.Add() = BlockTable(config, width, bf16);
    const auto layouts = CreateTableLayouts(tables, 1);
    ASSERT_TRUE(layouts.ok()) << layouts.status();
    const std::unique_ptr<Shard> shard = MakeDenseShard((*layouts)[0], 0, UpdatePolicy());
    const auto rule = UpdateRule::Create(config).value();
    std::vector<float> weights(kElements, 0.5f), state(rule->state_floats() * kElements);
    float* arrays[UpdateRule::kMaxState];
    for (int k = 0; k < rule->state_floats(); ++k) arrays[k] = &state[k * kElements];
    rule->InitState(arrays, kElements);

    std::mt19937 random(largest_slice);
    PushPart part;
    for (uint64_t push = 1; push <= 3; ++push) {
      const std::vector<float> gradient = Gradient(&random);
      rule->Apply(weights.data(), arrays, gradient.data(), kElements, width, 0.1f, push);
      const Slice wire = ValuesSlice(gradient.data(), kElements, bf16 ? 2 : 4, nullptr);
      const std::string bytes(reinterpret_cast<const char*>(wire.data()), wire.size());
      Message message = CutAnywhere(bytes + "behind", largest_slice, &random);
      // A lent push has the same bits, and is not looked at any more once it is decoded.
      const bool lent = push == 2;
      {
        PayloadReader payload =
            lent ? PayloadReader(LentMessage(message)) : PayloadReader(std::move(message));
        ASSERT_EQ(shard->Decode(kElements, &payload, &part), PART_OK);
        EXPECT_EQ(payload.remaining(), 6u);
      }
      if (lent) {
        for (const Slice& slice : message)
          std::memset(const_cast<uint8_t*>(slice.data()), 0xFF, slice.size());
      }
      ASSERT_EQ(shard->Apply({0, 1, push, 1.0}, &part).status, PART_OK);
    }
    EXPECT_EQ(SavedWeights(*(*layouts)[0], shard->BeginCut().get()), weights);
  }
};

TEST_P(DenseShardTest, AsyncPushGivesTheBitsOfTheUpdateRule) {
  for (const bool bf16 : {false, true}) {
    for (const size_t largest : {size_t{3}, size_t{50}, size_t{16387}, size_t{1} << 20}) {
      SCOPED_TRACE(testing::Message() << (bf16 ? "bf16" : "f32") << " in slices up to " << largest);
      ExpectTheRulesBits(Rule(GetParam()), 7, bf16, largest);
    }
  }
}

TEST_P(DenseShardTest, ClippingSeesWholeRows) {
  OptimizerConfig by_value = Rule(GetParam()), by_norm = Rule(GetParam());
  by_value.set_clip_value(0.3f);
  by_norm.set_clip_row_norm(0.8f);
  for (const size_t largest : {size_t{3}, size_t{16387}}) {
    SCOPED_TRACE(testing::Message() << "slices up to " << largest);
    for (const uint32_t width : {1u, 7u}) {
      ExpectTheRulesBits(by_value, width, false, largest);
      ExpectTheRulesBits(by_norm, width, false, largest);
    }
  }
}

// In pieces as received, in pieces that are copied, and in one piece.
TEST_P(DenseShardTest, AnUpdateThatMakesAValueInfiniteNamesTheElement) {
  OptimizerConfig config = Rule(GetParam());
  config.set_learning_rate(1e30f);
  for (const int way : {0, 1, 2}) {
    google::protobuf::RepeatedPtrField<TableConfig> tables;
    *tables.Add() = BlockTable(config, 7, false);
    const auto layouts = *CreateTableLayouts(tables, 1);
    UpdatePolicy policy;
    if (way == 1) policy.gradients_to_wait = 2;
    const std::unique_ptr<Shard> shard = MakeDenseShard(layouts[0], 0, policy);
    std::vector<float> gradient(kElements, 0.0f);
    gradient[9000] = 3e38f;
    PushPart part;
    const Message message = {ValuesSlice(gradient.data(), kElements, 4, nullptr)};
    PayloadReader payload = way == 2 ? PayloadReader(LentMessage(message)) : PayloadReader(message);
    ASSERT_EQ(shard->Decode(kElements, &payload, &part), PART_OK);
    try {
      shard->Apply({0, 1, 1, 1.0}, &part);
      shard->Flush();
      ADD_FAILURE() << "it was not noticed: " << GetParam() << " " << way;
    } catch (const NotFiniteChange& why) {
      EXPECT_THAT(why.what(), testing::AllOf(testing::HasSubstr("'w'"),
                                             testing::HasSubstr("element 9000 (block 0)")));
    }
    MemoryEnv env;
    const auto file =
        WriteShardFile("m", *layouts[0], 0, shard->BeginCut({/*state=*/true}).get(), &env);
    EXPECT_EQ(file.status().code(), absl::StatusCode::kOutOfRange);
    EXPECT_THAT(std::string(file.status().message()), testing::HasSubstr("element 9000 "));
  }
}

TEST(DenseShardCutTest, UpdatesDoNotReachACutThatHasBegun) {
  OptimizerConfig sgd;
  sgd.mutable_sgd();
  sgd.set_learning_rate(1.0f);
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  *tables.Add() = BlockTable(WithDefaults(sgd), 7, false);
  const auto layouts = *CreateTableLayouts(tables, 1);
  const std::unique_ptr<Shard> shard = MakeDenseShard(layouts[0], 0, UpdatePolicy());
  const std::unique_ptr<ShardCut> cut = shard->BeginCut();
  const std::vector<float> gradient(kElements, 1.0f);
  PushPart part;
  PayloadReader payload({ValuesSlice(gradient.data(), kElements, 4, nullptr)});
  ASSERT_EQ(shard->Decode(kElements, &payload, &part), PART_OK);
  ASSERT_EQ(shard->Apply({0, 1, 1, 1.0}, &part).status, PART_OK);
  EXPECT_EQ(SavedWeights(*layouts[0], cut.get()), std::vector<float>(kElements, 0.5f));
  EXPECT_EQ(SavedWeights(*layouts[0], shard->BeginCut().get()),
            std::vector<float>(kElements, -0.5f));
}

TEST(DenseShardCutTest, ElementsOfOtherBlocksAreNotLoaded) {
  OptimizerConfig sgd;
  sgd.mutable_sgd();
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  *tables.Add() = BlockTable(WithDefaults(sgd), 7, false);
  const auto layouts = *CreateTableLayouts(tables, 1);
  const std::unique_ptr<Shard> shard = MakeDenseShard(layouts[0], 0, UpdatePolicy());
  const std::vector<float> values(30, 9.0f);
  shard->LoadElements(kElements - 10, values.data(), values.size());
  shard->LoadElements(kElements + 5, values.data(), values.size());
  std::vector<float> expected(kElements, 0.5f);
  std::fill(expected.end() - 10, expected.end(), 9.0f);
  EXPECT_EQ(SavedWeights(*layouts[0], shard->BeginCut().get()), expected);
}

INSTANTIATE_TEST_SUITE_P(Rules, DenseShardTest, testing::ValuesIn(RuleNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace sluice
