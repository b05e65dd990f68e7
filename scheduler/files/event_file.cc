#include "scheduler/files/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/env.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

void AppendFixed32(uint32_t value, std::string* out) {
  for (int i = 0; i < 4; ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

void AppendFixed64(uint64_t value, std::string* out) {
  for (int i = 0; i < 8; ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

// A length-delimited field.
void AppendBytes(int field, const std::string& bytes, std::string* out) {
  AppendVarint(static_cast<uint64_t>(field) << 3 | 2, out);
  AppendVarint(bytes.size(), out);
  out->append(bytes);
}

// wall_time and step, the beginning of every event.
std::string EventHead(absl::Time wall_time, uint64_t step) {
  std::string event;
  event.push_back(1 << 3 | 1);
  const double seconds = absl::ToDoubleSeconds(wall_time - absl::UnixEpoch());
  uint64_t bits;
  std::memcpy(&bits, &seconds, 8);
  AppendFixed64(bits, &event);
  event.push_back(2 << 3 | 0);
  AppendVarint(step, &event);
  return event;
}

// A CRC that is itself part of checksummed data is masked.
uint32_t Masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u; }

}  // namespace

std::string EventRecord(const std::string& data) {
  std::string record;
  AppendFixed64(data.size(), &record);
  AppendFixed32(Masked(Crc32c(record.data(), 8)), &record);
  record += data;
  AppendFixed32(Masked(Crc32c(data.data(), data.size())), &record);
  return record;
}

absl::StatusOr<std::unique_ptr<EventFile>> EventFile::Create(Env* env, const std::string& dir,
                                                             const std::string& suffix,
                                                             absl::Time now) {
  SLUICE_RETURN_IF_ERROR(env->MakeDirs(dir));
  const std::string name = absl::StrCat(dir, "/", kPrefix, absl::ToUnixSeconds(now), ".", suffix);
  std::string path = name;
  int fd = -1;
  for (int number = 1; fd < 0; ++number) {
    // O_EXCL: two jobs that begin in the same second must not share a file, and a link is not
    // followed.
    const auto created = env->OpenFile(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (created.ok()) {
      fd = *created;
    } else if (absl::IsAlreadyExists(created.status())) {
      path = absl::StrCat(name, ".", number);
    } else {
      return absl::Status(created.status().code(),
                          absl::StrCat("cannot create ", path, ": ", created.status().message()));
    }
  }
  std::unique_ptr<EventFile> file(new EventFile(fd, std::move(path)));
  std::string version = EventHead(now, 0);
  AppendBytes(3, "brain.Event:2", &version);
  file->added_ = EventRecord(version);
  const absl::Status begun = file->Flush();
  if (begun.ok()) return file;
  env->RemoveFile(file->path_).IgnoreError();  // without a version it is no event file
  return begun;
}

EventFile::~EventFile() { ::close(fd_); }

void EventFile::Add(absl::Time wall_time, uint64_t step, const std::string& tag, double value) {
  std::string point;
  AppendBytes(1, tag, &point);
  point.push_back(2 << 3 | 5);
  // The format stores floats, not doubles.
  const float narrow = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &narrow, 4);
  AppendFixed32(bits, &point);
  std::string summary;
  AppendBytes(1, point, &summary);
  std::string event = EventHead(wall_time, step);
  AppendBytes(5, summary, &event);
  added_ += EventRecord(event);
}

absl::Status EventFile::Flush() {
  std::string records;
  // Dropped if they cannot be written: keeping them would fill the memory while the disk is full.
  records.swap(added_);
  // The remains of a failed write must go first: they would follow shorter records, and
  // readers stop at a broken one.
  if (torn_ && ::ftruncate(fd_, static_cast<off_t>(end_)) == 0) torn_ = false;
  if (!torn_ && WriteAt(records, end_)) {
    end_ += records.size();
    return absl::OkStatus();
  }
  const absl::Status status = absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path_));
  torn_ = ::ftruncate(fd_, static_cast<off_t>(end_)) != 0;
  return status;
}

bool EventFile::WriteAt(const std::string& bytes, uint64_t offset) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n =
        ::pwrite(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    // pwrite then sets no errno.
    if (n == 0) errno = ENOSPC;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

}  // namespace sluice
