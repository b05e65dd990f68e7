// The format of a cache file, which holds the examples that one piece of a text was parsed into.
//
// Format: little endian; a header of 4 KiB, then sections at multiples of 64 bytes, each with its
// CRC-32C:
//   label f32[n], weight f32[n] (absent: all 1), numeric f32[n][numbers],
//   key_offsets u32[n * slots + 1] (absent: one key per slot), keys u64[],
//   key_weights f32[] (absent: all 1), bad lines as text, one per line, a DataSummary.
//
// Safety: a file is checked before its contents are used, but whoever may write to it can change it
// afterwards. Nothing outside the file is read then: the header is copied when the file is mapped,
// and Batch::Append refuses impossible offsets of keys.
//
// Memory: a mapped file, whose pages the system may drop.
//
// Thread safety: immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/data/data_source.h"
#include "model/data/text_reader.h"
#include "model/features/batch.h"
#include "proto/scheduler.pb.h"

namespace sluice {

struct ExampleFileHeader;  // the first bytes of a file

// The source from which the examples of a file were parsed. A file is of use only where all of it
// is the same.
struct ExampleOrigin {
  std::string digest;  // of features, path and piece: 64 hexadecimal digits
  FileIdentity source;
  size_t num_numeric = 0, num_slots = 0;
};

// A file that is ready to be written.
class ExampleFileImage {
 public:
  // `examples` must stay unchanged while the image is used.
  ExampleFileImage(const ExampleOrigin& origin, const ExampleView& examples, const BadLines& bad,
                   const DataSummary& summary);
  ~ExampleFileImage();
  ExampleFileImage(const ExampleFileImage&) = delete;
  ExampleFileImage& operator=(const ExampleFileImage&) = delete;
  // The size of the whole file.
  uint64_t bytes() const;
  // Writes the image to an open, empty file. Errors name `path`.
  absl::Status WriteTo(int fd, const std::string& path) const;

 private:
  std::string bad_lines_, summary_;
  // The bytes of each section, in the caller's memory or in the strings above; empty: left out.
  std::vector<absl::string_view> sections_;
  std::unique_ptr<ExampleFileHeader> header_;
};

// A file that is mapped into memory.
class ExampleFile {
 public:
  // Part of the digest of every file: raise this whenever the layout changes, or the examples that
  // a line is parsed into.
  static constexpr uint32_t kVersion = 5;

  // Maps an open file of `bytes` bytes after checking its header; CheckContents checks the rest.
  // INVALID_ARGUMENT (another version or origin) or DATA_LOSS says why the file must not be used.
  // Other errors name `path`.
  static absl::StatusOr<std::shared_ptr<const ExampleFile>> Map(int fd, const std::string& path,
                                                                uint64_t bytes,
                                                                const ExampleOrigin& origin);
  // The number of examples and malformed lines, from the header alone. Statuses as Map.
  static absl::StatusOr<uint64_t> CountLines(int fd, const std::string& path, uint64_t bytes,
                                             const ExampleOrigin& origin);
  // Whether an open file begins as a cache file does.
  static bool HasMagic(int fd);

  ~ExampleFile();
  ExampleFile(const ExampleFile&) = delete;
  ExampleFile& operator=(const ExampleFile&) = delete;

  // Reads the whole file. DATA_LOSS says what is wrong.
  absl::Status CheckContents() const;

  // Valid as long as this object.
  ExampleView view() const;
  void AddBadLines(BadLines* bad) const;
  // False when the summary cannot be parsed; *summary is then unchanged.
  bool AddSummaryTo(DataSummary* summary) const;

 private:
  ExampleFile(std::string path, std::unique_ptr<const ExampleFileHeader> header, const char* base,
              size_t bytes);
  const char* at(int section) const;
  bool has(int section) const;
  std::string TextOf(int section) const;

  const std::string path_;
  const std::unique_ptr<const ExampleFileHeader> header_;
  const char* const base_;  // of the mapping
  const size_t bytes_;
};

}  // namespace sluice
