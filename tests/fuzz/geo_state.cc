// Restores a Geo worker's local optimizer from a state file that the input changes: its values, the
// framing of its blocks, or both, with checksums that are right or wrong.
//
// Checks: what is refused is DATA_LOSS; what is restored can be saved again to a file that restores
// to the same.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/file_origin.h"
#include "tests/common/saved_model/memory_env.h"
#include "tests/fuzz/fuzz.h"
#include "tests/worker/fakes.h"
#include "worker/step/geo_parameters.h"
#include "worker/step/geo_state_file.h"

namespace sluice {
namespace {

constexpr char kFolder[] = "/checkpoint", kSaveId[] = "0123456789abcdef";
constexpr size_t kMostText = 64;

// A dense and a sparse table whose rules keep state.
const TableLayouts& Layouts() {
  static const TableLayouts* const layouts = [] {
    google::protobuf::RepeatedPtrField<TableConfig> tables;
    *tables.Add() = SgdTable("rows", TableConfig::SPARSE, 2, 1.0f);
    tables[0].mutable_columns(0)->mutable_optimizer()->mutable_adagrad();
    *tables.Add() = SgdTable("dense", TableConfig::DENSE, 3, 1.0f);
    tables[1].mutable_optimizer()->mutable_adam();
    return new TableLayouts(*CreateTableLayouts(tables, 1));
  }();
  return *layouts;
}

std::unique_ptr<GeoParameters> NewParameters(bool sparse) {
  const std::vector<const TableLayout*> dense = {Layouts()[1].get()};
  std::vector<const TableLayout*> rows;
  if (sparse) rows.push_back(Layouts()[0].get());
  return std::make_unique<GeoParameters>(dense, rows, 4);
}

// Values as SaveState writes them, some of them changed.
std::string Values(bool sparse, FuzzedDataProvider* input) {
  std::string bytes;
  const auto put = [&](uint64_t value) {
    if (input->ConsumeIntegralInRange(0, 15) == 0) value = input->ConsumeIntegral<uint64_t>();
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  const uint64_t dense = Layouts()[1]->elements() * Layouts()[1]->columns()[0].rule->state_floats();
  const uint64_t floats = sparse ? Layouts()[0]->state_floats() : 0;
  const uint64_t rows = sparse ? input->ConsumeIntegralInRange<uint64_t>(0, 6) : 0;
  put(3);  // updates of the dense tables
  put(1);
  put(dense);
  bytes.append(dense * sizeof(float), '\1');
  put(floats);
  put(rows);
  for (uint64_t row = 0; row < rows; ++row) {
    put(input->ConsumeIntegralInRange<uint64_t>(0, 15));  // the key
    put(2);                                               // last used
    put(1);                                               // updates
    bytes.append(floats * sizeof(float), '\2');
  }
  if (input->ConsumeBool()) bytes += input->ConsumeRandomLengthString(kMostText);
  if (input->ConsumeBool()) bytes.resize(input->ConsumeIntegralInRange<size_t>(0, bytes.size()));
  return bytes;
}

void AppendWords(uint32_t first, uint32_t second, std::string* to) {
  to->append(reinterpret_cast<const char*>(&first), sizeof(first));
  to->append(reinterpret_cast<const char*>(&second), sizeof(second));
}

// Cuts the values into blocks of any length.
std::string Framed(const std::string& values, FuzzedDataProvider* input) {
  std::string file = kOwnGeoStateMagic;
  for (size_t at = 0; at < values.size();) {
    const size_t n = std::min(values.size() - at, input->ConsumeIntegralInRange<size_t>(1, 4096));
    AppendWords(static_cast<uint32_t>(n), Crc32c(values.data() + at, n), &file);
    file.append(values, at, n);
    at += n;
  }
  AppendWords(0, Crc32c(values.data(), values.size()), &file);
  if (input->ConsumeIntegralInRange(0, 3) > 0) return file;
  const auto at = input->ConsumeIntegralInRange<size_t>(0, file.size());
  const std::string over = input->ConsumeRandomLengthString(kMostText);
  return file.replace(at, std::min(over.size(), file.size() - at), over);
}

absl::Status ReadState(const SavedFile& file, Env* env, GeoParameters* parameters) {
  const auto reader = GeoStateReader::Open(env, kFolder, file);
  if (!reader.ok()) return reader.status();
  const absl::Status restored = parameters->RestoreState(reader->get());
  return restored.ok() ? (*reader)->Finish() : restored;
}

SavedFile Save(const GeoParameters& parameters, Env* env) {
  const auto writer = GeoStateWriter::Create(env, kFolder, 0, kSaveId);
  FUZZ_CHECK(writer.ok() && parameters.SaveState(writer->get()).ok());
  return *(*writer)->Finish();
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;  // NOLINT
  FuzzedDataProvider input(data, size);
  const bool sparse = input.ConsumeBool();
  const std::string bytes = Framed(Values(sparse, &input), &input);
  MemoryEnv env;
  SavedFile file;
  file.set_name("worker-0.state");
  file.set_bytes(bytes.size());
  file.set_crc32c(Crc32c(bytes.data(), bytes.size()));
  if (input.ConsumeIntegralInRange(0, 15) == 0) file.set_bytes(input.ConsumeIntegral<uint64_t>());
  env.Put(absl::StrCat(kFolder, "/", file.name()), bytes);
  const std::unique_ptr<GeoParameters> parameters = NewParameters(sparse);
  const absl::Status restored = ReadState(file, &env, parameters.get());
  FUZZ_CHECK(restored.ok() || absl::IsDataLoss(restored));
  if (!restored.ok()) return 0;
  const SavedFile saved = Save(*parameters, &env);
  const std::unique_ptr<GeoParameters> again = NewParameters(sparse);
  FUZZ_CHECK(ReadState(saved, &env, again.get()).ok());
  FUZZ_CHECK(!sparse || again->rows(0) == parameters->rows(0));
  FUZZ_CHECK(Save(*again, &env).crc32c() == saved.crc32c());
  return 0;
}
