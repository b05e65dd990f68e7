// Makes compute threads sleep, not spin, while they wait for one another.
//
// By default libgomp spins. That is fast while each thread has a core of its own. Once several
// processes share the cores, it makes everything many times slower. libgomp reads its settings when
// it is loaded, before main.
//
// Thread safety: one thread. Call from main before other threads start.
#pragma once

namespace sluice {

// Call it first in main, with main's argv. When OMP_WAIT_POLICY is not set, sets it to passive and
// executes the program again in this process, under the same name and pid. Where that fails, the
// program goes on as it is and is slower at worst.
void UsePassiveThreads(char** argv);

}  // namespace sluice
