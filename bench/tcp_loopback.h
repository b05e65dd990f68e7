// Plain TCP over loopback between two threads: the limit of everything that goes through a socket.
//
// Thread safety: one thread calls; the peer is a thread of its own.
#pragma once

#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::bench {

class TcpLoopback {
 public:
  // The peer reads messages of `message_bytes` and answers each with `answer_bytes`.
  static absl::StatusOr<std::unique_ptr<TcpLoopback>> Create(size_t message_bytes,
                                                             size_t answer_bytes);
  ~TcpLoopback();

  // Seconds for `messages` of them with at most `in_flight` unanswered.
  double Run(int messages, int in_flight);

 private:
  TcpLoopback(size_t message_bytes, size_t answer_bytes)
      : message_(message_bytes), answer_(answer_bytes) {}
  void Serve(int fd);

  std::vector<char> message_, answer_;
  int client_ = -1;
  std::thread peer_;
};

}  // namespace sluice::bench
