// Pservers in memory. For each shard they keep its last sequence, the sum of all pushes, and its
// owner.
//
// They are strict: they record a violation for a frame beyond last + 1 on a calm network, for a
// wrong length and for an odd generation.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/shard_index.h"
#include "common/base/mutex.h"
#include "common/transport/transport.h"
#include "common/wire/frame.h"

namespace sluice {

struct FakePservers {
  explicit FakePservers(const TableLayouts& tables, const Route& initial)
      : index(tables), route(initial) {}

  struct ShardState {
    uint64_t last = 0;
    std::map<uint64_t, std::vector<float>> rows;  // dense: one row, key 0
  };
  Mutex mu;
  const ShardIndex index;
  Route route;
  std::map<uint32_t, ShardState> shards;  // by flat
  int refuse_hellos = 0;
  uint64_t instance = 0;        // of the job; Hello must name it
  bool any_generation = false;  // refuses parts instead of requests
  bool silent = false;          // accepts requests and never replies
  int messages = 0, wrong_shards = 0, refusals = 0;
  std::map<uint64_t, int> pulls;  // requests by for_push, refused ones too
  // Commit.checkpoint by pserver and sequence. Replies to pulls name that of the last commit.
  std::map<std::pair<uint32_t, uint64_t>, uint64_t> checkpoints;
  std::map<uint32_t, uint64_t> last_committed;  // by pserver
  std::string violation;

  uint32_t Owner(uint32_t flat) {
    return route.tables(index.table_of(flat).id()).owner(index.shard_of(flat));
  }
};

class FakeHandler : public StreamHandler {
 public:
  FakeHandler(FakePservers* world, uint32_t self, std::shared_ptr<Stream> stream)
      : world_(world), self_(self), stream_(std::move(stream)) {}

  void OnMessage(Message message) override {
    auto frame = DecodeFrame(std::move(message));
    ReplyHeader reply;
    std::string values;
    {
      MutexLock lock(&world_->mu);
      if (!frame.ok()) {
        world_->violation = std::string(frame.status().message());
        return;
      }
      ++world_->messages;
      if (!Take(*frame, &reply, &values)) return;
    }
    stream_->Send(EncodeReply(reply, {Slice::FromString(std::move(values))}));
  }
  void OnClosed() override {}

 private:
  bool Take(DecodedFrame& frame, ReplyHeader* reply, std::string* values) {
    const FrameHeader& header = frame.header;
    reply->set_request_id(header.request_id());
    reply->set_last(true);
    if (header.has_hello()) {
      if (world_->refuse_hellos-- > 0 || header.hello().instance() != world_->instance)
        reply->set_code(static_cast<int>(absl::StatusCode::kNotFound));
      return true;
    }
    if (header.has_pull()) ++world_->pulls[header.pull().for_push()];
    if (world_->silent) return false;
    if (!world_->any_generation && header.generation() != world_->route.generation()) {
      if (header.last()) {
        ++world_->refusals;
        reply->set_code(static_cast<int>(absl::StatusCode::kFailedPrecondition));
        reply->set_message("another generation");
      }
      return header.last();
    }
    for (int i = 0; i < header.push().parts().table_size(); ++i)
      TakePart(header.push(), i, &frame.payload);
    for (int i = 0; i < header.pull().parts().table_size(); ++i) {
      Read(header.pull().parts(), i, &frame.payload, reply, values);
    }
    if (frame.payload.remaining() != 0) world_->violation = "bytes are left";
    if (!header.last()) return false;
    if (header.has_commit()) {
      world_->last_committed[self_] = header.commit().sequence();
      world_->checkpoints[{self_, header.commit().sequence()}] = header.commit().checkpoint();
    }
    if (header.has_pull() && world_->last_committed.count(self_) > 0)
      reply->set_checkpoint(world_->checkpoints[{self_, world_->last_committed[self_]}]);
    for (PartError& error : errors_) *reply->add_errors() = error;
    errors_.clear();
    return true;
  }

  void AddError(uint32_t table, uint32_t shard, PartStatus status, uint64_t last) {
    PartError error;
    error.set_table(table);
    error.set_shard(shard);
    error.set_status(status);
    error.set_last_sequence(last);
    errors_.push_back(error);
    if (status == PART_WRONG_SHARD) ++world_->wrong_shards;
  }

  void TakePart(const Push& push, int i, PayloadReader* payload) {
    const Parts& parts = push.parts();
    const uint32_t flat = world_->index.Flat(parts.table(i), parts.shard(i));
    const bool sparse = world_->index.table_of(flat).sparse();
    const uint32_t rows = sparse ? parts.rows(i) : parts.rows(i) > 0;
    std::vector<uint64_t> keys(rows);
    if (sparse) payload->Copy(keys.data(), keys.size() * 8);
    std::vector<float> values(parts.rows(i) * world_->index.ValuesPerRow(flat));
    payload->Copy(values.data(), values.size() * 4);
    if (world_->Owner(flat) != self_)
      return AddError(parts.table(i), parts.shard(i), PART_WRONG_SHARD, 0);
    auto& shard = world_->shards[flat];
    if (push.sequence() > shard.last + 1) {
      return AddError(parts.table(i), parts.shard(i), PART_OUT_OF_ORDER, shard.last);
    }
    if (push.sequence() <= shard.last) return;
    shard.last = push.sequence();
    const size_t width = rows == 0 ? 0 : values.size() / rows;
    for (uint32_t r = 0; r < rows; ++r) {
      auto& row = shard.rows[keys[r]];
      row.resize(width);
      for (size_t d = 0; d < width; ++d) row[d] += values[r * width + d];
    }
  }

  void Read(const Parts& parts, int i, PayloadReader* payload, ReplyHeader* reply,
            std::string* out) {
    const uint32_t flat = world_->index.Flat(parts.table(i), parts.shard(i));
    const bool sparse = world_->index.table_of(flat).sparse();
    std::vector<uint64_t> keys(sparse ? parts.rows(i) : 1);
    if (sparse) payload->Copy(keys.data(), keys.size() * 8);
    if (world_->Owner(flat) != self_)
      return AddError(parts.table(i), parts.shard(i), PART_WRONG_SHARD, 0);
    reply->mutable_parts()->add_table(parts.table(i));
    reply->mutable_parts()->add_shard(parts.shard(i));
    reply->mutable_parts()->add_rows(parts.rows(i));
    for (uint64_t key : keys) {
      std::vector<float> row = world_->shards[flat].rows[key];
      row.resize(sparse ? world_->index.ValuesPerRow(flat) : parts.rows(i));
      out->append(reinterpret_cast<const char*>(row.data()), row.size() * 4);
    }
  }

  FakePservers* const world_;
  const uint32_t self_;
  const std::shared_ptr<Stream> stream_;
  std::vector<PartError> errors_;
};

}  // namespace sluice
