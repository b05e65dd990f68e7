// Builds the answer to one request: part errors, values in chunks of kChunkBytes cut at part
// borders.
//
// Thread safety: one thread at a time; it may travel from the one that read the request to the one
// that makes its values ready.
//
// Memory: at most one buffer a chunk, owned by the message; values that a shard lends stay where
// they are.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "common/transport/transport.h"
#include "common/wire/frame.h"

namespace sluice {

class ReplyWriter {
 public:
  ReplyWriter(std::shared_ptr<Stream> stream, uint64_t request_id)
      : stream_(std::move(stream)), request_id_(request_id) {}

  uint64_t request_id() const { return request_id_; }

  // At most one error a part is kept.
  void AddError(uint32_t table, uint32_t shard, PartStatus status, uint64_t last_sequence);
  bool has_error(PartStatus status) const;

  // About so many bytes of values will come: how large to make buffers.
  void Expect(size_t bytes) { expected_ += bytes; }
  // Space for the values of the next part, to be filled before the next call.
  uint8_t* AddPart(uint32_t table, uint32_t shard, uint32_t rows, size_t bytes);
  // A part whose values exist in wire form.
  void AddPart(uint32_t table, uint32_t shard, uint32_t rows, Slice values);

  // The last message of the answer. Exactly one of the two is called, once.
  void Finish(uint64_t generation, uint64_t others);
  // The request as a whole was not done.
  void Refuse(const absl::Status& status, uint64_t generation);

 private:
  // Sends the chunk when `bytes` more do not fit, and names the part.
  void StartPart(uint32_t table, uint32_t shard, uint32_t rows, size_t bytes);
  // What was added to the buffer becomes a slice of the chunk.
  void EndPiece();
  Message TakeChunk(ReplyHeader* header);

  const std::shared_ptr<Stream> stream_;
  const uint64_t request_id_;
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
