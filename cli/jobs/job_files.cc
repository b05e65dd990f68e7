#include "cli/jobs/job_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/clock.h"
#include "common/base/file_lock.h"
#include "common/base/local_path.h"
#include "common/base/status_macros.h"
#include "common/config/data_format.h"
#include "common/config/job_config.h"
#include "common/config/mode.h"
#include "common/config/own_data.h"
#include "common/places/places_env.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/unfinished_run.h"
#include "model/built_in_models.h"
#include "model/data/data_source.h"
#include "model/data/expand_files.h"
#include "model/model_match.h"
#include "model/model_spec.h"
#include "model/resume_match.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

// How much of a file on a store or a server is read to see how fast its place is.
constexpr uint64_t kFirstMeasuredBytes = 256 << 10, kMostMeasuredBytes = 8 << 20;
constexpr double kSlowBytesPerSecond = 1e6;

absl::Status CheckMatches(const std::string& field,
                          const google::protobuf::RepeatedPtrField<std::string>& patterns) {
  const absl::Status found = ExpandFiles(patterns, AllPlaces()).status();
  // Other errors, such as a folder that this user may not list, need not concern the cluster's
  // hosts.
  // A store or a server that refuses a file to this host usually refuses it to all.
  const bool of_place = std::any_of(patterns.begin(), patterns.end(),
                                    [](const std::string& one) { return HasScheme(one); });
  if (!absl::IsNotFound(found) && !absl::IsInvalidArgument(found) && (found.ok() || !of_place))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", found.message()));
}

absl::Status CheckReadable(const std::string& field,
                           const google::protobuf::RepeatedPtrField<std::string>& patterns,
                           const std::string& base) {
  const auto files = ExpandFiles(patterns, AllPlaces(), base);
  if (!files.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": ", files.status().message()));
  }
  // Readable now does not mean readable later, but most mistakes are found before anything starts.
  for (const std::string& file : *files) {
    if (HasScheme(file)) continue;  // found there; its first bytes are read with the others below
    struct stat info;
    if (stat(file.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ": ", file, " is ",
                       S_ISFIFO(info.st_mode)   ? "a pipe"
                       : S_ISSOCK(info.st_mode) ? "a socket"
                                                : "no regular file",
                       ", and data is read several times and in pieces; copy it to a file"));
    }
    if (access(file.c_str(), R_OK) == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(field, ": cannot read ", file, ": ",
                                                   std::strerror(errno),
                                                   "; give a file that this user may read"));
  }
  return absl::OkStatus();
}

// Checks the first file that the patterns match; OK when this host has none that can be read.
absl::Status CheckColumns(const std::string& field, const DataSource& data,
                          const google::protobuf::RepeatedPtrField<std::string>& patterns) {
  const auto files = ExpandFiles(patterns, AllPlaces());
  if (!files.ok() || files->empty()) return absl::OkStatus();
  if (!HasScheme(files->front()) && access(files->front().c_str(), R_OK) != 0)
    return absl::OkStatus();
  // One header shows a wrong format. Reading those of thousands of files would delay every
  // submission.
  const absl::Status columns = data.CheckColumns(files->front(), /*need_label=*/true);
  return columns.ok() ? columns
                      : absl::InvalidArgumentError(absl::StrCat(field, ": ", columns.message()));
}

absl::Status NoOutput(const std::string& folder, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("output_dir: cannot write to ", folder, ": ", why,
                                                 "; give a writable --output_dir"));
}

// Returns the error for something that cannot be written. `why` is the system's reason.
using Refusal = std::function<absl::Status(const std::string& why)>;

// Returns `path`, or the innermost folder around it that exists.
fs::path Innermost(fs::path path) {
  std::error_code error;
  while (path.has_relative_path() && !fs::exists(path, error)) path = path.parent_path();
  return path;
}

// Creates and removes a probe folder in the innermost folder that exists. Tries again when that
// folder vanishes: another command may be creating or removing folders at the same time.
absl::Status CheckWritable(const std::string& folder, const Refusal& refuse) {
  constexpr int kTries = 100;
  std::error_code error;
  const fs::path absolute = fs::absolute(folder, error);
  for (int i = 0; i < kTries; ++i) {
    const std::string probe =
        absl::StrCat(Innermost(absolute).string(), "/.sluice-probe.", getpid());
    // A probe shows more than access(2) does, such as a full file system or mapped users (NFS).
    if (mkdir(probe.c_str(), 0700) == 0) {
      rmdir(probe.c_str());
      return absl::OkStatus();
    }
    // An earlier process with this pid was killed and left its probe.
    if (errno == EEXIST && rmdir(probe.c_str()) == 0) continue;
    if (errno != ENOENT) break;
  }
  return refuse(std::strerror(errno));
}

// Credentials, and the names of bucket and region. Whether the store lets the job write, and heeds
// conditions, is for the scheduler to find out.
absl::Status CheckStore(const std::string& folder) {
  const absl::Status listed = AllPlaces()->List(folder).status();
  if (listed.ok() || absl::IsNotFound(listed)) return absl::OkStatus();
  return NoOutput(folder, std::string(listed.message()));
}

absl::Status NoTrace(const std::string& file, const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat("trace_file: cannot write ", file, ": ", why, "; give a writable --trace=FILE"));
}

absl::Status CheckTraceWritable(const std::string& file) {
  if (file.empty() || HasScheme(file)) return absl::OkStatus();
  std::error_code error;
  if (fs::is_directory(file, error)) return NoTrace(file, "it is a folder");
  return CheckWritable(fs::path(file).parent_path().string(),
                       [&](const std::string& why) { return NoTrace(file, why); });
}

// How many bytes of a file were read, and in what time, to see how fast its place is.
struct Measured {
  uint64_t bytes = 0;
  double seconds = 0;
};

// Reads a file from its beginning until about a second has gone or `most_bytes` were read. Nothing
// when it cannot be read.
Measured MeasurePlace(const std::string& path, uint64_t most_bytes) {
  const auto reader = AllPlaces()->NewReader(path);
  if (!reader.ok()) return {};
  Measured measured;
  std::string buffer(kFirstMeasuredBytes, '\0');
  const absl::Time begin = Clock::Real()->Now();
  while (measured.bytes < most_bytes && measured.seconds < 1) {
    // A reader that expects more fetches whole parts, and several at once. So it is told only after
    // a little was read, and of no more than would take as long again.
    if (measured.bytes >= buffer.size())
      (*reader)->ExpectEnd(std::min(2 * measured.bytes, most_bytes));
    const auto read = (*reader)->ReadAt(measured.bytes, &buffer[0],
                                        buffer.size() - measured.bytes % buffer.size());
    if (!read.ok()) return {};
    if (*read == 0) break;
    measured.bytes += *read;
    measured.seconds = absl::ToDoubleSeconds(Clock::Real()->Now() - begin);
  }
  return measured;
}

// Tells of a place that is slow, and how long a sync job counts lines there before its first step.
// Formats of rows are not counted, since the ends of their files tell, and most of a file may be
// columns that nobody reads.
void TellOfPlaces(const JobConfig& job, const TellLine& tell) {
  const bool rows = FormatOf(job.data()).rows;
  const std::string field = job.evaluate_only() ? "data.eval_files" : "data.train_files";
  const auto files = ExpandFiles(
      job.evaluate_only() ? job.data().eval_files() : job.data().train_files(), AllPlaces());
  if (!files.ok()) return;
  uint64_t bytes = 0;
  std::string largest;
  uint64_t largest_bytes = 0;
  for (const std::string& file : *files) {
    if (!HasScheme(file)) continue;
    const uint64_t size = AllPlaces()->FileSize(file).value_or(0);
    bytes += size;
    if (size > largest_bytes) largest = file, largest_bytes = size;
  }
  if (bytes == 0) return;
  const Measured measured = MeasurePlace(largest, rows ? kFirstMeasuredBytes : kMostMeasuredBytes);
  if (measured.bytes == 0) return;
  const double rate = static_cast<double>(measured.bytes) / std::max(measured.seconds, 1e-6);
  // The first requests to a fast place can take most of half a second.
  if (measured.seconds > 0.5 && rate < kSlowBytesPerSecond) {
    tell(absl::StrFormat(
        "warning: %s: %s is slow from this host: %.0f bytes/s (%d bytes of %s in %.1f s); workers "
        "with such a network wait for their data. Check the network, AWS_ENDPOINT_URL and "
        "HTTPS_PROXY, or copy the files to a place that is nearer",
        field, largest.substr(0, largest.find('/', largest.find("://") + 3)), rate, measured.bytes,
        largest, measured.seconds));
  }
  if (rows || job.evaluate_only() || ModeOf(job.strategy()) != Mode::kSync) return;
  tell(absl::StrFormat(
      "note: %s: sync training reads all %d bytes once before its first step, to count their lines "
      "(about %.0f s at this host's speed, shared by the workers), unless an earlier job has "
      "counted them; async does not",
      field, bytes, static_cast<double>(bytes) / rate));
}

// Checks that the job can start from its initial model or checkpoint.
absl::Status CheckStart(const JobConfig& job, Env* env) {
  SLUICE_RETURN_IF_ERROR(CheckInitialModel(job, BuiltInSpecs(), env).status());
  return CheckInitialCheckpoint(job, BuiltInSpecs(), env).status();
}

}  // namespace

JobConfig JobToCheck(const SubmitJobRequest& request) {
  JobConfig job = request.config();
  if (request.resume()) job.clear_initial_checkpoint();
  return job;
}

absl::Status CheckDataLines(const JobConfig& job, Env* env, const DataCheckOptions& options,
                            DataCheckReport* report, const TellLine& tell) {
  if (ProgramGivesData(job)) return absl::OkStatus();
  if (tell != nullptr) TellOfPlaces(job, tell);
  SLUICE_ASSIGN_OR_RETURN(const auto model, ModelSpec::Create(job, BuiltInSpecs()));
  *report = CheckData(job, model->schema(), AllPlaces(), Clock::Real(), options);
  if (report->errors.empty()) return absl::OkStatus();
  if (report->errors.size() == 1) return absl::InvalidArgumentError(report->errors.front());
  return absl::InvalidArgumentError(
      absl::StrCat("the data does not match the job file; most likely cause first:\n  ",
                   absl::StrJoin(report->errors, "\n  ")));
}

absl::Status CheckWhatIsHere(const JobConfig& job, Env* env) {
  SLUICE_ASSIGN_OR_RETURN(const auto model, ModelSpec::Create(job, BuiltInSpecs()));
  if (ProgramGivesData(job)) return CheckStart(job, env);
  SLUICE_ASSIGN_OR_RETURN(const auto data,
                          DataSource::Create(job.data(), model->schema(), AllPlaces()));
  if (!job.evaluate_only())
    SLUICE_RETURN_IF_ERROR(CheckColumns("data.train_files", *data, job.data().train_files()));
  SLUICE_RETURN_IF_ERROR(CheckColumns("data.eval_files", *data, job.data().eval_files()));
  return CheckStart(job, env);
}

absl::Status CheckKeepsUnfinished(const SubmitJobRequest& request, Env* env) {
  const JobConfig& job = request.config();
  if (request.resume() || job.overwrite() || !CanCheckpoint(job)) return absl::OkStatus();
  const absl::Status kept = CheckNoUnfinishedRun(CheckpointRoot(job), job, env);
  if (kept.ok()) return kept;
  // A job that still runs can be neither continued nor overwritten. Its scheduler holds the locks
  // of its folders.
  for (const std::string& dir : {job.output_dir(), job.checkpoint().dir()}) {
    if (dir.empty() || !absl::IsAlreadyExists(FolderLock::Take(dir, env).status())) continue;
    return absl::AlreadyExistsError(absl::StrCat(
        "a job that has not ended writes to ", dir,
        " (sluice status names it); wait for its end, cancel it, or give another --output_dir"));
  }
  return kept;
}

absl::Status CheckCanResume(const SubmitJobRequest& request, Env* env) {
  if (!request.resume()) return absl::OkStatus();
  std::vector<std::string> skipped;
  const auto found = FindCheckpointToResume(request, env, &skipped);
  if (found.ok()) {
    // Without one the job starts from its initial_checkpoint, of which only the scheduler knows.
    if (!found->has_value() && !request.config().initial_checkpoint().empty())
      return absl::OkStatus();
    SLUICE_ASSIGN_OR_RETURN(const auto model, ModelSpec::Create(request.config(), BuiltInSpecs()));
    std::vector<TableConfig> tables = model->tables();
    return FixShards(found->has_value() ? &(*found)->checkpoint.manifest : nullptr, &tables);
  }
  // Other errors, such as a folder that this user may not read, need not concern the scheduler.
  if (!absl::IsInvalidArgument(found.status()) && !absl::IsDataLoss(found.status()))
    return absl::OkStatus();
  return absl::InvalidArgumentError(found.status().message());
}

absl::Status CheckDataIsHere(const JobConfig& job) {
  if (!job.evaluate_only())
    SLUICE_RETURN_IF_ERROR(CheckMatches("data.train_files", job.data().train_files()));
  return CheckMatches("data.eval_files", job.data().eval_files());
}

std::vector<std::string> WarningsOf(const SubmitJobRequest& request, Env* env) {
  const JobConfig job = JobToCheck(request);
  std::vector<std::string> warnings =
      WarnOfFilesNamedAgain(job, AllPlaces()).value_or(std::vector<std::string>());
  for (const auto& start : {CheckInitialModel(job, BuiltInSpecs(), env),
                            CheckInitialCheckpoint(job, BuiltInSpecs(), env)}) {
    if (start.ok()) warnings.insert(warnings.end(), start->warnings.begin(), start->warnings.end());
  }
  if (request.resume()) {
    const auto found = FindCheckpointToResume(request, env, &warnings);
    if (found.ok() && !*found) warnings.push_back(NoCheckpointToResume(job));
  }
  return warnings;
}

std::vector<std::string> NotesOf(const SubmitJobRequest& request, Env* env) {
  std::vector<std::string> notes, skipped;
  const JobConfig& job = request.config();
  // A job that continues takes nothing from what it once started from.
  if (request.resume() && FindCheckpointToResume(request, env, &skipped).value_or(std::nullopt))
    return notes;
  for (const auto& start : {CheckInitialModel(job, BuiltInSpecs(), env),
                            CheckInitialCheckpoint(job, BuiltInSpecs(), env)}) {
    if (start.ok()) notes.insert(notes.end(), start->notes.begin(), start->notes.end());
  }
  return notes;
}

absl::Status CheckJobFiles(const JobConfig& job, const std::string& default_output, Env* env,
                           DataCheckReport* data, const TellLine& tell) {
  // Messages have the absolute paths that relative ones have become.
  const std::string base = job.model().has_program()
                               ? "the program's current folder, or base_dir= of its sluice.Job"
                               : "the folder of the job file";
  if (!job.evaluate_only()) {
    SLUICE_RETURN_IF_ERROR(CheckReadable("data.train_files", job.data().train_files(), base));
  }
  SLUICE_RETURN_IF_ERROR(CheckReadable("data.eval_files", job.data().eval_files(), base));
  if (!job.initial_model().empty()) {
    // Only a missing model is explained here. CheckStart below reports a damaged one.
    const absl::Status model = ReadManifest(job.initial_model(), env).status();
    if (absl::IsNotFound(model)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "initial_model: ", model.message(), "; a relative path is resolved against ", base));
    }
  }
  if (!job.initial_checkpoint().empty()) {
    const absl::Status found =
        FindCheckpoint(job.initial_checkpoint(), /*verify=*/false, env, nullptr).status();
    if (!found.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "initial_checkpoint: ", found.message(),
          absl::IsNotFound(found) ? absl::StrCat("; a relative path is resolved against ", base)
                                  : ""));
    }
  }
  SLUICE_RETURN_IF_ERROR(CheckDataLines(job, env, DataCheckOptions(), data, tell));
  SLUICE_RETURN_IF_ERROR(CheckStart(job, env));
  const std::string& output = job.output_dir().empty() ? default_output : job.output_dir();
  SLUICE_RETURN_IF_ERROR(HasScheme(output) ? CheckStore(output)
                                           : CheckWritable(output, [&](const std::string& why) {
                                               return NoOutput(output, why);
                                             }));
  return CheckTraceWritable(job.trace_file());
}

absl::Status CheckOutputIsNoFile(const JobConfig& job) {
  std::error_code error;
  // The output need not exist yet. A file on the way to it would make creating it fail.
  const fs::path output = Innermost(job.output_dir());
  if (!HasScheme(job.output_dir()) && fs::exists(output, error) && !fs::is_directory(output, error))
    return NoOutput(job.output_dir(), absl::StrCat(output.string(), " is a file"));
  if (HasScheme(job.trace_file())) return absl::OkStatus();
  const fs::path trace = job.trace_file();
  if (fs::is_directory(trace, error)) return NoTrace(trace.string(), "it is a folder");
  const fs::path around = Innermost(trace.parent_path());
  if (fs::exists(around, error) && !fs::is_directory(around, error))
    return NoTrace(trace.string(), absl::StrCat(around.string(), " is a file"));
  return absl::OkStatus();
}

}  // namespace sluice::cli
