#include "client/send_window.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace sluice {

SendWindow::SendWindow(const ShardIndex* index)
    : index_(index), delivery_(std::vector<uint32_t>(index->size(), 0)) {}

absl::Status SendWindow::Open(PushFrame frame, const std::vector<uint64_t>& pulled_others) {
  const uint64_t next = delivery_.last() + 1;
  if (frame.sequence == 0) frame.sequence = next;
  // A gap would make shards wait for a frame that never comes.
  if (frame.sequence != next && delivery_.last() != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "push ", frame.sequence, " does not follow push ", delivery_.last(), " of this client"));
  }
  frame.open = true;
  // Belongs to the pull from which these gradients were computed. Later pulls must not change it.
  frame.pulled_others = pulled_others;
  delivery_.AddOpen(frame.sequence);
  frames_.push_back(std::make_shared<PushFrame>(std::move(frame)));
  return absl::OkStatus();
}

absl::Status SendWindow::Fill(uint32_t begin, uint32_t end, PushFrame* more) {
  PushFrame& frame = *frames_.back();
  // All parts are checked before one is moved: a refused push leaves the frame as it was.
  for (uint32_t flat = begin; flat < end; ++flat) {
    if (frame.parts[flat].rows > 0 && more->parts[flat].rows > 0) {
      return PushedTwice(index_->table_of(flat));
    }
  }
  for (uint32_t flat = begin; flat < end; ++flat) {
    if (frame.parts[flat].rows == 0) frame.parts[flat] = std::move(more->parts[flat]);
  }
  return absl::OkStatus();
}

absl::Status SendWindow::Add(PushFrame frame, const std::vector<uint64_t>& pulled_others) {
  if (open()) {
    SLUICE_RETURN_IF_ERROR(Fill(0, index_->size(), &frame));
  } else {
    SLUICE_RETURN_IF_ERROR(Open(std::move(frame), pulled_others));
  }
  frames_.back()->open = false;
  for (uint32_t flat = 0; flat < index_->size(); ++flat) delivery_.MakeReady(flat);
  // Without shards there is nothing to send and no pserver to acknowledge it.
  if (index_->size() == 0) frames_.clear();
  return absl::OkStatus();
}

absl::Status SendWindow::AddEarly(uint32_t table, PushFrame frame,
                                  const std::vector<uint64_t>& pulled_others) {
  const uint32_t begin = index_->begin(table);
  const uint32_t end = begin + index_->tables()[table]->num_shards();
  if (open()) {
    SLUICE_RETURN_IF_ERROR(Fill(begin, end, &frame));
  } else {
    SLUICE_RETURN_IF_ERROR(Open(std::move(frame), pulled_others));
  }
  // One part per pserver is held back, because a pserver counts a frame with the request that
  // completes it.
  std::vector<uint32_t> behind;  // by link: parts that are not ready
  for (uint32_t flat = 0; flat < index_->size(); ++flat) {
    const uint32_t owner = delivery_.owner(flat);
    if (behind.size() <= owner) behind.resize(owner + 1);
    if (!delivery_.ready(flat)) ++behind[owner];
  }
  for (uint32_t flat = begin; flat < end; ++flat) {
    if (delivery_.ready(flat)) continue;  // an empty part was added before
    if (--behind[delivery_.owner(flat)] > 0) delivery_.MakeReady(flat);
  }
  return absl::OkStatus();
}

absl::Status SendWindow::OnReply(const Delivery::Send& send,
                                 const std::vector<Delivery::Error>& errors, Garbage* garbage) {
  const absl::Status status = delivery_.OnReply(send, errors);
  while (!frames_.empty() && frames_.front()->sequence <= delivery_.released()) {
    released_ = frames_.front()->position;
    // The owner frees the frame without its lock; it may hold many megabytes.
    garbage->push_back(std::move(frames_.front()));
    frames_.pop_front();
  }
  return status;
}

void SendWindow::AddAcknowledged(uint32_t link, Hello* hello) const {
  // Shards differ in the frames that they have acknowledged, so the list is grouped by frame.
  std::map<uint64_t, Acknowledged*> frames;
  for (uint32_t flat = 0; flat < index_->size(); ++flat) {
    const uint64_t sequence = delivery_.acknowledged(flat);
    if (delivery_.owner(flat) != link || sequence == 0) continue;
    Acknowledged*& frame_of = frames[sequence];
    if (frame_of == nullptr) {
      frame_of = hello->add_acknowledged();
      frame_of->mutable_position()->set_sequence(sequence);
      const bool released = sequence <= delivery_.released();
      SetPosition(released ? released_ : frame(sequence).position, frame_of->mutable_position());
    }
    frame_of->add_table(index_->table_of(flat).id());
    frame_of->add_shard(index_->shard_of(flat));
  }
}

}  // namespace sluice
