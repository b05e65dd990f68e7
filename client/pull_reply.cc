#include "client/pull_reply.h"

#include "absl/strings/str_cat.h"

namespace sluice {

using Destination = PullOperation::Destination;

absl::StatusOr<std::vector<Destination>> FindDestinations(const ShardIndex& index,
                                                          const DecodedReply& reply,
                                                          const PullOperation* op) {
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
