// The decision of a server's gate about an accepted connection (connection_listener.h).
#pragma once

namespace sluice {

enum class Admission {
  kAdmitted,
  kRefused,  // the gate has recorded it, unless it was not worth a record
  kNoMeans,  // the process lacks the descriptor or the epoll watch with which to decide
};

}  // namespace sluice
