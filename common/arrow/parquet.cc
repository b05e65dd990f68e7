#include "common/arrow/parquet.h"

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/arrow/arrow_library.h"
#include "common/arrow/arrow_plugin.h"
#include "common/base/ranges_reader.h"

namespace sluice {
namespace {

constexpr size_t kErrorBytes = 1024;

absl::Status StatusOf(int code, const char* why) {
  switch (code) {
    case SLUICE_ARROW_OK:
      return absl::OkStatus();
    case SLUICE_ARROW_UNSUPPORTED:
      return absl::UnimplementedError(why);
    case SLUICE_ARROW_NO_MEMORY:
      return absl::ResourceExhaustedError(why);
    case SLUICE_ARROW_IO:
      return absl::InternalError(why);
    default:
      return absl::InvalidArgumentError(why);
  }
}

// The file of a reader, as the plugin reads it. Keeps the first error, which the plugin cannot.
class InputFile {
 public:
  explicit InputFile(std::unique_ptr<FileReader> file)
      : file_(std::move(file)),
        ranges_(dynamic_cast<RangesReader*>(file_.get())),
        input_{this, static_cast<int64_t>(file_->info().identity.size), ReadAt, Plan} {}

  const FileInfo& info() const { return file_->info(); }
  const SluiceArrowInput& input() const { return input_; }
  // Ends the reading of the footer. Every reader of the file starts with the same ranges of the
  // footer, so those are fetched exactly and kept.
  void EndFooter() { in_footer_ = false; }
  absl::Status Error(int code, const char* why) const {
    return code != SLUICE_ARROW_OK && !error_.ok() ? error_ : StatusOf(code, why);
  }

 private:
  static int ReadAt(void* context, int64_t offset, int64_t n, void* to) {
    auto* const self = static_cast<InputFile*>(context);
    const absl::Status status = self->ReadAll(offset, n, static_cast<char*>(to));
    self->error_.Update(status);
    return status.ok() ? 0 : 1;
  }
  static void Plan(void* context, const SluiceArrowRange* ranges, size_t n) {
    auto* const self = static_cast<InputFile*>(context);
    if (self->ranges_ == nullptr) return;
    std::vector<FileRange> expected;
    for (size_t i = 0; i < n; ++i) {
      if (ranges[i].begin < 0 || ranges[i].bytes < 0) continue;
      expected.push_back(
          {static_cast<uint64_t>(ranges[i].begin), static_cast<uint64_t>(ranges[i].bytes)});
    }
    self->ranges_->ExpectRanges(std::move(expected));
  }
  absl::Status ReadAll(uint64_t offset, uint64_t n, char* to) {
    if (in_footer_ && ranges_ != nullptr) ranges_->ExpectRanges({{offset, n}});
    file_->ExpectEnd(offset + n);
    while (n > 0) {
      auto read = file_->ReadAt(offset, to, n);
      if (!read.ok()) return read.status();
      if (*read == 0)
        return absl::FailedPreconditionError(
            absl::StrCat("the file ends at byte ", offset, ": it was longer when it was opened"));
      offset += *read;
      to += *read;
      n -= *read;
    }
    return absl::OkStatus();
  }

  const std::unique_ptr<FileReader> file_;
  RangesReader* const ranges_;  // the same; null: a file that is near
  const SluiceArrowInput input_;
  bool in_footer_ = true;
  absl::Status error_;
};

class PluginRows : public ParquetRows {
 public:
  // `file` outlives this.
  explicit PluginRows(const InputFile* file) : file_(file) {}
  ~PluginRows() override {
    if (stream_.release != nullptr) stream_.release(&stream_);
  }

  ArrowArrayStream* stream() { return &stream_; }
  absl::Status ReadSchema() { return StreamError(stream_.get_schema(&stream_, schema_.Fill())); }

  absl::StatusOr<ArrowOwner<ArrowArray>> Next() override {
    ArrowOwner<ArrowArray> batch;
    const absl::Status status = StreamError(stream_.get_next(&stream_, batch.Fill()));
    if (!status.ok()) return status;
    return batch;
  }
  const ArrowSchema& schema() const override { return *schema_; }

 private:
  absl::Status StreamError(int code) {
    if (code == 0) return absl::OkStatus();
    const int error = code == ENOMEM   ? SLUICE_ARROW_NO_MEMORY
                      : code == ENOSYS ? SLUICE_ARROW_UNSUPPORTED
                      : code == EIO    ? SLUICE_ARROW_IO
                                       : SLUICE_ARROW_INVALID;
    const char* const why = stream_.get_last_error(&stream_);
    return file_->Error(error, why == nullptr ? std::strerror(code) : why);
  }

  const InputFile* const file_;
  ArrowArrayStream stream_ = {};
  ArrowOwner<ArrowSchema> schema_;
};

class PluginReader : public ParquetReader {
 public:
  PluginReader(const SluiceArrowPlugin* plugin, std::unique_ptr<FileReader> file)
      : plugin_(plugin), file_(std::move(file)) {}
  ~PluginReader() override {
    if (reader_ != nullptr) plugin_->close(reader_);
  }

  absl::Status ReadFooter() {
    char why[kErrorBytes] = "";
    int code = plugin_->open(&file_.input(), &reader_, why, sizeof(why));
    if (code == SLUICE_ARROW_OK) code = plugin_->schema(reader_, schema_.Fill(), why, sizeof(why));
    file_.EndFooter();
    return file_.Error(code, why);
  }

  const FileInfo& info() const override { return file_.info(); }
  const ArrowSchema& schema() const override { return *schema_; }
  uint64_t row_groups() const override { return plugin_->row_groups(reader_); }

  absl::StatusOr<ParquetRowGroup> RowGroup(uint64_t group,
                                           absl::Span<const int32_t> columns) override {
    SluiceRowGroup info = {};
    char why[kErrorBytes] = "";
    const int code =
        plugin_->row_group(reader_, group, columns.data(), columns.size(), &info, why, sizeof(why));
    if (code != SLUICE_ARROW_OK) return file_.Error(code, why);
    return ParquetRowGroup{static_cast<uint64_t>(info.rows), static_cast<uint64_t>(info.bytes),
                           static_cast<uint64_t>(info.stored_bytes)};
  }

  absl::StatusOr<std::unique_ptr<ParquetRows>> Read(absl::Span<const uint64_t> groups,
                                                    absl::Span<const int32_t> columns,
                                                    uint64_t batch_rows,
                                                    bool dictionaries) override {
    const std::vector<int64_t> numbers(groups.begin(), groups.end());
    auto rows = std::make_unique<PluginRows>(&file_);
    char why[kErrorBytes] = "";
    const int code =
        plugin_->read(reader_, numbers.data(), numbers.size(), columns.data(), columns.size(),
                      batch_rows, dictionaries ? 1 : 0, rows->stream(), why, sizeof(why));
    if (code != SLUICE_ARROW_OK) return file_.Error(code, why);
    absl::Status status = rows->ReadSchema();
    if (!status.ok()) return status;
    return rows;
  }

 private:
  const SluiceArrowPlugin* const plugin_;
  InputFile file_;
  SluiceParquetReader* reader_ = nullptr;
  ArrowOwner<ArrowSchema> schema_;
};

class PluginWriter : public ParquetWriter {
 public:
  PluginWriter(const SluiceArrowPlugin* plugin, std::unique_ptr<NewFile> file)
      : plugin_(plugin), file_(std::move(file)) {}
  ~PluginWriter() override {
    if (writer_ != nullptr) plugin_->destroy(writer_);
  }

  absl::Status Start(ArrowOwner<ArrowSchema> schema, const ParquetWriterOptions& options) {
    const SluiceParquetWriterOptions chosen = {static_cast<int64_t>(options.row_group_rows),
                                               options.compression.c_str()};
    ArrowSchema taken = schema.Take();
    char why[kErrorBytes] = "";
    const int code = plugin_->create(&output_, &taken, &chosen, &writer_, why, sizeof(why));
    return Error(code, why);
  }
  absl::Status Write(ArrowOwner<ArrowArray> batch) override {
    ArrowArray taken = batch.Take();
    char why[kErrorBytes] = "";
    const int code = plugin_->write(writer_, &taken, why, sizeof(why));
    return Error(code, why);
  }
  absl::Status Finish() override {
    char why[kErrorBytes] = "";
    const int code = plugin_->finish(writer_, why, sizeof(why));
    absl::Status status = Error(code, why);
    return status.ok() ? file_->Finish() : status;
  }

 private:
  static int Append(void* context, const void* bytes, int64_t n) {
    auto* const self = static_cast<PluginWriter*>(context);
    const absl::Status status =
        self->file_->Append({static_cast<const char*>(bytes), static_cast<size_t>(n)});
    self->error_.Update(status);
    return status.ok() ? 0 : 1;
  }
  absl::Status Error(int code, const char* why) const {
    return code != SLUICE_ARROW_OK && !error_.ok() ? error_ : StatusOf(code, why);
  }

  const SluiceArrowPlugin* const plugin_;
  const std::unique_ptr<NewFile> file_;
  const SluiceArrowOutput output_ = {this, Append};
  SluiceParquetWriter* writer_ = nullptr;
  absl::Status error_;  // the first one of the file
};

}  // namespace

absl::Status OpenArrow() { return ArrowLibrary().status(); }

absl::StatusOr<std::unique_ptr<ParquetReader>> ParquetReader::Open(
    std::unique_ptr<FileReader> file) {
  const auto plugin = ArrowLibrary();
  if (!plugin.ok()) return plugin.status();
  auto reader = std::make_unique<PluginReader>(*plugin, std::move(file));
  const absl::Status status = reader->ReadFooter();
  if (!status.ok()) return status;
  return reader;
}

absl::StatusOr<std::unique_ptr<ParquetWriter>> ParquetWriter::Create(
    std::unique_ptr<NewFile> file, ArrowOwner<ArrowSchema> schema,
    const ParquetWriterOptions& options) {
  const auto plugin = ArrowLibrary();
  if (!plugin.ok()) return plugin.status();
  auto writer = std::make_unique<PluginWriter>(*plugin, std::move(file));
  const absl::Status status = writer->Start(std::move(schema), options);
  if (!status.ok()) return status;
  return writer;
}

}  // namespace sluice
