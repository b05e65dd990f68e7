// Makes the page of `sluice report`: one HTML file that needs nothing else and asks nothing of any
// server.
//
// Its content security policy allows exactly the scripts and the style in it, by their digests.
//
// Thread safety: a free function, safe from any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"

namespace sluice::cli {

// `jobs`: as ReadFinishedJob gives them, in the order in which they are shown.
std::string ReportPage(const std::vector<std::string>& jobs, const std::string& version,
                       absl::Time now);

}  // namespace sluice::cli
