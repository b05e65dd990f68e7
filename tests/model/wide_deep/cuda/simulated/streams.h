// Streams, events and captures as CUDA defines them, on the host. The pace decides when work runs,
// within the order that streams and events demand.
//
// Invariants: a piece of work runs once, after the earlier work of its stream and after the events
// that the stream waits for. As on a device, nothing else is promised about the order. One piece of
// work runs at a time and takes one microsecond of the events' time, so work never overlaps.
//
// Thread safety: safe from any thread. One lock is held while work runs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

namespace sluice::cuda::simulated {

enum class Pace {
  kAtOnce,    // as soon as it is put on a stream: shows memory that is overwritten too early
  kLate,      // only when somebody waits for it: shows waits that are missing
  kAnyOrder,  // at each call, a random part of the work that may run
};

// A piece of work. It releases `run` and `after` once it has run.
struct Work {
  std::function<void()> run;
  std::vector<std::shared_ptr<Work>> after;
  bool done = false;
  uint64_t ended = 0;  // microseconds
};

// The work that was put on a stream during a capture, in order.
struct Capture {
  std::vector<std::function<void()>> work;
  bool broken = false;  // a call was made that captures forbid
};

struct Stream {
  int device = 0;
  std::shared_ptr<Work> last;  // null: the stream had no work yet
  std::shared_ptr<Capture> capture;
};

struct Event {
  int device = 0;
  bool timing = false;
  std::shared_ptr<Work> last;  // null: not recorded
};

class Streams {
 public:
  // Calls `open` before and `close` after each streak of work.
  Streams(Pace pace, uint64_t seed, std::function<void()> open, std::function<void()> close)
      : pace_(pace), random_(seed), open_(std::move(open)), close_(std::move(close)) {}

  // Puts work on the stream, or into the capture while the stream is captured.
  void Put(Stream* stream, std::function<void()> run);
  // REQUIRES, for Record and HoldBack: the stream is not captured.
  void Record(Event* event, Stream* stream);
  void HoldBack(Stream* stream, const Event& event);
  // Runs the work and everything that must come before it. Null is allowed and does nothing.
  void Finish(const std::shared_ptr<Work>& work);
  void FinishAll();
  // Whether the work has run. At the pace kLate, asking counts as waiting for it.
  bool Ask(const std::shared_ptr<Work>& work);

  Pace pace() const { return pace_; }
  // True when some work has not run yet.
  bool busy();

 private:
  std::shared_ptr<Work> Append(Stream* stream, std::function<void()> run,
                               std::vector<std::shared_ptr<Work>> after);
  // Runs as much work as the pace wants after a call.
  void Advance();
  void RunWithWhatIsBefore(const std::shared_ptr<Work>& work);
  void Run(Work* work);
  // Returns a random piece of the work that may run now; null when none is left.
  std::shared_ptr<Work> AnyReady();

  const Pace pace_;
  std::mutex mutex_;
  std::mt19937_64 random_;
  const std::function<void()> open_, close_;
  std::vector<std::shared_ptr<Work>> pending_;  // in the order of the calls
  uint64_t now_ = 0;                            // microseconds
};

}  // namespace sluice::cuda::simulated
