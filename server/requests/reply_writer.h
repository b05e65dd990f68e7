// Builds the answer to one request: errors of parts, and values in chunks of kBytesAChunk that end
// at part borders.
//
// Thread safety: one thread. A writer may move from the thread that read the request to the one
// that makes its values ready.
//
// Memory: at most one buffer per chunk, owned by the message. Values that a shard lends are not
// copied.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "common/transport/transport.h"
#include "common/wire/frame.h"
#include "server/requests/ack_gate.h"

namespace sluice {

class ReplyWriter {
 public:
  // So small that the worker copies one chunk while the next is read; so large that messages cost
  // little.
  static constexpr size_t kBytesAChunk = 512 << 10;

  ReplyWriter(std::shared_ptr<Stream> stream, uint64_t request_id)
      : stream_(std::move(stream)), request_id_(request_id) {}

  uint64_t request_id() const { return request_id_; }
  // The request has pushed, or ended an epoch, so the answer acknowledges these changes.
  void set_acknowledges(const AckGate::Mark& changes) {
    acknowledges_ = true;
    changes_ = changes;
  }
  bool acknowledges() const { return acknowledges_; }
  const AckGate::Mark& changes() const { return changes_; }

  // Keeps at most one error per part.
  void AddError(uint32_t table, uint32_t shard, PartStatus status, uint64_t last_sequence);
  bool has_error(PartStatus status) const;

  // Announces about how many bytes of values will come, which sets the size of buffers.
  void Expect(size_t bytes) { expected_ += bytes; }
  // Returns space for the values of the next part. Fill it before the next call.
  uint8_t* AddPart(uint32_t table, uint32_t shard, uint32_t rows, size_t bytes);
  // Adds a part whose values exist in wire form already.
  void AddPart(uint32_t table, uint32_t shard, uint32_t rows, Slice values);

  // Sends the last message of the answer. Call exactly one of Finish and Refuse, once.
  void Finish(uint64_t generation, uint64_t others, uint64_t checkpoint = 0);
  // Refuses the request as a whole.
  void Refuse(const absl::Status& status, uint64_t generation);

 private:
  // Sends the chunk if `bytes` more do not fit, then adds the part to the header.
  void StartPart(uint32_t table, uint32_t shard, uint32_t rows, size_t bytes);
  // Makes the bytes added to the buffer since the last slice a slice of the chunk.
  void EndPiece();
  Message TakeChunk(ReplyHeader* header);

  const std::shared_ptr<Stream> stream_;
  const uint64_t request_id_;
  bool acknowledges_ = false;
  AckGate::Mark changes_;
  google::protobuf::RepeatedPtrField<PartError> errors_;
  absl::flat_hash_set<uint64_t> erroneous_;  // table << 32 | shard of errors_
  Parts parts_;                              // of the chunk
  Message payload_;                          // of the chunk, but for buffer_[piece_, used_)
  size_t chunk_bytes_ = 0;
  size_t expected_ = 0;
  std::shared_ptr<uint8_t> buffer_;
  size_t capacity_ = 0, piece_ = 0, used_ = 0;
};

}  // namespace sluice
