// Writes what the dashboard shows as JSON (docs/dashboard.md describes it).
//
// All texts are safe to show: control characters, and those that change the direction of text,
// become \xNN. Each list and each text has a bound, however large the cluster or long the job;
// `..._left_out` counts what a list lacks.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "scheduler/service/job_curves.h"

namespace sluice {

struct DashboardBounds {
  int jobs = 300;      // the newest
  int members = 1000;  // those that are alive first
  int workers = 1000;  // of a job
  int tables = 2000;   // of a job: a row for each table of each pserver
  int shards = 2000;   // of a job
  int warnings = 100;
  size_t text_bytes = 1000;
  size_t config_bytes = 128 << 10;
};

// What the scheduler knows of members beyond their status.
struct MemberFacts {
  std::string log_name;  // of its log in the scheduler's own folder of logs; "": it is not there
};

struct DashboardContext {
  absl::Time time;  // of day
  std::string version;
  std::function<MemberFacts(const MemberStatus& member)> facts;  // may be empty
  DashboardBounds bounds;
};

// The answer of /api/v1/jobs.
std::string JobsJson(const ClusterStatus& status, const DashboardContext& context);
// The answer of /api/v1/jobs/ID. `job`: one of `status`.
std::string JobJson(const ClusterStatus& status, const JobStatus& job,
                    const DashboardContext& context);
// The answer of /api/v1/jobs/ID/curves.
std::string CurvesJson(const std::string& job_id, const ThinCurves& curves, size_t most);
// {"error": message}
std::string ErrorJson(const std::string& message);
// The answer of /api/v1/logs/NAME. `text` may be any bytes; `size`: of the whole file.
std::string LogJson(const std::string& name, const std::string& path, uint64_t size,
                    const std::string& text);

}  // namespace sluice
