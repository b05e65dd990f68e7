#include "cli/output_files.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/base/file_origin.h"
#include "common/base/output_target.h"
#include "common/base/status_macros.h"
#include "model/data/data_source.h"

namespace sluice::cli {
namespace {

struct OutputFile {
  std::string what;
  std::string path;
  FileKind kind;
};

std::vector<OutputFile> OutputsOf(const JobConfig& job) {
  std::vector<OutputFile> outputs;
  std::string dir = job.output_dir();
  while (dir.size() > 1 && dir.back() == '/') dir.pop_back();
  if (!dir.empty()) {
    outputs.push_back({"output_dir", dir + "/job.textproto", FileKind::kJobConfig});
    outputs.push_back({"output_dir", dir + "/result.json", FileKind::kResult});
    outputs.push_back({"output_dir", dir + "/model_result.json", FileKind::kResult});
    outputs.push_back({"output_dir", dir + "/model/MANIFEST", FileKind::kManifest});
  }
  if (!job.trace_file().empty())
    outputs.push_back({"trace_file", job.trace_file(), FileKind::kTrace});
  return outputs;
}

// A job may save its model over the one that it starts from, which is put in place only when it is
// whole.
bool MayReplaceInput(const OutputFile& output) { return output.kind == FileKind::kManifest; }

absl::Status AsBadUsage(const absl::Status& status) {
  return status.ok() ? status : absl::InvalidArgumentError(status.message());
}

// Another output of the job would take the place of the trace.
absl::Status CheckTraceIsNoOther(const std::vector<OutputFile>& outputs) {
  namespace fs = std::filesystem;
  if (outputs.empty() || outputs.back().kind != FileKind::kTrace) return absl::OkStatus();
  std::error_code error;
  const std::string& trace = outputs.back().path;
  for (const OutputFile& other : outputs) {
    if (other.kind == FileKind::kTrace ||
        fs::weakly_canonical(other.path, error) != fs::weakly_canonical(trace, error))
      continue;
    return absl::InvalidArgumentError(
        absl::StrCat("trace_file: ", trace,
                     " is a file of output_dir that the job writes; give another --trace"));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<InputFile> FilesOfModel(const std::string& model_dir) {
  std::vector<InputFile> files;
  if (model_dir.empty()) return files;
  for (const std::string& name :
       Env::Real()->List(model_dir).value_or(std::vector<std::string>())) {
    files.push_back({"a file of the model", absl::StrCat(model_dir, "/", name)});
  }
  return files;
}

std::vector<InputFile> InputsOf(const JobConfig& job, const std::string& job_file) {
  std::vector<InputFile> inputs = FilesOfModel(job.initial_model());
  inputs.push_back({"the job file", job_file});
  for (const auto* patterns : {&job.data().train_files(), &job.data().eval_files()}) {
    for (const std::string& file : ExpandFiles(*patterns).value_or(std::vector<std::string>()))
      inputs.push_back({"a data file of the job", file});
  }
  return inputs;
}

absl::Status CheckIsNoInput(const std::string& flag, const std::string& output,
                            const std::vector<InputFile>& inputs) {
  for (const InputFile& input : inputs) {
    if (!IsSameFile(output, input.path)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": ", output, " is ", input.what,
                     output == input.path ? "" : absl::StrCat(" (", input.path, ")"),
                     ", which would be lost; give another ", flag));
  }
  return absl::OkStatus();
}

absl::Status CheckJobKeepsInputs(const JobConfig& job, const std::string& job_file) {
  const std::vector<InputFile> inputs = InputsOf(job, job_file);
  const std::vector<OutputFile> outputs = OutputsOf(job);
  for (const OutputFile& output : outputs) {
    if (MayReplaceInput(output)) continue;
    SLUICE_RETURN_IF_ERROR(CheckIsNoInput(output.what, output.path, inputs));
  }
  return CheckTraceIsNoOther(outputs);
}

absl::Status CheckJobOutputs(const JobConfig& job, const std::string& job_file) {
  SLUICE_RETURN_IF_ERROR(CheckJobKeepsInputs(job, job_file));
  for (const OutputFile& output : OutputsOf(job)) {
    SLUICE_RETURN_IF_ERROR(AsBadUsage(
        CheckReplaceable(Env::Real(), output.path, output.kind, job.overwrite(), output.what)));
  }
  return absl::OkStatus();
}

absl::Status CheckOutputFile(const std::string& flag, const std::string& output, bool overwrite,
                             const std::vector<InputFile>& inputs) {
  SLUICE_RETURN_IF_ERROR(CheckIsNoInput(flag, output, inputs));
  if (ResolveOutput(output).in_place) return absl::OkStatus();
  return AsBadUsage(CheckNothingThere(Env::Real(), output, overwrite, flag));
}

}  // namespace sluice::cli
