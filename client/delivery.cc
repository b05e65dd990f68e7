#include "client/delivery.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sluice {

Delivery::Delivery(std::vector<uint32_t> owner) : shards_(owner.size()) {
  for (size_t s = 0; s < owner.size(); ++s) shards_[s].owner = owner[s];
}

void Delivery::Add(uint64_t sequence) {
  AddOpen(sequence);
  for (Shard& shard : shards_) shard.ready = sequence;
}

void Delivery::AddOpen(uint64_t sequence) {
  if (last_ == 0) {
    // In sync a frame has the number of its step, so the first one of a client need not be 1.
    for (Shard& shard : shards_) shard.acknowledged = shard.sent = shard.ready = sequence - 1;
    released_ = sequence - 1;
  }
  last_ = sequence;
  // Without shards nobody will acknowledge it.
  if (shards_.empty()) released_ = sequence;
}

void Delivery::Rewind(Shard* shard) {
  shard->sent = shard->acknowledged;
  // Errors of earlier sends say nothing about what is sent from now on.
  shard->rewound_at = next_number_;
}

void Delivery::Wait(Shard* shard) {
  Rewind(shard);
  if (!shard->waiting) ++waiting_count_;
  shard->waiting = true;
}

void Delivery::OnOpen(uint32_t pserver) {
  if (open_.size() <= pserver) open_.resize(pserver + 1);
  open_[pserver] = true;
}

void Delivery::OnBroken(uint32_t pserver) {
  if (open_.size() <= pserver) return;
  open_[pserver] = false;
  for (Shard& shard : shards_) {
    // Requests or their replies are lost. The shards tell repeats apart by the sequence.
    if (shard.owner == pserver) Rewind(&shard);
  }
}

absl::Status Delivery::OnReply(const Send& send, const std::vector<Error>& errors) {
  auto has_error = [&](uint32_t s) {
    return std::any_of(errors.begin(), errors.end(), [s](const Error& e) { return e.shard == s; });
  };
  for (uint32_t s : send.shards) {
    if (!errors.empty() && has_error(s)) continue;
    Shard& shard = shards_[s];
    // An earlier owner of the shard has the frame. That says nothing about the present one.
    if (send.number < shard.moved_at) continue;
    // A reply counts even after a rewind: the shard has the frame.
    shard.acknowledged = std::max(shard.acknowledged, send.sequence);
    shard.sent = std::max(shard.sent, shard.acknowledged);
  }
  absl::Status status;
  for (const Error& error : errors) {
    // A reply may name shards that the send did not carry.
    if (!std::binary_search(send.shards.begin(), send.shards.end(), error.shard)) continue;
    status.Update(OnError(send, error));
  }
  UpdateReleased();
  return status;
}

absl::Status Delivery::OnError(const Send& send, const Error& error) {
  Shard& shard = shards_[error.shard];
  const bool current = send.number >= shard.rewound_at;
  switch (error.status) {
    case PART_WRONG_SHARD:
      // Sending again before the next route would only be refused again.
      if (current) Wait(&shard);
      return absl::OkStatus();
    case PART_OUT_OF_ORDER:
      if (!current) return absl::OkStatus();
      if (error.last_sequence < shard.acknowledged) {
        return absl::DataLossError(absl::StrCat(
            "a shard that had acknowledged frame ", shard.acknowledged, " now holds only frame ",
            error.last_sequence, "; the pserver lost its state, start the job again"));
      }
      if (error.last_sequence >= send.sequence) {
        return absl::InternalError(
            absl::StrCat("frame ", send.sequence,
                         " was refused as out of order by a shard that already holds frame ",
                         error.last_sequence));
      }
      // The shard holds more than was acknowledged when a reply was lost.
      shard.acknowledged = error.last_sequence;
      Rewind(&shard);
      return absl::OkStatus();
    case PART_STALE_INCARNATION:
      return absl::AbortedError(absl::StrCat(
          "frame ", send.sequence, " was refused: a newer incarnation of this rank runs"));
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("frame ", send.sequence, " was refused: ", PartStatus_Name(error.status)));
  }
}

void Delivery::OnRefused(const Send& send) {
  for (uint32_t s : send.shards) {
    Shard& shard = shards_[s];
    // A part that another send has delivered needs nothing more.
    if (send.number >= shard.rewound_at && shard.acknowledged < send.sequence) Wait(&shard);
  }
}

void Delivery::OnRoute(const std::vector<uint32_t>& owner) {
  waiting_count_ = 0;
  for (size_t s = 0; s < shards_.size(); ++s) {
    Shard& shard = shards_[s];
    if (shard.owner != owner[s]) {
      Rewind(&shard);
      // Acknowledgements of the earlier owner do not count from here on.
      shard.moved_at = next_number_;
    }
    shard.owner = owner[s];
    shard.waiting = false;
  }
}

std::optional<Delivery::Send> Delivery::Next(uint32_t pserver) {
  if (open_.size() <= pserver || !open_[pserver]) return std::nullopt;
  Send send;
  send.sequence = last_ + 1;
  // A send carries one frame, the earliest that any shard there lacks: shards take frames in order.
  for (const Shard& shard : shards_) {
    if (shard.owner == pserver && !shard.waiting && shard.sent < shard.ready)
      send.sequence = std::min(send.sequence, shard.sent + 1);
  }
  if (send.sequence > last_) return std::nullopt;
  for (uint32_t s = 0; s < shards_.size(); ++s) {
    Shard& shard = shards_[s];
    if (shard.owner != pserver || shard.waiting || shard.sent + 1 != send.sequence) continue;
    if (shard.sent == shard.ready) continue;
    shard.sent = send.sequence;
    send.shards.push_back(s);
  }
  send.number = next_number_++;
  return send;
}

void Delivery::UpdateReleased() {
  uint64_t least = last_;
  for (const Shard& shard : shards_) least = std::min(least, shard.acknowledged);
  released_ = std::max(released_, least);
}

uint32_t Delivery::SlowestPserver() const {
  const auto slowest = std::min_element(
      shards_.begin(), shards_.end(),
      [](const Shard& a, const Shard& b) { return a.acknowledged < b.acknowledged; });
  return slowest->owner;
}

}  // namespace sluice
