// Tells files that Sluice wrote from all others, by what they contain and never by their names, so
// that nothing else is replaced or removed.
//
// Format: what each kind is recognised by is said at its enumerator. Thread safety: free functions.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/base/env.h"

namespace sluice {

enum class FileKind {
  kJobConfig,  // job.textproto: its first line is kOwnConfigLine
  kResult,     // result.json: an object with the members of ResultJson
  kEvents,     // TensorBoard events whose first record is EventFile's
  kTrace,      // a trace whose otherData names Sluice as its producer
  kShard,      // a shard file: its magic
  kManifest,   // the MANIFEST of a model
};

inline constexpr char kOwnConfigLine[] =
    "# Effective configuration, written by Sluice, which replaces this file.\n";
// Ends otherData, and with it every trace.
inline constexpr char kOwnTraceEnd[] = ", \"producer\": \"sluice\"}}\n";

// There is a regular file at `path` that can be read, and Sluice wrote it.
bool IsOwnFile(Env* env, const std::string& path, FileKind kind);

// OK when nothing is at `path`, or an empty file, or one that IsOwnFile; with `overwrite`, any
// file. ALREADY_EXISTS names the path and the fix; `what`: the flag or field that led there.
absl::Status CheckReplaceable(Env* env, const std::string& path, FileKind kind, bool overwrite,
                              const std::string& what);
// The same for a file that cannot be told from others, such as scores or generated data.
absl::Status CheckNothingThere(Env* env, const std::string& path, bool overwrite,
                               const std::string& what);

}  // namespace sluice
