#include "common/base/file_origin.h"

#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice {
namespace {

constexpr uint64_t kHeadBytes = 4 << 10;
// A larger file is not ours. A result holds a line for each epoch; a manifest holds a few lines for
// each shard.
constexpr uint64_t kMostTextBytes = 256 << 20;

bool IsResult(absl::string_view text) {
  if (!absl::StartsWith(text, "{\n  \"job\": \"")) return false;
  for (const char* member :
       {"mode", "k_steps", "status", "global_step", "model_dir", "model_digest"}) {
    if (!absl::StrContains(text, absl::StrCat("\n  \"", member, "\": "))) return false;
  }
  return true;
}

// Looks at the first record: its length and checksum (12 bytes), then wall_time, a step of 0 and
// the version. Other writers leave out the step when it is 0; EventFile writes it to be recognised.
bool IsEvents(absl::string_view head) {
  constexpr size_t kVersionAt = 12 + 9 + 2;
  if (head.size() < kVersionAt) return false;
  return head[12] == 0x09 && head.substr(21, 2) == absl::string_view("\x10\0", 2) &&
         absl::StartsWith(head.substr(kVersionAt),
                          "\x1a\x0d"
                          "brain.Event:2");
}

bool IsManifest(absl::string_view text) {
  return absl::StartsWith(text, "version: ") &&
         (absl::StrContains(text, "\nmodel_digest: \"") ||
          absl::StrContains(text, "\ncheckpoint {\n") || absl::StrContains(text, "\nexport {\n"));
}

std::string End(Env* env, const std::string& path, uint64_t size, uint64_t bytes) {
  const uint64_t from = size > bytes ? size - bytes : 0;
  return env->ReadRange(path, from, size - from).value_or("");
}

absl::Status NotOurs(const std::string& path, const std::string& what, const char* which) {
  return absl::AlreadyExistsError(
      absl::StrCat(what, ": ", path, " exists", which,
                   "; move it away, name another place, or replace it with --overwrite"));
}

}  // namespace

bool IsOwnFile(Env* env, const std::string& path, FileKind kind) {
  const auto size = env->FileSize(path);
  if (!size.ok()) return false;
  const std::string head = env->ReadRange(path, 0, kHeadBytes).value_or("");
  switch (kind) {
    case FileKind::kJobConfig:
      return absl::StartsWith(head, kOwnConfigLine);
    case FileKind::kClusterConfig:
      return absl::StartsWith(head, kOwnClusterLine);
    case FileKind::kEndpoints:
      return absl::StartsWith(head, kOwnEndpointsLine);
    case FileKind::kResult:
      return *size <= kMostTextBytes && IsResult(End(env, path, *size, *size));
    case FileKind::kCurves:
      return absl::StartsWith(head, kOwnCurvesStart);
    case FileKind::kEvents:
      return IsEvents(head);
    case FileKind::kReport:
      return absl::StartsWith(head, kOwnReportStart);
    case FileKind::kTrace:
      return absl::StartsWith(head, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [") &&
             absl::EndsWith(End(env, path, *size, kHeadBytes), kOwnTraceEnd);
    case FileKind::kShard:
      return absl::StartsWith(head, "SLSHARD");
    case FileKind::kGeoState:
      return absl::StartsWith(head, kOwnGeoStateMagic);
    case FileKind::kManifest:
      return *size <= kMostTextBytes && IsManifest(End(env, path, *size, *size));
  }
  return false;
}

absl::Status CheckReplaceable(Env* env, const std::string& path, FileKind kind, bool overwrite,
                              const std::string& what) {
  if (!env->Exists(path) || IsOwnFile(env, path, kind)) return absl::OkStatus();
  // A mistyped name must not destroy a file of another program.
  if (CheckNothingThere(env, path, overwrite, what).ok()) return absl::OkStatus();
  return NotOurs(path, what, ", and nothing in it shows that Sluice wrote it");
}

absl::Status CheckNothingThere(Env* env, const std::string& path, bool overwrite,
                               const std::string& what) {
  if (!env->Exists(path)) return absl::OkStatus();
  const auto size = env->FileSize(path);  // fails for a folder, which is never replaced
  if (size.ok() && (overwrite || *size == 0)) return absl::OkStatus();
  return NotOurs(path, what, "");
}

}  // namespace sluice
