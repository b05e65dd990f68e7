#include "client/make_pull.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/key_set.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

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
    SLUICE_RETURN_IF_ERROR(op->Add(std::move(piece)));
  }
  return absl::OkStatus();
}

absl::Status AddDense(const ShardIndex& index, const PullRequest::Dense& pull, PullOperation* op) {
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
    SLUICE_RETURN_IF_ERROR(AddSparse(index, pull, op.get()));
  }
  for (const auto& pull : request.dense) {
    SLUICE_RETURN_IF_ERROR(AddDense(index, pull, op.get()));
  }
  return op;
}

std::shared_ptr<PullOperation> MakeBarrier(const ShardIndex& index,
                                           PullOperation::Purpose purpose) {
  auto op = std::make_shared<PullOperation>(&index, std::move(purpose));
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

}  // namespace sluice
