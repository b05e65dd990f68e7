// The scheduler's pages for people and scripts: the dashboard at / with its files below /page/, the
// JSON that it shows (/api/v1/jobs, /api/v1/jobs/ID, /api/v1/jobs/ID/curves), and the ends of logs
// (/api/v1/logs/NAME). docs/dashboard.md describes them.
//
// However many clients ask, the status is taken once a second at most, and an answer is written
// once from it.
//
// Logs are read only from the scheduler's own folder of logs, by the names that daemons give them:
// a member's word for where its log is opens no file.
//
// Memory: one status, its answers (kMostAnswers), and the curves of JobCurves.
//
// Thread safety: safe.
//
// Lock order: mutex_, then the locks of Options::status. Requests that come together wait for one
// status instead of taking one each.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/admin/admin_server.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "proto/scheduler.pb.h"
#include "scheduler/service/dashboard_json.h"
#include "scheduler/service/job_curves.h"

namespace sluice {

class Dashboard {
 public:
  static constexpr absl::Duration kStatusAge = absl::Seconds(1);
  static constexpr size_t kMostAnswers = 64;
  static constexpr size_t kLogBytes = 8 << 10;  // of the end of a log, unless asked for
  static constexpr size_t kMostLogBytes = 64 << 10;

  struct Options {
    std::function<ClusterStatus()> status;  // bounded
    const JobCurves* curves = nullptr;      // outlives this
    Env* env = nullptr;                     // outlives this
    Clock* clock = nullptr;                 // outlives this
    std::string log_dir;
    std::string host;
    std::string version;
  };
  explicit Dashboard(Options options) : options_(std::move(options)) {}

  // The page, or none if this is not the dashboard's.
  std::optional<AdminServer::Page> Answer(const AdminServer::PageQuery& query);

 private:
  AdminServer::Page OfJobs(const AdminServer::PageQuery& query);
  AdminServer::Page CurvesOf(const std::string& job_id, const AdminServer::PageQuery& query) const;
  AdminServer::Page LogOf(const std::string& name, const AdminServer::PageQuery& query) const;
  // Takes a new status if the present one is old.
  void Refresh() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  MemberFacts FactsOf(const MemberStatus& member) const;

  const Options options_;
  Mutex mutex_;
  ClusterStatus status_ ABSL_GUARDED_BY(mutex_);
  absl::Time taken_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::map<std::string, AdminServer::Page> answers_ ABSL_GUARDED_BY(mutex_);  // by path
};

}  // namespace sluice
