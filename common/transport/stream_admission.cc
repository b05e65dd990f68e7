#include "common/transport/stream_admission.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

// REQUIRES: `groups` is not empty.
StreamGroups::Id OldestOfTheLargest(const StreamGroups& groups) {
  return groups.largest()->second.begin()->second;
}

}  // namespace

void StreamAdmission::Add(Id id, const Opener& opener) {
  const StreamGroups::Number number = next_++;
  // First, so that Closed finds the stream and undoes the rest if a later step has no memory.
  open_.emplace(id, Stream{number, opener});
  try {
    Peer& peer = peers_[opener.peer];
    ++peer.open;
    peer.silent.Add(opener.connection, number, id);
    silent_.Add(opener.connection, number, id);
  } catch (...) {
    Closed(id);
    throw;
  }
}

std::vector<StreamAdmission::Id> StreamAdmission::Open(Id id, const Opener& opener) {
  std::vector<Id> given_up;
  // Nothing may throw for want of memory once a stream has been given up.
  given_up.reserve(2);
  Add(id, opener);
  const Peer& peer = peers_.at(opener.peer);
  const auto give_up = [&](Id stream) {
    given_up.push_back(stream);
    Closed(stream);
  };
  // At least the new one is silent, until it is given up.
  if (peer.silent.size() > max_silent_per_peer_ || peer.open > max_per_peer_)
    give_up(OldestOfTheLargest(peer.silent));  // `peer` may be gone now
  if (open_.size() > max_streams_) give_up(Dispensable(id));
  return given_up;
}

bool StreamAdmission::PeerIsFull(const std::string& name) const {
  const auto peer = peers_.find(name);
  return peer != peers_.end() && peer->second.open >= max_per_peer_;
}

StreamAdmission::Id StreamAdmission::Dispensable(Id newcomer) const {
  // A few silent streams are workers that are just connecting. More are a flood, which pays first.
  const size_t few = std::max<size_t>(1, max_silent_per_peer_ / 4);
  const StreamGroups::Group* const certificate = spoken_.largest();
  if (silent_.size() > few || certificate == nullptr || !HasMoreThanAQuarter(certificate->first))
    return OldestOfTheLargest(silent_);
  if (IsOf(newcomer, certificate->first)) return newcomer;
  // The newest, so that what the certificate had before stays.
  return spoken_of_.at(certificate->first).largest()->second.rbegin()->second;
}

void StreamAdmission::Spoke(Id id) {
  const auto it = open_.find(id);
  if (it == open_.end() || it->second.spoke) return;
  Stream& stream = it->second;
  const Opener& opener = stream.opener;
  if (!opener.certificate.empty()) {
    try {
      spoken_of_[opener.certificate].Add(opener.peer, stream.number, id);
      spoken_.Add(opener.certificate, stream.number, id);
    } catch (...) {
      RemoveSpoken(stream);
      throw;
    }
  }
  stream.spoke = true;
  peers_.at(opener.peer).silent.Remove(opener.connection, stream.number);
  silent_.Remove(opener.connection, stream.number);
}

void StreamAdmission::RemoveSpoken(const Stream& stream) noexcept {
  const Opener& opener = stream.opener;
  spoken_.Remove(opener.certificate, stream.number);
  const auto of_certificate = spoken_of_.find(opener.certificate);
  if (of_certificate == spoken_of_.end()) return;
  of_certificate->second.Remove(opener.peer, stream.number);
  if (of_certificate->second.size() == 0) spoken_of_.erase(of_certificate);
}

void StreamAdmission::Closed(Id id) noexcept {
  const auto it = open_.find(id);
  if (it == open_.end()) return;
  const Stream& stream = it->second;
  const Opener& opener = stream.opener;
  silent_.Remove(opener.connection, stream.number);
  RemoveSpoken(stream);
  // None: there was no memory for it.
  const auto peer = peers_.find(opener.peer);
  if (peer != peers_.end()) {
    peer->second.silent.Remove(opener.connection, stream.number);
    if (--peer->second.open == 0) peers_.erase(peer);
  }
  open_.erase(it);
}

}  // namespace sluice
