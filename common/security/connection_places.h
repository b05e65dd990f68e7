// Decides which connections a server keeps when too many are open.
//
// A connection is silent until a call of it was allowed: until then its peer has proven nothing,
// not even that it has a certificate. When a host, or all together, have too many connections, the
// oldest silent one of the host with the most silent ones makes room. So a flood gives up its own
// connections, and a member that calls soon gets in beside it, even from the same host. Connections
// that have called are never given up: when all have, the newcomer is refused.
//
// A connection that was given up takes memory until its owner has closed it. While a quarter of a
// bound (at least 16) wait for that, newcomers are refused.
//
// Invariants: at most `max_open` connections are open, and at most `max_per_host` of each host,
// with those left out that were given up. At most a quarter as many, or 16, were given up and not
// closed.
//
// Cost: an Open beyond `max_open` looks at all hosts.
//
// Thread safety: none; the owner locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include "common/security/local_sockets.h"

namespace sluice {

class LimitsConfig;

struct ConnectionBounds {
  size_t max_open = 2048;
  // Hosts are told apart by their IPv4 address, or by the first 64 bits of their IPv6 address.
  size_t max_per_host = 1024;

  // For a daemon of a cluster with so many workers (0: as many as a pserver has streams for) and
  // pservers. Four connections for each of them may come from one host, and as many as
  // limits.max_streams and 1024 at least. Twice as many in all.
  static ConnectionBounds For(size_t workers, size_t pservers, const LimitsConfig& limits);
};

class ConnectionPlaces {
 public:
  explicit ConnectionPlaces(const ConnectionBounds& bounds) : bounds_(bounds) {}

  enum class Outcome { kAdmitted, kHostIsFull, kServerIsFull };
  struct Decision {
    Outcome outcome = Outcome::kAdmitted;
    std::optional<int> given_up;  // another connection, which the owner ends; not closed yet
    TcpEnd peer_given_up;
  };
  // Decides about a new connection and keeps it if it is admitted. `id`: of no open connection.
  Decision Open(int id, const TcpEnd& peer);
  // A call of the peer ("host:port", as TcpEnd::ToText says) was allowed.
  void Called(const std::string& peer);
  // Connections that are not open are ignored.
  void Closed(int id);

  size_t open() const { return open_.size() - given_up_; }
  size_t given_up() const { return given_up_; }
  size_t silent() const;

 private:
  using Number = uint64_t;  // of a connection, in the order in which they came
  struct Host {
    size_t open = 0;  // without those that were given up
    size_t given_up = 0;
    std::map<Number, int> silent;
  };
  struct Connection {
    Number number;
    TcpEnd peer;
    Host* host;
    bool given_up = false;
  };

  static std::string HostOf(const TcpEnd& peer);
  // Null: no connection is silent.
  Host* BusiestHost();
  // False: `host` is null, has no silent connection, or too many are on their way out.
  bool GiveUpOldest(Host* host, Decision* decision);

  const ConnectionBounds bounds_;
  Number next_ = 0;
  size_t given_up_ = 0;
  std::unordered_map<int, Connection> open_;
  std::unordered_map<std::string, int> by_peer_;  // the newest of each
  std::map<std::string, Host> hosts_;             // with a connection
};

}  // namespace sluice
