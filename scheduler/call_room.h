// How many calls a scheduler takes at a time.
//
// A worker may have two calls that wait, for orders and for its next phase, and a pserver has one.
// All members may share one host (as seen from here) and one certificate, so one caller has room
// for the calls of all. Members that are too many for the scheduler's places would only answer each
// other's calls early.
#pragma once

#include <algorithm>
#include <cstddef>

namespace sluice {

struct CallRoom {
  size_t waiting = 6144;            // WaitingCalls, of all callers
  size_t waiting_per_caller = 512;  // a certificate on a host
  size_t open = 8192;               // of the server: those that wait, and a third more
  size_t open_per_caller = 2048;

  // 0 members: their number is not known.
  static CallRoom For(size_t workers, size_t pservers) {
    const CallRoom least;
    const size_t of_members = 2 * workers + pservers;
    const size_t with_others = of_members + of_members / 2;  // those of operators and repetitions
    CallRoom room;
    room.waiting = std::max(least.waiting, with_others);
    room.waiting_per_caller = std::max(least.waiting_per_caller, of_members);
    room.open = room.waiting + room.waiting / 3;
    room.open_per_caller = std::max(least.open_per_caller, with_others);
    return room;
  }
};

}  // namespace sluice
