// What one job leaves behind: OUTPUT_DIR/job.textproto at the start, its curve, its trace, and at
// the end the model put in force and result.json.
//
// Invariants: what an earlier job left is touched only when its successor is complete: the model
// when this job is done and has saved one, the curve when it is done and has trained, the result
// when it has ended. A job that ends without a model keeps the result of the model's job as
// model_result.json. Files that Sluice did not write are replaced only when the job says
// `overwrite`. The folder is locked while the job writes to it: a job of another scheduler, or one
// that names the folder by another path, fails and leaves it as it is.
//
// Thread safety: one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/base/env.h"
#include "common/base/folder_lock.h"
#include "scheduler/curve_files.h"
#include "scheduler/output_action.h"
#include "scheduler/trace_file.h"

namespace sluice {

class JobFolder {
 public:
  // Warns of a trace that could not be gone on with, because of `why`.
  static std::string TraceWarning(const absl::Status& why);

  // `host`: in the event file's name; traces have its clock. `env` outlives the folder.
  JobFolder(Env* env, std::string host) : env_(env), host_(std::move(host)) {}

  absl::Status Begin(const OutputAction& started);
  absl::Status AddScalars(const OutputAction& scalars);
  // Not OK: the trace ends here. Said once, and in the warnings of the result.
  absl::Status AddTrace(const OutputAction& spans);
  // Also of a job that never began. OK without writing anything when Begin was refused.
  absl::Status End(const OutputAction& ended);

 private:
  absl::Status Claim(const JobConfig& config);
  absl::Status WriteResult(const JobConfig& config, const JobResult& result);

  Env* const env_;
  const std::string host_;
  std::optional<FolderLock> lock_;
  bool refused_ = false;  // the folder is another's, or holds files that are not Sluice's
  std::unique_ptr<CurveFiles> curve_;
  std::unique_ptr<TraceFile> trace_;  // null: none is asked for, or it could not be gone on with
  std::string trace_warning_;         // why it could not be gone on with; "": it could
};

}  // namespace sluice
