#include "server/copies/seed_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace sluice {

absl::StatusOr<bool> SeedSender::Next(Message* message, uint64_t* bytes) {
  if (cut_ == nullptr) return false;
  ReplicaHeader header;
  if (!begun_) {
    begun_ = true;
    *header.mutable_seed() = seed_;
    // Gradients that wait for gradients_to_wait travel with the header: a cut does not contain
    // them.
    std::string held(reinterpret_cast<const char*>(held_.keys.data()),
                     held_.keys.size() * sizeof(uint64_t));
    held.append(reinterpret_cast<const char*>(held_.sums.data()),
                held_.sums.size() * sizeof(double));
    held_ = HeldSum();
    *message = EncodeReplica(header, {Slice::FromString(std::move(held))});
    return true;
  }
  std::string piece;
  SLUICE_ASSIGN_OR_RETURN(const bool more, cut_->Next(&piece));
  header.mutable_piece()->set_table(seed_.table());
  header.mutable_piece()->set_shard(seed_.shard());
  header.mutable_piece()->set_last(!more);
  if (!more) {
    // Ends the cut: updates need not copy rows for it any longer.
    cut_.reset();
    piece.clear();
  }
  *bytes += piece.size();
  *message = EncodeReplica(header, {Slice::FromString(std::move(piece))});
  return true;
}

absl::Status SeedReceiver::Begin(const ShardSeed& seed, PayloadReader* payload) {
  // Another process announces these sizes, so they are checked before memory is allocated.
  const uint64_t numbers = payload->remaining() / sizeof(uint64_t);
  if (seed.held_keys() > numbers || seed.held_sums() != numbers - seed.held_keys()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a seed with ", payload->remaining(), " bytes of gradients announces ",
                     seed.held_keys(), " keys and ", seed.held_sums(), " sums"));
  }
  // Users count the images, so a second one of this shard must not stand for another shard's.
  if (whole_.count({seed.table(), seed.shard()}) > 0) {
    return absl::InvalidArgumentError(absl::StrCat("the image of shard ", seed.shard(),
                                                   " of table ", seed.table(), " came twice"));
  }
  shard_ = new_shard_(seed.table(), seed.shard());
  if (shard_ == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("shard ", seed.shard(), " of table ",
                                                   seed.table(), " is not one of that pserver"));
  }
  held_.keys.resize(seed.held_keys());
  held_.sums.resize(seed.held_sums());
  payload->Copy(held_.keys.data(), held_.keys.size() * sizeof(uint64_t));
  payload->Copy(held_.sums.data(), held_.sums.size() * sizeof(double));
  seed_ = seed;
  reader_ = std::make_unique<ShardImageReader>(shard_);
  return absl::OkStatus();
}

absl::Status SeedReceiver::Take(const ReplicaHeader& header, PayloadReader* payload) {
  // A seed in the middle of an image: the sender has given up that image and starts over.
  if (header.has_seed()) return Begin(header.seed(), payload);
  const ShardPiece& piece = header.piece();
  if (reader_ == nullptr || piece.table() != seed_.table() || piece.shard() != seed_.shard()) {
    return absl::InvalidArgumentError(absl::StrCat("a piece of shard ", piece.shard(), " of table ",
                                                   piece.table(),
                                                   " arrived before the header of its image"));
  }
  if (payload->remaining() > 0) {
    std::string bytes(payload->remaining(), '\0');
    payload->Copy(bytes.data(), bytes.size());
    bytes_ += bytes.size();
    SLUICE_RETURN_IF_ERROR(reader_->Add(bytes));
  }
  if (!piece.last()) return absl::OkStatus();
  if (!reader_->done()) return absl::InvalidArgumentError("the image of a shard ends too early");
  reader_.reset();
  whole_.insert({seed_.table(), seed_.shard()});
  return shard_->RestoreSeed(seed_, std::exchange(held_, HeldSum()));
}

}  // namespace sluice
