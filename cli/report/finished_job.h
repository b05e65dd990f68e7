// Reads the folder of a finished job for `sluice report`: its result, curves and configuration as
// one object of JSON, whose texts hold no secrets.
//
// Format of the object:
//   folder   as it was given
//   result   result.json; of a long epochs_log at most kMostEpochs, spread evenly
//   curves   [{name, x, points}], from curves.jsonl; [] where the folder has none
//   config   [[path, value], ...] from job.textproto, such as ["train.epochs", "3"]
//   config_left_out   how many further fields there are
//   lacks    what the folder does not have, as sentences
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/env.h"

namespace sluice::cli {

constexpr size_t kMostEpochs = 2000;
constexpr size_t kMostConfigFields = 3000;

// NOT_FOUND: the folder has no result.json, so no job has ended there. INVALID_ARGUMENT names the
// file that is damaged or too large. `<` is written as \u003c, so that the text can stand in HTML.
absl::StatusOr<std::string> ReadFinishedJob(Env* env, const std::string& folder);

// Replaces by *** what could give access to something: user and password in addresses, their
// queries (signed URLs), access keys, private keys, and values behind names such as password,
// secret or token.
std::string WithoutSecrets(absl::string_view text);

// Returns the fields of a configuration by path: repeated messages have an index from the second
// one on, such as features[1].name. Lines that it does not understand are left out.
std::vector<std::pair<std::string, std::string>> FieldsOf(absl::string_view textproto);

}  // namespace sluice::cli
