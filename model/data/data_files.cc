#include "model/data/data_files.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "model/data/data_source.h"

namespace sluice {
namespace {

// What tells two contents of a path apart; empty: nothing does.
std::string Difference(const FileIdentity& then, const FileIdentity& now) {
  if (then.device != now.device || then.inode != now.inode) return "another file has its name";
  if (then.size != now.size)
    return absl::StrCat("its size was ", then.size, " bytes and is ", now.size);
  if (then.modified_ns != now.modified_ns) return "it was written to";
  return "";
}

absl::Status Changed(const std::string& path, const std::string& what) {
  return absl::FailedPreconditionError(
      absl::StrCat("data file ", path, " has changed since the job began: ", what,
                   "; run the job again when nothing writes to the file"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const DataFiles>> DataFiles::See(const JobConfig& job) {
  auto files = std::make_shared<DataFiles>();
  if (!job.evaluate_only()) {
    SLUICE_ASSIGN_OR_RETURN(files->train_, ExpandFiles(job.data().train_files()));
  }
  SLUICE_ASSIGN_OR_RETURN(files->eval_, ExpandFiles(job.data().eval_files()));
  for (const auto* list : {&files->train_, &files->eval_}) {
    for (const std::string& path : *list) {
      if (files->seen_.contains(path)) continue;
      SLUICE_ASSIGN_OR_RETURN(files->seen_[path], SampleFile(path));
    }
  }
  return std::shared_ptr<const DataFiles>(std::move(files));
}

void DataFiles::Report(IndexReport* report) const {
  const auto describe = [this](const std::string& path, SeenFile* to) {
    const FileSample& sample = seen_.at(path);
    to->set_path(path);
    to->set_bytes(sample.identity.size);
    to->set_sample_crc32c(sample.crc32c);
  };
  for (const std::string& path : train_) describe(path, report->add_train_seen());
  for (const std::string& path : eval_) describe(path, report->add_eval_seen());
}

absl::Status DataFiles::CheckUnchanged(const std::string& path) const {
  if (!seen_.contains(path)) return absl::OkStatus();
  const auto now = IdentifyFile(path);
  return now.ok() ? CheckUnchanged(path, *now) : Changed(path, std::string(now.status().message()));
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
