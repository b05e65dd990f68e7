// The bytes of a Parquet file as libparquet reads them: few and large requests.
//
// Ranges that are planned are fetched whole when the first byte of each is wanted, and stay in
// memory until the next plan. Other bytes are fetched as they are asked for.
//
// Thread safety: one thread. Nothing here starts another one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "arrow/buffer.h"
#include "arrow/io/caching.h"
#include "arrow/io/interfaces.h"
#include "arrow/result.h"
#include "common/arrow/arrow_plugin.h"

namespace sluice_arrow {

class RangedFile : public arrow::io::RandomAccessFile {
 public:
  // What `input` points to outlives this.
  explicit RangedFile(const SluiceArrowInput& input) : input_(input) {}

  // Forgets the ranges of the plan before.
  void Plan(const std::vector<arrow::io::ReadRange>& ranges);
  // A callback has failed: what libparquet reports is a consequence.
  bool failed() const { return failed_; }

  arrow::Result<int64_t> ReadAt(int64_t position, int64_t nbytes, void* out) override;
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t position, int64_t nbytes) override;
  // Without a thread of its own, unlike the base class.
  arrow::Future<std::shared_ptr<arrow::Buffer>> ReadAsync(const arrow::io::IOContext&,
                                                          int64_t position,
                                                          int64_t nbytes) override;
  arrow::Result<int64_t> GetSize() override { return input_.size; }
  arrow::Result<int64_t> Read(int64_t nbytes, void* out) override;
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t nbytes) override;
  arrow::Status Seek(int64_t position) override;
  arrow::Result<int64_t> Tell() const override { return position_; }
  arrow::Status Close() override { return arrow::Status::OK(); }
  bool closed() const override { return false; }

 private:
  struct Range {
    int64_t begin;
    int64_t length;
    std::shared_ptr<arrow::Buffer> bytes;  // null until it is wanted
  };

  // Bytes of [position, position + nbytes) that the file has. Fails for a negative position.
  arrow::Result<int64_t> Available(int64_t position, int64_t nbytes) const;
  // The planned range that holds all of these bytes, fetched; null: there is none.
  arrow::Result<const Range*> Planned(int64_t position, int64_t nbytes);
  arrow::Status Fetch(int64_t position, int64_t nbytes, void* out);

  const SluiceArrowInput input_;
  std::vector<Range> plan_;  // by begin
  int64_t position_ = 0;
  bool failed_ = false;
};

}  // namespace sluice_arrow
