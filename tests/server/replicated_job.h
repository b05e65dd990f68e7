// A job whose pserver 0 has a follower, and the messages that bring the follower its copies.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "server/copies/seed_stream.h"
#include "tests/server/test_worker.h"

namespace sluice {

inline constexpr char kFollower[] = "127.0.0.1:7001";
inline constexpr char kSuccessor[] = "127.0.0.1:7002";

// Table "w" and the shards of "e" belong to pserver 0, at kSelf. Pserver 1, at kFollower, only
// follows.
inline JobSpec Replicated(uint32_t workers, int k_steps = 0, uint32_t gradients_to_wait = 0) {
  JobSpec spec = MakeSpec(workers, true, k_steps);
  spec.mutable_config()->mutable_strategy()->mutable_a_sync_configs()->set_gradients_to_wait(
      gradients_to_wait);
  spec.mutable_route()->add_pservers(kFollower);
  spec.add_follower(1);
  spec.add_follower(0);
  for (uint32_t r = 0; r < workers; ++r) spec.add_incarnations(1);
  return spec;
}

// The hello of pserver 0, or with `read` of its successor.
inline ReplicaHello HelloOf(const JobSpec& spec, bool read = false) {
  ReplicaHello hello;
  hello.set_protocol(kDataProtocol);
  hello.set_job_id(spec.job_id());
  hello.set_instance(spec.instance());
  hello.set_generation(spec.route().generation());
  hello.set_read(read);
  return hello;
}

// The image of a shard, as the messages that bring it.
inline std::vector<Message> ImageOf(Shard* shard) {
  ShardSeed seed;
  HeldSum held;
  std::unique_ptr<ShardCut> cut = shard->BeginSeed(nullptr, nullptr, &seed, &held);
  SeedSender sender(std::move(cut), std::move(seed), std::move(held));
  std::vector<Message> messages;
  uint64_t bytes = 0;
  for (Message message; sender.Next(&message, &bytes).value();)
    messages.push_back(std::exchange(message, Message()));
  return messages;
}

// A push of four equal gradients to the block of "w".
inline ApplyResult PushToBlock(Shard* block, const FrameId& frame, float gradient) {
  PushPart part;
  part.rows = 4;
  part.values.assign(4, gradient);
  return block->Apply(frame, &part);
}

// The four values of the block of "w".
inline std::vector<float> ValuesOf(Shard* block) {
  std::vector<float> values(4);
  block->Read(nullptr, 0, reinterpret_cast<uint8_t*>(values.data()));
  return values;
}

}  // namespace sluice
