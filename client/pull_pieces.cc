#include "client/pull_pieces.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/key_set.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

absl::Status AddSparsePieces(const ShardIndex& index, const PullRequest::Sparse& pull,
                             PullOperation* op) {
  SLUICE_RETURN_IF_ERROR(CheckKeys(index, pull.table, pull.keys.get()));
  const TableLayout& table = *index.tables()[pull.table];
  for (uint32_t s = 0; s < table.num_shards(); ++s) {
    const uint32_t first = pull.keys->offsets[s];
    PullOperation::Piece piece;
    piece.flat = index.begin(pull.table) + s;
    piece.rows = pull.keys->offsets[s + 1] - first;
    // A shard without a key of this batch is not asked at all.
    if (piece.rows == 0) continue;
    piece.keys = Slice(pull.keys->keys.data() + first, piece.rows * sizeof(uint64_t), pull.keys);
    piece.values = pull.values + size_t{first} * table.dim();
    SLUICE_RETURN_IF_ERROR(op->Add(std::move(piece)));
  }
  return absl::OkStatus();
}

absl::Status AddDensePieces(const ShardIndex& index, const PullRequest::Dense& pull,
                            PullOperation* op) {
  if (pull.table >= index.tables().size() || index.tables()[pull.table]->sparse()) {
    return absl::InvalidArgumentError(absl::StrCat("table ", pull.table, " is not a dense table"));
  }
  const TableLayout& table = *index.tables()[pull.table];
  for (uint32_t s = 0; s < table.num_shards(); ++s) {
    PullOperation::Piece piece;
    piece.flat = index.begin(pull.table) + s;
    piece.rows = static_cast<uint32_t>(table.ShardElements(s));
    piece.values = pull.values == nullptr ? nullptr : pull.values + s * table.block_elements();
    SLUICE_RETURN_IF_ERROR(op->Add(std::move(piece)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<PullOperation>> MakePull(const ShardIndex& index,
                                                        const PullRequest& request,
                                                        PullOperation::Purpose purpose) {
  purpose.evaluation = request.evaluation;
  auto op = std::make_shared<PullOperation>(&index, std::move(purpose));
  for (const auto& pull : request.sparse) {
    SLUICE_RETURN_IF_ERROR(AddSparsePieces(index, pull, op.get()));
  }
  for (const auto& pull : request.dense) {
    SLUICE_RETURN_IF_ERROR(AddDensePieces(index, pull, op.get()));
  }
  return op;
}

std::shared_ptr<PullOperation> MakeBarrier(const ShardIndex& index,
                                           PullOperation::Purpose purpose) {
  auto op = std::make_shared<PullOperation>(&index, std::move(purpose));
  // Only a pull is answered after its step. Sparse shards are asked for no rows; the values of
  // dense ones are dropped.
  for (uint32_t flat = 0; flat < index.size(); ++flat) {
    const TableLayout& table = index.table_of(flat);
    PullOperation::Piece piece;
    piece.flat = flat;
    piece.rows =
        table.sparse() ? 0 : static_cast<uint32_t>(table.ShardElements(index.shard_of(flat)));
    op->Add(std::move(piece)).IgnoreError();  // each shard is added once
  }
  return op;
}

using Destination = PullOperation::Destination;

absl::StatusOr<std::vector<Destination>> FindDestinations(const ShardIndex& index,
                                                          const DecodedReply& reply,
                                                          const PullOperation* op) {
  // The reply comes from another process: all of it is checked before any value is written.
  const Parts& parts = reply.header.parts();
  if (parts.shard_size() != parts.table_size() || parts.rows_size() != parts.table_size()) {
    return absl::InternalError("the lists of parts in the reply differ in length");
  }
  std::vector<Destination> destinations;
  destinations.reserve(parts.table_size());
  size_t bytes = 0;
  for (int i = 0; i < parts.table_size(); ++i) {
    Destination to;
    to.flat = index.Flat(parts.table(i), parts.shard(i));
    if (to.flat == ShardIndex::kNone) {
      return absl::InternalError(absl::StrCat("the reply holds shard ", parts.shard(i),
                                              " of table ", parts.table(i),
                                              ", which the job does not have"));
    }
    to.values = size_t{parts.rows(i)} * index.ValuesPerRow(to.flat);
    bytes += to.values * index.table_of(to.flat).wire_bytes();
    const PullOperation::Piece* const piece =
        op == nullptr ? nullptr : op->Expected(reply.header.request_id(), to.flat);
    if (piece != nullptr && piece->rows == parts.rows(i)) {
      to.wanted = true;
      to.to = piece->values;
    } else if (piece != nullptr && parts.rows(i) != 0) {
      // A part without rows is no error: the piece counts as left out of the reply.
      return absl::InternalError(absl::StrCat(
          "the reply's part for table '", index.table_of(to.flat).name(), "' shard ",
          index.shard_of(to.flat), " has ", parts.rows(i), " rows, not ", piece->rows));
    }
    destinations.push_back(to);
  }
  if (bytes != reply.payload.remaining()) {
    return absl::InternalError(absl::StrCat("the reply names values of ", bytes,
                                            " bytes and carries ", reply.payload.remaining()));
  }
  return destinations;
}

absl::Status CopyValues(const ShardIndex& index, const std::vector<Destination>& destinations,
                        PayloadReader* payload) {
  for (const Destination& to : destinations) {
    const uint32_t wire_bytes = index.table_of(to.flat).wire_bytes();
    if (to.to == nullptr) {
      // The values of the next part begin behind these.
      payload->Skip(to.values * wire_bytes);
    } else if (!ReadValues(payload, wire_bytes, to.values, to.to)) {
      return absl::DataLossError(absl::StrCat(
          "table '", index.table_of(to.flat).name(), "' shard ", index.shard_of(to.flat),
          " holds a NaN or an infinity: the training diverged. Lower the learning rate"));
    }
  }
  return absl::OkStatus();
}

}  // namespace sluice
