// Plain TCP over loopback between two threads, each on a CPU of its own as two hosts would be: the
// limit of everything that goes through a socket. (Where the system puts both on one CPU, a round
// trip of small messages is a mere switch of threads.)
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
  struct Shape {
    size_t message_bytes = 0;  // a multiple of 4
    size_t answer_bytes = 0;   // a multiple of 4
    // One pass over the values of messages and answers at each end: the sender reads its array or
    // copies it, the receiver adds what came to an array of its own, in pieces that are in cache.
    bool pass = false;
  };
  // The peer reads messages and answers each.
  static absl::StatusOr<std::unique_ptr<TcpLoopback>> Create(Shape shape);
  ~TcpLoopback();

  // Seconds for `messages` of them with at most `in_flight` unanswered. With answers that do not
  // fit in a socket's buffers: 1.
  double Run(int messages, int in_flight);

 private:
  struct End;
  explicit TcpLoopback(Shape shape);
  void Serve(int fd);

  const Shape shape_;
  std::unique_ptr<End> self_, other_;
  int client_ = -1;
  std::thread peer_;
};

}  // namespace sluice::bench
