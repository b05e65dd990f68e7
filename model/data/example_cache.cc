#include "model/data/example_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/clock.h"
#include "common/base/crc32c.h"
#include "common/base/env.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "model/features/data_summary.h"

namespace sluice {
namespace {

// Raise this whenever the layout changes, or the examples that a line is parsed into.
constexpr uint32_t kVersion = 3;
constexpr char kMagic[8] = {'S', 'L', 'U', 'I', 'C', 'E', 'X', '1'};
constexpr char kSuffix[] = ".examples";
constexpr size_t kHeaderBytes = 4096, kAlignment = 64;
constexpr size_t kDigestBytes = 64;       // hexadecimal
constexpr size_t kNameDigits = 32;        // of the digest, in the name of a file
constexpr uint64_t kMostBadLines = 1000;  // a piece with more bad lines is not stored
constexpr int kLoggedFiles = 10;
constexpr uint64_t kStoresBetweenScans = 64;  // at least; more in a folder of many files
// A source modified less than this before it was read may change again and keep its modification
// time, so its examples are not stored.
constexpr int64_t kSettledNs = 50'000'000;

enum SectionIndex { kLabel, kWeight, kNumeric, kOffsets, kKeys, kBadLines, kSummary, kSections };

struct Section {
  uint64_t offset = 0, bytes = 0;
  uint64_t crc = 0;
};

struct Header {
  char magic[8];
  uint32_t version = kVersion;
  uint32_t crc = 0;  // of the header with this field 0
  char digest[kDigestBytes];
  uint64_t source_bytes = 0;
  int64_t source_modified_ns = 0, source_changed_ns = 0;
  uint64_t n = 0, num_numeric = 0, num_slots = 0, num_keys = 0;
  uint64_t bad_lines = 0;
  uint64_t file_bytes = 0;
  Section sections[kSections];
};
static_assert(sizeof(Header) <= kHeaderBytes);

uint32_t CrcOf(Header header) {
  header.crc = 0;
  return Crc32c(&header, sizeof(header));
}

// The bytes of each section, in memory.
using Contents = std::array<std::pair<const void*, uint64_t>, kSections>;

// Makes the header of the file that holds `contents` one after the other.
Header MakeHeader(const std::string& digest, const FileIdentity& source,
                  const ExampleView& examples, uint64_t bad_lines, const Contents& contents) {
  Header header{};
  header.version = kVersion;
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  std::memcpy(header.digest, digest.data(), kDigestBytes);
  header.source_bytes = source.size;
  header.source_modified_ns = source.modified_ns;
  header.source_changed_ns = source.changed_ns;
  header.n = examples.n;
  header.num_numeric = examples.num_numeric;
  header.num_slots = examples.num_slots;
  header.num_keys = contents[kKeys].second / sizeof(uint64_t);
  header.bad_lines = bad_lines;
  uint64_t at = kHeaderBytes;
  for (int s = 0; s < kSections; ++s) {
    header.sections[s] = {at, contents[s].second, Crc32c(contents[s].first, contents[s].second)};
    at += (contents[s].second + kAlignment - 1) / kAlignment * kAlignment;
  }
  header.file_bytes = at;
  header.crc = CrcOf(header);
  return header;
}

absl::Status FileError(const std::string& file, const char* action) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", action, " ", file));
}

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

// The values that a header must have.
struct Expected {
  std::string digest;
  FileIdentity source;
  size_t num_numeric = 0, num_slots = 0;
};

// INVALID_ARGUMENT or DATA_LOSS says why the file of `bytes` bytes must not be used.
absl::Status CheckHeader(const Header& header, const Expected& expected, uint64_t bytes) {
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 || CrcOf(header) != header.crc)
    return absl::DataLossError("its header is damaged");
  if (header.version != kVersion)
    return absl::InvalidArgumentError("another version of Sluice wrote it");
  if (header.file_bytes != bytes) return absl::DataLossError("it is truncated");
  if (absl::string_view(header.digest, kDigestBytes) != expected.digest ||
      header.num_numeric != expected.num_numeric || header.num_slots != expected.num_slots) {
    return absl::InvalidArgumentError("it belongs to other features or data");
  }
  if (header.source_bytes != expected.source.size ||
      header.source_modified_ns != expected.source.modified_ns ||
      header.source_changed_ns != expected.source.changed_ns)
    return absl::InvalidArgumentError("the data file has changed since it was written");
  return absl::OkStatus();
}

absl::Status WriteAt(int fd, const std::string& file, uint64_t offset, const void* data, size_t n) {
  const char* from = static_cast<const char*>(data);
  while (n > 0) {
    const ssize_t done = pwrite(fd, from, n, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return FileError(file, "write");
    from += done;
    offset += static_cast<uint64_t>(done);
    n -= static_cast<size_t>(done);
  }
  return absl::OkStatus();
}

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
  if (fstat(fd, &info) != 0) return FileError(path, "read");
  const absl::Status status = CheckOnlyOwnerWrites(info);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("cannot use ", path, ": ", status.message()));
}

bool OneKeyASlot(const ExampleView& examples) {
  if (examples.key_offsets == nullptr) return true;
  const size_t n = examples.n * examples.num_slots;
  if (examples.key_offsets[n] - examples.key_offsets[0] != n) return false;
  for (size_t i = 0; i <= n; ++i) {
    if (examples.key_offsets[i] != i) return false;
  }
  return true;
}

bool AllOne(const float* weight, size_t n) {
  return weight == nullptr || std::all_of(weight, weight + n, [](float w) { return w == 1; });
}

// Returns true for names of the form that NameOf gives.
bool IsCacheName(absl::string_view name) {
  return absl::ConsumeSuffix(&name, kSuffix) && name.size() == kNameDigits &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f'); });
}

// The names in the folder are this cache's own: a link there is somebody else's, and not followed.
int OpenIn(const Descriptor& folder, const std::string& name, int flags, mode_t mode = 0) {
  return openat(folder.fd, name.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode);
}

// True when this process has locked the open file and the file still has the name.
bool Claim(const Descriptor& folder, int file, const std::string& name) {
  struct stat mine, named;
  return flock(file, LOCK_EX | LOCK_NB) == 0 && fstat(file, &mine) == 0 &&
         fstatat(folder.fd, name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         mine.st_ino == named.st_ino && mine.st_dev == named.st_dev;
}

// Creates a file that nobody else has and returns its descriptor; -1 and errno, which is EEXIST
// while another process writes it. A file without a lock was left by a killed process, and a link
// is somebody else's: they lose the name, and neither is truncated.
int CreateIn(const Descriptor& folder, const std::string& name) {
  const auto create = [&] { return OpenIn(folder, name, O_RDWR | O_CREAT | O_EXCL, 0644); };
  const int fd = create();
  if (fd >= 0 || errno != EEXIST) return fd;
  const Descriptor left{OpenIn(folder, name, O_RDWR)};
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

// Opens a cache file and reads its header. INVALID_ARGUMENT, DATA_LOSS and PERMISSION_DENIED say
// why it must not be used.
absl::StatusOr<int> OpenCacheFile(const Descriptor& folder, const std::string& name,
                                  const std::string& path, Header* header, struct stat* info) {
  Descriptor file{OpenIn(folder, name, O_RDONLY)};
  if (file.fd < 0 || fstat(file.fd, info) != 0) return FileError(path, "open");
  if (!S_ISREG(info->st_mode) || info->st_size < static_cast<off_t>(kHeaderBytes))
    return absl::DataLossError("it is truncated");
  SLUICE_RETURN_IF_ERROR(CheckOnlyOwnerWrites(*info));
  if (pread(file.fd, header, sizeof(*header), 0) != static_cast<ssize_t>(sizeof(*header)))
    return FileError(path, "read");
  return std::exchange(file.fd, -1);
}

bool HasMagic(const Descriptor& folder, const std::string& name) {
  const Descriptor file{OpenIn(folder, name, O_RDONLY)};
  char magic[sizeof(kMagic)];
  return file.fd >= 0 && pread(file.fd, magic, sizeof(magic), 0) == sizeof(magic) &&
         std::memcmp(magic, kMagic, sizeof(magic)) == 0;
}

struct CacheFile {
  std::string name;
  uint64_t bytes = 0;
  int64_t used_ns = 0;
};

// The cache files of a folder, the least recently used first.
std::vector<CacheFile> FilesOf(const Descriptor& dir) {
  std::vector<CacheFile> files;
  // Opened again, since reading moves the position that duplicates of a descriptor share.
  DIR* const folder = fdopendir(OpenIn(dir, ".", O_RDONLY | O_DIRECTORY));
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

struct ExampleCache::Mapped {
  Mapped() = default;
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped() {
    if (base != nullptr) munmap(const_cast<char*>(base), bytes);
  }
  const char* at(SectionIndex section) const { return base + header.sections[section].offset; }
  bool has(SectionIndex section) const { return header.sections[section].bytes > 0; }
  std::string TextOf(SectionIndex section) const {
    return std::string(at(section), header.sections[section].bytes);
  }

  // Checks that the sections have the sizes that the header implies, and are inside the file. Bad
  // lines and summary may have any length.
  absl::Status CheckLayout() const {
    const Header& h = header;
    const uint64_t offsets = h.n * h.num_slots;
    if (h.n > bytes || h.num_numeric > bytes || h.num_slots > bytes || h.num_keys > bytes ||
        offsets > bytes) {
      return absl::DataLossError("its header is damaged");
    }
    const uint64_t wanted[] = {h.n * 4,
                               has(kWeight) ? h.n * 4 : 0,
                               h.n * h.num_numeric * 4,
                               has(kOffsets) ? (offsets + 1) * 4 : 0,
                               h.num_keys * 8,
                               h.sections[kBadLines].bytes,
                               h.sections[kSummary].bytes};
    if (!has(kOffsets) && h.num_keys != offsets)
      return absl::DataLossError("its header is damaged");
    for (int s = 0; s < kSections; ++s) {
      const Section& section = h.sections[s];
      if (section.bytes != wanted[s] || section.offset % kAlignment != 0 ||
          section.offset > bytes || section.bytes > bytes - section.offset) {
        return absl::DataLossError("its header is damaged");
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckContents() const {
    for (int s = 0; s < kSections; ++s) {
      const Section& section = header.sections[s];
      if (Crc32c(base + section.offset, section.bytes) != section.crc)
        return absl::DataLossError(absl::StrCat("the checksum of its section ", s, " is wrong"));
    }
    if (!has(kOffsets)) return absl::OkStatus();
    const uint32_t* const offsets = view().key_offsets;
    const uint64_t n = header.n * header.num_slots;
    if (offsets[0] != 0 || offsets[n] != header.num_keys ||
        !std::is_sorted(offsets, offsets + n + 1))
      return absl::DataLossError("its key offsets are not ascending");
    return absl::OkStatus();
  }

  ExampleView view() const {
    ExampleView view;
    view.n = header.n;
    view.num_numeric = header.num_numeric;
    view.num_slots = header.num_slots;
    view.label = reinterpret_cast<const float*>(at(kLabel));
    if (has(kWeight)) view.weight = reinterpret_cast<const float*>(at(kWeight));
    view.numeric = reinterpret_cast<const float*>(at(kNumeric));
    if (has(kOffsets)) view.key_offsets = reinterpret_cast<const uint32_t*>(at(kOffsets));
    view.keys = reinterpret_cast<const uint64_t*>(at(kKeys));
    view.num_keys = header.num_keys;
    view.file = &path;
    return view;
  }

  void AddBadLines(BadLines* bad) const {
    BadLines own;
    own.count = header.bad_lines;
    const std::string text = TextOf(kBadLines);
    for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty()))
      own.first.emplace_back(line);
    bad->Merge(own);
  }

  bool AddSummaryTo(DataSummary* summary) const {
    DataSummary own;
    if (!own.ParseFromString(TextOf(kSummary))) return false;
    AddSummary(own, summary);
    return true;
  }

  std::string path;
  Header header;  // a copy: the file's owner can change the mapped one
  const char* base = nullptr;
  size_t bytes = 0;
};

ExampleCache::ExampleCache(Options options)
    : options_(std::move(options)), started_ns_(NowNs()), writes_(options_.write) {}

int64_t ExampleCache::NowNs() const { return absl::ToUnixNanos(options_.clock->WallNow()); }

std::string ExampleCache::NameOf(const DataPiece& piece, std::string* digest) const {
  *digest = Sha256Hex(absl::StrCat(kVersion, "\n", options_.fingerprint.size(), "\n",
                                   options_.fingerprint, "\n", piece.begin, "\n", piece.end, "\n",
                                   piece.piece_bytes, "\n", piece.path));
  return absl::StrCat(digest->substr(0, kNameDigits), kSuffix);
}

absl::StatusOr<int> ExampleCache::OpenFolder() const {
  const auto fd = options_.env->OpenFile(options_.dir, O_RDONLY | O_DIRECTORY);
  absl::Status status = fd.status();
  if (fd.ok()) {
    Descriptor folder{*fd};
    struct stat info;
    status = fstat(folder.fd, &info) == 0 ? CheckFolder(info) : absl::ErrnoToStatus(errno, "stat");
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

absl::StatusOr<std::shared_ptr<const ExampleCache::Mapped>> ExampleCache::Map(
    const std::string& name, const std::string& digest, const FileIdentity& source) {
  const auto fd = OpenFolder();
  if (!fd.ok()) return FolderStatus(fd.status());
  const Descriptor folder{*fd};
  auto mapped = std::make_shared<Mapped>();
  mapped->path = absl::StrCat(options_.dir, "/", name);
  struct stat info;
  SLUICE_ASSIGN_OR_RETURN(const int file,
                          OpenCacheFile(folder, name, mapped->path, &mapped->header, &info));
  const Descriptor opened{file};
  mapped->bytes = static_cast<size_t>(info.st_size);
  SLUICE_RETURN_IF_ERROR(CheckHeader(
      mapped->header, {digest, source, options_.num_numeric, options_.num_slots}, mapped->bytes));
  SLUICE_RETURN_IF_ERROR(mapped->CheckLayout());
  void* const base =
      mmap(nullptr, mapped->bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, opened.fd, 0);
  if (base == MAP_FAILED) return FileError(mapped->path, "map");
  mapped->base = static_cast<const char*>(base);
  const FileIdentity now{static_cast<uint64_t>(info.st_dev), static_cast<uint64_t>(info.st_ino),
                         static_cast<uint64_t>(info.st_size),
                         info.st_mtim.tv_sec * int64_t{1'000'000'000} + info.st_mtim.tv_nsec};
  {
    MutexLock lock(&mutex_);
    futimens(opened.fd, nullptr);  // the last use; fails in a read-only folder
    const auto it = verified_.find(name);
    // The modification time is no part of this check: it holds the time of the last use.
    if (it != verified_.end() && it->second.inode == now.inode && it->second.device == now.device)
      return mapped;
  }
  SLUICE_RETURN_IF_ERROR(mapped->CheckContents());
  MutexLock lock(&mutex_);
  verified_[name] = now;
  return mapped;
}

std::optional<uint64_t> ExampleCache::CountLines(const DataPiece& piece,
                                                 const FileIdentity& source) const {
  std::string digest;
  const std::string name = NameOf(piece, &digest);
  const auto fd = OpenFolder();
  if (!fd.ok()) return std::nullopt;
  const Descriptor folder{*fd};
  struct stat info;
  Header header{};
  const auto file =
      OpenCacheFile(folder, name, absl::StrCat(options_.dir, "/", name), &header, &info);
  if (!file.ok()) return std::nullopt;
  const Descriptor opened{*file};
  if (!CheckHeader(header, {digest, source, options_.num_numeric, options_.num_slots}, info.st_size)
           .ok()) {
    return std::nullopt;
  }
  return header.n + header.bad_lines;
}

Examples ExampleCache::Find(const DataPiece& piece, const FileIdentity& source, BadLines* bad,
                            DataSummary* summary) {
  std::string digest;
  const std::string name = NameOf(piece, &digest);
  const auto mapped = Map(name, digest, source);
  if (!mapped.ok()) {
    if (!absl::IsNotFound(mapped.status())) LogIgnored(name, mapped.status());
    return {};
  }
  if (summary != nullptr && !(*mapped)->AddSummaryTo(summary)) {
    LogIgnored(name, absl::DataLossError("its summary is damaged"));
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
  const Descriptor dir{dup(folder)};
  std::vector<CacheFile> files = FilesOf(dir);
  stores_to_scan_ = std::max<uint64_t>(kStoresBetweenScans, files.size() / 4);
  used_ = 0;
  for (const CacheFile& file : files) used_ += file.bytes;
  limit_ = options_.max_bytes;
  struct statvfs system;
  if (limit_ == 0 && fstatvfs(dir.fd, &system) == 0)
    limit_ = (static_cast<uint64_t>(system.f_bavail) * system.f_frsize + used_) / 2;
  for (const CacheFile& file : files) {
    // Files used since this cache began may be needed in the next epoch, so they stay.
    if (used_ + bytes <= limit_ || file.used_ns >= started_ns_) break;
    if (HasMagic(dir, file.name) && unlinkat(dir.fd, file.name.c_str(), 0) == 0)
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

absl::Status ExampleCache::Write(const std::string& name, const std::string& digest,
                                 const FileIdentity& source, const ExampleView& examples,
                                 const BadLines& bad, const DataSummary& summary) {
  const bool one_key = OneKeyASlot(examples);
  const size_t offsets = examples.n * examples.num_slots;
  const uint64_t keys = one_key ? offsets : examples.key_offsets[offsets];
  std::string bad_text;
  for (const std::string& line : bad.first) absl::StrAppend(&bad_text, line, "\n");
  const std::string summary_text = summary.SerializeAsString();
  const Contents contents = {
      {{examples.label, examples.n * 4},
       {examples.weight, AllOne(examples.weight, examples.n) ? 0 : examples.n * 4},
       {examples.numeric, examples.n * examples.num_numeric * 4},
       {examples.key_offsets, one_key ? 0 : (offsets + 1) * 4},
       {examples.keys, keys * sizeof(uint64_t)},
       {bad_text.data(), bad_text.size()},
       {summary_text.data(), summary_text.size()}}};
  const Header header = MakeHeader(digest, source, examples, bad.count, contents);
  const uint64_t bytes = header.file_bytes;

  SLUICE_ASSIGN_OR_RETURN(const int fd, OpenFolder());
  const Descriptor folder{fd};
  const std::string unfinished = name + kUnfinishedSuffix;
  const std::string path = absl::StrCat(options_.dir, "/", unfinished);
  const Descriptor out{CreateIn(folder, unfinished)};
  if (out.fd < 0 && errno != EEXIST) return FileError(path, "open");
  // Each file has one writer. Another one may have taken a file without a lock for a leftover
  // before this one could lock it.
  if (out.fd < 0 || !Claim(folder, out.fd, unfinished))
    return absl::AlreadyExistsError("another worker is writing it");
  {
    MutexLock lock(&mutex_);
    if (const absl::Status room = MakeRoom(folder.fd, bytes); !room.ok()) {
      unlinkat(folder.fd, unfinished.c_str(), 0);
      return room;
    }
  }
  absl::Status status = ftruncate(out.fd, static_cast<off_t>(bytes)) == 0
                            ? absl::OkStatus()
                            : FileError(path, "write");
  if (status.ok()) status = WriteAt(out.fd, path, 0, &header, sizeof(header));
  for (int s = 0; s < kSections && status.ok(); ++s) {
    status =
        WriteAt(out.fd, path, header.sections[s].offset, contents[s].first, contents[s].second);
  }
  if (status.ok()) status = CheckWritten(out.fd, path);
  if (status.ok() && renameat(folder.fd, unfinished.c_str(), folder.fd, name.c_str()) != 0)
    status = FileError(path, "rename");
  if (!status.ok()) unlinkat(folder.fd, unfinished.c_str(), 0);
  return status;
}

bool ExampleCache::Store(const DataPiece& piece, const FileIdentity& source,
                         const ExampleView& examples, const BadLines& bad,
                         const DataSummary& summary) {
  {
    MutexLock lock(&mutex_);
    if (!writes_) return false;
  }
  if (bad.count > kMostBadLines || NowNs() - source.modified_ns < kSettledNs) return false;
  std::string digest;
  const std::string name = NameOf(piece, &digest);
  absl::Status status = options_.env->MakeDirs(options_.dir);
  if (status.ok()) status = Write(name, digest, source, examples, bad, summary);
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
  if (options.dir.empty())
    options.dir = std::filesystem::path(job.output_dir()).parent_path() / "data_cache";
  options.write = data.cache();
  options.max_bytes = data.cache_max_bytes();
  options.fingerprint = FingerprintOf(job, schema);
  options.num_numeric = schema.numerics().size();
  options.num_slots = schema.slots().size();
  options.log = std::move(log);
  return std::make_unique<ExampleCache>(std::move(options));
}

absl::StatusOr<Examples> ReadExamples(const DataSource& data, const FeatureSchema& schema,
                                      ExampleCache* cache, const DataPiece& piece, Batch* scratch,
                                      BadLines* bad, DataSummary* summary) {
  absl::StatusOr<FileIdentity> source = FileIdentity();
  if (cache != nullptr) {
    SLUICE_RETURN_IF_ERROR(data.CheckUnchanged(piece.path));
    source = IdentifyFile(piece.path, data.env());
    if (!source.ok()) return source.status();
    Examples found = cache->Find(piece, *source, bad, summary);
    if (found.owner != nullptr) return found;
  }
  scratch->Reset(schema.numerics().size(), schema.slots().size());
  BadLines own;
  DataCounts counts;
  scratch->counts = cache != nullptr || summary != nullptr ? &counts : nullptr;
  const absl::Status read =
      data.ReadPiece(piece.path, piece.begin, piece.end, /*need_label=*/true, scratch, &own);
  scratch->counts = nullptr;
  SLUICE_RETURN_IF_ERROR(read);
  const DataSummary held = schema.Summarize(counts);
  if (summary != nullptr) AddSummary(held, summary);
  if (cache != nullptr) {
    // Store only what was parsed from a file that did not change meanwhile.
    const auto after = IdentifyFile(piece.path, data.env());
    if (after.ok() && *after == *source) cache->Store(piece, *source, scratch->view(), own, held);
  }
  bad->Merge(own);
  return Examples{scratch->view(), nullptr};
}

}  // namespace sluice
