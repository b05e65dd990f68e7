// Reads a data file as examples, in each format.
//
// Checks: a file that is cut anywhere gives the examples and bad lines of the whole file, as many
// as CountLines counts; labels are 0 or 1 and numbers are finite.
#include <cmath>
#include <memory>

#include "model/data/data_source.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/memory_file.h"
#include "tests/model/features/schema_for_test.h"

namespace sluice {
namespace {

constexpr char kFeatures[] =
    "features { name: 'n' numeric { min_max { min: 0 max: 9 } } } "
    "features { name: 'b' numeric { column: 'n' boundaries: [1, 5] } } "
    "features { name: 'c' categorical { multi_value_delimiter: '|' } } "
    "features { name: 'v' categorical { column: 'c' vocabulary: ['a', 'b'] } } "
    "features { name: 'x' cross { features: ['b', 'v'] hash_buckets: 7 } } ";

constexpr const char* kData[] = {
    "data { format: CSV label { column: 'y' } csv { header: true comment_prefix: '#' } ",
    "data { format: CSV label { column: 'y' positive: '>50K' } csv { columns: ['y', 'w', 'n', 'c'] "
    "trim: false missing: '?' } weight_column: 'w' ",
    "data { format: CSV label { column: 'y' } csv { columns: ['y', 'n', 'c'] delimiter: '\\t' } ",
};
constexpr char kMultiSlot[] =
    "data { format: MULTI_SLOT slots { name: 'y' type: FLOAT dim: 1 } slots { name: 'n' type: "
    "FLOAT "
    "dim: 1 } slots { name: 'c' type: UINT64 } label { column: 'y' } } "
    "features { name: 'n' numeric {} } features { name: 'c' categorical {} }";
constexpr char kLibsvm[] =
    "data { format: LIBSVM } features { name: 'n' numeric { column: '1' } } "
    "features { name: 'c' categorical { column: '2' } }";
constexpr char kLibffm[] =
    "data { format: LIBFFM } features { name: 'f' categorical { column: '0' } } "
    "features { name: 'g' categorical { column: '7' hash_buckets: 9 } }";
constexpr char kIndices[] =
    "data { format: LIBSVM csv { missing: '?' } } features { name: 'n' numeric { column: '1' } } "
    "features { name: 'all' categorical { column: 'indices' pooling: MEAN } }";
constexpr char kSlotValue[] =
    "data { format: SLOT_VALUE slots { name: 'y' type: FLOAT dim: 1 } slots { name: 'n' type: "
    "FLOAT dim: 2 } slots { name: 'c' type: UINT64 } label { column: 'y' } } "
    "features { name: 'n' numeric { column: 'n.1' } } features { name: 'c' categorical {} }";
constexpr char kJsonLines[] =
    "data { format: JSON_LINES label { column: 'y' } csv { missing: '?' } } "
    "features { name: 'n' numeric { column: 'o.n' } } features { name: 'k' key: RAW categorical {} "
    "} features { name: 'c' categorical { multi_value_delimiter: '|' } }";
constexpr char kCriteo[] =
    "data { format: CRITEO_TSV } features { name: 'n' numeric { column: 'I1' } } "
    "features { name: 'c' categorical { column: 'C1' } } "
    "features { name: 'd' categorical { column: 'C26' } }";

struct Source {
  std::shared_ptr<const FeatureSchema> schema;
  std::unique_ptr<DataSource> data;
};

Source SourceOf(int format) {
  const std::string text = format < 3    ? std::string(kData[format]) + "} " + kFeatures
                           : format == 3 ? kMultiSlot
                           : format == 4 ? kLibsvm
                           : format == 5 ? kCriteo
                           : format == 6 ? kLibffm
                           : format == 7 ? kIndices
                           : format == 8 ? kSlotValue
                                         : kJsonLines;
  const JobConfig job = JobForTest(text);
  FeatureUse use = WithKeyWeights();
  use.several_tables = true;  // RAW keys have a table of their own
  Source source{SchemaForTest(job, use), nullptr};
  FUZZ_CHECK(source.schema != nullptr);
  auto data = DataSource::Create(job.data(), source.schema, Env::Real());
  FUZZ_CHECK(data.ok());
  source.data = std::move(*data);
  return source;
}

struct Read {
  absl::Status status;
  Batch batch;
  BadLines bad;
};

Read ReadPiece(const Source& source, const std::string& path, uint64_t begin, uint64_t end) {
  Read read;
  read.batch = EmptyBatch(*source.schema);
  read.status =
      source.data->ReadPiece(path, begin, end, /*need_label=*/true, &read.batch, &read.bad);
  FUZZ_CHECK(read.status.ok() || read.status.code() == absl::StatusCode::kInvalidArgument ||
             read.status.code() == absl::StatusCode::kDataLoss);
  return read;
}

void CheckExamples(const Batch& batch) {
  FUZZ_CHECK(batch.label.size() == batch.n);
  FUZZ_CHECK(batch.numeric.size() == batch.n * batch.num_numeric);
  FUZZ_CHECK(batch.key_offsets.size() == batch.n * batch.num_slots + 1);
  FUZZ_CHECK(batch.key_offsets.back() == batch.keys.size());
  for (const float label : batch.label) FUZZ_CHECK(label == 0 || label == 1);
  for (const float number : batch.numeric) FUZZ_CHECK(std::isfinite(number));
  for (const float weight : batch.weight) FUZZ_CHECK(std::isfinite(weight) && weight >= 0);
}

void CheckStream(const Source& source, const std::string& path, uint64_t bytes, const Read& whole) {
  ExampleStream::Options options;
  options.path = path;
  const auto stream = source.data->OpenStream(options);
  if (!stream.ok()) return;
  const auto parser = (*stream)->NewParser();
  ExampleStream::Text text;
  ExampleStream::Piece piece;
  BadLines bad;
  size_t n = 0;
  while (true) {
    const absl::StatusOr<bool> more = (*stream)->Read(bytes, &text);
    if (!more.ok()) return;
    if (!*more) break;
    if (!parser->Parse(&text, &piece, &bad).ok()) return;
    n += piece.examples.n;
  }
  // Without a label a line can be good that is bad in training.
  FUZZ_CHECK(n + bad.count == whole.batch.n + whole.bad.count);
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;  // NOLINT
  FuzzedDataProvider input(data, size);
  const Source source = SourceOf(input.ConsumeIntegralInRange(0, 9));
  const uint64_t cut = input.ConsumeIntegralInRange<uint64_t>(0, 4096);
  const MemoryFile file(input.ConsumeRemainingBytesAsString());
  source.data->CheckColumns(file.path(), true).IgnoreError();
  const Read whole = ReadPiece(source, file.path(), 0, UINT64_MAX);
  CheckExamples(whole.batch);
  if (!whole.status.ok()) return 0;
  const Read first = ReadPiece(source, file.path(), 0, cut),
             second = ReadPiece(source, file.path(), cut, UINT64_MAX);
  FUZZ_CHECK(first.status.ok() && second.status.ok());
  FUZZ_CHECK(first.batch.n + second.batch.n == whole.batch.n);
  FUZZ_CHECK(first.bad.count + second.bad.count == whole.bad.count);
  FUZZ_CHECK(first.batch.keys.size() + second.batch.keys.size() == whole.batch.keys.size());
  const auto bytes = source.data->TextBytes(file.path());
  FUZZ_CHECK(bytes.ok());
  const auto lines = source.data->CountLines(file.path(), 0, UINT64_MAX, *bytes + 1);
  FUZZ_CHECK(lines.ok());
  uint64_t counted = 0;
  for (const uint64_t n : *lines) counted += n;
  FUZZ_CHECK(counted == whole.batch.n + whole.bad.count);
  CheckStream(source, file.path(), cut + 1, whole);
  return 0;
}
