// Bytes of a text file from front to back: plain, or gzip or zstd (of any number of members or
// frames; told by their first bytes) decompressed on the way.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice {

// Which file, and which of its contents: tells whether an open reader still reads what the path
// names.
struct FileIdentity {
  uint64_t device = 0, inode = 0, size = 0;
  int64_t modified_ns = 0;
  bool operator==(const FileIdentity& other) const {
    return device == other.device && inode == other.inode && size == other.size &&
           modified_ns == other.modified_ns;
  }
};
absl::StatusOr<FileIdentity> IdentifyFile(const std::string& path);

// What tells copies of a file on several hosts apart, at the cost of two short reads.
struct FileSample {
  FileIdentity identity;
  uint32_t crc32c = 0;  // of its first 64 KiB, followed by its last 64 KiB
};
// Statuses as TextReader::Open.
absl::StatusOr<FileSample> SampleFile(const std::string& path);

class TextReader {
 public:
  // NOT_FOUND, PERMISSION_DENIED or INVALID_ARGUMENT (not a regular file) name the path.
  static absl::StatusOr<std::unique_ptr<TextReader>> Open(const std::string& path);
  // From where the process's standard input stands, also when it is a pipe; its path() is
  // kStandardInput. No two of it read the same text.
  static absl::StatusOr<std::unique_ptr<TextReader>> OpenStandardInput();
  static constexpr char kStandardInput[] = "standard input";
  virtual ~TextReader() = default;

  virtual bool compressed() const = 0;
  const std::string& path() const { return path_; }
  const FileIdentity& identity() const { return identity_; }
  // Offset in the text of the next byte.
  uint64_t offset() const { return offset_; }
  // At most n > 0 bytes; 0 at the end of the text only. DATA_LOSS: damaged or truncated compressed
  // data.
  absl::StatusOr<size_t> Read(char* to, size_t n);
  // Moves to `offset` or the end of the text, whichever comes first. REQUIRES: offset >= offset().
  virtual absl::Status SkipTo(uint64_t offset) = 0;

 protected:
  TextReader(std::string path, const FileIdentity& identity)
      : path_(std::move(path)), identity_(identity) {}
  virtual absl::StatusOr<size_t> ReadSome(char* to, size_t n) = 0;

  const std::string path_;
  const FileIdentity identity_;
  uint64_t offset_ = 0;
};

}  // namespace sluice
