#include "server/requests/reply_writer.h"

#include <algorithm>
#include <utility>

#include "common/base/printable.h"

namespace sluice {

void ReplyWriter::AddError(uint32_t table, uint32_t shard, PartStatus status,
                           uint64_t last_sequence) {
  // A shard that was refused in several messages of the request is listed once.
  if (!erroneous_.insert(static_cast<uint64_t>(table) << 32 | shard).second) return;
  PartError* error = errors_.Add();
  error->set_table(table);
  error->set_shard(shard);
  error->set_status(status);
  error->set_last_sequence(last_sequence);
}

bool ReplyWriter::has_error(PartStatus status) const {
  return std::any_of(errors_.begin(), errors_.end(),
                     [status](const PartError& e) { return e.status() == status; });
}

void ReplyWriter::StartPart(uint32_t table, uint32_t shard, uint32_t rows, size_t bytes) {
  // A chunk ends at a part border; a part larger than a chunk gets its own chunk.
  if (chunk_bytes_ + bytes > kBytesAChunk && parts_.table_size() > 0) {
    ReplyHeader header;
    Message payload = TakeChunk(&header);
    stream_->Send(EncodeReply(header, std::move(payload)));
  }
  chunk_bytes_ += bytes;
  parts_.add_table(table);
  parts_.add_shard(shard);
  parts_.add_rows(rows);
}

uint8_t* ReplyWriter::AddPart(uint32_t table, uint32_t shard, uint32_t rows, size_t bytes) {
  StartPart(table, shard, rows, bytes);
  if (capacity_ - used_ < bytes) {
    EndPiece();
    // One buffer for all small parts of a chunk, and not larger than the rest of the answer.
    capacity_ = std::max(bytes, std::min(kBytesAChunk, expected_));
    buffer_ = std::shared_ptr<uint8_t>(new uint8_t[capacity_], std::default_delete<uint8_t[]>());
    piece_ = used_ = 0;
  }
  uint8_t* at = buffer_.get() + used_;
  used_ += bytes;
  expected_ -= std::min(expected_, bytes);
  return at;
}

void ReplyWriter::AddPart(uint32_t table, uint32_t shard, uint32_t rows, Slice values) {
  StartPart(table, shard, rows, values.size());
  expected_ -= std::min(expected_, values.size());
  EndPiece();
  if (values.size() > 0) payload_.push_back(std::move(values));
}

void ReplyWriter::EndPiece() {
  // Slices share the buffer. Later parts go after a finished slice and never change it.
  if (used_ > piece_) payload_.emplace_back(buffer_.get() + piece_, used_ - piece_, buffer_);
  piece_ = used_;
}

Message ReplyWriter::TakeChunk(ReplyHeader* header) {
  header->set_request_id(request_id_);
  header->mutable_parts()->Swap(&parts_);
  parts_.Clear();
  EndPiece();
  // The message owns the buffer from here on, since the transport may still read it.
  buffer_ = nullptr;
  capacity_ = piece_ = used_ = chunk_bytes_ = 0;
  return std::exchange(payload_, {});
}

void ReplyWriter::Finish(uint64_t generation, uint64_t others, uint64_t checkpoint) {
  ReplyHeader header;
  Message payload = TakeChunk(&header);
  header.set_last(true);
  header.set_generation(generation);
  header.set_others(others);
  header.set_checkpoint(checkpoint);
  header.mutable_errors()->Swap(&errors_);
  stream_->Send(EncodeReply(header, std::move(payload)));
}

void ReplyWriter::Refuse(const absl::Status& status, uint64_t generation) {
  ReplyHeader header;
  header.set_request_id(request_id_);
  header.set_last(true);
  header.set_code(static_cast<int32_t>(status.code()));
  header.set_message(Printable(status.message()));
  header.set_generation(generation);
  stream_->Send(EncodeReply(header, {}));
}

}  // namespace sluice
