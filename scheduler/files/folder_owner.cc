#include "scheduler/files/folder_owner.h"

#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/random_id.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

constexpr char kOwnerHead[] =
    "# Sluice: the job that writes to this folder. Do not change this object.\n";
constexpr char kEndedLine[] = "ended: true\n";

// What an OWNER says. `own`: the file is one.
struct OwnerText {
  bool own = false;
  std::string job;
  uint64_t instance = 0;
  bool ended = false;
};

OwnerText ParseOwner(const std::string& text) {
  OwnerText owner;
  owner.own = absl::StartsWith(text, kOwnerHead);
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, "job: ")) owner.job = std::string(line);
    if (absl::ConsumePrefix(&line, "instance: ")) (void)absl::SimpleAtoi(line, &owner.instance);
  }
  owner.ended = absl::EndsWith(text, kEndedLine);
  return owner;
}

// OK when the store heeds conditions.
absl::Status Probe(Env* env, const std::string& folder, bool single_writer) {
  const std::string path = absl::StrCat(folder, "/OWNER.probe-", RandomId());
  const auto first = env->Publish(path, "first", std::nullopt);
  if (!first.ok()) return first.status();
  const absl::Status second = env->Publish(path, "second", std::nullopt).status();
  const absl::Status third = env->Publish(path, "third", *first).status();
  const absl::Status fourth = env->Publish(path, "fourth", *first).status();
  env->RemoveFile(path).IgnoreError();
  for (const absl::Status& one : {second, third, fourth}) {
    if (!one.ok() && !absl::IsAlreadyExists(one) && !absl::IsAborted(one)) return one;
  }
  const bool heeds = absl::IsAlreadyExists(second) && third.ok() && absl::IsAborted(fourth);
  if (heeds || single_writer) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      folder,
      ": the store ignores the conditions of writes (If-None-Match, If-Match), so it cannot keep "
      "two ",
      "writers apart; use another store, or set single_writer: true if only one job and one ",
      "scheduler ever write there"));
}

}  // namespace

absl::StatusOr<FolderOwner> FolderOwner::Claim(Env* env, const std::string& folder,
                                               const Claimant& claimant) {
  constexpr int kTries = 10;
  // A scheduler that continues a job has found it out before.
  if (!claimant.again) SLUICE_RETURN_IF_ERROR(Probe(env, folder, claimant.single_writer));
  const std::string path = absl::StrCat(folder, "/OWNER");
  // The last lines make each claim another text, so that nobody takes another's for his own.
  const std::string text =
      absl::StrCat(kOwnerHead, "job: ", claimant.job_id,
                   "\ninstance: ", claimant.instances.empty() ? 0 : claimant.instances.back(),
                   "\nclaim: ", RandomId(), "\n");
  for (int i = 1;; ++i) {
    std::optional<FileIdentity> expected;
    // The version before the text: one that is older than the text makes the publication fail.
    const auto info = env->Look(path);
    if (info.ok()) {
      const auto held = env->ReadFile(path);
      if (!held.ok() && !absl::IsNotFound(held.status())) return held.status();
      const OwnerText other = ParseOwner(held.value_or(""));
      const auto& own = claimant.instances;
      const bool continues = claimant.again && other.job == claimant.job_id &&
                             std::count(own.begin(), own.end(), other.instance) > 0;
      if (held.ok() && !other.own && !claimant.replaces) {
        return absl::AlreadyExistsError(
            absl::StrCat(path,
                         " exists, and nothing in it shows that Sluice wrote it; move it "
                         "away, or replace it with --overwrite"));
      }
      if (held.ok() && !other.ended && !continues && !claimant.replaces) {
        return absl::AlreadyExistsError(absl::StrCat(
            "job ", other.job, ", which has not said that it has ended, writes to ", folder,
            "; wait for its end, or give another folder. If its scheduler was killed: continue it "
            "with --resume; --overwrite starts from the beginning, and its checkpoints are lost"));
      }
      expected = info->identity;
    } else if (!absl::IsNotFound(info.status())) {
      return info.status();
    }
    auto identity = env->Publish(path, text, expected);
    if (identity.ok()) return FolderOwner(env, path, text, *std::move(identity));
    const bool changed =
        absl::IsAborted(identity.status()) || absl::IsAlreadyExists(identity.status());
    if (!changed || i == kTries) return identity.status();
  }
}

absl::Status FolderOwner::Check() const {
  const auto held = env_->ReadFile(path_);
  if (held.ok() && *held == text_) return absl::OkStatus();
  if (!held.ok() && !absl::IsNotFound(held.status())) return held.status();
  if (!held.ok()) {
    return absl::AbortedError(
        absl::StrCat(path_,
                     ", by which this job had the folder, was removed; it writes nothing "
                     "more there"));
  }
  const OwnerText other = ParseOwner(*held);
  return absl::AbortedError(
      absl::StrCat("this job has lost its folder to job ", other.job, " (", path_,
                   "), which took it over with --overwrite or --resume, or to another scheduler "
                   "of the same job; it writes nothing more there"));
}

absl::Status FolderOwner::Release() {
  const absl::Status said =
      env_->Publish(path_, absl::StrCat(text_, kEndedLine), identity_).status();
  return absl::IsAborted(said) ? absl::OkStatus() : said;
}

}  // namespace sluice
