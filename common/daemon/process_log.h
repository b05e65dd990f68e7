// What the log that OpenLog (identity.h) opened shares with the terminal.
//
// Thread safety: after OpenLog, safe.
#pragma once

#include <string>

namespace sluice {

// A line that whoever starts the process should see: to the log, and to stderr unless that is the
// log.
void LogAndTell(const std::string& line);

}  // namespace sluice
