// One connection to an HTTP server: the TLS handshake, one request and its answer, as steps that
// never wait.
//
// The owner polls fd() for events(), calls GoOn when it is ready and Expire at the deadline, and
// looks at the phase afterwards. It answers a request that is complete (kReady), on any thread; the
// other phases need no answer of the owner's. Until the first byte has come, the exchange has no
// TLS session, so that a silent connection costs little.
//
// - A request of more than `request_bytes` is answered with 431.
// - The request, of which the handshake is a part, must be complete within `request_time`, and its
//   answer taken within `answer_time`. Bytes that drip in do not extend this.
// - Bodies are not read. HTTP without TLS is told to use TLS, if there is TLS.
//
// Memory: up to `request_bytes`, the answer, and a TLS session from the first byte on.
//
// Thread safety: one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/admin/socket_channel.h"
#include "common/security/audit_log.h"
#include "common/security/tls_server.h"

namespace sluice {

// A connection or request that a server refuses or gives up.
struct HttpRefusal {
  AuditedCaller caller;
  std::string method;  // as in AuditLog::Refused
  RefusalReason reason = RefusalReason::kOther;
  std::string why;
};

class HttpExchange {
 public:
  struct Limits {
    size_t request_bytes = size_t{64} << 10;
    absl::Duration request_time = absl::Seconds(5);
    absl::Duration answer_time = absl::Seconds(10);
  };
  enum class Phase {
    kSilent,     // nothing has come yet
    kHandshake,  // with TLS
    kRequest,    // is coming
    kReady,      // the request is complete and awaits the owner's answer
    kAnswer,     // is being sent
    kDrop,  // what was no whole request has been answered; reads until the client closes, because
            // the client could lose the answer if the connection were closed while it sends
    kOver,
  };

  // Takes over the descriptor. `tls`: null for plain HTTP. Both outlive the exchange.
  HttpExchange(int fd, TlsServer* tls, const Limits& limits, absl::Time now);
  ~HttpExchange();
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;

  Phase phase() const { return phase_; }
  int fd() const { return fd_; }
  short events() const { return events_; }  // for poll
  absl::Time deadline() const { return deadline_; }

  // Does what can be done without waiting, up to a bounded amount.
  void GoOn(absl::Time now);
  // Ends the exchange because its deadline has passed.
  void Expire();
  // Ends it for another reason, which is recorded unless the client has been refused already.
  void GiveUp(const std::string& method, RefusalReason reason, std::string why);
  // Begins to send the answer. REQUIRES: kReady.
  void Answer(std::string bytes, absl::Time now);

  // The bytes that have come, from the first of the request on.
  const std::string& request() const { return request_; }
  const SSL* tls() const { return channel_.has_value() ? channel_->tls() : nullptr; }
  const std::string& ip() const { return ip_; }  // of the client
  int port() const { return port_; }
  AuditedCaller caller() const;
  // Why the client was refused, if it was. Once.
  std::optional<HttpRefusal> TakeRefusal() { return std::exchange(refusal_, std::nullopt); }

 private:
  using Progress = SocketChannel::Progress;

  void Begin();
  void Handshake(absl::Time now);
  void EndFailedHandshake(absl::Time now);
  void Read(absl::Time now);
  void Write(absl::Time now);
  void Drop();
  // Sends an answer of our own, after which the client's bytes are dropped.
  void Reply(std::string bytes, absl::Time now);
  void StartDropping(absl::Time now);
  void Refuse(const std::string& method, RefusalReason reason, std::string why);
  // Goes on when the socket is ready for what the operation awaits; over when it has failed.
  void Await(Progress progress);

  const int fd_;
  TlsServer* const server_;
  const Limits& limits_;
  std::string ip_;  // constant after construction, and so is port_
  int port_ = 0;
  std::optional<SocketChannel> channel_;  // none while kSilent
  Phase phase_ = Phase::kSilent;
  short events_;
  absl::Time deadline_;
  std::string request_, answer_;
  size_t sent_ = 0;     // of answer_
  bool drops_ = false;  // after the answer
  size_t dropped_ = 0;
  bool refused_ = false;
  std::optional<HttpRefusal> refusal_;  // not taken yet
};

}  // namespace sluice
