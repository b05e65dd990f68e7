// reader/criteo: one thread parses Criteo text to labels, numbers and hashed keys; the file is in
// the page cache. reader/cache: the same examples from a mapped cache file, gathered in a permuted
// order into batches of 2048.
//
// The limits: one pass of memchr over the same text, and one memcpy of the cache file in pieces of
// a batch's size.
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/suite.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/base/status_macros.h"
#include "google/protobuf/text_format.h"
#include "model/data/click_generator.h"
#include "model/data/example_cache.h"
#include "model/data/permutation.h"
#include "model/data/read_examples.h"

namespace sluice::bench {
namespace {

constexpr size_t kReaderBatch = 2048;

// The numbers and categories of configs/criteo_wide_deep.textproto.
JobConfig CriteoJob() {
  JobConfig job;
  job.mutable_data()->set_format(DataConfig::CRITEO_TSV);
  for (int i = 1; i <= 13; ++i) {
    Feature* const feature = job.add_features();
    feature->set_name(absl::StrCat("I", i));
    feature->mutable_numeric()->set_log(true);
  }
  for (int i = 1; i <= 26; ++i) {
    Feature* const feature = job.add_features();
    feature->set_name(absl::StrCat("C", i));
    feature->mutable_categorical()->set_missing_is_value(true);
  }
  job.mutable_model()->mutable_wide_deep()->add_hidden_units(400);
  return job;
}

class Reader {
 public:
  static absl::StatusOr<std::shared_ptr<Reader>> Create(size_t examples) {
    auto reader = std::make_shared<Reader>();
    std::string folder = std::filesystem::temp_directory_path() / "sluice-bench-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr)
      return absl::InternalError(absl::StrCat("cannot make ", folder));
    reader->folder_ = folder;
    ClickSums sums;
    ClickGenerator({}).Append(0, examples, &reader->text_, &sums);
    reader->piece_.path = folder + "/train.tsv";
    SLUICE_RETURN_IF_ERROR(Env::Real()->WriteFile(reader->piece_.path, {reader->text_}));
    // Files that were just written are not cached.
    std::filesystem::last_write_time(
        reader->piece_.path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
    JobConfig job = CriteoJob();
    SLUICE_ASSIGN_OR_RETURN(reader->schema_, FeatureSchema::Create(job));
    SLUICE_ASSIGN_OR_RETURN(reader->data_, DataSource::Create(job.data(), reader->schema_));
    job.mutable_data()->set_cache(true);
    job.mutable_data()->set_cache_dir(folder + "/cache");
    reader->cache_ = MakeExampleCache(job, *reader->schema_, Env::Real(), Clock::Real(),
                                      [](const std::string&) {});
    BadLines bad;
    for (int pass = 0; pass < 2; ++pass) {
      SLUICE_ASSIGN_OR_RETURN(reader->mapped_,
                              ReadExamples(*reader->data_, *reader->schema_, reader->cache_.get(),
                                           reader->piece_, &reader->batch_, &bad));
    }
    if (reader->mapped_.owner == nullptr)
      return absl::InternalError(absl::StrCat("cannot write a cache in ", folder));
    for (const auto& entry : std::filesystem::directory_iterator(folder + "/cache")) {
      SLUICE_ASSIGN_OR_RETURN(reader->cache_file_, Env::Real()->ReadFile(entry.path().string()));
    }
    return reader;
  }
  ~Reader() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  Sample MeasureText() {
    Sample sample;
    double start = Now();
    size_t lines = 0;
    const char* const end = text_.data() + text_.size();
    for (const char* at = text_.data(); at < end; ++lines) {
      at = static_cast<const char*>(std::memchr(at, '\n', end - at)) + 1;
    }
    sample.limit = static_cast<double>(text_.size()) / 1e6 / (Now() - start);
    batch_.Reset(schema_->numerics().size(), schema_->slots().size());
    BadLines bad;
    start = Now();
    const absl::Status status = data_->ReadPiece(piece_.path, 0, UINT64_MAX, true, &batch_, &bad);
    sample.value = static_cast<double>(text_.size()) / 1e6 / (Now() - start);
    if (!status.ok() || batch_.n != lines || bad.count != 0) sample.value = 0;
    return sample;
  }

  Sample MeasureCache() {
    Sample sample;
    const size_t bytes = cache_file_.size(), piece = bytes * kReaderBatch / mapped_.view.n;
    copy_.resize(piece);
    double start = Now();
    for (size_t at = 0; at + piece <= bytes; at += piece)
      std::memcpy(copy_.data(), &cache_file_[at], piece);
    sample.limit = static_cast<double>(bytes / piece * piece) / 1e6 / (Now() - start);
    start = Now();
    BadLines bad;
    const auto found = ReadExamples(*data_, *schema_, cache_.get(), piece_, &batch_, &bad);
    if (!found.ok() || found->owner == nullptr) return sample;
    const ExampleView& view = found->view;
    const Permutation order(view.n, ++epoch_);
    for (size_t begin = 0; begin < view.n; begin += kReaderBatch) {
      batch_.Reset(view.num_numeric, view.num_slots);
      const size_t end = std::min(begin + kReaderBatch, view.n);
      for (size_t i = begin; i < end; ++i) {
        if (!batch_.Append(view, order(i), i).ok()) return sample;
      }
    }
    sample.value = static_cast<double>(bytes) / 1e6 / (Now() - start);
    return sample;
  }

 private:
  std::string folder_, text_, cache_file_;
  DataPiece piece_;
  std::shared_ptr<const FeatureSchema> schema_;
  std::unique_ptr<DataSource> data_;
  std::unique_ptr<ExampleCache> cache_;
  Examples mapped_;
  Batch batch_;
  std::vector<char> copy_;
  uint64_t epoch_ = 0;
};

Benchmark ReaderBenchmark(const std::string& name, const std::string& limit,
                          Sample (Reader::*measure)()) {
  Benchmark benchmark;
  benchmark.name = "reader/" + name;
  benchmark.unit = "MB/s";
  benchmark.limit_name = limit;
  benchmark.prepare =
      [measure](const Settings& settings) -> absl::StatusOr<std::function<Sample()>> {
    SLUICE_ASSIGN_OR_RETURN(const std::shared_ptr<Reader> reader,
                            Reader::Create(settings.quick ? 5000 : 65536));
    return std::function<Sample()>([reader, measure] { return (reader.get()->*measure)(); });
  };
  return benchmark;
}

}  // namespace

void AddReaderBenchmarks(std::vector<Benchmark>* to) {
  to->push_back(ReaderBenchmark("criteo", "memchr over the text", &Reader::MeasureText));
  to->push_back(ReaderBenchmark("cache", "memcpy of the cache file", &Reader::MeasureCache));
}

}  // namespace sluice::bench
