#include "cli/standard_output.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "cli/exit_codes.h"

namespace sluice::cli {
namespace {

constexpr size_t kBufferBytes = 16 << 10;

}  // namespace

StandardOutput::StandardOutput() : buffer_(kBufferBytes) {
  signal(SIGPIPE, SIG_IGN);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is `fd`. Writing to what is open for reading fails, as it would have.
    if (open("/dev/null", O_RDONLY) != fd) break;
  }
  setp(buffer_.data(), buffer_.data() + buffer_.size());
  // The library's own buffer does not say why it could not write.
  own_ = std::cout.rdbuf(this);
}

StandardOutput::~StandardOutput() { std::cout.rdbuf(own_); }

int StandardOutput::Finish(int code) {
  std::cout.flush();
  if (error_ == 0) return code;
  std::fprintf(stderr, "sluice: standard output could not take all that was printed: %s%s\n",
               std::strerror(error_), code == kDone ? "; the command itself is done" : "");
  return code == kDone ? kOutputLost : code;
}

StandardOutput::int_type StandardOutput::overflow(int_type c) {
  if (sync() != 0) return traits_type::eof();
  if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
  *pptr() = traits_type::to_char_type(c);
  pbump(1);
  return c;
}

int StandardOutput::sync() {
  for (const char* at = pbase(); at < pptr() && error_ == 0;) {
    const ssize_t n = write(STDOUT_FILENO, at, static_cast<size_t>(pptr() - at));
    if (n >= 0) {
      at += n;
    } else if (errno == EAGAIN) {
      // Another process that shares the file has made it non-blocking.
      pollfd room = {STDOUT_FILENO, POLLOUT, 0};
      poll(&room, 1, -1);
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
  setp(buffer_.data(), buffer_.data() + buffer_.size());
  return error_ == 0 ? 0 : -1;
}

}  // namespace sluice::cli
