#include "scheduler/files/trace_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/base/env.h"
#include "common/base/file_origin.h"
#include "common/base/output_target.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/daemon/role_name.h"
#include "scheduler/members/membership.h"

namespace sluice {
namespace {

// How many numbers of a member's batches are remembered, so that a repetition is recognized. A
// member numbers its batches one by one and sends one at a time.
constexpr uint64_t kWindow = 1024;

constexpr char kBegin[] = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [";

// How spans of one kind are shown. `step`: the label of the span's number, null when it has none.
struct Look {
  const char* name;
  const char* step;
  bool rank_and_bytes;
};

Look LookOf(TraceBatch::Name name) {
  switch (name) {
    case TraceBatch::INDEX:
      return {"index", nullptr, false};
    case TraceBatch::TRAIN:
      return {"train epoch", "epoch", false};
    case TraceBatch::EVAL:
      return {"eval", "epoch", false};
    case TraceBatch::SAVE:
      return {"save", nullptr, false};
    case TraceBatch::STEP:
      return {"step", "step", false};
    case TraceBatch::READ:
      return {"read", nullptr, false};
    case TraceBatch::DEDUP:
      return {"dedup", nullptr, false};
    case TraceBatch::PULL_WAIT:
      return {"pull_wait", "step", false};
    case TraceBatch::COMPUTE:
      return {"compute", "step", false};
    case TraceBatch::PUSH_WAIT:
      return {"push_wait", "step", false};
    case TraceBatch::PUSH:
      return {"push", "sequence", true};
    case TraceBatch::PUSH_PART:
      return {"push part", "sequence", true};
    case TraceBatch::PULL:
      return {"pull", nullptr, true};
    case TraceBatch::CLOSE_STEP:
      return {"close step", "step", false};
    case TraceBatch::SAVE_SHARDS:
      return {"save shards", nullptr, false};
    default:
      return {"other", nullptr, false};
  }
}

absl::Status CheckBatch(const TraceBatch& batch) {
  const int n = batch.name_size();
  const bool parallel = batch.start_us_size() == n && batch.duration_us_size() == n &&
                        batch.track_size() == n && batch.step_size() == n &&
                        batch.rank_size() == n && batch.bytes_size() == n;
  const bool named = std::all_of(batch.track().begin(), batch.track().end(), [&](uint32_t track) {
    return track < static_cast<uint32_t>(batch.tracks_size());
  });
  if (!parallel || !named || batch.number() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch ", batch.number(), " of ", n, " spans is malformed"));
  }
  if (static_cast<size_t>(batch.tracks_size()) > TraceFile::kMaxTracks) {
    return absl::InvalidArgumentError(absl::StrCat("batch ", batch.number(), " has ",
                                                   batch.tracks_size(), " tracks, more than ",
                                                   TraceFile::kMaxTracks));
  }
  return absl::OkStatus();
}

// Cut to a bounded length.
absl::string_view NameOfTrack(const TraceBatch& batch, int track) {
  return absl::string_view(batch.tracks(track)).substr(0, TraceFile::kMaxTrackBytes);
}

// Returns an "M" event.
std::string Metadata(const char* what, int pid, int tid, const std::string& json) {
  return absl::StrCat(",\n{\"ph\": \"M\", \"name\": \"", what, "\", \"pid\": ", pid,
                      ", \"tid\": ", tid, ", \"args\": {", json, "}}");
}

// True while another job writes the file.
bool IsLocked(Env* env, const std::string& path) {
  const auto fd = env->OpenFile(path, O_RDONLY | O_NOFOLLOW);
  if (!fd.ok()) return false;
  const bool locked = flock(*fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(*fd);
  return locked;
}

// False for a folder, a pipe or a device. A link is replaced, not followed: `env` may confine paths
// to folders, and a link could lead out of them.
bool MayBeReplaced(Env* env, const std::string& path) {
  const auto fd = env->OpenFile(path, O_PATH | O_NOFOLLOW);
  if (!fd.ok()) return true;  // most likely it does not exist; else creating it will fail
  struct stat info;
  const bool known = fstat(*fd, &info) == 0;
  close(*fd);
  return !known || S_ISREG(info.st_mode) || S_ISLNK(info.st_mode);
}

// Removes a trace that an earlier life of this scheduler has left under `unfinished`, a name with
// its pid. Anything else keeps its name.
void RemoveLeftover(Env* env, const std::string& unfinished) {
  if (MayBeReplaced(env, unfinished) && !IsLocked(env, unfinished) &&
      CheckReplaceable(env, unfinished, FileKind::kTrace, /*overwrite=*/false, "").ok()) {
    env->RemoveFile(unfinished).IgnoreError();
  }
}

// Creates a file next to `path` under a name that nothing has, which goes to `unfinished`. So no
// file is truncated that somebody else has put there.
absl::StatusOr<int> CreateNextTo(Env* env, const std::string& path, const std::string& job_id,
                                 std::string* unfinished) {
  constexpr int kTries = 100;
  const auto create = [&] { return env->OpenFile(*unfinished, O_WRONLY | O_CREAT | O_EXCL, 0644); };
  for (int i = 0;; ++i) {
    const std::string name = absl::StrCat(path, ".", job_id);
    *unfinished = UnfinishedName(i == 0 ? name : absl::StrCat(name, "-", i));
    auto fd = create();
    if (absl::IsAlreadyExists(fd.status())) {
      RemoveLeftover(env, *unfinished);
      fd = create();
    }
    if (!absl::IsAlreadyExists(fd.status()) || i == kTries) return fd;
  }
}

absl::Status CannotWrite(const std::string& path, absl::string_view why) {
  return absl::InternalError(absl::StrCat("cannot write trace_file ", path, ": ", why,
                                          "; free some space, or give another --trace"));
}

absl::Status CannotWrite(const std::string& path) {
  return CannotWrite(path, std::strerror(errno));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TraceFile>> TraceFile::Create(Env* env, const std::string& path,
                                                             const std::string& job_id,
                                                             const std::string& host,
                                                             uint64_t max_spans) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (!folder.empty()) SLUICE_RETURN_IF_ERROR(env->MakeDirs(folder));
  if (!MayBeReplaced(env, path)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot write trace_file ", path, ": it is not a regular file; give another --trace"));
  }
  if (IsLocked(env, path)) {
    return absl::AlreadyExistsError(absl::StrCat(
        "another job, which has not ended, writes trace_file ", path, "; give another --trace"));
  }
  std::string unfinished;
  const auto fd = CreateNextTo(env, path, job_id, &unfinished);
  if (!fd.ok()) return CannotWrite(path, fd.status().message());
  std::unique_ptr<TraceFile> file(new TraceFile(env, *fd, path, job_id, host, max_spans));
  file->unfinished_ = unfinished;
  flock(*fd, LOCK_EX | LOCK_NB);  // some file systems have no locks: others are then not kept away
  SLUICE_RETURN_IF_ERROR(file->Write(kBegin));
  if (!env->Exists(path)) SLUICE_RETURN_IF_ERROR(file->Publish());
  return file;
}

absl::Status TraceFile::Publish() {
  if (unfinished_.empty()) return absl::OkStatus();
  const absl::Status renamed = env_->RenameFile(unfinished_, path_);
  if (!renamed.ok()) return CannotWrite(path_, renamed.message());
  unfinished_.clear();
  return absl::OkStatus();
}

TraceFile::TraceFile(Env* env, int fd, std::string path, std::string job_id, std::string host,
                     uint64_t max_spans)
    : env_(env),
      fd_(fd),
      path_(std::move(path)),
      job_id_(std::move(job_id)),
      host_(std::move(host)),
      max_spans_(max_spans) {}

TraceFile::~TraceFile() {
  close(fd_);
  if (!unfinished_.empty()) env_->RemoveFile(unfinished_).IgnoreError();
}

absl::Status TraceFile::Add(const TraceReport& report) {
  SLUICE_RETURN_IF_ERROR(CheckBatch(report.batch));
  std::string events;
  Process* process = FindProcess(report, &events);
  MoveClock(report, process);
  if (!IsNew(report.batch.number(), process)) return absl::OkStatus();
  process->dropped += report.batch.dropped();
  for (;
       process->tracks < static_cast<size_t>(report.batch.tracks_size()) && tracks_ < kMaxAllTracks;
       ++process->tracks, ++tracks_) {
    const int tid = static_cast<int>(process->tracks);
    absl::StrAppend(
        &events,
        Metadata("thread_name", process->pid, tid,
                 "\"name\": " + JsonQuoted(Printable(NameOfTrack(report.batch, tid)))),
        Metadata("thread_sort_index", process->pid, tid, absl::StrCat("\"sort_index\": ", tid)));
  }
  AddSpans(report.batch, process, &events);
  SLUICE_RETURN_IF_ERROR(Append(std::move(events)));
  return Publish();
}

TraceFile::Process* TraceFile::FindProcess(const TraceReport& report, std::string* events) {
  Process& process = processes_[report.member_id];
  if (process.pid > 0) return &process;
  const RegisterRequest& self = report.member;
  process.pid = static_cast<int>(processes_.size());
  process.name = absl::StrCat(RoleName(self.role()), " ", self.rank(), " (pid ", self.pid(),
                              " on host ", self.host(), ")");
  process.elsewhere = self.host() != host_;
  // Show workers above pservers.
  const uint64_t order = (self.role() == ROLE_WORKER ? 0 : 1'000'000) + uint64_t{self.rank()};
  absl::StrAppend(
      events, Metadata("process_name", process.pid, 0, "\"name\": " + JsonQuoted(process.name)),
      Metadata("process_sort_index", process.pid, 0, absl::StrCat("\"sort_index\": ", order)));
  return &process;
}

bool TraceFile::IsNew(uint64_t number, Process* process) {
  std::set<uint64_t>& seen = process->seen;
  // A number below the window may have been seen.
  if (!seen.empty() && *seen.rbegin() >= kWindow && number <= *seen.rbegin() - kWindow)
    return false;
  if (!seen.insert(number).second) return false;
  while (*seen.rbegin() - *seen.begin() >= kWindow) seen.erase(seen.begin());
  return true;
}

void TraceFile::MoveClock(const TraceReport& report, Process* process) {
  if (!process->elsewhere) return;
  const uint64_t received = static_cast<uint64_t>(absl::ToUnixMicros(report.received));
  const int64_t shift = static_cast<int64_t>(received - report.batch.sent_us());
  if (process->shift_known && shift >= process->shift_us) return;
  process->shift_us = shift;
  process->shift_known = true;
}

void TraceFile::AddSpans(const TraceBatch& batch, Process* process, std::string* events) {
  // Unsigned, because a sum of signed numbers from a peer could overflow.
  uint64_t start = static_cast<uint64_t>(process->shift_us), step = 0;
  for (int i = 0; i < batch.name_size(); ++i) {
    start += static_cast<uint64_t>(batch.start_us(i));
    step += static_cast<uint64_t>(batch.step(i));
    if (spans_ >= max_spans_) {
      process->dropped += static_cast<uint64_t>(batch.name_size() - i);
      return;
    }
    ++spans_;
    const Look look = LookOf(batch.name(i));
    const bool has_step = look.step != nullptr && step > 0;
    absl::StrAppend(events, ",\n{\"ph\": \"X\", \"name\": \"", look.name);
    if (batch.name(i) == TraceBatch::TRAIN) absl::StrAppend(events, " ", step);
    absl::StrAppend(events, "\", \"pid\": ", process->pid, ", \"tid\": ", batch.track(i),
                    ", \"ts\": ", static_cast<int64_t>(start), ", \"dur\": ", batch.duration_us(i));
    if (has_step || look.rank_and_bytes) absl::StrAppend(events, ", \"args\": {");
    if (has_step) absl::StrAppend(events, "\"", look.step, "\": ", step);
    if (look.rank_and_bytes) {
      absl::StrAppend(events, has_step ? ", " : "", "\"rank\": ", batch.rank(i),
                      ", \"bytes\": ", batch.bytes(i));
    }
    absl::StrAppend(events, has_step || look.rank_and_bytes ? "}}" : "}");
  }
}

std::string TraceFile::End() const {
  std::vector<std::string> dropped, shifts;
  for (const auto& [id, process] : processes_) {
    const std::string name = JsonQuoted(process.name);
    if (process.dropped > 0) dropped.push_back(absl::StrCat(name, ": ", process.dropped));
    if (process.shift_known) shifts.push_back(absl::StrCat(name, ": ", process.shift_us));
  }
  return absl::StrCat("\n], \"otherData\": {\"job\": ", JsonQuoted(job_id_),
                      ", \"spans\": ", spans_, ", \"dropped\": {", absl::StrJoin(dropped, ", "),
                      "}, \"clock_shift_us\": {", absl::StrJoin(shifts, ", "), "}", kOwnTraceEnd);
}

absl::Status TraceFile::Append(std::string events) {
  if (!has_events_ && !events.empty()) {
    events.erase(0, 1);
    has_events_ = true;
  }
  return Write(std::move(events));
}

absl::Status TraceFile::Write(std::string text) {
  const std::string end = End();
  const uint64_t next = events_end_ + text.size();
  text += end;
  // First write what lies beyond the present end: if the disk is full, that end is still intact.
  const size_t over = std::min(text.size(), last_end_.size());
  const absl::string_view whole(text);
  if (!WriteAt(whole.substr(over), events_end_ + over) ||
      !WriteAt(whole.substr(0, over), events_end_) ||
      ftruncate(fd_, static_cast<off_t>(events_end_ + text.size())) != 0) {
    Restore();
    return CannotWrite(path_);
  }
  events_end_ = next;
  last_end_ = end;
  return absl::OkStatus();
}

bool TraceFile::WriteAt(absl::string_view text, uint64_t offset) {
  while (!text.empty()) {
    const ssize_t n = pwrite(fd_, text.data(), text.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = ENOSPC;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return true;
}

void TraceFile::Restore() {
  const int error = errno;
  // Truncate first: it needs no space, and suffices if only the part beyond the end failed. If even
  // this fails, nothing more can be done, and the state of the file is indeterminate.
  [[maybe_unused]] const bool restored =
      ftruncate(fd_, static_cast<off_t>(events_end_ + last_end_.size())) == 0 &&
      WriteAt(last_end_, events_end_);
  errno = error;
}

}  // namespace sluice
