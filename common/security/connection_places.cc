#include "common/security/connection_places.h"

#include <algorithm>
#include <utility>

#include "common/security/peer_host.h"
#include "proto/config.pb.h"

namespace sluice {
namespace {

size_t MostGivenUp(size_t bound) { return std::max<size_t>(16, bound / 4); }

}  // namespace

ConnectionBounds ConnectionBounds::For(size_t workers, size_t pservers,
                                       const LimitsConfig& limits) {
  constexpr size_t kLeastPerHost = 1024, kPerMember = 4;
  const size_t streams = std::max<size_t>(kLeastPerHost, limits.max_streams());
  // Without a number of workers, each stream may be another worker's.
  const size_t members = pservers + (workers == 0 ? streams : workers);
  ConnectionBounds bounds;
  bounds.max_per_host = std::max(streams, kPerMember * members);
  // Two hosts that are full leave nothing for a third, but one alone never does that.
  bounds.max_open = 2 * bounds.max_per_host;
  return bounds;
}

ConnectionPlaces::Decision ConnectionPlaces::Open(int id, const TcpEnd& peer) {
  Decision decision;
  const std::string name = HostOfIp(peer.address);
  Host* const host = &hosts_[name];
  // The host first: a flood from one host pays with its own connections.
  if (host->open >= bounds_.max_per_host) {
    const auto id = Dispensable(host, host->called, bounds_.max_per_host);
    if (!id.has_value() || !GiveUp(*id, &decision)) decision.outcome = Outcome::kHostIsFull;
  } else if (open() >= bounds_.max_open) {
    const auto id = Dispensable(BusiestHost(), called_, bounds_.max_open);
    if (!id.has_value() || !GiveUp(*id, &decision)) decision.outcome = Outcome::kServerIsFull;
  }
  if (decision.outcome != Outcome::kAdmitted) {
    // A refused stranger leaves no entry behind, or addresses alone could fill the memory.
    if (host->open + host->given_up == 0) hosts_.erase(name);
    return decision;
  }
  const Number number = next_++;
  ++host->open;
  host->silent.emplace(number, id);
  open_.emplace(id, Connection{number, peer, host});
  by_peer_[peer.ToText()] = id;
  return decision;
}

void ConnectionPlaces::Called(const std::string& peer, const std::string& certificate) {
  const auto found = by_peer_.find(peer);
  if (found == by_peer_.end()) return;
  Connection& connection = open_.at(found->second);
  // Each connection speaks for one certificate: that of its handshake.
  if (connection.given_up || connection.certificate.has_value()) return;
  connection.certificate = certificate;
  connection.host->silent.erase(connection.number);
  if (certificate.empty()) return;  // its peer may be anybody
  connection.host->called[certificate].emplace(connection.number, found->second);
  called_[certificate].emplace(connection.number, found->second);
}

void ConnectionPlaces::Closed(int id) {
  const auto found = open_.find(id);
  if (found == open_.end()) return;
  const Connection& connection = found->second;
  Host* const host = connection.host;
  if (connection.given_up) {
    --host->given_up;
    --given_up_;
  } else {
    Forget(connection);
    --host->open;
  }
  if (host->open + host->given_up == 0) hosts_.erase(HostOfIp(connection.peer.address));
  const auto of_peer = by_peer_.find(connection.peer.ToText());
  // A newer connection of the same port may have been there, and may have closed first.
  if (of_peer != by_peer_.end() && of_peer->second == id) by_peer_.erase(of_peer);
  open_.erase(found);
}

size_t ConnectionPlaces::silent() const {
  size_t silent = 0;
  for (const auto& [name, host] : hosts_) silent += host.silent.size();
  return silent;
}

ConnectionPlaces::Host* ConnectionPlaces::BusiestHost() {
  Host* busiest = nullptr;
  for (auto& [name, host] : hosts_) {
    if (host.silent.empty()) continue;
    // If hosts have equally many, the one with the oldest connection loses it. So a flood from many
    // hosts with one connection each ends its own oldest ones.
    if (busiest == nullptr || host.silent.size() > busiest->silent.size() ||
        (host.silent.size() == busiest->silent.size() &&
         host.silent.begin()->first < busiest->silent.begin()->first))
      busiest = &host;
  }
  return busiest;
}

std::optional<int> ConnectionPlaces::Dispensable(const Host* silent_of,
                                                 const OfCertificates& called, size_t bound) {
  if (silent_of != nullptr && !silent_of->silent.empty()) return silent_of->silent.begin()->second;
  const auto most = std::max_element(
      called.begin(), called.end(),
      [](const auto& one, const auto& other) { return one.second.size() < other.second.size(); });
  // Below a quarter, the many connections are of many members, and the newcomer is the one too
  // many.
  if (most == called.end() || most->second.size() <= bound / 4) return std::nullopt;
  return most->second.rbegin()->second;
}

bool ConnectionPlaces::GiveUp(int id, Decision* decision) {
  Connection& connection = open_.at(id);
  Host* const host = connection.host;
  // Connections that were given up still hold memory until gRPC closes them.
  if (given_up_ >= MostGivenUp(bounds_.max_open) ||
      host->given_up >= MostGivenUp(bounds_.max_per_host))
    return false;
  Forget(connection);
  connection.given_up = true;
  --host->open;
  ++host->given_up;
  ++given_up_;
  decision->given_up = id;
  decision->peer_given_up = connection.peer;
  decision->certificate = connection.certificate;
  return true;
}

void ConnectionPlaces::Forget(const Connection& connection) {
  connection.host->silent.erase(connection.number);
  if (connection.certificate.value_or("").empty()) return;
  for (OfCertificates* called : {&connection.host->called, &called_}) {
    const auto own = called->find(*connection.certificate);
    own->second.erase(connection.number);
    if (own->second.empty()) called->erase(own);
  }
}

}  // namespace sluice
