// Reads and writes Parquet files through sluice-arrow.so (arrow_plugin.h).
//
// Errors name neither the file nor the caller's doing: the caller adds the path. FAILED_PRECONDITION
// when the library is not there tells how to get it in this kind of installation. INVALID_ARGUMENT:
// no Parquet, or damaged; UNIMPLEMENTED: what the library does not read; others as the Env's.
//
// Thread safety: each object by one thread at a time; OpenArrow from any.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/arrow/arrow_c_data.h"
#include "common/base/env.h"

namespace sluice {

// Owns a struct of the Arrow C data interface, and releases it.
template <typename Struct>
class ArrowOwner {
 public:
  ArrowOwner() = default;
  explicit ArrowOwner(const Struct& taken) : value_(taken) {}
  ArrowOwner(ArrowOwner&& other) noexcept : value_(std::exchange(other.value_, Struct{})) {}
  ArrowOwner& operator=(ArrowOwner&& other) noexcept {
    Release();
    value_ = std::exchange(other.value_, Struct{});
    return *this;
  }
  ~ArrowOwner() { Release(); }
  const Struct& operator*() const { return value_; }
  const Struct* operator->() const { return &value_; }
  bool empty() const { return value_.release == nullptr; }
  // Releases what it owns, and gives the place for another struct.
  Struct* Fill() {
    Release();
    return &value_;
  }
  // Gives the struct away.
  Struct Take() { return std::exchange(value_, Struct{}); }

 private:
  void Release() {
    if (value_.release != nullptr) value_.release(&value_);
    value_ = Struct{};
  }
  Struct value_ = {};
};

// OK when the library is there and fits this program; it is then open until the end of the program.
// FAILED_PRECONDITION says how to get it.
absl::Status OpenArrow();

struct ParquetRowGroup {
  uint64_t rows = 0;
  uint64_t bytes = 0;         // of the chosen columns, uncompressed
  uint64_t stored_bytes = 0;  // of the chosen columns, as stored
};

// Rows of a file, a batch at a time.
class ParquetRows {
 public:
  virtual ~ParquetRows() = default;
  // A struct array with the chosen columns in the order of the choice; empty at the end.
  virtual absl::StatusOr<ArrowOwner<ArrowArray>> Next() = 0;
  // The type of what Next gives: dictionaries may differ from ParquetReader::schema.
  virtual const ArrowSchema& schema() const = 0;
};

class ParquetReader {
 public:
  // Reads the footer of `file`, in few requests.
  static absl::StatusOr<std::unique_ptr<ParquetReader>> Open(std::unique_ptr<FileReader> file);
  virtual ~ParquetReader() = default;

  virtual const FileInfo& info() const = 0;
  // A struct whose children are the file's top-level columns, in their order.
  virtual const ArrowSchema& schema() const = 0;
  virtual uint64_t row_groups() const = 0;
  // REQUIRES: group < row_groups(); columns are indices of top-level columns.
  virtual absl::StatusOr<ParquetRowGroup> RowGroup(uint64_t group,
                                                   absl::Span<const int32_t> columns) = 0;
  // The rows of `groups`, in this order, in batches of at most `batch_rows`. Strings with
  // dictionaries in the file stay dictionary arrays when `dictionaries`. Only the chosen columns
  // are read. The reader outlives the rows, and gives one ParquetRows at a time.
  virtual absl::StatusOr<std::unique_ptr<ParquetRows>> Read(absl::Span<const uint64_t> groups,
                                                            absl::Span<const int32_t> columns,
                                                            uint64_t batch_rows,
                                                            bool dictionaries) = 0;
};

struct ParquetWriterOptions {
  uint64_t row_group_rows = 1 << 20;
  std::string compression = "zstd";  // or none, snappy, gzip, lz4
};

class ParquetWriter {
 public:
  // `schema`: a struct of the columns. The file appears under its name by Finish alone.
  static absl::StatusOr<std::unique_ptr<ParquetWriter>> Create(std::unique_ptr<NewFile> file,
                                                               ArrowOwner<ArrowSchema> schema,
                                                               const ParquetWriterOptions& options);
  virtual ~ParquetWriter() = default;
  virtual absl::Status Write(ArrowOwner<ArrowArray> batch) = 0;
  virtual absl::Status Finish() = 0;  // the last call
};

}  // namespace sluice
