#include "common/admin/socket_channel.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/sslerr.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include "common/security/handshake_failure.h"

namespace sluice {
namespace {
int Length(size_t size) { return static_cast<int>(std::min<size_t>(size, INT_MAX)); }
}  // namespace

SocketChannel::SocketChannel(int fd, TlsSession tls) : fd_(fd), tls_(std::move(tls)) {
  if (tls_ == nullptr) return;
  // OpenSSL reads and writes the socket itself, so the socket must not let it wait.
  fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
  SSL_set_fd(tls_.get(), fd_);
}

SocketChannel::Progress SocketChannel::Handshake() {
  if (tls_ == nullptr) return Progress::kDone;
  // SSL_get_error also looks at the thread's queue, where an older error would be taken for one of
  // this call.
  ERR_clear_error();
  const Progress progress = ProgressOf(SSL_accept(tls_.get()));
  if (progress == Progress::kEnded) {
    failed_ = true;
    failure_ = "the client has closed the connection";
    return Progress::kFailed;
  }
  return progress;
}

SocketChannel::Progress SocketChannel::Read(char* to, size_t size, size_t* n) {
  if (tls_ != nullptr) {
    ERR_clear_error();
    const int result = SSL_read(tls_.get(), to, Length(size));
    *n = static_cast<size_t>(std::max(result, 0));
    return ProgressOf(result);
  }
  const ssize_t result = recv(fd_, to, size, MSG_DONTWAIT);
  *n = static_cast<size_t>(std::max<ssize_t>(result, 0));
  if (result < 0) return ProgressOfErrno(Progress::kAwaitsReading);
  return result == 0 ? Progress::kEnded : Progress::kDone;
}

SocketChannel::Progress SocketChannel::Write(const char* from, size_t size, size_t* n) {
  if (tls_ != nullptr) {
    ERR_clear_error();
    const int result = SSL_write(tls_.get(), from, Length(size));
    *n = static_cast<size_t>(std::max(result, 0));
    return ProgressOf(result);
  }
  const ssize_t result = send(fd_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  *n = static_cast<size_t>(std::max<ssize_t>(result, 0));
  return result < 0 ? ProgressOfErrno(Progress::kAwaitsWriting) : Progress::kDone;
}

void SocketChannel::EndWriting() {
  if (tls_ != nullptr && !failed_ && SSL_is_init_finished(tls_.get())) {
    ERR_clear_error();
    SSL_shutdown(tls_.get());  // sends the close_notify alert; does not await that of the peer
    ERR_clear_error();
  }
  // Only this direction: what the client still sends is read and dropped, or the kernel would
  // answer it with a reset, which can overtake the answer.
  shutdown(fd_, SHUT_WR);
}

SocketChannel::Progress SocketChannel::Drop(size_t* n) {
  char dropped[4096];
  const ssize_t result = recv(fd_, dropped, sizeof(dropped), MSG_DONTWAIT);
  *n = static_cast<size_t>(std::max<ssize_t>(result, 0));
  if (result < 0) return ProgressOfErrno(Progress::kAwaitsReading);
  return result == 0 ? Progress::kEnded : Progress::kDone;
}

bool SocketChannel::peer_has_sent_anything() const {
  return tls_ != nullptr && BIO_number_read(SSL_get_rbio(tls_.get())) > 0;
}

SocketChannel::Progress SocketChannel::ProgressOf(int result) {
  // Saved first: the calls below may change it.
  const int error = errno;
  switch (SSL_get_error(tls_.get(), result)) {
    case SSL_ERROR_NONE:
      return Progress::kDone;
    case SSL_ERROR_WANT_READ:
      return Progress::kAwaitsReading;
    case SSL_ERROR_WANT_WRITE:
      return Progress::kAwaitsWriting;
    case SSL_ERROR_ZERO_RETURN:
      return Progress::kEnded;
    default:
      break;
  }
  failed_ = true;
  const unsigned long code = ERR_peek_error();
  const char* const reason = ERR_reason_error_string(code);
  const int reason_code = ERR_GET_REASON(code);
  peer_speaks_http_ = ERR_GET_LIB(code) == ERR_LIB_SSL && reason_code == SSL_R_HTTP_REQUEST;
  const long verified = SSL_get_verify_result(tls_.get());
  // OpenSSL's own text only says that the handshake failed.
  if (verified != X509_V_OK) {
    failure_ = CertificateRefusal(verified);
  } else if (reason_code == SSL_R_UNEXPECTED_EOF_WHILE_READING || (code == 0 && error == 0)) {
    failure_ = "the client has closed the connection";
  } else {
    failure_ = reason != nullptr ? reason : "the connection is broken";
  }
  ERR_clear_error();
  return Progress::kFailed;
}

SocketChannel::Progress SocketChannel::ProgressOfErrno(Progress awaits) {
  const bool again = errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK;
  return again ? awaits : Progress::kFailed;
}

}  // namespace sluice
