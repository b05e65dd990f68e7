#include "common/admin/http_exchange.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/config/address.h"

namespace sluice {
namespace {

// One step does so many operations, each of which moves at most so many bytes. A TLS record has no
// more bytes, so that none stay in the session, where poll would not see them.
constexpr int kOperationsInAStep = 16;
constexpr size_t kBytesInAnOperation = size_t{16} << 10;
// After an answer to what was not a whole request, so many more bytes are read and dropped.
constexpr size_t kMaxDropped = size_t{1} << 20;
constexpr char kTooLarge[] =
    "HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: "
    "0\r\n\r\n";
constexpr char kNeedsTls[] =
    "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n"
    "this port speaks HTTPS: use https://\n";

void FindClient(int fd, std::string* ip, int* port) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  char host[NI_MAXHOST], service[NI_MAXSERV];
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host, sizeof(host), service,
                  sizeof(service), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    *ip = "unknown";
    return;
  }
  *ip = host;
  *port = std::atoi(service);
}

}  // namespace

HttpExchange::HttpExchange(int fd, TlsServer* tls, const Limits& limits, absl::Time now)
    : fd_(fd),
      server_(tls),
      limits_(limits),
      events_(POLLIN),
      deadline_(now + limits.request_time) {
  fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
  FindClient(fd_, &ip_, &port_);
}

HttpExchange::~HttpExchange() {
  channel_.reset();
  // A child process may still hold the descriptor, and would keep the connection open.
  shutdown(fd_, SHUT_RDWR);
  close(fd_);
}

AuditedCaller HttpExchange::caller() const {
  const std::string address = ToText({ip_, static_cast<uint16_t>(port_)});
  if (server_ == nullptr) return CallerOf(PeerIdentity(), address);
  if (tls() == nullptr) return CallerOf(absl::UnauthenticatedError("no certificate"), address);
  return CallerOf(PeerOf(*tls()), address);
}

void HttpExchange::GoOn(absl::Time now) {
  if (phase_ == Phase::kSilent) Begin();
  if (phase_ == Phase::kHandshake) Handshake(now);
  if (phase_ == Phase::kRequest) Read(now);
  if (phase_ == Phase::kAnswer) Write(now);
  if (phase_ == Phase::kDrop) Drop();
}

void HttpExchange::Begin() {
  TlsSession session = server_ != nullptr ? server_->NewSession() : nullptr;
  if (session == nullptr && server_ != nullptr) {  // no memory: it must not go on without TLS
    phase_ = Phase::kOver;
    return;
  }
  channel_.emplace(fd_, std::move(session));
  phase_ = server_ != nullptr ? Phase::kHandshake : Phase::kRequest;
}

void HttpExchange::Handshake(absl::Time now) {
  const Progress progress = channel_->Handshake();
  if (progress == Progress::kDone) {
    phase_ = Phase::kRequest;
  } else if (progress == Progress::kFailed) {
    EndFailedHandshake(now);
  } else {
    Await(progress);
  }
}

void HttpExchange::EndFailedHandshake(absl::Time now) {
  // A client that closes at once may be a probe of the port.
  if (channel_->peer_has_sent_anything())
    Refuse(kHandshakeMethod, RefusalReason::kHandshake, channel_->failure());
  // OpenSSL has told the client why, if the client speaks TLS.
  if (channel_->peer_speaks_http())
    send(fd_, kNeedsTls, sizeof(kNeedsTls) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  StartDropping(now);
}

void HttpExchange::Read(absl::Time now) {
  char buffer[kBytesInAnOperation];
  for (int i = 0; i < kOperationsInAStep; ++i) {
    const size_t before = request_.size();
    // Never more than the limit is read, so that the check below sees exactly when it is reached.
    const size_t room = std::min(sizeof(buffer), limits_.request_bytes - before);
    size_t n = 0;
    const Progress progress = channel_->Read(buffer, room, &n);
    if (progress != Progress::kDone) {
      Await(progress);
      return;
    }
    request_.append(buffer, n);
    // An empty line ends the headers.
    // Only the new bytes are searched, and the two before them: a request that drips in costs no
    // more than its length.
    if (request_.find("\n\r\n", before - std::min<size_t>(before, 2)) != std::string::npos) {
      phase_ = Phase::kReady;
      events_ = 0;
      deadline_ = absl::InfiniteFuture();
      return;
    }
    if (request_.size() >= limits_.request_bytes) {
      Refuse(kRequestMethod, RefusalReason::kInvalid,
             absl::StrCat("the request has more than ", limits_.request_bytes, " bytes (431)"));
      Reply(kTooLarge, now);
      return;
    }
  }
  events_ = POLLIN;
}

void HttpExchange::Answer(std::string bytes, absl::Time now) {
  phase_ = Phase::kAnswer;
  answer_ = std::move(bytes);
  // Gives its memory back while the answer is being sent.
  request_ = std::string();
  deadline_ = now + limits_.answer_time;
  Write(now);
}

void HttpExchange::Reply(std::string bytes, absl::Time now) {
  drops_ = true;
  Answer(std::move(bytes), now);
}

void HttpExchange::Write(absl::Time now) {
  for (int i = 0; i < kOperationsInAStep && sent_ < answer_.size(); ++i) {
    size_t n = 0;
    const Progress progress = channel_->Write(answer_.data() + sent_, answer_.size() - sent_, &n);
    if (progress != Progress::kDone) {
      Await(progress);
      return;
    }
    sent_ += n;
  }
  events_ = POLLOUT;
  if (sent_ < answer_.size()) return;
  if (drops_) {
    StartDropping(now);
  } else {
    channel_->EndWriting();
    phase_ = Phase::kOver;
  }
}

void HttpExchange::StartDropping(absl::Time now) {
  channel_->EndWriting();
  phase_ = Phase::kDrop;
  events_ = POLLIN;
  deadline_ = now + limits_.request_time;
}

void HttpExchange::Drop() {
  for (int i = 0; i < kOperationsInAStep; ++i) {
    size_t n = 0;
    const Progress progress = channel_->Drop(&n);
    dropped_ += n;
    if (progress != Progress::kDone) {
      Await(progress);
      return;
    }
    if (dropped_ >= kMaxDropped) {
      phase_ = Phase::kOver;
      return;
    }
  }
}

void HttpExchange::Await(Progress progress) {
  if (progress == Progress::kAwaitsReading) {
    events_ = POLLIN;
  } else if (progress == Progress::kAwaitsWriting) {
    events_ = POLLOUT;
  } else {
    phase_ = Phase::kOver;
  }
}

void HttpExchange::Expire() {
  const std::string time = absl::FormatDuration(limits_.request_time);
  switch (phase_) {
    case Phase::kSilent:
      return GiveUp(kConnectMethod, RefusalReason::kRoom, "nothing has come for " + time);
    case Phase::kHandshake:
      return GiveUp(kHandshakeMethod, RefusalReason::kHandshake, "the handshake took too long");
    case Phase::kRequest:
      return GiveUp(kRequestMethod, RefusalReason::kRoom,
                    "the request was not complete after " + time);
    case Phase::kAnswer:
      return GiveUp(
          kRequestMethod, RefusalReason::kRoom,
          "the client did not take the answer within " + absl::FormatDuration(limits_.answer_time));
    case Phase::kReady:
    case Phase::kDrop:
    case Phase::kOver:
      phase_ = Phase::kOver;
  }
}

void HttpExchange::GiveUp(const std::string& method, RefusalReason reason, std::string why) {
  Refuse(method, reason, std::move(why));
  phase_ = Phase::kOver;
}

void HttpExchange::Refuse(const std::string& method, RefusalReason reason, std::string why) {
  if (std::exchange(refused_, true)) return;
  refusal_ = HttpRefusal{caller(), method, reason, std::move(why)};
}

}  // namespace sluice
