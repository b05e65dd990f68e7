#include "common/transport/stream_admission.h"

#include <algorithm>
#include <utility>

namespace sluice {

std::vector<StreamAdmission::Id> StreamAdmission::Open(Id id, Opener opener) {
  const std::string peer = opener.peer;
  open_[id] = {next_, peer};
  ++of_peer_[peer];
  silent_.emplace(next_++, Silent{id, std::move(opener)});
  std::vector<Id> given_up;
  const auto give_up = [&](const std::string* of_peer) {
    const Id oldest = OldestOfTheBusiest(of_peer);
    given_up.push_back(oldest);
    Closed(oldest);
  };
  const auto of_peer = std::count_if(silent_.begin(), silent_.end(), [&](const auto& entry) {
    return entry.second.opener.peer == peer;
  });
  // At least the new one is silent, until it is given up.
  if (static_cast<size_t>(of_peer) > max_silent_per_peer_ || of_peer_[peer] > max_per_peer_)
    give_up(&peer);
  if (open_.size() > max_streams_) give_up(nullptr);
  return given_up;
}

StreamAdmission::Id StreamAdmission::OldestOfTheBusiest(const std::string* peer) const {
  std::map<std::string, size_t> of_connection;
  size_t most = 0;
  for (const auto& [number, stream] : silent_) {
    if (peer != nullptr && stream.opener.peer != *peer) continue;
    most = std::max(most, ++of_connection[stream.opener.connection]);
  }
  for (const auto& [number, stream] : silent_) {
    const auto it = of_connection.find(stream.opener.connection);
    if (it != of_connection.end() && it->second == most) return stream.id;
  }
  return nullptr;
}

void StreamAdmission::Spoke(Id id) {
  const auto it = open_.find(id);
  if (it != open_.end()) silent_.erase(it->second.number);
}

void StreamAdmission::Closed(Id id) {
  const auto it = open_.find(id);
  if (it == open_.end()) return;
  silent_.erase(it->second.number);
  const auto peer = of_peer_.find(it->second.peer);
  if (--peer->second == 0) of_peer_.erase(peer);
  open_.erase(it);
}

}  // namespace sluice
