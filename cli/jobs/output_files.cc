#include "cli/jobs/output_files.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/file_origin.h"
#include "common/base/local_path.h"
#include "common/base/output_target.h"
#include "common/base/status_macros.h"
#include "common/config/output_folder.h"
#include "common/places/places_env.h"
#include "model/data/expand_files.h"

namespace sluice::cli {
namespace {

std::vector<InputFile> InputsBesideModel(const JobConfig& job, const std::string& job_file) {
  std::vector<InputFile> inputs = {{"the job file", job_file}};
  ExpandLimits limits;
  limits.keep_aliases = true;
  for (const auto* patterns : {&job.data().train_files(), &job.data().eval_files()}) {
    // Patterns that match nothing here are no error: the data may be on the cluster's hosts only.
    for (const std::string& file :
         ExpandFiles(*patterns, AllPlaces(), "", limits).value_or(std::vector<std::string>())) {
      inputs.push_back({"a data file of the job", file});
    }
  }
  return inputs;
}

absl::Status AsBadUsage(const absl::Status& status) {
  return status.ok() ? status : absl::InvalidArgumentError(status.message());
}

// Refuses a trace file that is also another output of the job.
absl::Status CheckTraceIsNoOther(const std::string& trace, const std::vector<OutputFile>& outputs) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (const OutputFile& other : outputs) {
    // Neither file need exist yet, so their paths are compared instead of their inodes.
    if (fs::weakly_canonical(other.path, error) != fs::weakly_canonical(trace, error)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("trace_file: ", trace,
                     " is a file of output_dir that the job writes; give another --trace"));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<InputFile> FilesOfModel(const std::string& model_dir, Env* env) {
  std::vector<InputFile> files;
  if (model_dir.empty()) return files;
  for (const std::string& name : env->List(model_dir).value_or(std::vector<std::string>())) {
    files.push_back({"a file of the model", absl::StrCat(model_dir, "/", name)});
  }
  return files;
}

std::vector<InputFile> InputsOf(const JobConfig& job, const std::string& job_file, Env* env) {
  std::vector<InputFile> inputs = InputsBesideModel(job, job_file);
  for (InputFile& file : FilesOfModel(job.initial_model(), env)) inputs.push_back(std::move(file));
  for (InputFile& file : FilesOfModel(job.initial_checkpoint(), env))
    inputs.push_back(std::move(file));
  return inputs;
}

absl::Status CheckIsNoInput(const std::string& flag, const std::string& output,
                            const std::vector<InputFile>& inputs) {
  for (const InputFile& input : inputs) {
    // Objects of stores have no other names.
    if (HasScheme(output) || HasScheme(input.path) ? output != input.path
                                                   : !IsSameFile(Env::Real(), output, input.path))
      continue;
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": ", output, " is ", input.what,
                     output == input.path ? "" : absl::StrCat(" (", input.path, ")"),
                     ", which would be lost; give another ", flag));
  }
  return absl::OkStatus();
}

absl::Status CheckJobKeepsInputs(const JobConfig& job, const std::string& job_file, Env* env) {
  const std::vector<InputFile> inputs = InputsOf(job, job_file, env);
  // A job may save its model over its initial model: the old model is replaced only when the new
  // one is complete.
  const std::vector<InputFile> beside_model = InputsBesideModel(job, job_file);
  const std::vector<OutputFile> outputs = OutputFilesOf(job.output_dir());
  for (const OutputFile& output : outputs) {
    SLUICE_RETURN_IF_ERROR(
        CheckIsNoInput("output_dir", output.path, output.of_model ? beside_model : inputs));
  }
  if (job.trace_file().empty()) return absl::OkStatus();
  SLUICE_RETURN_IF_ERROR(CheckIsNoInput("trace_file", job.trace_file(), inputs));
  return CheckTraceIsNoOther(job.trace_file(), outputs);
}

absl::Status CheckJobOutputs(const JobConfig& job, const std::string& job_file, Env* env) {
  // First, and whatever `overwrite` says: it allows replacing a file, but never an input.
  SLUICE_RETURN_IF_ERROR(CheckJobKeepsInputs(job, job_file, env));
  if (!job.output_dir().empty()) {
    SLUICE_RETURN_IF_ERROR(AsBadUsage(CheckOutputFolder(env, job.output_dir(), job.overwrite())));
  }
  if (job.trace_file().empty()) return absl::OkStatus();
  return AsBadUsage(
      CheckReplaceable(env, job.trace_file(), FileKind::kTrace, job.overwrite(), "trace_file"));
}

absl::Status CheckOutputFile(const std::string& flag, const std::string& output, bool overwrite,
                             const std::vector<InputFile>& inputs, Env* env) {
  SLUICE_RETURN_IF_ERROR(CheckIsNoInput(flag, output, inputs));
  // Writing into a pipe or device replaces nothing.
  if (ResolveOutput(output).in_place) return absl::OkStatus();
  return AsBadUsage(CheckNothingThere(env, output, overwrite, flag));
}

}  // namespace sluice::cli
