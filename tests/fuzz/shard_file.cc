// Reads a model's or a checkpoint's shard file: raw bytes, or a file whose header, records and
// index the input gives, with checksums that are made right.
//
// Checks: what is read is damaged (DATA_LOSS), or has as many records as its header says.
#include "common/saved_model/shard_file.h"

#include <cstring>

#include "common/base/crc32c.h"
#include "common/base/hash.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/shard_file_reader.h"
#include "tests/common/saved_model/memory_env.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

constexpr uint64_t kMostRecords = 1 << 16;

TableConfig TableOf(FuzzedDataProvider* input) {
  TableConfig table;
  table.set_name("t");
  if (input->ConsumeBool()) {
    table.set_kind(TableConfig::DENSE);
    table.add_shape(6);
    table.add_shape(input->ConsumeIntegralInRange(0, 3) == 0 ? input->ConsumeIntegral<uint64_t>()
                                                             : 2);
  } else {
    table.set_kind(TableConfig::SPARSE);
    table.set_num_shards(input->PickValueInArray({1u, 1u, 2u, UINT32_MAX}));
    table.add_columns()->set_dim(2);
  }
  return table;
}

ShardFileHeader HeaderOf(const TableConfig& table, FuzzedDataProvider* input) {
  ShardFileHeader header;
  header.set_table(table.name());
  header.set_kind(table.kind());
  header.set_runs(1);
  const uint32_t records = input->ConsumeIntegralInRange(0, 12);
  const bool checkpoint = input->ConsumeBool();
  if (checkpoint) header.mutable_facts();
  if (table.kind() == TableConfig::SPARSE) {
    header.set_rows(records);
    header.set_dim(2);
    header.set_runs(input->PickValueInArray({1u, 2u, 4u}));
    if (checkpoint) header.set_state_floats(2);
  } else {
    header.set_elements(records);
    if (checkpoint) header.set_state_floats(1);
  }
  ShardFileHeader change;
  if (input->ConsumeBool() && change.ParseFromString(input->ConsumeRandomLengthString(40)))
    header.MergeFrom(change);
  return header;
}

// The records that the header promises; the keys of a sparse file ascend.
std::string RecordsOf(const ShardFileHeader& header, FuzzedDataProvider* input) {
  std::string records;
  if (header.kind() == TableConfig::DENSE) {
    records.resize(4 * (header.elements() % kMostRecords) * (1 + header.state_floats() % 8));
    return records;
  }
  const size_t rest =
      4 * (size_t{header.dim()} % 64 + header.state_floats() % 64) + (header.has_facts() ? 12 : 0);
  uint64_t key = 0;
  for (uint64_t i = 0; i < std::min<uint64_t>(header.rows(), kMostRecords); ++i) {
    key += input->ConsumeIntegralInRange<uint64_t>(0, 3);
    records.append(reinterpret_cast<const char*>(&key), sizeof(key));
    records.append(rest, '\0');
  }
  return records;
}

void AppendU32(uint32_t value, std::string* to) {
  to->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// An index that divides the records between one to three blocks and the header's runs.
std::string IndexOf(const ShardFileHeader& header, const std::string& records,
                    FuzzedDataProvider* input) {
  ShardFileIndex index;
  const uint64_t n = std::max<uint64_t>(1, header.kind() == TableConfig::SPARSE
                                               ? header.rows()
                                               : header.elements() * (1 + header.state_floats()));
  const size_t record_bytes = records.size() / n;
  size_t done = 0;
  const uint32_t runs = header.runs() % 2048;
  for (uint32_t block = 0; done < records.size() && block < 4; ++block) {
    const uint64_t left = (records.size() - done) / std::max<size_t>(1, record_bytes);
    const uint64_t some =
        block == 3 ? left : input->ConsumeIntegralInRange<uint64_t>(1, std::max<uint64_t>(1, left));
    index.add_records(static_cast<uint32_t>(some));
    index.add_crc32c(
        Crc32c(records.data() + done, std::min(some * record_bytes, records.size() - done)));
    done += some * std::max<size_t>(1, record_bytes);
  }
  for (uint32_t r = 0; r < runs; ++r)
    index.add_run_blocks(r + 1 == runs ? index.records_size() : 0);
  ShardFileIndex change;
  if (input->ConsumeIntegralInRange(0, 3) == 0 &&
      change.ParseFromString(input->ConsumeRandomLengthString(40)))
    index.MergeFrom(change);
  return index.SerializeAsString();
}

std::string FileOf(const TableConfig& table, FuzzedDataProvider* input) {
  if (input->ConsumeIntegralInRange(0, 7) == 0) return input->ConsumeRemainingBytesAsString();
  const ShardFileHeader header = HeaderOf(table, input);
  std::string file = EncodeShardFileHeader(header);
  const std::string records = RecordsOf(header, input);
  file += records;
  if (input->ConsumeIntegralInRange(0, 7) == 0) {  // the older format has no index
    std::memcpy(file.data(), kShardFileMagic1.data(), kShardFileMagic1.size());
    return file;
  }
  const std::string index = IndexOf(header, records, input);
  file += index;
  AppendU32(static_cast<uint32_t>(index.size()), &file);
  return file;
}

void Expect(const absl::Status& status) {
  FUZZ_CHECK(status.ok() || status.code() == absl::StatusCode::kDataLoss ||
             status.code() == absl::StatusCode::kInvalidArgument);
}

template <class Reader>
void ReadAll(Reader reader, size_t record_bytes, uint64_t records) {
  for (uint64_t n = 0;;) {
    const auto some = reader.Next(100);
    Expect(some.status());
    if (!some.ok()) return;
    FUZZ_CHECK(some->size() % record_bytes == 0);
    n += some->size() / record_bytes;
    if (!some->empty()) continue;
    FUZZ_CHECK(n == records);
    return;
  }
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;  // NOLINT
  FuzzedDataProvider input(data, size);
  Manifest manifest;
  *manifest.add_tables() = TableOf(&input);
  const TableConfig& table = manifest.tables(0);
  const std::string bytes = FileOf(table, &input);
  SavedFile* const file = manifest.add_files();
  file->set_name(ShardFileName("t", 0));
  file->set_bytes(bytes.size());
  file->set_crc32c(Crc32c(bytes.data(), bytes.size()));
  MemoryEnv env;
  env.Put("/model/" + file->name(), bytes);
  const auto reader = ShardFileReader::Open(&env, "/model", table, *file);
  Expect(reader.status());
  if (reader.ok()) {
    ReadAll(RunReader(reader->get(), 0, (*reader)->runs()), (*reader)->record_bytes(),
            (*reader)->records());
    ValueReader values(reader->get(), 0, (*reader)->runs());
    const size_t record_bytes = values.record_bytes();
    ReadAll(std::move(values), record_bytes, (*reader)->values());
  }
  Expect(CountRecords("/model", manifest, "t", &env).status());
  Expect(VisitShards("/model", manifest, "t", &env,
                     [](uint32_t, ShardValues) { return absl::OkStatus(); }));
  Expect(ModelDigest("/model", manifest, &env).status());
  return 0;
}
