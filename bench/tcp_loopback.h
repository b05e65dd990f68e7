// Measures plain TCP over loopback between two threads: the limit of everything that goes through a
// socket. Each thread has its own CPU, as two hosts would. On a shared CPU, a round trip of small
// messages would be a mere switch of threads.
//
// Thread safety: one calling thread; the peer runs on its own thread.
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
    // Makes one pass over the values of messages and answers at each end: the sender reads or
    // copies its array, and the receiver adds what arrives to its own array, in pieces that are in
    // cache.
    bool pass = false;
  };
  // Starts the peer, which reads messages and answers each.
  static absl::StatusOr<std::unique_ptr<TcpLoopback>> Create(Shape shape);
  ~TcpLoopback();

  // Returns the seconds for `messages` messages with at most `in_flight` unanswered.
  // REQUIRES: in_flight is 1 when the answers do not fit in a socket's buffers.
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
