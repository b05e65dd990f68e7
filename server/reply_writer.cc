#include "server/reply_writer.h"

#include <algorithm>

#include "common/base/printable.h"

namespace sluice {

void ReplyWriter::AddError(uint32_t table, uint32_t shard, PartStatus status,
                           uint64_t last_sequence) {
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

uint8_t* ReplyWriter::AddPart(uint32_t table, uint32_t shard, uint32_t rows, size_t bytes) {
  if (capacity_ - used_ < bytes) {
    if (parts_.table_size() > 0) {
      ReplyHeader header;
      Message payload = TakeChunk(&header);
      stream_->Send(EncodeReply(header, std::move(payload)));
    }
    capacity_ = std::max(bytes, std::min(kChunkBytes, expected_));
    chunk_ = std::shared_ptr<uint8_t>(new uint8_t[capacity_], std::default_delete<uint8_t[]>());
    used_ = 0;
  }
  parts_.add_table(table);
  parts_.add_shard(shard);
  parts_.add_rows(rows);
  uint8_t* at = chunk_.get() + used_;
  used_ += bytes;
  expected_ -= std::min(expected_, bytes);
  return at;
}

Message ReplyWriter::TakeChunk(ReplyHeader* header) {
  header->set_request_id(request_id_);
  header->mutable_parts()->Swap(&parts_);
  parts_.Clear();
  Message payload;
  if (used_ > 0) payload.emplace_back(chunk_.get(), used_, chunk_);
  chunk_ = nullptr;
  capacity_ = used_ = 0;
  return payload;
}

void ReplyWriter::Finish(uint64_t generation, uint64_t others) {
  ReplyHeader header;
  Message payload = TakeChunk(&header);
  header.set_last(true);
  header.set_generation(generation);
  header.set_others(others);
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
