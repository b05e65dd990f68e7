// Compute threads that sleep when they have to wait for one another.
//
// libgomp's default is to spin, which is fast while each thread has a core of its own and makes
// everything many times slower once several processes share the cores. It reads its settings when
// it is loaded, before main.
//
// Thread safety: main's thread, before any other starts.
#pragma once

namespace sluice {

// First in main, with main's argv. When OMP_WAIT_POLICY is not set, sets it to passive and starts
// the program once more in this process, under the same name and pid. Where that is not possible
// the program goes on as it is: slower at worst.
void UsePassiveThreads(char** argv);

}  // namespace sluice
