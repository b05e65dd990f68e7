#include "cli/job_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/saved_model/saved_model.h"
#include "model/data/data_source.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

absl::Status CheckReadable(const std::string& field,
                           const google::protobuf::RepeatedPtrField<std::string>& patterns) {
  const auto files = ExpandFiles(patterns);
  if (!files.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": ", files.status().message()));
  }
  for (const std::string& file : *files) {
    if (access(file.c_str(), R_OK) == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(field, ": cannot read ", file, ": ",
                                                   std::strerror(errno),
                                                   "; give a file that this user may read"));
  }
  return absl::OkStatus();
}

absl::Status NoOutput(const std::string& folder, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("output_dir: cannot write to ", folder, ": ", why,
                                                 "; give a writable --output_dir"));
}

absl::Status TryToWrite(const std::string& folder) {
  const std::string probe = absl::StrCat(folder, "/.sluice-probe.", getpid());
  const int fd = open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return NoOutput(folder, std::strerror(errno));
  close(fd);
  unlink(probe.c_str());
  return absl::OkStatus();
}

absl::Status CheckWritable(const std::string& folder) {
  // What is missing, the innermost first: made for the test only.
  std::vector<fs::path> missing;
  std::error_code error;
  for (fs::path path = fs::absolute(folder, error); !path.empty() && !fs::exists(path, error);
       path = path.parent_path()) {
    missing.push_back(path);
  }
  fs::create_directories(folder, error);
  const absl::Status status = error ? NoOutput(folder, error.message()) : TryToWrite(folder);
  for (const fs::path& path : missing) {
    if (fs::is_directory(path, error)) rmdir(path.c_str());
  }
  return status;
}

}  // namespace

absl::Status CheckJobFiles(const JobConfig& job, const std::string& default_output) {
  if (!job.evaluate_only()) {
    SLUICE_RETURN_IF_ERROR(CheckReadable("data.train_files", job.data().train_files()));
  }
  SLUICE_RETURN_IF_ERROR(CheckReadable("data.eval_files", job.data().eval_files()));
  if (!job.initial_model().empty()) {
    const absl::Status model = ReadManifest(job.initial_model()).status();
    if (absl::IsNotFound(model))  // a damaged one is told by who reads all of it
      return absl::InvalidArgumentError(absl::StrCat("initial_model: ", model.message()));
  }
  return CheckWritable(job.output_dir().empty() ? default_output : job.output_dir());
}

absl::Status CheckOutputIsNoFile(const JobConfig& job) {
  std::error_code error;
  for (fs::path path = job.output_dir(); path.has_relative_path(); path = path.parent_path()) {
    if (!fs::exists(path, error)) continue;
    if (fs::is_directory(path, error)) return absl::OkStatus();
    return NoOutput(job.output_dir(), absl::StrCat(path.string(), " is a file"));
  }
  return absl::OkStatus();
}

}  // namespace sluice::cli
