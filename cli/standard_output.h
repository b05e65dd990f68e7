// Standard output, where the commands print their results: what is lost is told.
//
// Thread safety: as std::cout, whose buffer it is; create and finish it on the main thread, with no
// other thread printing.
#pragma once

#include <streambuf>
#include <vector>

namespace sluice::cli {

class StandardOutput : private std::streambuf {
 public:
  // First of all. A standard file that is closed is replaced, so that no file or socket that is
  // opened later gets its number, and with it what the command prints. A reader that goes away does
  // not end the process (SIGPIPE).
  StandardOutput();
  // std::cout has its own buffer again.
  ~StandardOutput() override;

  // Last of all: `code`, the exit code of the command, unless the command is done (kDone) and a
  // part of what it printed could not be written. Then kOutputLost. Standard error says what is
  // lost.
  int Finish(int code);

 private:
  int_type overflow(int_type c) override;
  int sync() override;

  std::vector<char> buffer_;
  std::streambuf* own_ = nullptr;  // of std::cout
  int error_ = 0;                  // of the first write that failed
};

}  // namespace sluice::cli
