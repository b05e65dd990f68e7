// Finds the local files that a pattern of the shell matches.
//
// Thread safety: free function, safe from any thread.
#pragma once

#include <cstddef>
#include <string>

#include "common/base/env.h"

namespace sluice {

// Env::Match for paths that `env` opens with OpenFile, so that a pattern finds only what `env` may
// open.
FileMatches MatchLocalFiles(Env* env, const std::string& pattern, size_t most_names);

}  // namespace sluice
