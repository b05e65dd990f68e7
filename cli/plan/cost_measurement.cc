#include "cli/plan/cost_measurement.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/cluster/local_cluster.h"
#include "cli/plan/data_sample.h"
#include "cli/plan/dense_exchange.h"
#include "cli/plan/measured_job.h"
#include "cli/plan/step_costs.h"
#include "cli/screen/format.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/config/mode.h"

namespace sluice::plan {
namespace {

// A second run with this many pservers shows what each further one costs: its frames.
constexpr int kManyPservers = 4;
// Read before the measured job starts, so this is the load of other processes.
constexpr double kBusyShare = 0.5;  // of the cores

class TemporaryFolder {
 public:
  static absl::StatusOr<std::unique_ptr<TemporaryFolder>> Create() {
    std::error_code error;
    std::string path =
        (std::filesystem::temp_directory_path(error) / "sluice_plan_XXXXXX").string();
    if (error || mkdtemp(path.data()) == nullptr) {
      return absl::UnavailableError(
          absl::StrCat("cannot make the folder ", path, "; let TMPDIR name a writable folder"));
    }
    return std::unique_ptr<TemporaryFolder>(new TemporaryFolder(path));
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

class Measurement {
 public:
  Measurement(const JobConfig& job, const MeasurementOptions& options, std::string folder)
      : job_(job), options_(options), folder_(std::move(folder)) {}

  absl::StatusOr<PlanCosts> Run() {
    const std::string data = folder_ + "/data";
    std::filesystem::create_directories(data);
    SLUICE_ASSIGN_OR_RETURN(sample_, CopyBeginning(job_, data, options_.sample_bytes));
    const Mode mode = ModeOf(job_.strategy());
    // The costs of a step are measured without the k_steps of Geo, which has costs of its own.
    const Mode base = mode == Mode::kGeo ? Mode::kAsync : mode;
    const double seconds = options_.seconds;
    // Half of the time for the run from which most costs come; the others only add to it.
    SLUICE_ASSIGN_OR_RETURN(const MeasuredRun one, RunJob(base, 1, seconds / 2));
    costs_ = StepCosts(job_, sample_, one);
    SetMeasurer(one);
    SLUICE_ASSIGN_OR_RETURN(const MeasuredRun many, RunJob(base, kManyPservers, seconds / 4));
    SetFrameCosts(one, many, kManyPservers, &costs_);
    if (!options_.with_geo) return costs_;
    // A job that Geo cannot train still gets a plan for the other modes, unless Geo is its own.
    const absl::StatusOr<MeasuredRun> geo = RunJob(Mode::kGeo, 1, seconds / 4);
    if (geo.ok()) {
      SetGeoCosts(MeansOf(geo->readings), k_steps(), &costs_);
    } else if (absl::IsInvalidArgument(geo.status()) && mode != Mode::kGeo) {
      options_.cluster.note(absl::StrCat("Geo is not predicted: ", geo.status().message()));
    } else {
      return geo.status();
    }
    return costs_;
  }

 private:
  uint32_t k_steps() const {
    return ModeOf(job_.strategy()) == Mode::kGeo ? KSteps(job_.strategy()) : options_.geo_k_steps;
  }

  absl::StatusOr<MeasuredRun> RunJob(Mode mode, int pservers, double seconds) {
    const std::string folder = absl::StrCat(folder_, "/", ModeName(mode), "-", pservers);
    std::filesystem::create_directories(folder);
    SLUICE_ASSIGN_OR_RETURN(const JobConfig job,
                            MeasuredJob(job_, mode, k_steps(), sample_.patterns, folder));
    const bool moved = mode == Mode::kSync && WorkersKeepDenseTables(job_);
    options_.cluster.note(absl::StrFormat("measures %s with %s%s for %.1f s", ModeName(mode),
                                          cli::Counted(static_cast<uint64_t>(pservers), "pserver"),
                                          moved ? (pservers == 1 ? ", which keeps the dense tables,"
                                                                 : ", which keep the dense tables,")
                                                : "",
                                          seconds));
    auto run = RunShortJob(job, pservers, seconds, options_.cluster, folder);
    if (!run.ok()) return WithSourceNames(run.status(), sample_);
    return run;
  }

  void SetMeasurer(const MeasuredRun& run) {
    // Without a fixed number, a worker would use all cores of its host, so predictions must scale
    // its computing.
    costs_.set_fixed_threads(job_.train().threads() > 0);
    costs_.set_worker_threads(costs_.fixed_threads()
                                  ? job_.train().threads()
                                  : static_cast<uint32_t>(cli::ThreadsPerWorker(1)));
    costs_.set_pserver_threads(static_cast<uint32_t>(options_.cluster.server_threads));
    costs_.set_cores(std::max(1u, std::thread::hardware_concurrency()));
    costs_.set_transport(run.shared_memory ? "shm" : "grpc");
    costs_.set_tls(options_.cluster.tls);
  }

  const JobConfig& job_;
  const MeasurementOptions& options_;
  const std::string folder_;
  DataSample sample_;
  PlanCosts costs_;
};

}  // namespace

absl::StatusOr<PlanCosts> MeasureCosts(const JobConfig& job, const MeasurementOptions& options) {
  // A busy host makes all costs too high, and a plan with too few workers would follow.
  double load = 0;  // processes that run or wait for a core, on average over the last minute
  if (getloadavg(&load, 1) == 1 && load > kBusyShare * std::thread::hardware_concurrency()) {
    options.cluster.note(
        absl::StrFormat("warning: other processes use this host (load average %.1f), so the job is "
                        "measured slower than it is; measure on an idle host",
                        load));
  }
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<TemporaryFolder> folder, TemporaryFolder::Create());
  SLUICE_ASSIGN_OR_RETURN(PlanCosts costs, Measurement(job, options, folder->path()).Run());
  SLUICE_RETURN_IF_ERROR(SetDenseExchange(job, &costs));
  return costs;
}

}  // namespace sluice::plan
