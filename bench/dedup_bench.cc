// dedup/{host,gpu}/standard/batch16384: million keys per second, to find the unique keys of a batch
// of the standard model and each key's number among them. host: one thread, grouped by shard, as in
// the worker. gpu: sort and unique on cuda:0, including transfers, not grouped.
//
// The limits: host, one memcpy of input and output; gpu, the transfers alone.
#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/gpu_dedup.h"
#include "bench/standard_model.h"
#include "bench/suite.h"
#include "client/key_set.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "model/built_in_models.h"
#include "model/model_spec.h"
#include "model/net/cuda/cuda_device.h"

namespace sluice::bench {
namespace {

constexpr size_t kBatch = 16384;
constexpr int kRounds = 8;  // in one repetition

// Keys as in the worker: hashes with the frequencies of the standard data.
struct Keys {
  Keys() {
    Batch batch;
    std::vector<uint32_t> row_index;
    MakeStandardBatch(kBatch, &batch, &row_index);
    keys = std::move(batch.keys);
    number.resize(keys.size());
    count = std::set<uint64_t>(keys.begin(), keys.end()).size();
  }
  double Rate(double seconds) const { return kRounds * keys.size() / seconds / 1e6; }
  std::vector<uint64_t> keys;
  std::vector<uint32_t> number;
  size_t count = 0;  // number of unique keys
};

struct HostDedup : Keys {
  Sample Measure() {
    Sample sample;
    std::vector<char> copy(keys.size() * 12 + count * 8);
    double start = Now();
    for (int round = 0; round < kRounds; ++round) {
      std::memcpy(copy.data(), keys.data(), keys.size() * 8);
      std::memcpy(copy.data() + keys.size() * 8, number.data(), number.size() * 4);
      std::memcpy(copy.data() + keys.size() * 12, keys.data(), count * 8);
    }
    sample.limit = Rate(Now() - start);
    start = Now();
    for (int round = 0; round < kRounds; ++round)
      deduplicator.Run(*table, keys.data(), keys.size(), &unique, number.data());
    sample.value = Rate(Now() - start);
    if (unique.keys.size() != count) sample.value = 0;
    return sample;
  }
  std::shared_ptr<const TableLayout> table;
  KeyDeduplicator deduplicator;
  KeySet unique;
};

struct DeviceDedup : Keys {
  Sample Measure() {
    Sample sample;
    bool good = true;
    double start = Now();
    for (int round = 0; round < kRounds; ++round) good = dedup->Copy(count) && good;
    sample.limit = Rate(Now() - start);
    start = Now();
    for (int round = 0; round < kRounds; ++round)
      good = dedup->Run(keys.data(), unique.data(), number.data()) == count && good;
    sample.value = Rate(Now() - start);
    for (size_t i = 0; i < keys.size(); ++i) good = good && unique[number[i]] == keys[i];
    if (!good) sample.value = 0;
    return sample;
  }
  std::unique_ptr<GpuDedup> dedup;
  std::vector<uint64_t> unique;
};

absl::StatusOr<std::function<Sample()>> PrepareHost(const Settings&) {
  OptimizerConfig sgd;
  sgd.mutable_sgd();
  SLUICE_ASSIGN_OR_RETURN(
      const JobConfig job,
      EffectiveJobConfig(StandardJob("none.tsv", kBatch, sgd), "", BuiltInSpecs()));
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<ModelSpec> model,
                          ModelSpec::Create(job, BuiltInSpecs()));
  auto host = std::make_shared<HostDedup>();
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  *tables.Add() = model->tables()[model->sparse_tables()[0]];
  ResolveShards(/*num_pservers=*/2, &tables);
  SLUICE_ASSIGN_OR_RETURN(host->table, TableLayout::Create(0, tables[0], 1));
  return std::function<Sample()>([host] { return host->Measure(); });
}

absl::StatusOr<std::function<Sample()>> PrepareGpu(const Settings&) {
  auto device = std::make_shared<DeviceDedup>();
  device->unique.resize(device->keys.size());
  device->dedup = GpuDedup::Create(device->keys.size());
  if (device->dedup == nullptr)
    return absl::InternalError("dedup: cannot allocate on the CUDA device");
  return std::function<Sample()>([device] { return device->Measure(); });
}

std::string NoGpuToSort() {
  const auto devices = ListCudaDevices();
  return devices.ok() ? "" : absl::StrCat("no CUDA device (", devices.status().message(), ")");
}

}  // namespace

void AddDedupBenchmarks(std::vector<Benchmark>* to) {
  Benchmark host;
  host.name = absl::StrCat("dedup/host/standard/batch", kBatch);
  host.unit = "M/s";
  host.limit_name = "memcpy";
  host.prepare = PrepareHost;
  to->push_back(std::move(host));
  Benchmark gpu;
  gpu.name = absl::StrCat("dedup/gpu/standard/batch", kBatch);
  gpu.unit = "M/s";
  gpu.limit_name = "copies";
  gpu.unfit = NoGpuToSort;
  gpu.prepare = PrepareGpu;
  to->push_back(std::move(gpu));
}

}  // namespace sluice::bench
