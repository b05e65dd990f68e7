#include "cli/standard_output.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "cli/command_line.h"

namespace sluice::cli {
namespace {

constexpr size_t kBufferBytes = 16 << 10;

}  // namespace

StandardOutput::StandardOutput() : buffer_(kBufferBytes) {
  signal(SIGPIPE, SIG_IGN);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // open() returns the lowest free number, which is `fd`. The file is open for reading only, so
    // that writing to it fails as it would on a closed file.
    if (open("/dev/null", O_RDONLY) != fd) break;
  }
  setp(buffer_.data(), buffer_.data() + buffer_.size());
  // std::cout's own buffer does not report why a write failed.
  own_ = std::cout.rdbuf(this);
}

StandardOutput::~StandardOutput() { std::cout.rdbuf(own_); }

int StandardOutput::Finish(int code) {
  std::cout.flush();
  if (error_ == 0) return code;
  std::fprintf(stderr, "sluice: cannot write all of the output to standard output: %s%s\n",
               std::strerror(error_), code == kDone ? "; the command itself has succeeded" : "");
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
      // Another process that shares the file has made it non-blocking: wait for room.
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
