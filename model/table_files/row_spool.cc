#include "model/table_files/row_spool.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

constexpr size_t kMostBuffers = 64 << 20, kMostBuffer = 256 << 10;

// A file that has no name, or loses it at once where the file system needs one.
int OpenNameless(const std::string& dir) {
  const int fd = open(dir.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) return fd;
  std::string name = absl::StrCat(dir, "/rows.XXXXXX");
  const int named = mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) unlink(name.c_str());
  return named;
}

// OK when the disk of `dir` can take rows of so many bytes.
absl::Status CheckRoom(const std::string& dir, RowSpool::Folder folder, uint64_t bytes) {
  struct statfs kind;
  struct statvfs disk;
  if (statfs(dir.c_str(), &kind) != 0 || statvfs(dir.c_str(), &disk) != 0) return absl::OkStatus();
  const bool memory = kind.f_type == TMPFS_MAGIC || kind.f_type == RAMFS_MAGIC;
  const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
  if (folder == RowSpool::Folder::kOutput) {
    if (free / 2 >= bytes) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat("the rows, about ", bytes >> 20, " MiB, need twice their room in ", dir,
                     ", for the files of the model and for one that divides them by shard, and ",
                     free >> 20, " MiB are free; make room there, or give another --output"));
  }
  if (free >= bytes && !(memory && bytes > RowSpool::kMostMemoryBytes)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "the rows, about ", bytes >> 20, " MiB, are divided by shard in a file in ", dir,
      free < bytes ? absl::StrCat(", where ", free >> 20, " MiB are free") : ", which is memory",
      "; let TMPDIR name a folder of a disk with room for them"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RowSpool>> RowSpool::Create(const std::string& dir, Folder folder,
                                                           uint32_t parts, size_t record_bytes,
                                                           uint64_t expected_bytes) {
  SLUICE_RETURN_IF_ERROR(CheckRoom(dir, folder, expected_bytes));
  const int fd = OpenNameless(dir);
  if (fd < 0) {
    return absl::InternalError(
        absl::StrCat("cannot make a file for the rows in ", dir, ": ", std::strerror(errno)));
  }
  return std::unique_ptr<RowSpool>(new RowSpool(fd, dir, parts, record_bytes));
}

RowSpool::RowSpool(int fd, std::string dir, uint32_t parts, size_t record_bytes)
    : fd_(fd),
      dir_(std::move(dir)),
      record_bytes_(record_bytes),
      buffer_bytes_(
          std::max<size_t>(1, std::min(kMostBuffer, kMostBuffers / parts) / record_bytes) *
          record_bytes),
      parts_(parts) {}

RowSpool::~RowSpool() { close(fd_); }

absl::Status RowSpool::Error(const char* what) const {
  const std::string text =
      absl::StrCat("cannot ", what, " the rows in ", dir_, ": ", std::strerror(errno));
  return errno == ENOSPC || errno == EDQUOT ? absl::ResourceExhaustedError(text)
                                            : absl::InternalError(text);
}

absl::Status RowSpool::Flush(Part* part) {
  for (size_t done = 0; done < part->filled;) {
    const ssize_t n = pwrite(fd_, part->buffer.data() + done, part->filled - done,
                             static_cast<off_t>(end_ + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Error("keep");
    done += static_cast<size_t>(n);
  }
  part->written.push_back(end_);
  end_ += part->filled;
  part->filled = 0;
  return absl::OkStatus();
}

absl::StatusOr<char*> RowSpool::Add(uint32_t number) {
  Part& part = parts_[number];
  if (part.buffer.empty()) part.buffer.resize(buffer_bytes_);
  if (part.filled == buffer_bytes_) SLUICE_RETURN_IF_ERROR(Flush(&part));
  char* const place = part.buffer.data() + part.filled;
  part.filled += record_bytes_;
  return place;
}

uint64_t RowSpool::PartBytes(uint32_t number) const {
  return parts_[number].written.size() * buffer_bytes_ + parts_[number].filled;
}

absl::Status RowSpool::ReadFile(uint64_t offset, size_t n, char* to) const {
  while (n > 0) {
    const ssize_t read = pread(fd_, to, n, static_cast<off_t>(offset));
    if (read < 0 && errno == EINTR) continue;
    if (read == 0) errno = EIO;
    if (read <= 0) return Error("read");
    offset += static_cast<uint64_t>(read);
    to += read;
    n -= static_cast<size_t>(read);
  }
  return absl::OkStatus();
}

absl::Status RowSpool::Read(uint32_t number, std::string* records) const {
  records->resize(PartBytes(number));
  return ReadRecords(number, 0, records->size() / record_bytes_, records->data());
}

absl::Status RowSpool::ReadRecords(uint32_t number, uint64_t first, size_t n, char* to) const {
  const Part& part = parts_[number];
  uint64_t at = first * record_bytes_;
  for (uint64_t left = n * record_bytes_; left > 0;) {
    const uint64_t buffer = at / buffer_bytes_, skipped = at % buffer_bytes_;
    const auto bytes = static_cast<size_t>(std::min<uint64_t>(left, buffer_bytes_ - skipped));
    if (buffer < part.written.size()) {
      SLUICE_RETURN_IF_ERROR(ReadFile(part.written[buffer] + skipped, bytes, to));
    } else {
      std::copy_n(part.buffer.data() + skipped, bytes, to);
    }
    to += bytes;
    at += bytes;
    left -= bytes;
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> SpooledRows::ReadKeys(uint64_t first, size_t n, uint64_t* keys,
                                             uint32_t* rows) {
  const size_t record = spool_.record_bytes();
  records_.resize(n * record);
  SLUICE_RETURN_IF_ERROR(spool_.ReadRecords(part_, first, n, records_.data()));
  for (size_t i = 0; i < n; ++i) {
    std::memcpy(&keys[i], records_.data() + i * record, sizeof(uint64_t));
    rows[i] = static_cast<uint32_t>(first + i);
  }
  return n;
}

absl::Status SpooledRows::ReadRecords(const uint32_t* rows, size_t n, size_t stride, char* to) {
  const size_t record = spool_.record_bytes();
  records_.resize(record);
  for (size_t i = 0; i < n; ++i, to += stride) {
    SLUICE_RETURN_IF_ERROR(spool_.ReadRecords(part_, rows[i], 1, records_.data()));
    std::memcpy(to, records_.data() + sizeof(uint64_t), record - sizeof(uint64_t));
  }
  return absl::OkStatus();
}

}  // namespace sluice
