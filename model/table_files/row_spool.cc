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
#include "common/base/hash.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

constexpr size_t kMostBuffers = 64 << 20, kMostBuffer = 256 << 10;
constexpr uint64_t kPieces = 16 << 20, kLeastPiece = 64 << 10;  // bytes: of all stretches, of one

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

absl::Status RowSpool::WriteFile(uint64_t offset, size_t n, const char* from) {
  while (n > 0) {
    const ssize_t written = pwrite(fd_, from, n, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Error("keep");
    offset += static_cast<uint64_t>(written);
    from += written;
    n -= static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

absl::Status RowSpool::Flush(Part* part) {
  SLUICE_RETURN_IF_ERROR(WriteFile(end_, part->filled, part->buffer.data()));
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
  ++reads_;
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

template <typename InFile, typename InMemory>
absl::Status RowSpool::VisitPieces(uint32_t number, uint64_t first, size_t n, const InFile& in_file,
                                   const InMemory& in_memory) const {
  const Part& part = parts_[number];
  uint64_t at = first * record_bytes_;
  for (uint64_t left = n * record_bytes_; left > 0;) {
    const uint64_t buffer = at / buffer_bytes_, skipped = at % buffer_bytes_;
    const auto bytes = static_cast<size_t>(std::min<uint64_t>(left, buffer_bytes_ - skipped));
    if (buffer < part.written.size()) {
      SLUICE_RETURN_IF_ERROR(in_file(part.written[buffer] + skipped, bytes));
    } else {
      in_memory(skipped, bytes);
    }
    at += bytes;
    left -= bytes;
  }
  return absl::OkStatus();
}

absl::Status RowSpool::ReadRecords(uint32_t number, uint64_t first, size_t n, char* to) const {
  return VisitPieces(
      number, first, n,
      [&](uint64_t offset, size_t bytes) {
        to += bytes;
        return ReadFile(offset, bytes, to - bytes);
      },
      [&](uint64_t skipped, size_t bytes) {
        to = std::copy_n(parts_[number].buffer.data() + skipped, bytes, to);
      });
}

absl::Status RowSpool::WriteRecords(uint32_t number, uint64_t first, size_t n, const char* from) {
  return VisitPieces(
      number, first, n,
      [&](uint64_t offset, size_t bytes) {
        from += bytes;
        return WriteFile(offset, bytes, from - bytes);
      },
      [&](uint64_t skipped, size_t bytes) {
        std::copy_n(from, bytes, parts_[number].buffer.data() + skipped);
        from += bytes;
      });
}

SpooledRows::SpooledRows(RowSpool* spool, uint32_t part, uint64_t stretch_bytes)
    : spool_(*spool),
      part_(part),
      stretch_rows_(std::max<uint64_t>(1, stretch_bytes / spool->record_bytes())) {}

absl::StatusOr<std::unique_ptr<SpooledRows>> SpooledRows::Create(RowSpool* spool, uint32_t part,
                                                                 uint64_t stretch_bytes) {
  std::unique_ptr<SpooledRows> rows(new SpooledRows(spool, part, stretch_bytes));
  SLUICE_RETURN_IF_ERROR(rows->SortStretches());
  return rows;
}

absl::Status SpooledRows::SortStretches() {
  struct Entry {
    uint64_t key;
    uint32_t run, row;
  };
  const size_t record = spool_.record_bytes();
  const uint32_t runs = spool_.parts() * RunsOfShardFile(spool_.parts(), spool_.PartBytes(part_));
  std::vector<Entry> order;
  std::string sorted;
  for (uint64_t first = 0; first < size(); first += stretch_rows_) {
    const auto n = static_cast<size_t>(std::min(stretch_rows_, size() - first));
    records_.resize(n * record);
    SLUICE_RETURN_IF_ERROR(spool_.ReadRecords(part_, first, n, records_.data()));
    order.resize(n);
    for (size_t i = 0; i < n; ++i) {
      std::memcpy(&order[i].key, records_.data() + i * record, sizeof(uint64_t));
      order[i].run = ShardOfKey(order[i].key, runs);
      order[i].row = static_cast<uint32_t>(i);
    }
    std::sort(order.begin(), order.end(), [](const Entry& a, const Entry& b) {
      return a.run != b.run ? a.run < b.run : a.key < b.key;
    });
    sorted.clear();
    for (const Entry& entry : order) sorted.append(records_, entry.row * record, record);
    SLUICE_RETURN_IF_ERROR(spool_.WriteRecords(part_, first, n, sorted.data()));
    pieces_.emplace_back();
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

absl::Status SpooledRows::ReadPiece(uint64_t row, Piece* piece) const {
  const uint64_t bytes = std::max<uint64_t>(kPieces / pieces_.size(), kLeastPiece);
  const uint64_t end_of_stretch = (row / stretch_rows_ + 1) * stretch_rows_;
  piece->first = row;
  piece->end = std::min(
      {size(), end_of_stretch, row + std::max<uint64_t>(1, bytes / spool_.record_bytes())});
  const auto n = static_cast<size_t>(piece->end - row);
  piece->records.resize(n * spool_.record_bytes());
  return spool_.ReadRecords(part_, row, n, piece->records.data());
}

absl::Status SpooledRows::ReadRecords(const uint32_t* rows, size_t n, size_t stride, char* to) {
  const size_t record = spool_.record_bytes();
  for (size_t i = 0; i < n; ++i, to += stride) {
    Piece& piece = pieces_[rows[i] / stretch_rows_];
    if (rows[i] < piece.first || rows[i] >= piece.end)
      SLUICE_RETURN_IF_ERROR(ReadPiece(rows[i], &piece));
    std::memcpy(to, piece.records.data() + (rows[i] - piece.first) * record + sizeof(uint64_t),
                record - sizeof(uint64_t));
  }
  return absl::OkStatus();
}

}  // namespace sluice
