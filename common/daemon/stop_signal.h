// Turns SIGINT, SIGTERM and SIGHUP into something to wait for.
//
// After a signal the process has 20 s to end; a second signal ends it at once.
//
// Thread safety: one thread. Call Install, ReopenOnHangUp and StopUnlessKept before other threads
// start. Stop is safe from any thread.
#pragma once

#include <functional>

namespace sluice {

class StopSignal {
 public:
  // Call it before any thread starts: threads inherit the signal mask. With `die_with_parent` the
  // process gets SIGTERM when its parent dies, even while it is stopped itself.
  static void Install(bool die_with_parent);
  // Sends this process SIGTERM when standard input ends before its first byte. Call after Install.
  static void StopUnlessKept();
  // From now on SIGHUP calls `reopen`, on a thread of its own, if this process has no controlling
  // terminal: nobody else would send it one then. With a terminal, SIGHUP stays the end of the
  // terminal, and when it was ignored at the start (nohup) it stays ignored. Call after Install.
  static void ReopenOnHangUp(std::function<void()> reopen);
  // Ends Wait with `exit_code`; the first call counts.
  static void Stop(int exit_code);
  // Blocks for at most `within_ms`. Returns true, and then at once, when Wait would return.
  static bool IsWanted(int within_ms);
  // Blocks until a signal comes or Stop is called. Returns Stop's exit code, or 130, 143 or 129
  // after SIGINT, SIGTERM or SIGHUP.
  static int Wait();
  // True when this process dies with its parent (Install), which has ended.
  static bool ParentHasEnded();
  // The signal that has ended Wait; 0: none.
  static int Received();
  // Takes the place of the second signal's default action, which is to end the process: blocks
  // until a second SIGINT or SIGTERM comes (true), or `done` returns true. A third one ends the
  // process.
  static bool WaitForSecond(const std::function<bool()>& done);
  // Gives a process that has got a signal `seconds` more to end, from now on.
  static void AllowMore(int seconds);
};

}  // namespace sluice
