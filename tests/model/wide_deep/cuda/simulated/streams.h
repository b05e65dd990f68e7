// Streams, events and captures as CUDA defines them, on the host: what is put on streams runs at
// any moment that streams and events allow, chosen by the pace.
//
// Invariants: work runs once, after the work before it on its stream and after what the stream was
// held back for; nothing else is promised, as on a device. One piece of work runs at a time, so
// that what overlaps there comes before or after here, never amid; each takes a microsecond of the
// events' time.
//
// Thread safety: safe; one lock, held while work runs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

namespace sluice::cuda::simulated {

enum class Pace {
  kAtOnce,    // when it is put there: what is overwritten too early shows
  kLate,      // when somebody waits for it: what is not waited for shows
  kAnyOrder,  // some of what may run, at each call, by a seed
};

// A piece of work. After it has run it holds nothing.
struct Work {
  std::function<void()> run;
  std::vector<std::shared_ptr<Work>> after;
  bool done = false;
  uint64_t ended = 0;  // microseconds
};

// What a capture keeps of a stream, in order.
struct Capture {
  std::vector<std::function<void()>> work;
  bool broken = false;  // by a call that a capture forbids
};

struct Stream {
  int device = 0;
  std::shared_ptr<Work> last;  // null: nothing was put there
  std::shared_ptr<Capture> capture;
};

struct Event {
  int device = 0;
  bool timing = false;
  std::shared_ptr<Work> last;  // null: not recorded
};

class Streams {
 public:
  // A streak of work runs between `open` and `close`.
  Streams(Pace pace, uint64_t seed, std::function<void()> open, std::function<void()> close)
      : pace_(pace), random_(seed), open_(std::move(open)), close_(std::move(close)) {}

  // On a stream that is captured: into the capture.
  void Put(Stream* stream, std::function<void()> run);
  // REQUIRES (both): the stream is not captured.
  void Record(Event* event, Stream* stream);
  void HoldBack(Stream* stream, const Event& event);
  // Runs it and what must come before. Null: nothing.
  void Finish(const std::shared_ptr<Work>& work);
  void FinishAll();

  Pace pace() const { return pace_; }
  // Some work has not run yet.
  bool busy();

 private:
  std::shared_ptr<Work> Append(Stream* stream, std::function<void()> run,
                               std::vector<std::shared_ptr<Work>> after);
  // Lets time pass.
  void Advance();
  void RunWithWhatIsBefore(const std::shared_ptr<Work>& work);
  void Run(Work* work);
  // A random one of those whose time may have come, null: none is left.
  std::shared_ptr<Work> AnyReady();

  const Pace pace_;
  std::mutex mutex_;
  std::mt19937_64 random_;
  const std::function<void()> open_, close_;
  std::vector<std::shared_ptr<Work>> pending_;  // in the order of the calls
  uint64_t now_ = 0;                            // microseconds
};

}  // namespace sluice::cuda::simulated
