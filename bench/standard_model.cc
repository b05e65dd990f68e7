#include "bench/standard_model.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/hash.h"

namespace sluice::bench {
namespace {

constexpr uint64_t kValues = 100000;  // per category; rarer values share the last one
constexpr double kExponent = 1.2;

// Draws numbers in [0, 1) from a stream of hashes.
class Stream {
 public:
  Stream(uint64_t seed, uint64_t example) : state_(CombineHash(seed, example)) {}
  double Uniform() {
    state_ += 0x9E3779B97F4A7C15u;
    return static_cast<double>(MixHash(state_) >> 11) * 0x1p-53;
  }
  // Roughly normal: the sum of twelve uniform numbers.
  double Normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += Uniform();
    return sum;
  }

 private:
  uint64_t state_;
};

// Cumulative frequencies of ranks 1, 2, ...; the last rank takes the rest of the infinite series.
const std::vector<double>& ZipfTable() {
  static const auto* table = [] {
    auto* sums = new std::vector<double>(kValues);
    const double tail = std::pow(kValues + 0.5, 1 - kExponent) / (kExponent - 1);
    double sum = 0;
    for (uint64_t rank = 1; rank <= kValues; ++rank) {
      sum += std::pow(static_cast<double>(rank), -kExponent);
      (*sums)[rank - 1] = sum;
    }
    for (double& s : *sums) s /= sum + tail;
    sums->back() = 1;
    return sums;
  }();
  return *table;
}

}  // namespace

StandardExample MakeExample(uint64_t seed, uint64_t example) {
  Stream stream(seed, example);
  StandardExample made;
  double logit = -1;
  for (int i = 0; i < kStandardNumbers; ++i) {
    made.numbers[i] =
        static_cast<uint32_t>(std::min(std::exp(1.5 + 1.2 * stream.Normal()), 60000.0));
    logit += (i % 2 == 0 ? 0.2 : -0.2) * std::log1p(made.numbers[i]);
  }
  const std::vector<double>& zipf = ZipfTable();
  for (int i = 0; i < kStandardCategories; ++i) {
    const uint64_t rank =
        std::upper_bound(zipf.begin(), zipf.end() - 1, stream.Uniform()) - zipf.begin();
    made.categories[i] = MixHash(rank * kStandardCategories + i);
    logit += static_cast<double>(made.categories[i] >> 40) * 0x1p-24 - 0.5;
  }
  made.label = stream.Uniform() < 1 / (1 + std::exp(-logit)) ? 1 : 0;
  return made;
}

absl::Status WriteStandardData(const std::string& dir, uint64_t examples, int files) {
  for (int file = 0; file < files; ++file) {
    const std::string path = absl::StrCat(dir, "/part-", file, ".tsv");
    std::ofstream out(path);
    std::string line;
    for (uint64_t i = examples * file / files; i < examples * (file + 1) / files; ++i) {
      const StandardExample example = MakeExample(1, i);
      line = absl::StrCat(example.label);
      for (const uint32_t number : example.numbers) absl::StrAppend(&line, "\t", number);
      for (const uint64_t category : example.categories) {
        absl::StrAppendFormat(&line, "\t%08x", static_cast<uint32_t>(category));
      }
      out << line << '\n';
    }
    out.close();
    if (!out) return absl::UnavailableError(absl::StrCat("cannot write ", path));
  }
  return absl::OkStatus();
}

JobConfig StandardJob(const std::string& data_glob, uint32_t batch_size,
                      const OptimizerConfig& optimizer) {
  JobConfig job;
  job.set_version(1);
  job.set_name("bench");
  job.set_worker_num(2);
  job.mutable_data()->set_format(DataConfig::CRITEO_TSV);
  job.mutable_data()->add_train_files(data_glob);
  for (int i = 1; i <= kStandardNumbers; ++i) {
    Feature* feature = job.add_features();
    feature->set_name(absl::StrCat("I", i));
    feature->mutable_numeric()->set_log(true);
  }
  for (int i = 1; i <= kStandardCategories; ++i) {
    Feature* feature = job.add_features();
    feature->set_name(absl::StrCat("C", i));
    feature->mutable_categorical()->set_missing_is_value(true);
  }
  WideDeepConfig* model = job.mutable_model()->mutable_wide_deep();
  model->set_wide_categorical(false);
  for (int i = 0; i < 3; ++i) model->add_hidden_units(400);
  model->set_embedding_dim(kStandardDim);
  *job.mutable_optimizers()->mutable_all() = optimizer;
  TrainConfig* train = job.mutable_train();
  train->set_batch_size(batch_size);
  train->set_epochs(1);
  train->set_seed(1);
  train->set_threads(1);
  job.mutable_checkpoint()->set_save_final_model(false);
  return job;
}

void UseDenseCategories(uint64_t rows, JobConfig* job) {
  for (Feature& feature : *job->mutable_features()) {
    if (!feature.has_categorical()) continue;
    feature.mutable_categorical()->set_hash_buckets(rows);
    feature.mutable_categorical()->set_dense(true);
  }
}

size_t MakeStandardBatch(size_t n, Batch* batch, std::vector<uint32_t>* row_index) {
  absl::flat_hash_map<uint64_t, uint32_t> rows;
  batch->Reset(kStandardNumbers, kStandardCategories);
  row_index->clear();
  for (size_t i = 0; i < n; ++i) {
    const StandardExample example = MakeExample(1, i);
    batch->label.push_back(example.label);
    batch->weight.push_back(1);
    batch->example_id.push_back(i);
    for (const uint32_t number : example.numbers) batch->numeric.push_back(std::log1p(number));
    for (const uint64_t category : example.categories) {
      batch->keys.push_back(category);
      row_index->push_back(rows.emplace(category, rows.size()).first->second);
      batch->key_offsets.push_back(batch->keys.size());
    }
  }
  batch->n = n;
  return rows.size();
}

}  // namespace sluice::bench
