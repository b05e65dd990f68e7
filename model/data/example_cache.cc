#include "model/data/example_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/base/local_path.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "model/data/partition_folders.h"

namespace sluice {
namespace {

constexpr char kExamplesSuffix[] = ".examples";
constexpr size_t kNameDigits = 32;        // of the digest, in the name of a file
constexpr uint64_t kMostBadLines = 1000;  // a piece with more bad lines is not stored
constexpr int kLoggedFiles = 10;
constexpr uint64_t kStoresBetweenScans = 64;  // at least; more in a folder of many files
// A source modified less than this before it was read may change again and keep its modification
// time, so its examples are not stored.
constexpr int64_t kSettledNs = 50'000'000;

absl::Status CacheFileError(const std::string& file, const char* action) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", action, " ", file));
}

struct CacheDescriptor {
  int fd = -1;
  ~CacheDescriptor() {
    if (fd >= 0) close(fd);
  }
};

// OK when nobody but this user and root can change the contents of the file.
absl::Status CheckOnlyOwnerWrites(const struct stat& file) {
  if (file.st_uid != geteuid() && file.st_uid != 0) {
    return absl::PermissionDeniedError(absl::StrCat("it belongs to user ", file.st_uid,
                                                    ", who can change it at any time; use a ",
                                                    "data.cache_dir of your own"));
  }
  if ((file.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::PermissionDeniedError(absl::StrFormat(
        "its mode, %04o, lets other users change it at any time", file.st_mode & 07777));
  }
  return absl::OkStatus();
}

// A file that would be refused later is not worth its space. Some file systems give all files one
// owner or mode.
absl::Status CheckWritten(int fd, const std::string& path) {
  struct stat info;
  if (fstat(fd, &info) != 0) return CacheFileError(path, "read");
  const absl::Status status = CheckOnlyOwnerWrites(info);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("cannot use ", path, ": ", status.message()));
}

// Returns true for names of the form that TargetOf gives.
bool IsCacheName(absl::string_view name) {
  return absl::ConsumeSuffix(&name, kExamplesSuffix) && name.size() == kNameDigits &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f'); });
}

// The names in the folder are this cache's own: a link there is somebody else's, and not followed.
int OpenInFolder(const CacheDescriptor& folder, const std::string& name, int flags,
                 mode_t mode = 0) {
  return openat(folder.fd, name.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode);
}

// True when this process has locked the open file and the file still has the name.
bool Claim(const CacheDescriptor& folder, int file, const std::string& name) {
  struct stat mine, named;
  return flock(file, LOCK_EX | LOCK_NB) == 0 && fstat(file, &mine) == 0 &&
         fstatat(folder.fd, name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         mine.st_ino == named.st_ino && mine.st_dev == named.st_dev;
}

// Creates a file that nobody else has and returns its descriptor; -1 and errno, which is EEXIST
// while another process writes it. A file without a lock was left by a killed process, and a link
// is somebody else's: they lose the name, and neither is truncated.
int CreateInFolder(const CacheDescriptor& folder, const std::string& name) {
  const auto create = [&] { return OpenInFolder(folder, name, O_RDWR | O_CREAT | O_EXCL, 0644); };
  const int fd = create();
  if (fd >= 0 || errno != EEXIST) return fd;
  const CacheDescriptor left{OpenInFolder(folder, name, O_RDWR)};
  if (left.fd < 0 && errno != ELOOP) return -1;
  if (left.fd >= 0 && !Claim(folder, left.fd, name)) {
    errno = EEXIST;
    return -1;
  }
  return unlinkat(folder.fd, name.c_str(), 0) == 0 ? create() : -1;
}

// Those who may write to the folder can remove and rename files, but not change one that passes
// CheckOnlyOwnerWrites. So a group may write, as with umask 002, and so may everybody in a sticky
// folder. FAILED_PRECONDITION says why the folder must not be used.
absl::Status CheckFolder(const struct stat& folder) {
  if (folder.st_uid != geteuid() && folder.st_uid != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("it belongs to user ", folder.st_uid, "; use a data.cache_dir of your own"));
  }
  if ((folder.st_mode & S_IWOTH) != 0 && (folder.st_mode & S_ISVTX) == 0) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "its mode, %04o, lets all users replace its files; use a folder below it as "
        "data.cache_dir, or chmod o-w",
        folder.st_mode & 07777));
  }
  return absl::OkStatus();
}

// Opens a cache file for reading. DATA_LOSS and PERMISSION_DENIED say why it must not be used.
absl::StatusOr<int> OpenCacheFile(const CacheDescriptor& folder, const std::string& name,
                                  const std::string& path, struct stat* info) {
  CacheDescriptor file{OpenInFolder(folder, name, O_RDONLY)};
  // The open file is looked at, not its name, which somebody else may give to another file now.
  if (file.fd < 0 || fstat(file.fd, info) != 0) return CacheFileError(path, "open");
  if (!S_ISREG(info->st_mode)) return absl::DataLossError("it is truncated");
  SLUICE_RETURN_IF_ERROR(CheckOnlyOwnerWrites(*info));
  return std::exchange(file.fd, -1);
}

bool IsCacheFile(const CacheDescriptor& folder, const std::string& name) {
  const CacheDescriptor file{OpenInFolder(folder, name, O_RDONLY)};
  return file.fd >= 0 && ExampleFile::HasMagic(file.fd);
}

struct CacheFile {
  std::string name;
  uint64_t bytes = 0;
  int64_t used_ns = 0;
};

// The cache files of a folder, the least recently used first.
std::vector<CacheFile> CacheFilesOf(const CacheDescriptor& dir) {
  std::vector<CacheFile> files;
  // Opened again, since reading moves the position that duplicates of a descriptor share.
  DIR* const folder = fdopendir(OpenInFolder(dir, ".", O_RDONLY | O_DIRECTORY));
  if (folder == nullptr) return files;
  while (const dirent* entry = readdir(folder)) {
    struct stat info;
    CacheFile file{entry->d_name};
    if (!IsCacheName(entry->d_name) ||
        fstatat(dir.fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
      continue;
    }
    file.bytes = static_cast<uint64_t>(info.st_size);
    file.used_ns = info.st_mtim.tv_sec * int64_t{1'000'000'000} + info.st_mtim.tv_nsec;
    files.push_back(std::move(file));
  }
  closedir(folder);
  std::sort(files.begin(), files.end(),
            [](const CacheFile& a, const CacheFile& b) { return a.used_ns < b.used_ns; });
  return files;
}

}  // namespace

ExampleCache::ExampleCache(Options options)
    : options_(std::move(options)), started_ns_(NowNs()), writes_(options_.write) {}

int64_t ExampleCache::NowNs() const { return absl::ToUnixNanos(options_.clock->WallNow()); }

ExampleCache::Target ExampleCache::TargetOf(absl::Span<const DataPiece> pieces,
                                            const FileIdentity& source) const {
  // The size before the fingerprint, so that no fingerprint can look like the fields behind it.
  std::string text = absl::StrCat(ExampleFile::kVersion, "\n", options_.fingerprint.size(), "\n",
                                  options_.fingerprint, "\n");
  if (pieces.size() == 1) {
    const DataPiece& piece = pieces.front();
    absl::StrAppend(&text, piece.begin, "\n", piece.end, "\n", piece.piece_bytes, "\n", piece.path);
  } else {
    absl::StrAppend(&text, "parts");
    for (const DataPiece& piece : pieces) {
      absl::StrAppend(&text, "\n", piece.begin, "\n", piece.end, "\n", piece.path.size(), "\n",
                      piece.path);
    }
  }
  std::string digest = Sha256Hex(text);
  // Half of the digest is enough for a name. The header has all of it.
  std::string name = absl::StrCat(digest.substr(0, kNameDigits), kExamplesSuffix);
  return {std::move(name), {std::move(digest), source, options_.num_numeric, options_.num_slots}};
}

absl::StatusOr<int> ExampleCache::OpenFolder() const {
  const auto fd = options_.env->OpenFile(options_.dir, O_RDONLY | O_DIRECTORY);
  absl::Status status = fd.status();
  if (fd.ok()) {
    CacheDescriptor folder{*fd};
    struct stat info;
    status = fstat(folder.fd, &info) == 0 ? CheckFolder(info) : absl::ErrnoToStatus(errno, "stat");
    // The descriptor, and not the path, is used from here on: a folder that is put in its place
    // meanwhile was not checked.
    if (status.ok()) return std::exchange(folder.fd, -1);
  }
  return absl::Status(status.code(),
                      absl::StrCat("cannot use the folder ", options_.dir, ": ", status.message()));
}

absl::Status ExampleCache::FolderStatus(const absl::Status& opened) {
  // Store says why nothing is written. A cache that only reads needs no folder, but a user who has
  // one should know why it is of no use.
  if (!options_.write && absl::IsFailedPrecondition(opened)) {
    bool first;
    {
      MutexLock lock(&mutex_);
      first = !std::exchange(folder_logged_, true);
    }
    if (first) options_.log(absl::StrCat("cached data is not used: ", opened.message()));
  }
  return absl::NotFoundError(opened.message());
}

void ExampleCache::LogIgnored(const std::string& name, const absl::Status& why) {
  int count;
  {
    MutexLock lock(&mutex_);
    count = ++ignored_;
  }
  if (count > kLoggedFiles) return;
  options_.log(absl::StrCat("the cache file ", options_.dir, "/", name,
                            " is unusable and will be made again: ", why.message(),
                            count == kLoggedFiles ? "; further ones are not logged" : ""));
}

absl::StatusOr<std::shared_ptr<const ExampleFile>> ExampleCache::Map(const Target& target) {
  const auto fd = OpenFolder();
  if (!fd.ok()) return FolderStatus(fd.status());
  const CacheDescriptor folder{*fd};
  const std::string path = absl::StrCat(options_.dir, "/", target.name);
  struct stat info;
  SLUICE_ASSIGN_OR_RETURN(const int file, OpenCacheFile(folder, target.name, path, &info));
  const CacheDescriptor opened{file};
  SLUICE_ASSIGN_OR_RETURN(
      auto mapped,
      ExampleFile::Map(opened.fd, path, static_cast<uint64_t>(info.st_size), target.origin));
  const FileIdentity now{static_cast<uint64_t>(info.st_dev), static_cast<uint64_t>(info.st_ino),
                         static_cast<uint64_t>(info.st_size),
                         info.st_mtim.tv_sec * int64_t{1'000'000'000} + info.st_mtim.tv_nsec};
  {
    MutexLock lock(&mutex_);
    futimens(opened.fd, nullptr);  // the last use; fails in a read-only folder
    const auto it = verified_.find(target.name);
    // The modification time is no part of this check: it holds the time of the last use.
    if (it != verified_.end() && it->second.inode == now.inode && it->second.device == now.device)
      return mapped;
  }
  // Without the lock: this reads the whole file. Two threads may both check a file once.
  SLUICE_RETURN_IF_ERROR(mapped->CheckContents());
  MutexLock lock(&mutex_);
  verified_[target.name] = now;
  return mapped;
}

std::optional<uint64_t> ExampleCache::CountLines(const DataPiece& piece,
                                                 const FileIdentity& source) const {
  const Target target = TargetOf(absl::MakeConstSpan(&piece, 1), source);
  const auto fd = OpenFolder();
  if (!fd.ok()) return std::nullopt;
  const CacheDescriptor folder{*fd};
  const std::string path = absl::StrCat(options_.dir, "/", target.name);
  struct stat info;
  const auto file = OpenCacheFile(folder, target.name, path, &info);
  if (!file.ok()) return std::nullopt;
  const CacheDescriptor opened{*file};
  const auto lines =
      ExampleFile::CountLines(opened.fd, path, static_cast<uint64_t>(info.st_size), target.origin);
  if (!lines.ok()) return std::nullopt;
  return *lines;
}

Examples ExampleCache::Find(absl::Span<const DataPiece> pieces, const FileIdentity& source,
                            BadLines* bad, DataSummary* summary) {
  const Target target = TargetOf(pieces, source);
  const auto mapped = Map(target);
  if (!mapped.ok()) {
    if (!absl::IsNotFound(mapped.status())) LogIgnored(target.name, mapped.status());
    return {};
  }
  // The summary first: once *bad has changed, the piece must not be parsed as well.
  if (summary != nullptr && !(*mapped)->AddSummaryTo(summary)) {
    LogIgnored(target.name, absl::DataLossError("its summary is damaged"));
    return {};
  }
  (*mapped)->AddBadLines(bad);
  return {(*mapped)->view(), *mapped};
}

absl::Status ExampleCache::MakeRoom(int folder, uint64_t bytes) {
  if (used_ + bytes <= limit_ && stores_to_scan_ > 0) {
    --stores_to_scan_;
    used_ += bytes;
    return absl::OkStatus();
  }
  // Other processes write to the folder too, so look at its files again.
  const CacheDescriptor dir{dup(folder)};
  std::vector<CacheFile> files = CacheFilesOf(dir);
  // In proportion to the files, so that scanning stays a small part of the work.
  stores_to_scan_ = std::max<uint64_t>(kStoresBetweenScans, files.size() / 4);
  used_ = 0;
  for (const CacheFile& file : files) used_ += file.bytes;
  limit_ = options_.max_bytes;
  struct statvfs system;
  // Together with what the cache holds. Otherwise the limit would shrink as the cache grows.
  if (limit_ == 0 && fstatvfs(dir.fd, &system) == 0)
    limit_ = (static_cast<uint64_t>(system.f_bavail) * system.f_frsize + used_) / 2;
  for (const CacheFile& file : files) {
    // Files used since this cache began may be needed in the next epoch, so they stay.
    if (used_ + bytes <= limit_ || file.used_ns >= started_ns_) break;
    // A file of somebody else may have such a name, and is not removed.
    if (IsCacheFile(dir, file.name) && unlinkat(dir.fd, file.name.c_str(), 0) == 0)
      used_ -= std::min(used_, file.bytes);
  }
  if (used_ + bytes > limit_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the folder ", options_.dir, " is limited to ", limit_, " bytes",
                     options_.max_bytes == 0 ? " (half of the free space)" : "",
                     "; raise data.cache_max_bytes or set another data.cache_dir"));
  }
  used_ += bytes;
  return absl::OkStatus();
}

absl::Status ExampleCache::Write(const Target& target, const ExampleView& examples,
                                 const BadLines& bad, const DataSummary& summary) {
  const ExampleFileImage image(target.origin, examples, bad, summary);
  SLUICE_ASSIGN_OR_RETURN(const int fd, OpenFolder());
  const CacheDescriptor folder{fd};
  const std::string unfinished = target.name + kUnfinishedSuffix;
  const std::string path = absl::StrCat(options_.dir, "/", unfinished);
  const CacheDescriptor out{CreateInFolder(folder, unfinished)};
  if (out.fd < 0 && errno != EEXIST) return CacheFileError(path, "open");
  // Each file has one writer. Another one may have taken a file without a lock for a leftover
  // before this one could lock it.
  if (out.fd < 0 || !Claim(folder, out.fd, unfinished))
    return absl::AlreadyExistsError("another worker is writing it");
  {
    MutexLock lock(&mutex_);
    if (const absl::Status room = MakeRoom(folder.fd, image.bytes()); !room.ok()) {
      unlinkat(folder.fd, unfinished.c_str(), 0);
      return room;
    }
  }
  // No sync: after a crash of the machine the file may lack some of its bytes, which its checksums
  // show. It is then parsed again.
  absl::Status status = image.WriteTo(out.fd, path);
  if (status.ok()) status = CheckWritten(out.fd, path);
  if (status.ok() && renameat(folder.fd, unfinished.c_str(), folder.fd, target.name.c_str()) != 0) {
    status = CacheFileError(path, "rename");
  }
  if (!status.ok()) unlinkat(folder.fd, unfinished.c_str(), 0);
  return status;
}

bool ExampleCache::Store(absl::Span<const DataPiece> pieces, const FileIdentity& source,
                         const ExampleView& examples, const BadLines& bad,
                         const DataSummary& summary) {
  {
    MutexLock lock(&mutex_);
    if (!writes_) return false;
  }
  if (bad.count > kMostBadLines || NowNs() - source.modified_ns < kSettledNs) return false;
  absl::Status status = options_.env->MakeDirs(options_.dir);
  if (status.ok()) status = Write(TargetOf(pieces, source), examples, bad, summary);
  if (status.ok() || absl::IsAlreadyExists(status)) return status.ok();
  {
    MutexLock lock(&mutex_);
    if (!std::exchange(writes_, false)) return false;
  }
  options_.log(absl::StrCat(
      "parsed data is no longer cached, so later epochs may parse text again: ", status.message()));
  return false;
}

std::string FingerprintOf(const JobConfig& job, const FeatureSchema& schema) {
  JobConfig relevant;
  *relevant.mutable_features() = job.features();
  DataConfig* const data = relevant.mutable_data();
  data->set_format(job.data().format());
  *data->mutable_csv() = job.data().csv();
  *data->mutable_label() = job.data().label();
  *data->mutable_slots() = job.data().slots();
  data->set_weight_column(job.data().weight_column());
  std::string fingerprint = relevant.SerializeAsString();
  // Folders below are columns of the files in them.
  for (const auto* const patterns : {&job.data().train_files(), &job.data().eval_files()}) {
    for (const std::string& pattern : *patterns) {
      const std::string fixed = FixedFolders(pattern);
      if (pattern.find('/', fixed.size()) != std::string::npos && !fixed.empty())
        absl::StrAppend(&fingerprint, "\nfolders below ", fixed);
    }
  }
  // The model decides which numbers and keys of the features an example has.
  for (const FeatureSchema::Numeric& numeric : schema.numerics())
    absl::StrAppend(&fingerprint, "\nnumber ", numeric.name);
  for (const FeatureSchema::Slot& slot : schema.slots()) {
    absl::StrAppend(&fingerprint, "\nkeys ", slot.name);
    // Dense features: the keys are rows, and other uses of the features move them.
    if (!slot.rows.empty()) absl::StrAppend(&fingerprint, " rows from ", slot.rows.begin);
  }
  return fingerprint;
}

std::unique_ptr<ExampleCache> MakeExampleCache(const JobConfig& job, const FeatureSchema& schema,
                                               Env* env, Clock* clock,
                                               std::function<void(const std::string&)> log) {
  const DataConfig& data = job.data();
  if (data.has_cache() && !data.cache()) return nullptr;
  ExampleCache::Options options;
  options.env = env;
  options.clock = clock;
  options.dir = data.cache_dir();
  if (options.dir.empty()) {
    // Caches are mapped, so they are files of this host even if the output is on a store.
    std::error_code error;
    options.dir = HasScheme(job.output_dir())
                      ? std::filesystem::current_path(error) / "output" / "data_cache"
                      : std::filesystem::path(job.output_dir()).parent_path() / "data_cache";
  }
  options.write = data.cache();
  options.max_bytes = data.cache_max_bytes();
  options.fingerprint = FingerprintOf(job, schema);
  options.num_numeric = schema.numerics().size();
  options.num_slots = schema.slots().size();
  options.log = std::move(log);
  return std::make_unique<ExampleCache>(std::move(options));
}

}  // namespace sluice
