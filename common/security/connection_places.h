// Decides which connections a server keeps when too many are open.
//
// A connection is silent until a call of it was allowed: until then its peer has proven nothing,
// not even that it has a certificate. When a host, or all together, have too many connections, the
// oldest silent one of the host with the most silent ones makes room. So a flood gives up its own
// connections, and a member that calls soon gets in beside it, even from the same host.
//
// When none is silent, one member may have taken the places. The certificate with the most
// connections loses its newest one if it has more than a quarter of the bound: other members, and
// what this one had before, stay. Otherwise, and without TLS, the newcomer is refused.
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
  // Hosts are told apart as in peer_host.h.
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
    std::optional<std::string> certificate;  // of the one that was given up, if it had called
  };
  // Decides about a new connection and keeps it if it is admitted. `id`: of no open connection.
  Decision Open(int id, const TcpEnd& peer);
  // A call of the peer ("host:port", as TcpEnd::ToText says) was allowed. `certificate`: what it
  // says of its owner; "" without TLS.
  void Called(const std::string& peer, const std::string& certificate);
  // Connections that are not open are ignored.
  void Closed(int id);

  size_t open() const { return open_.size() - given_up_; }
  size_t given_up() const { return given_up_; }
  size_t silent() const;

 private:
  using Number = uint64_t;                    // of a connection, in the order in which they came
  using Connections = std::map<Number, int>;  // the oldest first
  using OfCertificates = std::map<std::string, Connections>;  // none is empty
  struct Host {
    size_t open = 0;  // without those that were given up
    size_t given_up = 0;
    Connections silent;
    OfCertificates called;
  };
  struct Connection {
    Number number;
    TcpEnd peer;
    Host* host;
    bool given_up = false;
    std::optional<std::string> certificate;  // once it has called
  };

  // Null: no connection is silent.
  Host* BusiestHost();
  // A silent connection of `silent_of`, which may be null, or else one of the certificate that has
  // more than a quarter of `bound` in `called`. Nothing: there is none.
  static std::optional<int> Dispensable(const Host* silent_of, const OfCertificates& called,
                                        size_t bound);
  // False: too many are on their way out.
  bool GiveUp(int id, Decision* decision);
  // It is neither silent nor among those that have called any more.
  void Forget(const Connection& connection);

  const ConnectionBounds bounds_;
  Number next_ = 0;
  size_t given_up_ = 0;
  std::unordered_map<int, Connection> open_;
  std::unordered_map<std::string, int> by_peer_;  // the newest of each
  std::map<std::string, Host> hosts_;             // with a connection
  OfCertificates called_;                         // of all hosts
};

}  // namespace sluice
