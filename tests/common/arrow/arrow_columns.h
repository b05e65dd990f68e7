// Columns for tests as structs of the Arrow C data interface, and files in memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/arrow/arrow_c_data.h"
#include "common/arrow/parquet.h"
#include "common/base/env.h"

namespace sluice {

// One column: its type in the letters of the interface, and the bytes of its buffers.
struct TestColumn {
  std::string name;
  std::string format;
  int64_t rows = 0;
  int64_t nulls = 0;
  std::vector<std::string> buffers;  // the first, validity, may be empty

  template <typename T>
  static TestColumn Numbers(std::string name, std::string format,
                            const std::vector<std::optional<T>>& values) {
    TestColumn column = {std::move(name), std::move(format), int64_t(values.size())};
    column.buffers.resize(2);
    for (const auto& value : values) {
      const T number = value.value_or(T());
      column.buffers[1].append(reinterpret_cast<const char*>(&number), sizeof(T));
    }
    column.SetNulls([&](int64_t row) { return !values[row].has_value(); });
    return column;
  }
  static TestColumn Texts(std::string name, const std::vector<std::optional<std::string>>& values) {
    TestColumn column = {std::move(name), "u", int64_t(values.size())};
    column.buffers.resize(3);
    int32_t end = 0;
    const auto add_end = [&] {
      column.buffers[1].append(reinterpret_cast<const char*>(&end), sizeof(end));
    };
    add_end();
    for (const auto& value : values) {
      column.buffers[2] += value.value_or("");
      end = column.buffers[2].size();
      add_end();
    }
    column.SetNulls([&](int64_t row) { return !values[row].has_value(); });
    return column;
  }

  void SetNulls(const std::function<bool(int64_t row)>& is_null) {
    std::string bits((rows + 7) / 8, '\0');
    for (int64_t row = 0; row < rows; ++row) {
      if (is_null(row)) {
        ++nulls;
      } else {
        bits[row / 8] |= 1 << row % 8;
      }
    }
    if (nulls > 0) buffers[0] = bits;
  }
};

using TestColumns = std::vector<TestColumn>;

// Owns what the structs made of columns point to.
class TestStructs {
 public:
  static ArrowOwner<ArrowSchema> Schema(const TestColumns& columns) {
    auto* const self = new TestStructs(columns);
    self->schemas_.resize(columns.size());
    for (size_t i = 0; i < columns.size(); ++i) {
      self->schemas_[i] = {self->columns_[i].format.c_str(),
                           self->columns_[i].name.c_str(),
                           nullptr,
                           ARROW_FLAG_NULLABLE,
                           0,
                           nullptr,
                           nullptr,
                           Nothing<ArrowSchema>,
                           nullptr};
      self->schema_children_.push_back(&self->schemas_[i]);
    }
    return ArrowOwner<ArrowSchema>({"+s", "", nullptr, 0, int64_t(columns.size()),
                                    self->schema_children_.data(), nullptr, Delete<ArrowSchema>,
                                    self});
  }
  static ArrowOwner<ArrowArray> Array(const TestColumns& columns) {
    auto* const self = new TestStructs(columns);
    self->arrays_.resize(columns.size());
    self->pointers_.resize(columns.size());
    for (size_t i = 0; i < columns.size(); ++i) {
      const TestColumn& column = self->columns_[i];
      for (const std::string& buffer : column.buffers) self->pointers_[i].push_back(buffer.data());
      if (column.nulls == 0) self->pointers_[i][0] = nullptr;
      self->arrays_[i] = {column.rows,
                          column.nulls,
                          0,
                          int64_t(column.buffers.size()),
                          0,
                          self->pointers_[i].data(),
                          nullptr,
                          nullptr,
                          Nothing<ArrowArray>,
                          nullptr};
      self->array_children_.push_back(&self->arrays_[i]);
    }
    self->no_validity_ = nullptr;
    return ArrowOwner<ArrowArray>(
        {columns.empty() ? 0 : columns[0].rows, 0, 0, 1, int64_t(columns.size()),
         &self->no_validity_, self->array_children_.data(), nullptr, Delete<ArrowArray>, self});
  }

 private:
  explicit TestStructs(const TestColumns& columns) : columns_(columns) {}
  template <typename Struct>
  static void Nothing(Struct* child) {
    child->release = nullptr;
  }
  template <typename Struct>
  static void Delete(Struct* top) {
    // A child that somebody has moved out is released by him, and needs what this owns.
    delete static_cast<TestStructs*>(top->private_data);
    top->release = nullptr;
  }

  const TestColumns columns_;
  std::vector<ArrowSchema> schemas_;
  std::vector<ArrowSchema*> schema_children_;
  std::vector<ArrowArray> arrays_;
  std::vector<ArrowArray*> array_children_;
  std::vector<std::vector<const void*>> pointers_;
  const void* no_validity_ = nullptr;
};

inline bool IsNull(const ArrowArray& column, int64_t row) {
  const auto* const bits = static_cast<const uint8_t*>(column.buffers[0]);
  row += column.offset;
  return bits != nullptr && (bits[row / 8] >> row % 8 & 1) == 0;
}
template <typename T>
std::optional<T> NumberAt(const ArrowArray& column, int64_t row) {
  if (IsNull(column, row)) return std::nullopt;
  return static_cast<const T*>(column.buffers[1])[column.offset + row];
}
// Of a column of texts or of a dictionary of them.
inline std::optional<std::string> TextAt(const ArrowArray& column, int64_t row) {
  if (IsNull(column, row)) return std::nullopt;
  if (column.dictionary != nullptr)
    return TextAt(*column.dictionary, *NumberAt<int32_t>(column, row));
  const auto* const ends = static_cast<const int32_t*>(column.buffers[1]) + column.offset + row;
  return std::string(static_cast<const char*>(column.buffers[2]) + ends[0], ends[1] - ends[0]);
}

// What has been asked of a MemoryFile. Outlives it.
struct MemoryReads {
  size_t calls = 0;
  uint64_t bytes = 0;
  size_t most_bytes = 0;         // of one call
  size_t fail_at = SIZE_MAX;     // the number of the call that fails with UNAVAILABLE
  uint64_t cut_at = UINT64_MAX;  // the file ends here, though it was longer when it was opened
};

class MemoryFile : public FileReader {
 public:
  // `bytes` and `reads` outlive this.
  MemoryFile(const std::string* bytes, MemoryReads* reads)
      : FileReader(InfoOf(bytes->size())), bytes_(bytes), reads_(reads) {}
  absl::StatusOr<size_t> ReadAt(uint64_t offset, void* to, size_t n) override {
    if (reads_->calls++ == reads_->fail_at) return absl::UnavailableError("the store is away");
    const uint64_t end = std::min<uint64_t>(bytes_->size(), reads_->cut_at);
    if (offset >= end) return 0;
    n = std::min<uint64_t>(n, end - offset);
    reads_->bytes += n;
    reads_->most_bytes = std::max(reads_->most_bytes, n);
    std::memcpy(to, bytes_->data() + offset, n);
    return n;
  }

 private:
  static FileInfo InfoOf(uint64_t size) {
    FileInfo info;
    info.identity.size = size;
    return info;
  }
  const std::string* const bytes_;
  MemoryReads* const reads_;
};

// Gives its bytes to `finished` [outlives it] when it is complete.
class NewMemoryFile : public NewFile {
 public:
  explicit NewMemoryFile(std::string* finished, uint64_t room = UINT64_MAX)
      : finished_(finished), room_(room) {}
  absl::Status Append(absl::string_view bytes) override {
    if (bytes.size() > room_ - bytes_.size()) return absl::ResourceExhaustedError("disk full");
    bytes_.append(bytes.data(), bytes.size());
    return absl::OkStatus();
  }
  absl::Status Finish() override {
    *finished_ = std::move(bytes_);
    return absl::OkStatus();
  }

 private:
  std::string* const finished_;
  const uint64_t room_;
  std::string bytes_;
};

}  // namespace sluice
