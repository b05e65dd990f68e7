// A block under asynchronous pushes: the bits of the update rule applied to a whole gradient,
// however the message was cut into slices.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/base/slice.h"
#include "server/shard.h"

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

// `bytes` in slices of 1 to `largest` bytes, each of a memory of its own, at any address.
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

class DenseShardTest : public testing::TestWithParam<std::string> {
 protected:
  static OptimizerConfig Rule(const std::string& name) {
    OptimizerConfig config;
    if (name == "sgd") config.mutable_sgd();
    if (name == "momentum") config.mutable_momentum()->set_nesterov(true);
    if (name == "adam") config.mutable_adam();
    if (name == "adagrad") config.mutable_adagrad();
    if (name == "ftrl") config.mutable_ftrl()->set_l1(0.01f);
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
      PayloadReader payload(CutAnywhere(bytes + "behind", largest_slice, &random));
      ASSERT_EQ(shard->Decode(kElements, &payload, &part), PART_OK);
      EXPECT_EQ(payload.remaining(), 6u);
      ASSERT_EQ(shard->Apply({0, 1, push, 1.0}, &part).status, PART_OK);
    }
    const ShardValues saved = shard->Save();
    ASSERT_EQ(saved.weights.size(), kElements);
    EXPECT_EQ(std::memcmp(saved.weights.data(), weights.data(), sizeof(float) * kElements), 0);
  }
};

TEST_P(DenseShardTest, AnAsynchronousPushGivesTheRulesBits) {
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

INSTANTIATE_TEST_SUITE_P(Rules, DenseShardTest,
                         testing::Values("sgd", "momentum", "adam", "adagrad", "ftrl"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace sluice
