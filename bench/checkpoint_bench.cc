// checkpoint/save/2GiB: MiB a second at which a pserver writes a checkpoint of a table of 2 GiB
// (rows of 16 floats with AdaGrad's state) while nothing trains. The limit writes as many bytes to
// one file, both with fsync.
// checkpoint/restore/2GiB: MiB a second at which a pserver opens a job from that checkpoint. The
// limit reads the files from beginning to end. The files are not in the page cache.
// checkpoint/stall/2GiB: the time that training loses to one checkpoint, in percent of the default
// interval (checkpoint.every_s). A thread trains without a pause, in process: it pulls and pushes
// batches of uniform keys. The limit is 5, the goal.
// checkpoint/pull_p99/2GiB: us of the 99th percentile of those pulls while the checkpoint is
// written. The limit is the same without one.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/suite.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"
#include "common/saved_model/checkpoint.h"
#include "common/table/placement.h"
#include "server/checkpoints/cut_writer.h"
#include "server/checkpoints/job_cuts.h"
#include "server/checkpoints/model_loader.h"
#include "server/service/available_memory.h"
#include "server/tables/job_opener.h"

namespace sluice::bench {
namespace {

constexpr uint32_t kDim = 16, kShards = 16, kCheckpointBatch = 2048;
constexpr uint64_t kInstance = 1;
constexpr uint64_t kRows = (uint64_t{2} << 30) / (2 * kDim * sizeof(float));
constexpr double kMiB = 1 << 20, kInterval = 600, kTrainSeconds = 3;
constexpr char kAddress[] = "pserver0";

JobSpec Spec() {
  JobSpec spec;
  spec.set_job_id("bench-1");
  spec.set_instance(kInstance);
  spec.set_worker_num(1);
  spec.mutable_config()->mutable_strategy()->set_a_sync(true);
  TableConfig* const table = spec.add_tables();
  table->set_name("embedding");
  table->set_kind(TableConfig::SPARSE);
  table->set_num_shards(kShards);
  ColumnGroup* const column = table->add_columns();
  column->set_name("embedding");
  column->set_dim(kDim);
  column->mutable_optimizer()->set_learning_rate(0.01f);
  column->mutable_optimizer()->mutable_adagrad();
  return spec;
}

double Percentile99(std::vector<double> seconds) {
  if (seconds.empty()) return 0;
  const auto at = seconds.begin() + static_cast<ptrdiff_t>(seconds.size() * 99 / 100);
  std::nth_element(seconds.begin(), at, seconds.end());
  return *at;
}

// A job on one pserver, in its own folder, which the destructor removes.
class TrainedJob {
 public:
  static absl::StatusOr<std::shared_ptr<TrainedJob>> Make(uint64_t rows) {
    std::string folder = (std::filesystem::temp_directory_path() / "checkpoint.XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr)
      return absl::InternalError(absl::StrCat("cannot make the folder ", folder));
    std::shared_ptr<TrainedJob> job(new TrainedJob(folder, rows));
    SLUICE_ASSIGN_OR_RETURN(job->layouts_, CreateTableLayouts(job->spec_.tables(), 1));
    *job->spec_.mutable_route() = PlaceShards(job->layouts_, {kAddress}, 1);
    job->view_ = FirstView(job->layouts_, UpdatePolicy(), job->spec_.route(), kAddress);
    for (uint64_t i = 0; i < rows;) {
      std::vector<uint64_t> keys;
      for (; i < rows && keys.size() < 16 * kCheckpointBatch; ++i) keys.push_back(MixHash(i));
      job->Push(job->ByShard(keys));
    }
    return job;
  }
  ~TrainedJob() {
    cuts_.Cancel();
    cuts_.AwaitEnd();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  // Pulls and pushes the rows of a batch. Returns the seconds of the pull.
  double Step() {
    std::vector<uint64_t> keys;
    for (uint32_t i = 0; i < kCheckpointBatch; ++i)
      keys.push_back(MixHash(MixHash(++drawn_) % rows_));
    const auto by_shard = ByShard(keys);
    const double begin = Now();
    for (uint32_t s = 0; s < kShards; ++s) {
      pulled_.resize(by_shard[s].size() * kDim * sizeof(float));
      view_->FindShard(0, s)->Read(by_shard[s].data(), by_shard[s].size(), pulled_.data());
    }
    const double pull = Now() - begin;
    Push(by_shard);
    return pull;
  }

  // Begins the next checkpoint, which is written in the background.
  void BeginCheckpoint() {
    ++checkpoint_;
    cuts_.Begin(checkpoint_, checkpoint_, *view_);
  }
  HostedCut Cut() {
    HostedJob report;
    cuts_.FillReport(&report);
    return report.cut();
  }
  bool Writes() { return Cut().state() == HostedCut::WRITING; }
  // Puts the checkpoint in force, and removes the one before. Returns its folder.
  absl::StatusOr<std::string> Commit() {
    const HostedCut cut = Cut();
    if (cut.state() != HostedCut::WRITTEN)
      return absl::InternalError(absl::StrCat("the checkpoint has failed: ", cut.error()));
    Manifest manifest;
    manifest.set_job_id(spec_.job_id());
    manifest.set_global_step(checkpoint_);
    *manifest.mutable_tables() = spec_.tables();
    manifest.mutable_checkpoint()->set_mode("async");
    *manifest.mutable_files() = cut.files();
    const std::string folder = CheckpointFolder(folder_, checkpoint_);
    SLUICE_RETURN_IF_ERROR(CommitCheckpoint(folder, spec_.config(), manifest, Env::Real(),
                                            CheckpointSaveId(kInstance, checkpoint_)));
    SLUICE_RETURN_IF_ERROR(RemoveOldCheckpoints(folder_, 1, Env::Real()));
    return folder;
  }

  // A pserver's work when a job resumes from the checkpoint in `folder`.
  absl::Status Restore(const std::string& folder) const {
    JobSpec spec = spec_;
    spec.mutable_restore()->set_directory(folder);
    JobResources resources;
    resources.clock = Clock::Real();
    resources.env = Env::Real();
    resources.available_memory = [] { return AvailableMemory(); };
    LoadProgress progress;
    return OpenJob(spec, kAddress, resources, &progress).status();
  }
  const std::string& folder() const { return folder_; }

 private:
  using KeysByShard = std::vector<std::vector<uint64_t>>;

  TrainedJob(std::string folder, uint64_t rows)
      : folder_(std::move(folder)), rows_(rows), cuts_(CutOptionsOf()) {}
  JobCuts::Options CutOptionsOf() {
    JobCuts::Options options;
    options.root = folder_;
    options.instance = kInstance;
    options.writer = &writer_;
    options.env = Env::Real();
    options.clock = Clock::Real();
    options.available_memory = [] { return AvailableMemory(); };
    return options;
  }

  KeysByShard ByShard(const std::vector<uint64_t>& keys) const {
    KeysByShard by_shard(kShards);
    for (const uint64_t key : keys) by_shard[layouts_[0]->ShardOf(key)].push_back(key);
    // A push names each key once.
    for (std::vector<uint64_t>& one : by_shard) {
      std::sort(one.begin(), one.end());
      one.erase(std::unique(one.begin(), one.end()), one.end());
    }
    return by_shard;
  }
  void Push(const KeysByShard& by_shard) {
    FrameId frame;
    frame.incarnation = 1;
    frame.sequence = ++frames_;
    frame.weight = 1;
    for (uint32_t s = 0; s < kShards; ++s) {
      part_.rows = static_cast<uint32_t>(by_shard[s].size());
      part_.keys = by_shard[s];
      part_.values.assign(by_shard[s].size() * kDim, 0.5f);
      if (view_->FindShard(0, s)->Apply(frame, &part_).status != PART_OK) std::abort();
    }
  }

  const std::string folder_;
  const uint64_t rows_;
  JobSpec spec_ = Spec();
  TableLayouts layouts_;
  std::shared_ptr<const JobView> view_;
  CutWriter writer_;
  JobCuts cuts_;
  uint64_t frames_ = 0, drawn_ = 0, checkpoint_ = 0;
  PushPart part_;
  std::vector<uint8_t> pulled_;
};

absl::StatusOr<std::string> Save(TrainedJob* job) {
  job->BeginCheckpoint();
  while (job->Writes()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return job->Commit();
}

std::vector<std::string> FilesOf(const std::string& folder, uint64_t* bytes) {
  std::vector<std::string> files;
  *bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files.push_back(entry.path().string());
    *bytes += entry.file_size();
  }
  return files;
}

void DropFromPageCache(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

double SecondsToWrite(const std::string& folder, uint64_t bytes) {
  const std::string path = folder + "/sequential";
  const std::vector<char> piece(1 << 20, 'x');
  const double begin = Now();
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  for (ssize_t n = 1; bytes > 0 && n > 0; bytes -= static_cast<uint64_t>(std::max<ssize_t>(n, 0)))
    n = ::write(fd, piece.data(), std::min<uint64_t>(bytes, piece.size()));
  ::fsync(fd);
  ::close(fd);
  const double seconds = Now() - begin;
  ::unlink(path.c_str());
  return seconds;
}

double SecondsToRead(const std::vector<std::string>& files) {
  std::vector<char> piece(1 << 20);
  const double begin = Now();
  for (const std::string& file : files) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    while (::read(fd, piece.data(), piece.size()) > 0) {
    }
    ::close(fd);
  }
  return Now() - begin;
}

Sample Failed(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return {};
}

Sample MeasureSave(TrainedJob* job) {
  const double begin = Now();
  const absl::StatusOr<std::string> folder = Save(job);
  const double seconds = Now() - begin;
  if (!folder.ok()) return Failed(folder.status());
  uint64_t bytes = 0;
  FilesOf(*folder, &bytes);
  const double mib = static_cast<double>(bytes) / kMiB;
  return {mib / seconds, mib / SecondsToWrite(job->folder(), bytes)};
}

Sample MeasureRestore(TrainedJob* job) {
  const absl::StatusOr<std::string> folder = Save(job);
  if (!folder.ok()) return Failed(folder.status());
  uint64_t bytes = 0;
  const std::vector<std::string> files = FilesOf(*folder, &bytes);
  const double mib = static_cast<double>(bytes) / kMiB;
  DropFromPageCache(files);
  const double floor = SecondsToRead(files);
  DropFromPageCache(files);
  const double begin = Now();
  const absl::Status restored = job->Restore(*folder);
  const double seconds = Now() - begin;
  if (!restored.ok()) return Failed(restored);
  return {mib / seconds, mib / floor};
}

// Training before a checkpoint, and while it is written.
struct Trained {
  double steps_per_s = 0, steps_per_s_meanwhile = 0, seconds = 0;
  double pull_p99 = 0, pull_p99_meanwhile = 0;
};

absl::StatusOr<Trained> TrainAcrossACheckpoint(TrainedJob* job, double train_seconds) {
  Trained trained;
  std::vector<double> pulls;
  double begin = Now();
  while (Now() - begin < train_seconds) pulls.push_back(job->Step());
  trained.steps_per_s = static_cast<double>(pulls.size()) / (Now() - begin);
  trained.pull_p99 = Percentile99(pulls);
  pulls.clear();
  begin = Now();
  job->BeginCheckpoint();
  do {
    pulls.push_back(job->Step());
  } while (job->Writes());
  trained.seconds = Now() - begin;
  trained.steps_per_s_meanwhile = static_cast<double>(pulls.size()) / trained.seconds;
  trained.pull_p99_meanwhile = Percentile99(pulls);
  SLUICE_RETURN_IF_ERROR(job->Commit().status());
  return trained;
}

Sample MeasureStall(TrainedJob* job, double train_seconds) {
  const absl::StatusOr<Trained> trained = TrainAcrossACheckpoint(job, train_seconds);
  if (!trained.ok()) return Failed(trained.status());
  const double lost =
      trained->seconds * (1 - trained->steps_per_s_meanwhile / trained->steps_per_s);
  return {100 * std::max(lost, 1e-3) / kInterval, 5};
}

Sample MeasurePulls(TrainedJob* job, double train_seconds) {
  const absl::StatusOr<Trained> trained = TrainAcrossACheckpoint(job, train_seconds);
  if (!trained.ok()) return Failed(trained.status());
  return {1e6 * trained->pull_p99_meanwhile, 1e6 * trained->pull_p99};
}

}  // namespace

void AddCheckpointBenchmarks(std::vector<Benchmark>* to) {
  // All rows save the same job: trained for the first row, removed with the benchmarks.
  const auto kept = std::make_shared<std::shared_ptr<TrainedJob>>();
  const auto add = [&](const char* name, const char* unit, const char* limit,
                       std::function<Sample(TrainedJob*, double)> measure) {
    Benchmark benchmark;
    benchmark.name = absl::StrCat("checkpoint/", name, "/2GiB");
    benchmark.unit = unit;
    benchmark.limit_name = limit;
    benchmark.few_repetitions = 3;
    benchmark.prepare = [=](const Settings& settings) -> absl::StatusOr<std::function<Sample()>> {
      if (*kept == nullptr) {
        SLUICE_ASSIGN_OR_RETURN(*kept, TrainedJob::Make(settings.quick ? 100000 : kRows));
      }
      const double train_seconds = settings.quick ? 0.1 : kTrainSeconds;
      return std::function<Sample()>(
          [job = *kept, measure, train_seconds] { return measure(job.get(), train_seconds); });
    };
    to->push_back(std::move(benchmark));
  };
  add("save", "MiB/s", "one file of as many bytes, written and synced",
      [](TrainedJob* job, double) { return MeasureSave(job); });
  add("restore", "MiB/s", "one sequential pass over the files, not in the page cache",
      [](TrainedJob* job, double) { return MeasureRestore(job); });
  add("stall", "% of 600 s", "5 %, the goal", MeasureStall);
  add("pull_p99", "us", "the same while no checkpoint is written", MeasurePulls);
}

}  // namespace sluice::bench
