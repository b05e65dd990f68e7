#include "model/table_files/row_spool.h"

#include <fcntl.h>
#include <stdlib.h>
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

}  // namespace

absl::StatusOr<std::unique_ptr<RowSpool>> RowSpool::Create(const std::string& dir, uint32_t parts,
                                                           size_t record_bytes) {
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

absl::Status RowSpool::Read(uint32_t number, std::string* records) const {
  const Part& part = parts_[number];
  records->resize(part.written.size() * buffer_bytes_ + part.filled);
  char* to = records->data();
  for (const uint64_t offset : part.written) {
    for (size_t done = 0; done < buffer_bytes_;) {
      const ssize_t n =
          pread(fd_, to + done, buffer_bytes_ - done, static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n == 0) errno = EIO;
      if (n <= 0) return Error("read");
      done += static_cast<size_t>(n);
    }
    to += buffer_bytes_;
  }
  std::copy_n(part.buffer.data(), part.filled, to);
  return absl::OkStatus();
}

}  // namespace sluice
