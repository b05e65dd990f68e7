#include "scheduler/files/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/env.h"
#include "common/base/file_origin.h"
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

// Takes numbers and texts off the front of bytes that may be damaged. After the first one that is
// not there, ok() is false, and what is taken is 0 or empty.
class Decoder {
 public:
  explicit Decoder(absl::string_view bytes) : bytes_(bytes) {}
  bool ok() const { return ok_; }
  absl::string_view Take(uint64_t n) {
    ok_ = ok_ && n <= bytes_.size();
    if (!ok_) return "";
    const absl::string_view taken = bytes_.substr(0, n);
    bytes_.remove_prefix(n);
    return taken;
  }
  uint64_t Fixed(int n) {
    uint64_t value = 0;
    const absl::string_view taken = Take(n);
    for (size_t i = 0; i < taken.size(); ++i)
      value |= static_cast<uint64_t>(static_cast<unsigned char>(taken[i])) << (8 * i);
    return value;
  }
  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint64_t byte = Fixed(1);
      value |= (byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    ok_ = false;
    return 0;
  }
  void Expect(unsigned char key) { ok_ = Fixed(1) == key && ok_; }

 private:
  absl::string_view bytes_;
  bool ok_ = true;
};

absl::Time TakeWallTime(Decoder* event) {
  event->Expect(1 << 3 | 1);
  const uint64_t bits = event->Fixed(8);
  double seconds;
  std::memcpy(&seconds, &bits, 8);
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

// The point that EventFile::Add has encoded as `data`. False when it is something else.
bool DecodePoint(absl::string_view data, EventPoint* point) {
  Decoder event(data);
  point->wall_time = TakeWallTime(&event);
  event.Expect(2 << 3 | 0);
  point->step = event.Varint();
  event.Expect(5 << 3 | 2);
  Decoder summary(event.Take(event.Varint()));
  summary.Expect(1 << 3 | 2);
  Decoder value(summary.Take(summary.Varint()));
  value.Expect(1 << 3 | 2);
  point->tag = std::string(value.Take(value.Varint()));
  value.Expect(2 << 3 | 5);
  const auto bits = static_cast<uint32_t>(value.Fixed(4));
  float narrow;
  std::memcpy(&narrow, &bits, 4);
  point->value = narrow;
  return event.ok() && summary.ok() && value.ok();
}

// A CRC that is itself part of checksummed data is masked.
uint32_t Masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u; }

constexpr size_t kRecordHead = 12;  // length and its CRC
// Records with the time when the run began, and the one of a point with the longest tag.
constexpr uint64_t kFirstRecord = 4096;

// Takes a record off the front. False: it is torn, or there is none.
bool TakeRecord(Decoder* file, absl::string_view* data) {
  const uint64_t length = file->Fixed(8);
  file->Fixed(4);
  *data = file->Take(length);
  const uint64_t crc = file->Fixed(4);
  return file->ok() && crc == Masked(Crc32c(data->data(), data->size()));
}

// Where the first whole record begins in bytes that may begin inside of one.
size_t FindRecord(absl::string_view bytes) {
  for (size_t at = 0; at + kRecordHead <= bytes.size(); ++at) {
    Decoder crc(bytes.substr(at + 8, 4));
    if (crc.Fixed(4) != Masked(Crc32c(bytes.data() + at, 8))) continue;
    Decoder rest(bytes.substr(at));
    absl::string_view data;
    if (TakeRecord(&rest, &data)) return at;
  }
  return bytes.size();
}

// Adds what the records say, up to the first one that is torn.
void TakeRecords(absl::string_view bytes, EventFileContents* contents) {
  Decoder file(bytes);
  for (absl::string_view data; TakeRecord(&file, &data);) {
    if (contents->begun == absl::InfiniteFuture()) {
      Decoder first(data);
      contents->begun = contents->earliest = TakeWallTime(&first);
    }
    EventPoint point;
    if (!DecodePoint(data, &point)) continue;
    contents->earliest = std::min(contents->earliest, point.wall_time);
    contents->points.push_back(std::move(point));
  }
}

}  // namespace

std::string EventRecord(const std::string& data) {
  std::string record;
  AppendFixed64(data.size(), &record);
  AppendFixed32(Masked(Crc32c(record.data(), 8)), &record);
  record += data;
  AppendFixed32(Masked(Crc32c(data.data(), data.size())), &record);
  return record;
}

absl::StatusOr<EventFileContents> ReadEventFile(Env* env, const std::string& path) {
  return ReadEndOfEventFile(env, path, std::numeric_limits<uint64_t>::max());
}

absl::StatusOr<EventFileContents> ReadEndOfEventFile(Env* env, const std::string& path,
                                                     uint64_t most) {
  if (!IsOwnFile(env, path, FileKind::kEvents))
    return absl::InvalidArgumentError(absl::StrCat(path, " is no event file of Sluice"));
  EventFileContents contents;
  contents.begun = contents.earliest = absl::InfiniteFuture();
  SLUICE_ASSIGN_OR_RETURN(const uint64_t size, env->FileSize(path));
  if (size <= most) {
    SLUICE_ASSIGN_OR_RETURN(const std::string bytes, env->ReadFile(path));
    contents.bytes = bytes.size();
    TakeRecords(bytes, &contents);
    return contents;
  }
  contents.whole = false;
  SLUICE_ASSIGN_OR_RETURN(const std::string first, env->ReadRange(path, 0, kFirstRecord));
  TakeRecords(first, &contents);
  contents.points.clear();
  if (most == 0) return contents;
  SLUICE_ASSIGN_OR_RETURN(const std::string bytes, env->ReadRange(path, size - most, most));
  contents.bytes = bytes.size();
  TakeRecords(absl::string_view(bytes).substr(FindRecord(bytes)), &contents);
  return contents;
}

absl::StatusOr<std::unique_ptr<EventFile>> EventFile::Create(Env* env, const std::string& dir,
                                                             const std::string& suffix,
                                                             absl::Time now) {
  return Create(env, dir, suffix, now, now);
}

absl::StatusOr<std::unique_ptr<EventFile>> EventFile::Create(Env* env, const std::string& dir,
                                                             const std::string& suffix,
                                                             absl::Time now, absl::Time begun) {
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
  std::string version = EventHead(begun, 0);
  AppendBytes(3, "brain.Event:2", &version);
  file->added_ = EventRecord(version);
  const absl::Status flushed = file->Flush();
  if (flushed.ok()) return file;
  env->RemoveFile(file->path_).IgnoreError();  // without a version it is no event file
  return flushed;
}

EventFile::~EventFile() { ::close(fd_); }

void EventFile::AddRestart(absl::Time wall_time) {
  std::string event = EventHead(wall_time, 0);
  AppendBytes(7, std::string("\x08\x01"), &event);
  added_ += EventRecord(event);
}

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
