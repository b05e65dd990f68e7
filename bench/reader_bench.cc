// reader/criteo: one thread parses Criteo text to labels, numbers and hashed keys; the file is in
// the page cache. reader/cache: the same examples from a mapped cache file, gathered in a permuted
// order into batches of 2048. reader/parquet: the same examples as columns of a Parquet file.
// reader/parquet/KIND and reader/csv/KIND: columns of one kind alone, in processor time.
//
// The limits: one pass of memchr over the same text, one memcpy of the cache file in pieces of a
// batch's size, and Arrow's decoding of the same columns.
#include <time.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bench/suite.h"
#include "bench/temporary_folder.h"
#include "common/arrow/parquet.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/base/status_macros.h"
#include "google/protobuf/text_format.h"
#include "model/data/click_generator.h"
#include "model/data/example_cache.h"
#include "model/data/parquet_file.h"
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

// The cells of text as columns of Arrow. Empty cells are null.
class TextColumns {
 public:
  // By column: "l" (int64), "g" (double) or "u" (string).
  using Formats = std::vector<std::pair<std::string, const char*>>;
  TextColumns(const std::string& text, char delimiter, const Formats& formats)
      : columns_(formats.size()) {
    std::vector<absl::string_view> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
    rows_ = static_cast<int64_t>(lines.size());
    for (size_t c = 0; c < columns_.size(); ++c) {
      columns_[c].name = formats[c].first;
      columns_[c].valid.assign(lines.size() / 8 + 1, 0);
      columns_[c].ends = {0};
    }
    for (size_t r = 0; r < lines.size(); ++r) {
      const std::vector<absl::string_view> cells = absl::StrSplit(lines[r], delimiter);
      for (size_t c = 0; c < columns_.size(); ++c) {
        Column& column = columns_[c];
        const char format = *formats[c].second;
        int64_t number = 0;
        double real = 0;
        if (c < cells.size() && !cells[c].empty())
          column.valid[r / 8] = static_cast<uint8_t>(column.valid[r / 8] | 1 << r % 8);
        if (format != 'u') {
          const absl::string_view cell = c < cells.size() ? cells[c] : "";
          (void)absl::SimpleAtoi(cell, &number);
          if (format == 'g' && absl::SimpleAtod(cell, &real))
            std::memcpy(&number, &real, sizeof(real));
          column.numbers.push_back(number);
        } else {
          if (c < cells.size()) column.text.append(cells[c].data(), cells[c].size());
          column.ends.push_back(static_cast<int32_t>(column.text.size()));
        }
      }
    }
    for (size_t c = 0; c < columns_.size(); ++c) {
      Column& column = columns_[c];
      const bool is_number = *formats[c].second != 'u';
      column.buffers = {column.valid.data(),
                        is_number ? static_cast<const void*>(column.numbers.data())
                                  : static_cast<const void*>(column.ends.data()),
                        column.text.data()};
      column.schema = {
          formats[c].second, column.name.c_str(),   nullptr, ARROW_FLAG_NULLABLE, 0, nullptr,
          nullptr,           &Nothing<ArrowSchema>, nullptr};
      column.array = {rows_,
                      -1,
                      0,
                      is_number ? 2 : 3,
                      0,
                      column.buffers.data(),
                      nullptr,
                      nullptr,
                      &Nothing<ArrowArray>,
                      nullptr};
      schemas_.push_back(&column.schema);
      arrays_.push_back(&column.array);
    }
  }

  // Both borrow this.
  ArrowOwner<ArrowSchema> schema() {
    return ArrowOwner<ArrowSchema>({"+s", "", nullptr, 0, static_cast<int64_t>(columns_.size()),
                                    schemas_.data(), nullptr, &Nothing<ArrowSchema>, nullptr});
  }
  ArrowOwner<ArrowArray> rows() {
    return ArrowOwner<ArrowArray>({rows_, 0, 0, 1, static_cast<int64_t>(columns_.size()),
                                   &no_nulls_, arrays_.data(), nullptr, &Nothing<ArrowArray>,
                                   nullptr});
  }

 private:
  struct Column {
    std::string name, text;
    std::vector<uint8_t> valid;
    std::vector<int64_t> numbers;
    std::vector<int32_t> ends;
    std::vector<const void*> buffers;
    ArrowSchema schema;
    ArrowArray array;
  };
  template <typename T>
  static void Nothing(T* owned) {
    owned->release = nullptr;
  }

  int64_t rows_ = 0;
  std::vector<Column> columns_;
  std::vector<ArrowSchema*> schemas_;
  std::vector<ArrowArray*> arrays_;
  const void* no_nulls_ = nullptr;
};

// The label and 13 numbers as int64, 26 categories as strings.
TextColumns::Formats CriteoFormats() {
  TextColumns::Formats formats = {{"label", "l"}};
  for (int i = 1; i <= 13; ++i) formats.emplace_back(absl::StrCat("I", i), "l");
  for (int i = 1; i <= 26; ++i) formats.emplace_back(absl::StrCat("C", i), "u");
  return formats;
}

absl::Status WriteParquet(const std::string& path, uint64_t group_rows, TextColumns* columns) {
  SLUICE_ASSIGN_OR_RETURN(auto file, Env::Real()->StartFile(path));
  ParquetWriterOptions options;
  options.row_group_rows = group_rows;
  SLUICE_ASSIGN_OR_RETURN(const auto writer,
                          ParquetWriter::Create(std::move(file), columns->schema(), options));
  SLUICE_RETURN_IF_ERROR(writer->Write(columns->rows()));
  return writer->Finish();
}

// Has Arrow decode all columns. Returns their bytes, uncompressed.
absl::StatusOr<double> DecodeParquet(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const auto reader, ParquetFile::OpenReader(path, Env::Real()));
  std::vector<uint64_t> groups(reader->row_groups());
  std::iota(groups.begin(), groups.end(), 0);
  std::vector<int32_t> columns(static_cast<size_t>(reader->schema().n_children));
  std::iota(columns.begin(), columns.end(), 0);
  double bytes = 0;
  for (const uint64_t g : groups) {
    SLUICE_ASSIGN_OR_RETURN(const ParquetRowGroup group, reader->RowGroup(g, columns));
    bytes += static_cast<double>(group.bytes);
  }
  SLUICE_ASSIGN_OR_RETURN(const auto rows,
                          reader->Read(groups, columns, 65536, /*dictionaries=*/true));
  while (true) {
    SLUICE_ASSIGN_OR_RETURN(const ArrowOwner<ArrowArray> batch, rows->Next());
    if (batch.empty()) return bytes;
  }
}

// Reads the examples of a Parquet file in groups of 16,384 rows.
class ParquetBench {
 public:
  static absl::StatusOr<std::shared_ptr<ParquetBench>> Create(size_t examples) {
    SLUICE_RETURN_IF_ERROR(OpenArrow());
    auto bench = std::make_shared<ParquetBench>();
    SLUICE_ASSIGN_OR_RETURN(bench->folder_, TemporaryFolder::Create());
    bench->path_ = bench->folder_->path() + "/train.parquet";
    std::string text;
    ClickSums sums;
    ClickGenerator({}).Append(0, examples, &text, &sums);
    TextColumns columns(text, '\t', CriteoFormats());
    SLUICE_RETURN_IF_ERROR(WriteParquet(bench->path_, 16384, &columns));
    JobConfig job = CriteoJob();
    job.mutable_data()->set_format(DataConfig::PARQUET);
    job.mutable_data()->mutable_label()->set_column("label");
    SLUICE_ASSIGN_OR_RETURN(bench->schema_, FeatureSchema::Create(job));
    bench->data_ = job.data();
    bench->examples_ = examples;
    return bench;
  }

  Sample Measure() {
    Sample sample;
    double start = Now();
    const auto bytes = DecodeParquet(path_);
    if (!bytes.ok()) return sample;
    sample.limit = *bytes / 1e6 / (Now() - start);
    batch_.Reset(schema_->numerics().size(), schema_->slots().size());
    BadLines bad;
    // A new one, because a source keeps rows that it has decoded.
    const auto source = DataSource::Create(data_, schema_, Env::Real());
    if (!source.ok()) return sample;
    start = Now();
    const absl::Status status = (*source)->ReadPiece(path_, 0, UINT64_MAX, true, &batch_, &bad);
    if (!status.ok() || batch_.n != examples_ || bad.count != 0) return sample;
    sample.value = *bytes / 1e6 / (Now() - start);
    return sample;
  }

 private:
  std::shared_ptr<const TemporaryFolder> folder_;
  std::string path_;
  size_t examples_ = 0;
  std::shared_ptr<const FeatureSchema> schema_;
  DataConfig data_;
  Batch batch_;
};

// A kind of column, of which a file has kReadColumns.
struct ReadKind {
  const char* name;
  const char* format;   // TextColumns
  const char* feature;  // of the job
  uint64_t values;      // different ones; 0: fractions
};
constexpr ReadKind kReadKinds[] = {
    {"number", "g", "numeric {}", 0},
    {"id", "l", "categorical {}", 1'000'000},
    {"raw", "l", "categorical {} key: RAW embedding: 'ids'", 1'000'000},
    {"words", "u", "categorical {}", 1000},
    {"many_words", "u", "categorical {}", 20'000}};
constexpr int kReadColumns = 8;

double ThreadCpuSeconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Reads columns of one kind, from Parquet and from CSV, in processor time a value.
class ReadKindBench {
 public:
  static absl::StatusOr<std::shared_ptr<ReadKindBench>> Create(const ReadKind& kind, size_t rows) {
    auto bench = std::make_shared<ReadKindBench>();
    SLUICE_ASSIGN_OR_RETURN(bench->folder_, TemporaryFolder::Create());
    bench->rows_ = rows;
    TextColumns::Formats formats = {{"y", "l"}};
    std::string header = "y", features;
    for (int c = 0; c < kReadColumns; ++c) {
      formats.emplace_back(absl::StrCat("c", c), kind.format);
      absl::StrAppend(&header, ",c", c);
      absl::StrAppend(&features, "features { name: 'c", c, "' ", kind.feature, " } ");
    }
    std::string text;
    std::mt19937_64 random(1);
    for (size_t r = 0; r < rows; ++r) {
      absl::StrAppend(&text, r % 2);
      for (int c = 0; c < kReadColumns; ++c) {
        if (kind.values == 0) {
          absl::StrAppend(&text, ",", static_cast<double>(random() >> 40) / 65536);
        } else {
          absl::StrAppend(&text, *kind.format == 'u' ? ",word " : ",", random() % kind.values);
        }
      }
      text += '\n';
    }
    TextColumns columns(text, ',', formats);
    SLUICE_RETURN_IF_ERROR(WriteParquet(bench->parquet(), 65536, &columns));
    SLUICE_RETURN_IF_ERROR(Env::Real()->WriteFile(bench->csv(), {header, "\n", text}));
    for (const char* const data : {"format: PARQUET label { column: 'y' }",
                                   "format: CSV csv { header: true } label { column: 'y' }"}) {
      JobConfig job;
      if (!google::protobuf::TextFormat::ParseFromString(
              absl::StrCat("data { ", data, " } ", features,
                           "model { wide_deep { hidden_units: 4 } }"),
              &job))
        return absl::InternalError("the job of the benchmark is no text of a job");
      SLUICE_ASSIGN_OR_RETURN(bench->schema_, FeatureSchema::Create(job));
      bench->data_.push_back(job.data());
    }
    return bench;
  }

  Sample MeasureParquet() {
    Sample sample;
    const double start = ThreadCpuSeconds();
    if (!DecodeParquet(parquet()).ok()) return sample;
    sample.limit = PerValue(ThreadCpuSeconds() - start);
    sample.value = Read(data_[0], parquet());
    return sample;
  }
  Sample MeasureCsv() {
    Sample sample;
    sample.limit = Read(data_[0], parquet());
    sample.value = Read(data_[1], csv());
    return sample;
  }

 private:
  std::string parquet() const { return folder_->path() + "/rows.parquet"; }
  std::string csv() const { return folder_->path() + "/rows.csv"; }
  double PerValue(double seconds) const {
    return 1e9 * seconds / static_cast<double>(rows_ * kReadColumns);
  }
  // Nanoseconds a value; 0: an error.
  double Read(const DataConfig& data, const std::string& path) {
    batch_.Reset(schema_->numerics().size(), schema_->slots().size());
    BadLines bad;
    // A new one, because a source keeps rows that it has decoded.
    const auto source = DataSource::Create(data, schema_, Env::Real());
    if (!source.ok()) return 0;
    const double start = ThreadCpuSeconds();
    const absl::Status status = (*source)->ReadPiece(path, 0, UINT64_MAX, true, &batch_, &bad);
    const double seconds = ThreadCpuSeconds() - start;
    return status.ok() && batch_.n == rows_ && bad.count == 0 ? PerValue(seconds) : 0;
  }

  std::shared_ptr<const TemporaryFolder> folder_;
  size_t rows_ = 0;
  std::shared_ptr<const FeatureSchema> schema_;
  std::vector<DataConfig> data_;  // Parquet, CSV
  Batch batch_;
};

Benchmark ReadKindBenchmark(const ReadKind& kind, const std::string& format,
                            const std::string& limit, Sample (ReadKindBench::*measure)()) {
  Benchmark benchmark;
  benchmark.name = absl::StrCat("reader/", format, "/", kind.name);
  benchmark.unit = "ns/value";
  benchmark.limit_name = limit;
  benchmark.prepare =
      [kind, measure](const Settings& settings) -> absl::StatusOr<std::function<Sample()>> {
    SLUICE_ASSIGN_OR_RETURN(const std::shared_ptr<ReadKindBench> bench,
                            ReadKindBench::Create(kind, settings.quick ? 5000 : 262144));
    return std::function<Sample()>([bench, measure] { return (bench.get()->*measure)(); });
  };
  benchmark.unfit = [] { return std::string(OpenArrow().message()); };
  return benchmark;
}

class Reader {
 public:
  static absl::StatusOr<std::shared_ptr<Reader>> Create(size_t examples) {
    auto reader = std::make_shared<Reader>();
    SLUICE_ASSIGN_OR_RETURN(reader->folder_, TemporaryFolder::Create());
    const std::string& folder = reader->folder_->path();
    ClickSums sums;
    ClickGenerator({}).Append(0, examples, &reader->text_, &sums);
    reader->piece_.path = folder + "/train.tsv";
    SLUICE_RETURN_IF_ERROR(Env::Real()->WriteFile(reader->piece_.path, {reader->text_}));
    // Files that were just written are not cached.
    std::filesystem::last_write_time(
        reader->piece_.path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
    JobConfig job = CriteoJob();
    SLUICE_ASSIGN_OR_RETURN(reader->schema_, FeatureSchema::Create(job));
    SLUICE_ASSIGN_OR_RETURN(reader->data_,
                            DataSource::Create(job.data(), reader->schema_, Env::Real()));
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
  std::shared_ptr<const TemporaryFolder> folder_;
  std::string text_, cache_file_;
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
  Benchmark parquet;
  parquet.name = "reader/parquet";
  parquet.unit = "MB/s";
  parquet.limit_name = "Arrow's decoding of the columns";
  parquet.prepare = [](const Settings& settings) -> absl::StatusOr<std::function<Sample()>> {
    SLUICE_ASSIGN_OR_RETURN(const std::shared_ptr<ParquetBench> bench,
                            ParquetBench::Create(settings.quick ? 5000 : 65536));
    return std::function<Sample()>([bench] { return bench->Measure(); });
  };
  parquet.unfit = [] { return std::string(OpenArrow().message()); };
  to->push_back(std::move(parquet));
  for (const ReadKind& kind : kReadKinds) {
    to->push_back(ReadKindBenchmark(kind, "parquet", "Arrow's decoding of the columns",
                                    &ReadKindBench::MeasureParquet));
    to->push_back(
        ReadKindBenchmark(kind, "csv", "the same rows from Parquet", &ReadKindBench::MeasureCsv));
  }
}

}  // namespace sluice::bench
