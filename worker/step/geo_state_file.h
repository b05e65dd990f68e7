// The file of one Geo rank in a checkpoint: what its local optimizer holds beyond the values, which
// the pservers have.
//
// Written and read as a stream of bytes, whose contents GeoParameters and GeoTrainer define.
//
// Format (little-endian):
//
//   file  := "SLGEOST1" block* end
//   block := u32 length (1 to 256 KiB), u32 CRC-32C of the bytes, bytes
//   end   := u32 0, u32 CRC-32C of all blocks' bytes
//
// The name is worker-RANK.SAVE_ID, and the checkpoint's manifest has the file's size and checksum.
//
// Memory: one block.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "proto/pserver.pb.h"

namespace sluice {

class GeoStateWriter {
 public:
  // Makes the folder if need be. The file appears under its name with Finish.
  static absl::StatusOr<std::unique_ptr<GeoStateWriter>> Create(Env* env,
                                                                const std::string& directory,
                                                                uint32_t rank,
                                                                const std::string& save_id);
  absl::Status Append(const void* bytes, size_t n);
  template <typename T>
  absl::Status Put(const T& value) {
    return Append(&value, sizeof(value));
  }
  // The last call. Returns the file's name in the folder, its size and its checksum.
  absl::StatusOr<SavedFile> Finish();

 private:
  GeoStateWriter() = default;
  absl::Status Write(const std::string& bytes);
  absl::Status EndBlock();

  std::unique_ptr<NewFile> out_;
  SavedFile file_;
  std::string block_;
  uint32_t crc_ = 0;  // of all blocks' bytes
};

class GeoStateReader {
 public:
  // `file`: as GeoStateWriter::Finish returned it, and as the manifest has it. DATA_LOSS names the
  // file when its size differs or it does not begin like such a file.
  static absl::StatusOr<std::unique_ptr<GeoStateReader>> Open(Env* env,
                                                              const std::string& directory,
                                                              const SavedFile& file);
  // Takes the next n bytes. DATA_LOSS names the file when they are damaged or missing.
  absl::Status Read(void* to, size_t n);
  template <typename T>
  absl::Status Get(T* value) {
    return Read(value, sizeof(*value));
  }
  // Whether anything is left before the end. DATA_LOSS names the file when it is damaged.
  absl::StatusOr<bool> HasMore();
  // The last call. DATA_LOSS unless everything was read, the end is intact, and the whole file has
  // the checksum of `file`: an intact file of another rank or checkpoint has another one.
  absl::Status Finish();
  absl::Status Damaged(const std::string& what) const;

 private:
  GeoStateReader(Env* env, std::string path, uint32_t file_crc)
      : env_(env), path_(std::move(path)), expected_crc_(file_crc) {}
  // Returns the next n bytes of the file, or fewer at its end.
  absl::StatusOr<std::string> NextBytes(size_t n);
  absl::Status NextBlock();

  Env* const env_;
  const std::string path_;
  const uint32_t expected_crc_;  // of the whole file
  uint64_t at_ = 0;              // bytes of the file that were read
  uint32_t file_crc_ = 0;        // of these bytes
  std::string block_;
  size_t taken_ = 0;  // of block_
  bool ended_ = false;
  uint32_t crc_ = 0;  // of all blocks' bytes
};

}  // namespace sluice
