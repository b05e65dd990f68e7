// Tells files that Sluice wrote from all others, so that nothing else is replaced or removed.
//
// Decides by what a file contains, never by its name.
//
// Format: each enumerator of FileKind says how its kind is recognised.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/base/env.h"

namespace sluice {

enum class FileKind {
  kJobConfig,      // job.textproto: its first line is kOwnConfigLine
  kClusterConfig,  // cluster.textproto of a local cluster: its first line is kOwnClusterLine
  kEndpoints,      // endpoints.log: its first line is kOwnEndpointsLine
  kResult,         // result.json: an object with the members of ResultJson
  kCurves,         // curves.jsonl: begins with kOwnCurvesStart
  kEvents,         // TensorBoard events whose first record is EventFile's
  kReport,         // a page of sluice report: begins with kOwnReportStart
  kTrace,          // a trace whose otherData names Sluice as its producer
  kShard,          // a shard file that begins with its magic
  kGeoState,       // the file of a Geo rank in a checkpoint: begins with kOwnGeoStateMagic
  kManifest,       // the MANIFEST of a model or a checkpoint: begins with its version, and has a
                   // digest, a CheckpointState or ExportFacts
};

inline constexpr char kOwnConfigLine[] =
    "# Effective configuration, written by Sluice, which replaces this file.\n";
inline constexpr char kOwnClusterLine[] =
    "# Configuration of a local cluster, written by Sluice, which replaces this file.\n";
inline constexpr char kOwnCurvesStart[] = "{\"sluice_curves\": ";
inline constexpr char kOwnReportStart[] = "<!doctype html>\n<!-- Made by sluice report -->\n";
inline constexpr char kOwnEndpointsLine[] = "# role rank address pid admin_address\n";
// See worker/step/geo_state_file.h.
inline constexpr char kOwnGeoStateMagic[] = "SLGEOST1";
// The end of otherData, which is the end of every trace.
inline constexpr char kOwnTraceEnd[] = ", \"producer\": \"sluice\"}}\n";

// True when a readable regular file is at `path` and Sluice wrote it.
bool IsOwnFile(Env* env, const std::string& path, FileKind kind);

// OK when `path` is free, or holds an empty file or one of ours (IsOwnFile). With `overwrite`, OK
// for any file. ALREADY_EXISTS names the path and the fix. `what` is the flag or field that gave
// the path.
absl::Status CheckReplaceable(Env* env, const std::string& path, FileKind kind, bool overwrite,
                              const std::string& what);
// The same for a file that cannot be recognised as ours, such as scores or generated data.
absl::Status CheckNothingThere(Env* env, const std::string& path, bool overwrite,
                               const std::string& what);

}  // namespace sluice
