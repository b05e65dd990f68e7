// parquet_copy FROM TO COMPRESSION ROW_GROUP_ROWS BATCH_ROWS DICTIONARIES [COLUMN...]
//
// Copies columns of a Parquet file (by number; none: all) through common/arrow, for
// pyarrow_test.py. Prints the bytes that it has read. Exit code 1, with the status, on failure.
#include <cstdlib>
#include <iostream>
#include <memory>
#include <numeric>
#include <vector>

#include "common/arrow/parquet.h"

namespace sluice {
namespace {

class CountingReader : public FileReader {
 public:
  CountingReader(std::unique_ptr<FileReader> file, uint64_t* bytes)
      : FileReader(file->info()), file_(std::move(file)), bytes_(bytes) {}
  absl::StatusOr<size_t> ReadAt(uint64_t offset, void* to, size_t n) override {
    auto read = file_->ReadAt(offset, to, n);
    *bytes_ += read.value_or(0);
    return read;
  }

 private:
  const std::unique_ptr<FileReader> file_;
  uint64_t* const bytes_;
};

// Lends the struct, which the reader keeps.
ArrowOwner<ArrowSchema> Lent(const ArrowSchema& schema) {
  ArrowSchema lent = schema;
  lent.release = [](ArrowSchema* self) { self->release = nullptr; };
  return ArrowOwner<ArrowSchema>(lent);
}

absl::Status Copy(int argc, char** argv) {
  uint64_t bytes = 0;
  auto file = Env::Real()->NewReader(argv[1]);
  if (!file.ok()) return file.status();
  auto reader = ParquetReader::Open(std::make_unique<CountingReader>(*std::move(file), &bytes));
  if (!reader.ok()) return reader.status();
  std::vector<uint64_t> groups((*reader)->row_groups());
  std::iota(groups.begin(), groups.end(), 0);
  std::vector<int32_t> columns;
  for (int i = 7; i < argc; ++i) columns.push_back(std::atoi(argv[i]));
  if (columns.empty()) {
    columns.resize((*reader)->schema().n_children);
    std::iota(columns.begin(), columns.end(), 0);
  }
  auto rows = (*reader)->Read(groups, columns, std::atoi(argv[5]), std::atoi(argv[6]) != 0);
  if (!rows.ok()) return rows.status();
  auto to = Env::Real()->StartFile(argv[2]);
  if (!to.ok()) return to.status();
  ParquetWriterOptions options;
  options.compression = argv[3];
  options.row_group_rows = std::atoi(argv[4]);
  auto writer = ParquetWriter::Create(*std::move(to), Lent((*rows)->schema()), options);
  if (!writer.ok()) return writer.status();
  while (true) {
    auto batch = (*rows)->Next();
    if (!batch.ok()) return batch.status();
    if (batch->empty()) break;
    absl::Status status = (*writer)->Write(*std::move(batch));
    if (!status.ok()) return status;
  }
  std::cout << bytes << "\n";
  return (*writer)->Finish();
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  if (argc < 7) return 2;
  const absl::Status status = sluice::Copy(argc, argv);
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
