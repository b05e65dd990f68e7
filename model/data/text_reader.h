// Reads the text of a file from front to back: plain, or decompressed from gzip or zstd.
//
// The first bytes tell the format. A gzip file may have any number of members, a zstd file any
// number of frames.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "common/base/file_identity.h"
#include "common/base/ranges_reader.h"

namespace sluice {

// Tells whether an open reader still reads the file that the path names. `env` finds the file.
absl::StatusOr<FileIdentity> IdentifyFile(const std::string& path, Env* env);

// Identifies a file's contents across hosts, at the cost of two short reads at most.
struct FileSample {
  FileIdentity identity;
  uint32_t crc32c = 0;  // of its first and last 64 KiB, or of the ETag that a store names
};
// Statuses as TextReader::Open.
absl::StatusOr<FileSample> SampleFile(const std::string& path, Env* env);

class TextReader {
 public:
  // NOT_FOUND, PERMISSION_DENIED or INVALID_ARGUMENT (not a regular file, or not text:
  // CheckTextForm) name the path. `json`: as CheckTextForm.
  static absl::StatusOr<std::unique_ptr<TextReader>> Open(const std::string& path, Env* env,
                                                          bool json = false);
  // Reads from the current position of the process's standard input, which may be a pipe. Its
  // path() is kStandardInput. Two such readers would share the text between them.
  static absl::StatusOr<std::unique_ptr<TextReader>> OpenStandardInput(bool json = false);
  static constexpr char kStandardInput[] = "standard input";
  virtual ~TextReader() = default;

  virtual bool compressed() const = 0;
  const std::string& path() const { return path_; }
  const FileIdentity& identity() const { return identity_; }
  // Offset in the text of the next byte.
  uint64_t offset() const { return offset_; }
  // Reads at most n > 0 bytes; 0 only at the end of the text. DATA_LOSS when compressed data is
  // damaged or truncated, INVALID_ARGUMENT when it holds no text (CheckTextForm).
  absl::StatusOr<size_t> Read(char* to, size_t n);
  // Moves to `offset` or the end of the text, whichever comes first.
  // REQUIRES: `offset` is not before offset(), or the text is that of a plain file.
  virtual absl::Status SkipTo(uint64_t offset) = 0;
  // Promises that little text after `offset` is read (FileReader::ExpectEnd).
  virtual void ExpectEnd(uint64_t) {}
  // Says which ascending ranges of the text will be read (RangesReader::ExpectPieces).
  virtual void ExpectPieces(std::vector<FileRange>) {}

 protected:
  TextReader(std::string path, const FileIdentity& identity)
      : path_(std::move(path)), identity_(identity) {}
  virtual absl::StatusOr<size_t> ReadSome(char* to, size_t n) = 0;

  const std::string path_;
  const FileIdentity identity_;
  uint64_t offset_ = 0;

 private:
  bool json_ = false;  // constant after it was opened
};

}  // namespace sluice
