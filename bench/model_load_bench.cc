// model/load/10M/pserversP: seconds in which one of P pservers opens a job whose initial_model has
// 10 million rows of 16 floats. model/load/10M/pserversP/read: the MiB that the pserver reads.
//
// The model was saved with the shards of 2 pservers, and its files are in the page cache. The limit
// of the time is one sequential pass over the pserver's share of the files; the limit of the bytes
// is that share.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/suite.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"
#include "common/saved_model/saved_model.h"
#include "common/table/placement.h"
#include "server/service/available_memory.h"
#include "server/tables/job_tables.h"

namespace sluice::bench {
namespace {

constexpr uint32_t kModelDim = 16, kSavedShards = 16;
constexpr double kModelMiB = 1 << 20;

TableConfig EmbeddingTable(uint32_t num_shards) {
  TableConfig table;
  table.set_name("embedding");
  table.set_kind(TableConfig::SPARSE);
  table.set_num_shards(num_shards);
  ColumnGroup* column = table.add_columns();
  column->set_name("embedding");
  column->set_dim(kModelDim);
  column->mutable_optimizer()->mutable_adagrad();
  return table;
}

// A saved model in its own folder, which the destructor removes.
class ModelFiles {
 public:
  ~ModelFiles() {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  static absl::StatusOr<std::shared_ptr<ModelFiles>> Write(size_t rows) {
    std::string pattern = (std::filesystem::temp_directory_path() / "model_bench.XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
      return absl::InternalError(absl::StrCat("cannot make the folder ", pattern));
    }
    std::shared_ptr<ModelFiles> files(new ModelFiles(pattern));
    Manifest manifest;
    manifest.set_job_id("bench-1");
    *manifest.add_tables() = EmbeddingTable(kSavedShards);
    SLUICE_ASSIGN_OR_RETURN(const TableLayouts layouts, CreateTableLayouts(manifest.tables(), 1));
    std::vector<ShardValues> shards(kSavedShards);
    for (size_t i = 0; i < rows; ++i) {
      const uint64_t key = MixHash(i + 1);
      shards[layouts[0]->ShardOf(key)].keys.push_back(key);
    }
    for (uint32_t s = 0; s < kSavedShards; ++s) {
      std::sort(shards[s].keys.begin(), shards[s].keys.end());
      for (const uint64_t key : shards[s].keys) {
        for (uint32_t d = 0; d < kModelDim; ++d) shards[s].weights.push_back(HashToUnit(key + d));
      }
      SLUICE_ASSIGN_OR_RETURN(*manifest.add_files(), WriteShardFile(files->directory(), *layouts[0],
                                                                    s, shards[s], Env::Real()));
      files->paths_.push_back(
          absl::StrCat(files->directory(), "/", manifest.files(static_cast<int>(s)).name()));
      files->bytes_ += manifest.files(static_cast<int>(s)).bytes();
      shards[s] = ShardValues();
    }
    SLUICE_RETURN_IF_ERROR(
        FinishModel(files->directory(), JobConfig(), manifest, Env::Real()).status());
    return files;
  }

  const std::string& directory() const { return directory_; }
  uint64_t bytes() const { return bytes_; }
  // Returns the seconds for reading the first `bytes` of all files.
  double ReadSequentially(uint64_t bytes) const {
    std::vector<char> buffer(1 << 20);
    const double start = Now();
    for (const std::string& path : paths_) {
      const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
      for (ssize_t n = 1; bytes > 0 && n > 0;
           bytes -= static_cast<uint64_t>(std::max<ssize_t>(n, 0))) {
        n = ::read(fd, buffer.data(), std::min<uint64_t>(bytes, buffer.size()));
      }
      ::close(fd);
    }
    return Now() - start;
  }

 private:
  explicit ModelFiles(std::string directory) : directory_(std::move(directory)) {}
  const std::string directory_;
  std::vector<std::string> paths_;
  uint64_t bytes_ = 0;
};

// Bytes that this process has read through system calls.
uint64_t BytesRead() {
  std::ifstream io("/proc/self/io");
  std::string label;
  uint64_t bytes = 0;
  io >> label >> bytes;
  return bytes;
}

struct Opening {
  double seconds = 0;
  double bytes = 0;
};

// Opens a job that begins with the model, as pserver 0 of `pservers`.
absl::StatusOr<Opening> Open(const ModelFiles& model, uint32_t pservers) {
  JobSpec spec;
  spec.set_job_id("bench-2");
  spec.set_worker_num(1);
  spec.mutable_config()->set_initial_model(model.directory());
  spec.mutable_config()->mutable_strategy()->set_a_sync(true);
  *spec.add_tables() = EmbeddingTable(std::max(16u, 4 * pservers));  // the default number of shards
  SLUICE_ASSIGN_OR_RETURN(const TableLayouts layouts, CreateTableLayouts(spec.tables(), 1));
  std::vector<std::string> addresses;
  for (uint32_t p = 0; p < pservers; ++p) addresses.push_back(absl::StrCat("pserver", p));
  *spec.mutable_route() = PlaceShards(layouts, addresses, 1);
  JobResources resources;
  resources.clock = Clock::Real();
  resources.env = Env::Real();
  resources.available_memory = [] { return AvailableMemory(); };
  const uint64_t before = BytesRead();
  const double start = Now();
  SLUICE_ASSIGN_OR_RETURN(const auto job, JobTables::Open(spec, addresses[0], resources));
  return Opening{Now() - start, static_cast<double>(BytesRead() - before)};
}

}  // namespace

void AddModelLoadBenchmarks(std::vector<Benchmark>* to) {
  // All rows open the same model: written for the first row, removed with the benchmarks.
  const auto kept = std::make_shared<std::shared_ptr<ModelFiles>>();
  for (const uint32_t pservers : {2u, 8u}) {
    for (const bool bytes : {false, true}) {
      Benchmark benchmark;
      benchmark.name = absl::StrCat("model/load/10M/pservers", pservers, bytes ? "/read" : "");
      benchmark.unit = bytes ? "MiB" : "s";
      benchmark.limit_name = bytes ? "the pserver's share of the files"
                                   : "one sequential pass over the pserver's share of the files";
      benchmark.few_repetitions = bytes ? 1 : 5;
      benchmark.prepare = [=](const Settings& settings) -> absl::StatusOr<std::function<Sample()>> {
        if (*kept == nullptr) {
          SLUICE_ASSIGN_OR_RETURN(*kept, ModelFiles::Write(settings.quick ? 100000 : 10000000));
        }
        return std::function<Sample()>([model = *kept, pservers, bytes]() -> Sample {
          const uint64_t share = model->bytes() / pservers;
          const double floor = model->ReadSequentially(share);
          const absl::StatusOr<Opening> opening = Open(*model, pservers);
          if (!opening.ok()) {
            std::fprintf(stderr, "%s\n", std::string(opening.status().message()).c_str());
            return {};
          }
          if (bytes) return {opening->bytes / kModelMiB, static_cast<double>(share) / kModelMiB};
          return {opening->seconds, floor};
        });
      };
      to->push_back(std::move(benchmark));
    }
  }
}

}  // namespace sluice::bench
