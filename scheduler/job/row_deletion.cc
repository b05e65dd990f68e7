#include "scheduler/job/row_deletion.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "scheduler/job/export_turns.h"

namespace sluice {
namespace {

// A caller asks for the outcome within seconds, so few have to be remembered.
constexpr size_t kKeptDeletions = 16;
// Checkpoints that may fail: a lost member ends one, and a full disk each of them.
constexpr uint32_t kMostFailedCheckpoints = 3;

}  // namespace

uint64_t RowDeletion::After(uint64_t number) const {
  return ExportTurns(exports_).NumberAfter(number, ExportTurns::Kind::kCheckpoint);
}

void RowDeletion::Begin(uint64_t id, Rows rows, uint32_t pserver_num, uint64_t told, bool exports,
                        absl::Time now) {
  id_ = id;
  rows_ = std::move(rows);
  exports_ = exports;
  MoveBehind(told, now);
  demanded_ = 0;
  failures_ = 0;
  places_.assign(pserver_num, Place());
}

bool RowDeletion::MayTell(uint64_t number) const {
  if (!under_way() || number < at_) return true;
  return number == at_ && all_confirmed();
}

bool RowDeletion::all_confirmed() const {
  return std::all_of(places_.begin(), places_.end(),
                     [this](const Place& place) { return place.at == at_; });
}

void RowDeletion::AddTo(uint32_t pserver, CutOrder* order) const {
  if (!under_way() || pserver >= places_.size()) return;
  DeletionOrder* const deletion = order->mutable_deletion();
  deletion->set_id(id_);
  deletion->set_at(at_);
  deletion->set_table(rows_.table);
  // The order comes again with every news.
  if (!places_[pserver].has_keys)
    deletion->mutable_keys()->Assign(rows_.keys.begin(), rows_.keys.end());
}

bool RowDeletion::TakeHosted(uint32_t pserver, const HostedJob& hosted, absl::Time now) {
  if (!under_way() || pserver >= places_.size()) return false;
  Place& place = places_[pserver];
  const bool had_keys = place.has_keys, had_confirmed = place.at == at_, all = all_confirmed();
  place.has_keys = hosted.deletion().id() == id_;
  place.at = place.has_keys ? hosted.deletion().at() : 0;
  if (place.at == at_ && !had_confirmed) progressed_at_ = now;
  if (const HostedCut& cut = hosted.cut(); cut.checkpoint() == at_) {
    // One that has failed may have been refused before anything was done.
    missed_ = missed_ || (cut.deletion() != id_ && cut.state() != HostedCut::FAILED);
    if (cut.deletion() == id_) place.deleted = std::max<uint64_t>(place.deleted, cut.deleted());
  }
  // It has to get the keys again; or the checkpoint may begin.
  return (had_keys && !place.has_keys) || (!all && all_confirmed());
}

void RowDeletion::PserverLost(uint32_t pserver, absl::Time now) {
  if (!under_way() || pserver >= places_.size()) return;
  places_[pserver] = Place();
  progressed_at_ = now;
}

bool RowDeletion::Restart(uint32_t pserver_num, absl::Time now) {
  if (!under_way()) return false;
  places_.assign(pserver_num, Place());
  progressed_at_ = now;
  return true;
}

bool RowDeletion::Advance(JobCheckpoints* checkpoints, absl::Time now) {
  if (!under_way()) return false;
  if (checkpoints->over() < at_) {
    if (!checkpoints->can_begin() && !checkpoints->open())
      return GiveUp("the job trained its last step before a checkpoint without the rows began");
    if (checkpoints->open_number() > at_) {
      // An export has taken the turn of `at`, before anybody was told of either.
      MoveBehind(checkpoints->open_number(), now);
      return true;
    }
    if (!all_confirmed() || !checkpoints->can_begin()) return false;
    // A number before `at` may have been told to a member already, and is made first.
    if (checkpoints->Followed(demanded_) <= checkpoints->over())
      demanded_ = checkpoints->Demand(now);
    return false;
  }
  const JobCheckpoints::Outcome* const outcome = checkpoints->OutcomeOf(at_);
  if (outcome != nullptr && outcome->error.empty() && !missed_) {
    DeleteRowsReply reply;
    reply.set_dir(outcome->dir);
    reply.set_step(outcome->step);
    End(std::move(reply));
    return true;
  }
  // A number that was left out has no outcome.
  const bool failed = outcome != nullptr && (missed_ || outcome->followed_by == 0);
  if (failed && ++failures_ == kMostFailedCheckpoints) {
    return GiveUp(missed_ ? "a pserver made its part of the checkpoint with the rows"
                          : absl::StrCat("the checkpoint failed: ", outcome->error));
  }
  // Later numbers were held back, so nobody has been told of the next one.
  MoveBehind(std::max(at_, checkpoints->over()), now);
  return true;
}

void RowDeletion::MoveBehind(uint64_t number, absl::Time now) {
  at_ = After(number);
  missed_ = false;
  progressed_at_ = now;
}

bool RowDeletion::GiveUp(const std::string& why) {
  if (!under_way()) return false;
  DeleteRowsReply reply;
  reply.set_error(why);
  End(std::move(reply));
  return true;
}

void RowDeletion::End(DeleteRowsReply reply) {
  reply.set_deletion(id_);
  reply.set_done(true);
  uint64_t deleted = 0;
  for (const Place& place : places_) deleted += place.deleted;
  reply.set_rows(deleted);
  outcomes_.push_back(std::move(reply));
  if (outcomes_.size() > kKeptDeletions) outcomes_.erase(outcomes_.begin());
  id_ = 0;
  rows_ = Rows();
  places_.clear();
}

absl::Time RowDeletion::progressed_at() const {
  return under_way() && !all_confirmed() ? progressed_at_ : absl::InfiniteFuture();
}

std::string RowDeletion::Missing() const {
  std::vector<std::string> missing;
  for (size_t i = 0; i < places_.size(); ++i) {
    if (places_[i].at != at_) missing.push_back(absl::StrCat("pserver ", i));
  }
  return absl::StrJoin(missing, ", ");
}

const DeleteRowsReply* RowDeletion::OutcomeOf(uint64_t id) const {
  for (const DeleteRowsReply& outcome : outcomes_) {
    if (outcome.deletion() == id) return &outcome;
  }
  return nullptr;
}

}  // namespace sluice
