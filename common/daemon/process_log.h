// Writes lines that belong both in the process's log and on the terminal.
//
// OpenLog (identity.h) opens the log.
//
// Thread safety: safe from any thread after OpenLog.
#pragma once

#include <string>

namespace sluice {

// Writes a line that the person who starts the process should see: to the log, and to stderr unless
// stderr is the log.
void LogAndTell(const std::string& line);

}  // namespace sluice
