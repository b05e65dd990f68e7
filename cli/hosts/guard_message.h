// The talk between a launcher and the guard that it runs on a host: lines over ssh's stdin and
// stdout.
//
// Format: a line is "TAG VERB FIELD...". A request of the launcher has a tag of its own, and its
// answer "TAG ok FIELD..." or "TAG error REASON" has the same. Tag 0 is for what needs no answer.
// Inside a word, all bytes but printable ASCII without % are written as %XX; an empty word is "%".
//
// Requests, and what the guard answers:
//
//   0 beat
//   0 end
//   T cd FOLDER                         ok
//   T size PATH                         ok BYTES
//   T read PATH                         ok CONTENT   (at most 4 KiB)
//   T exists PATH                       ok
//   T file NAME MODE CONTENT            ok           (in the guard's folder; MODE in decimal)
//   T program NAME                      ok VERSION   (NAME --version, beside the guard's program)
//   T start ID LOG FROM TO HOST ARG...  ok PID PORT  (replaces {bind} and {advertise} in ARG)
//   T python INTERPRETER                ok VERSION   (of the package sluice that it imports)
//   T port FROM TO                      ok PORT      (free, and given to nobody else here)
//   T run ID LOG SHOWN N NAME=VALUE... ARG...  ok PID 0  (a program of the user, with N variables)
//
// Events of the guard:
//
//   0 hello VERSION WALL_US FOLDER BIN CORES SPACE FREE_BYTES
//   0 beat
//   0 log ID LINE
//   0 out ID LINE                       (what a program has printed, if SHOWN is 1; else it is log)
//   0 ended ID PID WAIT_STATUS
//
// Thread safety: plain data and free functions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::cli {

// A guard that has heard nothing for so long ends its daemons, and a launcher gives the host up.
// SIGKILL follows SIGTERM after kGuardGrace.
inline constexpr int kGuardPatienceS = 10, kGuardGraceS = 3;

struct GuardMessage {
  uint64_t tag = 0;
  std::string verb;
  std::vector<std::string> fields;
};

// The line, with its end.
std::string Encode(const GuardMessage& message);
// `line` without its end. INVALID_ARGUMENT: it is no message.
absl::StatusOr<GuardMessage> ParseGuardMessage(absl::string_view line);

// Cuts what arrives into lines.
class LineCutter {
 public:
  static constexpr size_t kMostBytes = 4 << 20;
  // A longer line than `most` bytes loses its rest.
  explicit LineCutter(size_t most = kMostBytes) : most_(most) {}
  // Returns the complete lines.
  std::vector<std::string> Take(absl::string_view bytes);
  // Returns the begun line, which gets no end any more; "" without one.
  std::string TakeBegun() { return std::exchange(begun_, ""); }

 private:
  size_t most_;
  std::string begun_;
};

}  // namespace sluice::cli
