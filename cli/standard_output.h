// Replaces the buffer of std::cout and detects output that could not be written.
//
// Thread safety: that of std::cout. Create and finish it on the main thread, while no other thread
// prints.
#pragma once

#include <streambuf>
#include <vector>

namespace sluice::cli {

class StandardOutput : private std::streambuf {
 public:
  // Create it before anything else. Opens /dev/null in place of each closed standard file:
  // otherwise a file opened later could get that number and receive what the command prints.
  // Ignores SIGPIPE, so that a reader that goes away does not end the process.
  StandardOutput();
  // Gives std::cout its own buffer back.
  ~StandardOutput() override;

  // Call it after everything else. Returns `code`, the exit code of the command; or kOutputLost
  // when the command is done (kDone) but some of its output could not be written. Reports lost
  // output on standard error.
  int Finish(int code);

 private:
  int_type overflow(int_type c) override;
  int sync() override;

  std::vector<char> buffer_;
  std::streambuf* own_ = nullptr;  // of std::cout
  int error_ = 0;                  // of the first write that failed
};

}  // namespace sluice::cli
