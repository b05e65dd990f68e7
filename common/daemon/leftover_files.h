// Removes files that killed runs have left under their unfinished names (UnfinishedName).
//
// Thread safety: free function, safe from any thread.
#pragma once

#include <functional>
#include <string>

namespace sluice {

// Removes the files OUTPUT.PID.unfinished of processes that have ended. Only regular files of this
// user that nobody has locked, and whose contents `is_ours` accepts, are removed. The lock protects
// the file of a process whose pid is not visible here, such as one in another container; the pid
// protects it on a file system without locks.
void RemoveLeftovers(const std::string& output,
                     const std::function<bool(const std::string& path)>& is_ours);

}  // namespace sluice
