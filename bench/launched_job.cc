#include "bench/launched_job.h"

#include <fcntl.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/standard_model.h"
#include "common/base/status_macros.h"

namespace sluice::bench {
namespace {

std::filesystem::path ProgramFolder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

// Runs a program from this program's folder to its end. Its output goes to `log`. Returns its exit
// code.
int RunProgram(const std::string& program, const std::vector<std::string>& arguments,
               const std::string& log) {
  const std::string path = (ProgramFolder() / program).string();
  std::vector<char*> argv = {const_cast<char*>(path.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (out >= 0) {
      dup2(out, STDOUT_FILENO);
      dup2(out, STDERR_FILENO);
    }
    execv(path.c_str(), argv.data());
    _exit(127);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return 127;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

std::string ReadAll(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

absl::StatusOr<std::shared_ptr<TemporaryFolder>> GeneratedData(uint64_t examples) {
  static std::weak_ptr<TemporaryFolder> shared;
  if (auto data = shared.lock()) return data;
  SLUICE_ASSIGN_OR_RETURN(std::shared_ptr<TemporaryFolder> data, TemporaryFolder::Create());
  SLUICE_RETURN_IF_ERROR(WriteStandardData(data->path(), examples, 4));
  shared = data;
  return data;
}

}  // namespace

absl::StatusOr<TrainData> DataFor(const Settings& settings) {
  TrainData data{nullptr, settings.train_data};
  if (!data.files.empty()) return data;
  SLUICE_ASSIGN_OR_RETURN(data.made, GeneratedData(settings.quick ? 4000 : 300000));
  data.files = data.made->path() + "/*.tsv";
  return data;
}

absl::StatusOr<JobFile> WriteJob(const JobConfig& job, const TrainData& data) {
  SLUICE_ASSIGN_OR_RETURN(std::shared_ptr<TemporaryFolder> folder, TemporaryFolder::Create());
  JobFile file{folder->path() + "/job.textproto", {folder, data.made}};
  std::string text;
  google::protobuf::TextFormat::PrintToString(job, &text);
  std::ofstream out(file.path);
  out << text;
  out.close();
  if (!out) return absl::UnavailableError("cannot write " + file.path);
  return file;
}

absl::StatusOr<JobFile> AdultJob() {
  constexpr char kPath[] = "configs/adult_wide_deep.textproto";
  for (std::filesystem::path folder = ProgramFolder();; folder = folder.parent_path()) {
    std::error_code unreadable;
    if (std::filesystem::exists(folder / kPath, unreadable))
      return JobFile{(folder / kPath).string(), {}};
    if (folder == folder.root_path()) break;
  }
  return absl::NotFoundError(
      absl::StrCat("no folder above ", ProgramFolder().string(), " has ", kPath));
}

LaunchedJob::LaunchedJob(JobFile job, std::vector<std::string> flags, int epochs)
    : job_(std::move(job)), flags_(std::move(flags)), epochs_(epochs) {}

double LaunchedJob::Measure() const {
  const absl::StatusOr<double> rate = ExamplesPerSecond();
  if (rate.ok()) return *rate / 1e3;
  std::fprintf(stderr, "%s\n", rate.status().ToString().c_str());
  return 0;
}

absl::StatusOr<double> LaunchedJob::ExamplesPerSecond() const {
  SLUICE_ASSIGN_OR_RETURN(const std::shared_ptr<TemporaryFolder> folder, TemporaryFolder::Create());
  const std::string dir = folder->path();
  std::vector<std::string> arguments = {
      "launch", absl::StrCat("--job=", job_.path), absl::StrCat("--epochs=", epochs_),
      absl::StrCat("--output_dir=", dir, "/out"), absl::StrCat("--log_dir=", dir, "/log")};
  arguments.insert(arguments.end(), flags_.begin(), flags_.end());
  const int code = RunProgram("sluice", arguments, dir + "/printed");
  if (code != 0) {
    return absl::InternalError(
        absl::StrCat("sluice launch ended with ", code, ": ", ReadAll(dir + "/printed")));
  }
  google::protobuf::Struct result;
  if (!google::protobuf::util::JsonStringToMessage(ReadAll(dir + "/out/result.json"), &result)
           .ok()) {
    return absl::InternalError("sluice launch wrote no result.json");
  }
  const auto& log = result.fields().at("epochs_log").list_value();
  double examples = 0, seconds = 0;
  for (int i = std::min(1, log.values_size() - 1); i < log.values_size(); ++i) {
    const auto& epoch = log.values(i).struct_value().fields();
    examples += epoch.at("examples").number_value();
    seconds += epoch.at("seconds").number_value();
  }
  return examples / seconds;
}

}  // namespace sluice::bench
