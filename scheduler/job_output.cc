#include "scheduler/job_output.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "scheduler/result_json.h"

namespace sluice {

JobOutput::JobOutput(Options options) : options_(std::move(options)), thread_([this] { Loop(); }) {}

void JobOutput::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void JobOutput::Add(std::vector<OutputAction> actions) {
  if (actions.empty()) return;
  MutexLock lock(&mutex_);
  for (OutputAction& action : actions) queue_.push_back(std::move(action));
  changed_.NotifyAll();
}

void JobOutput::Loop() {
  for (;;) {
    OutputAction action;
    {
      MutexLock lock(&mutex_);
      while (queue_.empty() && !stopping_) changed_.Wait(&mutex_);
      if (queue_.empty()) return;
      action = std::move(queue_.front());
      queue_.pop_front();
    }
    Write(action);
  }
}

void JobOutput::Write(const OutputAction& action) {
  if (action.kind == OutputAction::kEnded) {
    options_.on_ended(action.job_id, End(action));
    return;
  }
  if (action.kind == OutputAction::kTrace) return AddTrace(action);
  const absl::Status status =
      action.kind == OutputAction::kStarted ? Begin(action) : AddScalars(action);
  Open& open = open_[action.job_id];
  if (status.ok() || open.failed) return;
  open.failed = true;
  options_.on_failed(action.job_id, status);
}

namespace {

absl::Status NoOutput(const std::string& dir, const absl::Status& why) {
  return absl::Status(why.code(), absl::StrCat("cannot write to output_dir ", dir, ": ",
                                               why.message(), "; give a writable --output_dir"));
}

// What an earlier job left and nobody should take for this one's: its result, its curves
// (TensorBoard would draw both as one) and, unless this job starts from it, its model.
absl::Status RemoveEarlier(Env* env, const JobConfig& config) {
  const std::string& dir = config.output_dir();
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> names, env->List(dir));
  for (const std::string& name : names) {
    if (!absl::StartsWith(name, EventFile::kPrefix) && name != "result.json") continue;
    SLUICE_RETURN_IF_ERROR(env->RemoveFile(absl::StrCat(dir, "/", name)));
  }
  const std::string model = dir + "/model";
  if (config.initial_model() == model) return absl::OkStatus();
  const absl::Status removed = env->RemoveFile(model + "/MANIFEST");  // what makes it a model
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

}  // namespace

absl::Status JobOutput::Begin(const OutputAction& action) {
  const std::string& dir = action.config.output_dir();
  if (const absl::Status made = options_.env->MakeDirs(dir); !made.ok()) return NoOutput(dir, made);
  Open& open = open_[action.job_id];
  auto folder = FolderLock::Take(dir);
  open.taken = absl::IsAlreadyExists(folder.status());
  if (open.taken) {
    return absl::AlreadyExistsError(
        absl::StrCat("another job, which has not ended, writes to the same output_dir ", dir,
                     "; give another --output_dir"));
  }
  if (!folder.ok()) return NoOutput(dir, folder.status());
  open.folder.emplace(*std::move(folder));
  const std::string text = ToTextproto(action.config);
  const absl::Status written =
      options_.env->WriteFile(dir + "/job.textproto", {absl::string_view(text)});
  if (!written.ok()) return NoOutput(dir, written);
  if (const absl::Status removed = RemoveEarlier(options_.env, action.config); !removed.ok())
    return NoOutput(dir, removed);
  SLUICE_ASSIGN_OR_RETURN(open.events, EventFile::Create(dir, options_.host, action.time));
  if (!action.config.trace_file().empty()) {
    SLUICE_ASSIGN_OR_RETURN(
        open.trace, TraceFile::Create(action.config.trace_file(), action.job_id, options_.host));
  }
  return open.events->Flush();
}

void JobOutput::AddTrace(const OutputAction& action) {
  std::unique_ptr<TraceFile>& trace = open_[action.job_id].trace;
  if (trace == nullptr) return;  // its failure was reported
  const absl::Status status = trace->Add(action.trace);
  if (status.ok()) return;
  trace = nullptr;
  options_.on_trace_failed(action.job_id, status);
}

absl::Status JobOutput::AddScalars(const OutputAction& action) {
  EventFile* events = open_[action.job_id].events.get();
  if (events == nullptr) return absl::OkStatus();  // its failure was reported
  for (const Scalar& point : action.scalars) {
    events->Add(action.time, point.step, point.tag, point.value);
  }
  return events->Flush();
}

absl::Status JobOutput::End(const OutputAction& action) {
  Open open = std::move(open_[action.job_id]);  // unlocked when all is written
  open_.erase(action.job_id);
  open.events = nullptr;
  open.trace = nullptr;
  if (open.taken) return absl::OkStatus();
  const std::string& dir = action.config.output_dir();
  if (const absl::Status made = options_.env->MakeDirs(dir); !made.ok()) return NoOutput(dir, made);
  const std::string json = ResultJson(action.result, action.config);
  return options_.env->WriteFile(dir + "/result.json", {absl::string_view(json)});
}

}  // namespace sluice
