// A connected socket, with or without TLS, whose operations never wait.
//
// An operation that cannot go on says what the caller should wait for, with poll or alike, before
// it repeats the operation. With TLS, a read may have to wait for writing and the reverse.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <string>

#include "common/security/tls_server.h"

namespace sluice {

class SocketChannel {
 public:
  enum class Progress {
    kDone,
    kAwaitsReading,
    kAwaitsWriting,
    kEnded,   // the peer sends nothing more
    kFailed,  // the connection is of no more use
  };

  // `fd` outlives the channel. `tls` is null for a connection without TLS.
  SocketChannel(int fd, TlsSession tls);

  // With TLS, comes before the other operations. Without TLS it is done at once.
  Progress Handshake();
  // *n: how many bytes were read or written when the operation is done, at least one.
  Progress Read(char* to, size_t size, size_t* n);
  Progress Write(const char* from, size_t size, size_t* n);
  // Tells the peer that nothing more comes, as far as that is possible without waiting.
  void EndWriting();
  // Reads and drops bytes without decrypting them. Only EndWriting may follow.
  Progress Drop(size_t* n);

  int fd() const { return fd_; }
  // Null without TLS.
  const SSL* tls() const { return tls_.get(); }
  // Bytes that Read has ready, for which no poll need wait.
  bool has_data() const { return tls_ != nullptr && SSL_pending(tls_.get()) > 0; }

  // After a Handshake that has failed.
  std::string failure() const { return failure_; }
  bool peer_has_sent_anything() const;
  // The peer speaks HTTP without TLS.
  bool peer_speaks_http() const { return peer_speaks_http_; }

 private:
  // What the result of an OpenSSL operation means. Keeps the cause of a failure.
  Progress ProgressOf(int result);
  // The same for recv and send.
  static Progress ProgressOfErrno(Progress awaits);

  const int fd_;
  const TlsSession tls_;
  bool failed_ = false;  // TLS must not be used any more
  std::string failure_;
  bool peer_speaks_http_ = false;
};

}  // namespace sluice
