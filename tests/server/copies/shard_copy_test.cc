// Copies of shards are equal to the shards to the bit, whatever frames come and whenever the copies
// begin: images and changes go through a ChangeLog and a ShardCopy, as between two pservers.
#include "server/copies/shard_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/optimizer/update_rule.h"
#include "server/copies/seed_stream.h"
#include "server/shards/change_log.h"
#include "tests/common/base/fake_clock.h"

namespace sluice {
namespace {

constexpr uint32_t kWorkers = 3;
constexpr uint32_t kShards = 3;

OptimizerConfig Optimizer(const std::string& rule) {
  OptimizerConfig config;
  if (rule == "sgd") config.mutable_sgd();
  if (rule == "momentum") config.mutable_momentum();
  if (rule == "adam") config.mutable_adam();
  config.set_learning_rate(0.1f);
  config.mutable_schedule()->mutable_exponential()->set_steps(3);
  config.mutable_schedule()->mutable_exponential()->set_rate(0.9f);
  return WithDefaults(config);
}

// Table 0 is dense, in float32; table 1 is sparse, with two columns, in bfloat16 if asked for.
TableLayouts Layouts(const std::string& rule, bool bf16) {
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  TableConfig* const dense = tables.Add();
  dense->set_name("w");
  dense->set_kind(TableConfig::DENSE);
  dense->add_shape(6);
  dense->mutable_initializer()->set_constant(1);
  *dense->mutable_optimizer() = Optimizer(rule);
  TableConfig* const sparse = tables.Add();
  sparse->set_name("e");
  sparse->set_kind(TableConfig::SPARSE);
  sparse->set_num_shards(kShards);
  if (bf16) sparse->set_wire_type(TableConfig::BF16);
  for (uint32_t c = 0; c < 2; ++c) {
    ColumnGroup* const column = sparse->add_columns();
    column->set_name(c == 0 ? "wide" : "deep");
    column->set_dim(1 + 2 * c);
    column->mutable_initializer()->mutable_uniform()->set_max(1);
    *column->mutable_optimizer() = Optimizer(c == 0 ? "sgd" : rule);
  }
  return CreateTableLayouts(tables, 7).value();
}

Route RouteOf() {
  Route route;
  route.set_generation(1);
  route.add_pservers("a");
  route.add_pservers("b");
  route.add_tables()->add_owner(0);
  TableRoute* const sparse = route.add_tables();
  // Shard 2 belongs to the other pserver.
  for (uint32_t s = 0; s < kShards; ++s) sparse->add_owner(s == 2 ? 1 : 0);
  return route;
}

UpdatePolicy Policy(const std::string& mode) {
  UpdatePolicy policy;
  policy.mode = mode == "geo" ? Mode::kGeo : Mode::kAsync;
  policy.worker_num = kWorkers;
  policy.gradients_to_wait = mode == "waiting" ? 4 : 1;
  policy.merge_scale = 0.3;
  policy.replicated = true;
  policy.keeps_tombstones = true;
  return policy;
}

// The image of a shard and what it leaves out, as bytes.
std::string BitsOf(Shard* shard) {
  ShardSeed seed;
  HeldSum held;
  std::unique_ptr<ShardCut> cut = shard->BeginSeed(nullptr, nullptr, &seed, &held);
  std::string bits = seed.SerializeAsString();
  bits.append(reinterpret_cast<const char*>(held.sums.data()), held.sums.size() * sizeof(double));
  std::string piece;
  while (cut->Next(&piece).value()) bits += piece;
  return bits;
}

class Primary {
 public:
  Primary(TableLayouts layouts, const UpdatePolicy& policy, uint32_t seed)
      : layouts_(std::move(layouts)), random_(seed), log_(std::make_shared<ChangeLog>(1 << 30)) {
    shards_.push_back(MakeDenseShard(layouts_[0], 0, policy));
    for (uint32_t s = 0; s < 2; ++s) shards_.push_back(MakeSparseShard(layouts_[1], s, policy));
    position_.resize(kWorkers);
  }
  std::vector<std::unique_ptr<Shard>>& shards() { return shards_; }

  // A frame of a random rank, or one that was sent before.
  void Frame() {
    const uint32_t rank = random_() % kWorkers;
    const bool repeat = random_() % 5 == 0 && position_[rank].sequence > 0;
    if (!repeat) {
      if (random_() % 20 == 0) position_[rank] = {position_[rank].life + 1, 0};
      ++position_[rank].sequence;
    }
    for (const auto& shard : shards_) {
      FrameId frame{rank, position_[rank].life, position_[rank].sequence,
                    static_cast<double>(random_() % 4)};
      frame.position.task_id = frame.sequence;
      frame.position.examples = random_() % 100;
      Push(shard.get(), frame);
    }
    if (random_() % 25 == 0) {
      for (const auto& shard : shards_) shard->Flush();
    }
    if (random_() % 15 == 0) Delete();
  }
  uint64_t deleted() const { return deleted_; }

  // Sends a shard's image in pieces, with frames in between.
  void Seed(Shard* shard, std::deque<Message>* to, bool give_up) {
    ShardSeed seed;
    HeldSum held;
    std::unique_ptr<ShardCut> cut = shard->BeginSeed(log_, nullptr, &seed, &held);
    SeedSender sender(std::move(cut), std::move(seed), std::move(held));
    Message message;
    uint64_t bytes = 0;
    for (int sent = 0; sender.Next(&message, &bytes).value(); ++sent) {
      to->push_back(std::move(message));
      Frame();
      Drain(to);
      if (give_up && sent == 1) return;
    }
    log_->Release(shard->table().id(), shard->index());
    Drain(to);
  }
  void Drain(std::deque<Message>* to) {
    Message message;
    while (log_->Next(&message)) to->push_back(std::move(message));
  }

 private:
  // An operator deletes rows; some keys have none.
  void Delete() {
    for (const auto& shard : shards_) {
      std::vector<uint64_t> keys;
      for (uint64_t key = 1; key < 70 && shard->table().sparse(); ++key) {
        if (random_() % 5 == 0 && shard->table().ShardOf(key) == shard->index())
          keys.push_back(key);
      }
      if (!keys.empty()) deleted_ += shard->DeleteRows(keys.data(), keys.size());
    }
  }
  void Push(Shard* shard, const FrameId& frame) {
    const TableLayout& layout = shard->table();
    std::string bytes;
    uint32_t rows = 0;
    std::vector<uint64_t> keys;
    if (layout.sparse()) {
      for (uint64_t key = 1; key < 60; ++key) {
        if (random_() % 4 == 0 && layout.ShardOf(key) == shard->index()) keys.push_back(key);
      }
      rows = static_cast<uint32_t>(keys.size());
      bytes.append(reinterpret_cast<const char*>(keys.data()), keys.size() * sizeof(uint64_t));
    } else if (random_() % 5 > 0) {
      rows = static_cast<uint32_t>(layout.ShardElements(0));
    }
    std::vector<float> values(size_t{rows} * (layout.sparse() ? layout.dim() : 1));
    for (float& value : values) value = static_cast<float>(random_() % 2000) / 997 - 1;
    std::string wire(values.size() * layout.wire_bytes(), '\0');
    WriteValues(values.data(), values.size(), layout.wire_bytes(),
                reinterpret_cast<uint8_t*>(wire.data()));
    bytes += wire;
    // Slices of odd lengths.
    Message message;
    for (size_t at = 0; at < bytes.size(); at += 13)
      message.push_back(Slice::FromString(bytes.substr(at, 13)));
    PayloadReader payload(message);
    part_.wire = payload.Keep(payload.remaining());
    ASSERT_EQ(shard->Decode(rows, &payload, &part_), PART_OK);
    ASSERT_EQ(shard->Apply(frame, &part_).status, PART_OK);
  }

  struct Life {
    uint64_t life = 1, sequence = 0;
  };
  const TableLayouts layouts_;
  std::mt19937 random_;
  std::shared_ptr<ChangeLog> log_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<Life> position_;
  uint64_t deleted_ = 0;  // rows
  PushPart part_;
};

struct Setting {
  const char *mode, *rule;
  bool bf16;
};

class EqualBits : public testing::TestWithParam<Setting> {};

TEST_P(EqualBits, AfterRandomFramesAndImagesInBetween) {
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    const TableLayouts layouts = Layouts(GetParam().rule, GetParam().bf16);
    Primary primary(layouts, Policy(GetParam().mode), seed);
    ShardCopy copy(layouts, Policy(GetParam().mode), RouteOf(), 0);
    std::deque<Message> messages;
    for (uint32_t i = 0; i < 7 * seed; ++i) primary.Frame();
    for (const auto& shard : primary.shards()) {
      // An image that a checkpoint interrupts begins anew.
      if (seed % 2 == 0) primary.Seed(shard.get(), &messages, /*give_up=*/true);
      primary.Seed(shard.get(), &messages, /*give_up=*/false);
    }
    for (int i = 0; i < 60; ++i) primary.Frame();
    primary.Drain(&messages);
    for (Message& message : messages) {
      DecodedReplica decoded = DecodeReplica(std::move(message)).value();
      const absl::Status applied = copy.Apply(decoded.header, std::move(decoded.payload));
      ASSERT_TRUE(applied.ok()) << applied << ", seed " << seed;
    }
    ASSERT_TRUE(copy.CheckWhole().ok());
    EXPECT_GT(primary.deleted(), 0u);
    const std::vector<std::shared_ptr<Shard>> shards = copy.shards();
    ASSERT_EQ(shards.size(), primary.shards().size());
    for (size_t i = 0; i < shards.size(); ++i) {
      EXPECT_EQ(BitsOf(shards[i].get()), BitsOf(primary.shards()[i].get()))
          << "shard " << i << ", seed " << seed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, EqualBits,
                         testing::Values(Setting{"async", "adam", false},
                                         Setting{"async", "momentum", true},
                                         Setting{"waiting", "adam", false},
                                         Setting{"waiting", "sgd", true},
                                         Setting{"geo", "adam", false}));

TEST(ShardCopyTest, RowsOfCopiesEndWhereMemoryEnds) {
  const TableLayouts layouts = Layouts("sgd", false);
  Primary primary(layouts, Policy("async"), 1);
  std::deque<Message> messages;
  for (int i = 0; i < 20; ++i) primary.Frame();
  for (const auto& shard : primary.shards()) primary.Seed(shard.get(), &messages, false);
  primary.Drain(&messages);
  FakeClock clock;
  ShardCopy copy(layouts, Policy("async"), RouteOf(), 0,
                 std::make_shared<RowMemory>(&clock, [] { return uint64_t{1000}; }));
  absl::Status applied;
  for (; !messages.empty() && applied.ok(); messages.pop_front()) {
    DecodedReplica decoded = DecodeReplica(std::move(messages.front())).value();
    applied = copy.Apply(decoded.header, std::move(decoded.payload));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(applied)) << applied;
  EXPECT_THAT(std::string(applied.message()), testing::HasSubstr("'e'"));
}

TEST(ShardCopyTest, RefusesWhatDoesNotFit) {
  const TableLayouts layouts = Layouts("sgd", false);
  ShardCopy copy(layouts, Policy("async"), RouteOf(), 0);
  EXPECT_FALSE(copy.CheckWhole().ok());
  ReplicaHeader header;
  FrameChanges* const changes = header.add_changes();
  changes->mutable_parts()->add_table(1);
  changes->mutable_parts()->add_shard(0);
  changes->mutable_parts()->add_rows(1);
  EXPECT_TRUE(absl::IsInvalidArgument(copy.Apply(header, PayloadReader())));
  changes->mutable_parts()->add_rows(1);
  EXPECT_TRUE(absl::IsInvalidArgument(copy.Apply(header, PayloadReader())));
  header.Clear();
  header.mutable_seed()->set_table(1);
  header.mutable_seed()->set_shard(2);  // of the other pserver
  EXPECT_TRUE(absl::IsInvalidArgument(copy.Apply(header, PayloadReader())));
  header.Clear();
  header.mutable_piece()->set_table(1);
  EXPECT_TRUE(absl::IsInvalidArgument(copy.Apply(header, PayloadReader())));
  copy.Seal();
  EXPECT_TRUE(absl::IsAborted(copy.Apply(ReplicaHeader(), PayloadReader())));
}

}  // namespace
}  // namespace sluice
