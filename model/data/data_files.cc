#include "model/data/data_files.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "model/data/expand_files.h"

namespace sluice {
namespace {

// Describes how two identities of a path differ; empty if they do not.
std::string Difference(const FileIdentity& then, const FileIdentity& now) {
  if (then.device != now.device || then.inode != now.inode) return "it was replaced";
  if (then.size != now.size)
    return absl::StrCat("its size was ", then.size, " bytes and is now ", now.size);
  if (then.modified_ns != now.modified_ns) return "it was written to";
  if (then.tag != now.tag)
    return absl::StrCat("it was written to (its version was ", then.tag, " and is now ", now.tag,
                        ")");
  return "";
}

}  // namespace

absl::StatusOr<std::shared_ptr<const DataFiles>> DataFiles::See(const JobConfig& job, Env* env) {
  auto files = std::make_shared<DataFiles>();
  files->env_ = env;
  if (!job.evaluate_only()) {
    SLUICE_ASSIGN_OR_RETURN(files->train_, ExpandFiles(job.data().train_files(), env));
  }
  SLUICE_ASSIGN_OR_RETURN(files->eval_, ExpandFiles(job.data().eval_files(), env));
  SLUICE_RETURN_IF_ERROR(files->Look(files->train_));
  SLUICE_RETURN_IF_ERROR(files->Look(files->eval_));
  return std::shared_ptr<const DataFiles>(std::move(files));
}

absl::StatusOr<std::shared_ptr<const DataFiles>> DataFiles::SeeForPrediction(
    const std::vector<std::string>& paths, Env* env) {
  auto files = std::make_shared<DataFiles>();
  files->env_ = env;
  files->reader_ = "prediction";
  SLUICE_RETURN_IF_ERROR(files->Look(paths));
  return std::shared_ptr<const DataFiles>(std::move(files));
}

absl::Status DataFiles::Look(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    // A file may be in both lists. It has one state, the one at the first look.
    if (seen_.contains(path)) continue;
    SLUICE_ASSIGN_OR_RETURN(seen_[path], SampleFile(path, env_));
  }
  return absl::OkStatus();
}

absl::Status DataFiles::Changed(const std::string& path, const std::string& what) const {
  return absl::FailedPreconditionError(
      absl::StrCat("data file ", path, " has changed since the ", reader_, " began: ", what,
                   "; run the ", reader_, " again when nothing writes to the file"));
}

void DataFiles::Report(IndexReport* report) const {
  const auto describe = [this](const std::string& path, SeenFile* to) {
    const FileSample& sample = seen_.at(path);
    to->set_path(path);
    to->set_bytes(sample.identity.size);
    // Ranks on other hosts see other inodes and times. Sizes and samples are what all of them can
    // compare.
    to->set_sample_crc32c(sample.crc32c);
  };
  for (const std::string& path : train_) describe(path, report->add_train_seen());
  for (const std::string& path : eval_) describe(path, report->add_eval_seen());
}

absl::Status DataFiles::CheckUnchanged(const std::string& path) const {
  if (!seen_.contains(path)) return absl::OkStatus();
  const auto now = IdentifyFile(path, env_);
  if (now.ok()) return CheckUnchanged(path, *now);
  // It is gone, or no file any more. Other errors, such as a store that does not answer or refuses
  // old credentials, say nothing about it.
  if (absl::IsNotFound(now.status()) || absl::IsInvalidArgument(now.status()))
    return Changed(path, std::string(now.status().message()));
  return now.status();
}

absl::Status DataFiles::CheckUnchanged(const std::string& path, const FileIdentity& now) const {
  const auto seen = seen_.find(path);
  if (seen == seen_.end()) return absl::OkStatus();
  const std::string difference = Difference(seen->second.identity, now);
  return difference.empty() ? absl::OkStatus() : Changed(path, difference);
}

absl::Status DataFiles::CheckAllUnchanged(const std::vector<std::string>& paths) const {
  for (const std::string& path : paths) SLUICE_RETURN_IF_ERROR(CheckUnchanged(path));
  return absl::OkStatus();
}

}  // namespace sluice
