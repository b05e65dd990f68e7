#include "client/pull_operation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/push_frame.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

using State = PullOperation::State;

absl::Status AddPiece(const ShardIndex& index, PullOperation::Piece piece, PullOperation* op) {
  uint32_t& at = op->piece_of[piece.flat];
  if (at != ShardIndex::kNone) {
    return absl::InvalidArgumentError(absl::StrCat("table '", index.table_of(piece.flat).name(),
                                                   "' is asked for twice in one pull"));
  }
  at = static_cast<uint32_t>(op->pieces.size());
  op->pieces.push_back(std::move(piece));
  return absl::OkStatus();
}

absl::Status AddSparse(const ShardIndex& index, const PullRequest::Sparse& pull,
                       PullOperation* op) {
  SLUICE_RETURN_IF_ERROR(CheckKeys(index, pull.table, pull.keys.get()));
  const TableLayout& table = *index.tables()[pull.table];
  for (uint32_t s = 0; s < table.num_shards(); ++s) {
    const uint32_t first = pull.keys->offsets[s];
    PullOperation::Piece piece;
    piece.flat = index.begin(pull.table) + s;
    piece.rows = pull.keys->offsets[s + 1] - first;
    if (piece.rows == 0) continue;
    piece.keys = Slice(pull.keys->keys.data() + first, piece.rows * sizeof(uint64_t), pull.keys);
    piece.values = pull.values + size_t{first} * table.dim();
    SLUICE_RETURN_IF_ERROR(AddPiece(index, std::move(piece), op));
  }
  return absl::OkStatus();
}

absl::Status AddDense(const ShardIndex& index, uint32_t table_id, float* values,
                      PullOperation* op) {
  if (table_id >= index.tables().size() || index.tables()[table_id]->sparse()) {
    return absl::InvalidArgumentError(absl::StrCat("table ", table_id, " is not a dense table"));
  }
  const TableLayout& table = *index.tables()[table_id];
  for (uint32_t s = 0; s < table.num_shards(); ++s) {
    PullOperation::Piece piece;
    piece.flat = index.begin(table_id) + s;
    piece.rows = static_cast<uint32_t>(table.ShardElements(s));
    piece.values = values == nullptr ? nullptr : values + s * table.block_elements();
    SLUICE_RETURN_IF_ERROR(AddPiece(index, std::move(piece), op));
  }
  return absl::OkStatus();
}

std::shared_ptr<PullOperation> Empty(const ShardIndex& index) {
  auto op = std::make_shared<PullOperation>();
  op->piece_of.assign(index.size(), ShardIndex::kNone);
  return op;
}

absl::Status BadReply(const ShardIndex& index, uint32_t flat, absl::string_view what) {
  return absl::InternalError(absl::StrCat("the reply's part for table '",
                                          index.table_of(flat).name(), "' shard ",
                                          index.shard_of(flat), " ", what));
}

}  // namespace

bool PullOperation::Done() const {
  return std::all_of(pieces.begin(), pieces.end(),
                     [](const Piece& p) { return p.state == State::kDone; }) &&
         std::all_of(controls.begin(), controls.end(),
                     [](const Control& c) { return c.state == State::kDone; });
}

absl::StatusOr<std::shared_ptr<PullOperation>> MakePull(const ShardIndex& index,
                                                        const PullRequest& request) {
  auto op = Empty(index);
  op->evaluation = request.evaluation;
  for (const auto& pull : request.sparse) {
    SLUICE_RETURN_IF_ERROR(AddSparse(index, pull, op.get()));
  }
  for (const auto& pull : request.dense) {
    SLUICE_RETURN_IF_ERROR(AddDense(index, pull.table, pull.values, op.get()));
  }
  return op;
}

std::shared_ptr<PullOperation> MakeBarrier(const ShardIndex& index) {
  auto op = Empty(index);
  for (uint32_t flat = 0; flat < index.size(); ++flat) {
    const TableLayout& table = index.table_of(flat);
    PullOperation::Piece piece;
    piece.flat = flat;
    piece.rows =
        table.sparse() ? 0 : static_cast<uint32_t>(table.ShardElements(index.shard_of(flat)));
    op->piece_of[flat] = flat;
    op->pieces.push_back(std::move(piece));
  }
  return op;
}

absl::StatusOr<std::vector<Destination>> ClaimPieces(const ShardIndex& index,
                                                     const DecodedReply& reply, uint64_t request,
                                                     PullOperation* op) {
  const Parts& parts = reply.header.parts();
  if (parts.shard_size() != parts.table_size() || parts.rows_size() != parts.table_size()) {
    return absl::InternalError("the reply's columns of parts have different lengths");
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
    if (op != nullptr && op->piece_of[to.flat] != ShardIndex::kNone) {
      const PullOperation::Piece& piece = op->pieces[op->piece_of[to.flat]];
      const bool wanted = piece.request == request && piece.state == State::kInFlight;
      if (wanted && piece.rows == parts.rows(i)) to.piece = op->piece_of[to.flat];
      if (wanted && piece.rows != parts.rows(i) && parts.rows(i) != 0) {
        return BadReply(index, to.flat,
                        absl::StrCat("has ", parts.rows(i), " rows, not ", piece.rows));
      }
    }
    destinations.push_back(to);
  }
  if (bytes != reply.payload.remaining()) {
    return absl::InternalError(absl::StrCat("the reply names values of ", bytes,
                                            " bytes and carries ", reply.payload.remaining()));
  }
  for (const Destination& to : destinations) {
    if (to.piece != ShardIndex::kNone) op->pieces[to.piece].state = State::kWriting;
  }
  return destinations;
}

absl::Status CopyValues(const ShardIndex& index, const std::vector<Destination>& destinations,
                        const PullOperation* op, PayloadReader* payload) {
  for (const Destination& to : destinations) {
    const uint32_t wire_bytes = index.table_of(to.flat).wire_bytes();
    float* const values = to.piece == ShardIndex::kNone ? nullptr : op->pieces[to.piece].values;
    if (values == nullptr) {
      payload->Skip(to.values * wire_bytes);
    } else if (!ReadValues(payload, wire_bytes, to.values, values)) {
      return absl::DataLossError(absl::StrCat(
          "table '", index.table_of(to.flat).name(), "' shard ", index.shard_of(to.flat),
          " holds a NaN or an infinity: the training diverged. Lower the learning rate"));
    }
  }
  return absl::OkStatus();
}

}  // namespace sluice
