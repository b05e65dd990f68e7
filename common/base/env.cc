#include "common/base/env.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/local_path.h"
#include "common/base/match_files.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

absl::Status Error(absl::string_view operation, const std::string& path, int error) {
  const absl::Status status = absl::ErrnoToStatus(error, absl::StrCat(operation, " ", path));
  switch (error) {
    case ENOENT:
    case EEXIST:
    case EACCES:
    case EPERM:
    case ENOSPC:
    case EDQUOT:
    case ENOTDIR:
    case EISDIR:
      return status;
    default:
      return absl::Status(absl::StatusCode::kInternal, status.message());
  }
}

// A file descriptor that closes itself. O_NONBLOCK changes nothing for regular files; opening a
// pipe without it would wait for the other end, perhaps for ever.
class OwnedDescriptor {
 public:
  OwnedDescriptor(const std::string& path, int flags, mode_t mode = 0)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, mode)) {}
  ~OwnedDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  OwnedDescriptor(const OwnedDescriptor&) = delete;
  OwnedDescriptor& operator=(const OwnedDescriptor&) = delete;
  int fd() const { return fd_; }
  // Returns 0 or errno. A network file system may report a failed write only here.
  int Close() {
    const int rc = ::close(fd_);
    fd_ = -1;
    return rc == 0 ? 0 : errno;
  }

 private:
  int fd_;
};

// FAILED_PRECONDITION for folders, pipes and devices.
absl::Status CheckRegular(int fd, absl::string_view operation, const std::string& path) {
  struct stat info;
  if (::fstat(fd, &info) != 0) return Error("stat", path, errno);
  if (S_ISDIR(info.st_mode)) return Error(operation, path, EISDIR);
  if (S_ISREG(info.st_mode)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(operation, " ", path, ": it is not a regular file"));
}

// Fills `out` with the bytes from `offset` on. Shortens it when the file ends earlier.
absl::Status ReadInto(int fd, const std::string& path, uint64_t offset, std::string* out) {
  size_t done = 0;
  while (done < out->size()) {
    const ssize_t n =
        ::pread(fd, out->data() + done, out->size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error("read", path, errno);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  out->resize(done);
  return absl::OkStatus();
}

absl::Status WriteAll(int fd, const std::string& path, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error("write", path, errno);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

// The folder that holds the last name of `path`. The path may end in slashes.
std::string FolderOf(const std::string& path) {
  const size_t last = path.find_last_not_of('/');
  const size_t slash = last == std::string::npos ? 0 : path.rfind('/', last);
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::Status SyncFolder(const std::string& folder) {
  OwnedDescriptor descriptor(folder, O_RDONLY | O_DIRECTORY);
  // A folder that this process may write but not read cannot be synced.
  if (descriptor.fd() < 0 && errno == EACCES) return absl::OkStatus();
  if (descriptor.fd() < 0) return Error("open folder", folder, errno);
  // File systems that cannot sync a folder return EINVAL.
  if (::fsync(descriptor.fd()) != 0 && errno != EINVAL) return Error("sync folder", folder, errno);
  return absl::OkStatus();
}

// A file that is written next to its final place and then renamed to it. The order matters: if the
// rename reached the disk before the bytes, a crash could leave an empty file under the name.
class UnfinishedFile : public NewFile {
 public:
  UnfinishedFile(const std::string& path, const std::string& unfinished)
      : path_(path),
        unfinished_(unfinished),
        // A file or link that has this name already is not this process's: it must not be changed.
        file_(unfinished, O_WRONLY | O_CREAT | O_EXCL, 0666) {
    if (file_.fd() < 0) opened_ = Error("create", unfinished, errno);
  }
  ~UnfinishedFile() override {
    if (opened_.ok() && !finished_) ::unlink(unfinished_.c_str());
  }
  const absl::Status& opened() const { return opened_; }

  absl::Status Append(absl::string_view bytes) override {
    return WriteAll(file_.fd(), unfinished_, bytes);
  }
  absl::Status Finish() override {
    SLUICE_RETURN_IF_ERROR(SyncAndClose());
    if (::rename(unfinished_.c_str(), path_.c_str()) != 0) return Error("rename to", path_, errno);
    finished_ = true;
    return SyncFolder(FolderOf(path_));
  }
  // As Finish, but ALREADY_EXISTS when the name is taken.
  absl::Status FinishAsNew() {
    SLUICE_RETURN_IF_ERROR(SyncAndClose());
    if (::link(unfinished_.c_str(), path_.c_str()) != 0) return Error("publish", path_, errno);
    return SyncFolder(FolderOf(path_));  // the destructor removes the other name
  }

 private:
  absl::Status SyncAndClose() {
    if (::fsync(file_.fd()) != 0) return Error("sync", unfinished_, errno);
    const int error = file_.Close();
    return error == 0 ? absl::OkStatus() : Error("close", unfinished_, error);
  }

  const std::string path_, unfinished_;
  OwnedDescriptor file_;
  absl::Status opened_;
  bool finished_ = false;
};

// The NewFile of an Env that does not override StartFile.
class FileInMemory : public NewFile {
 public:
  FileInMemory(Env* env, const std::string& path) : env_(env), path_(path) {}
  absl::Status Append(absl::string_view bytes) override {
    bytes_.append(bytes.data(), bytes.size());
    return absl::OkStatus();
  }
  absl::Status Finish() override { return env_->WriteFile(path_, {bytes_}); }

 private:
  Env* const env_;
  const std::string path_;
  std::string bytes_;
};

absl::StatusOr<FileInfo> InfoOf(int fd) {
  struct stat info;
  if (::fstat(fd, &info) != 0) {
    const int error = errno;
    return absl::Status(absl::ErrnoToStatusCode(error), std::strerror(error));
  }
  FileInfo found;
  found.kind = S_ISDIR(info.st_mode)   ? FileInfo::Kind::kFolder
               : S_ISREG(info.st_mode) ? FileInfo::Kind::kFile
                                       : FileInfo::Kind::kOther;
  found.identity.device = info.st_dev;
  found.identity.inode = info.st_ino;
  found.identity.size = static_cast<uint64_t>(info.st_size);
  found.identity.modified_ns = info.st_mtim.tv_sec * int64_t{1000000000} + info.st_mtim.tv_nsec;
  found.identity.changed_ns = info.st_ctim.tv_sec * int64_t{1000000000} + info.st_ctim.tv_nsec;
  return found;
}

class LocalReader : public FileReader {
 public:
  LocalReader(int fd, FileInfo info) : FileReader(std::move(info)), fd_(fd) {}
  ~LocalReader() override { ::close(fd_); }
  LocalReader(const LocalReader&) = delete;
  LocalReader& operator=(const LocalReader&) = delete;

  absl::StatusOr<size_t> ReadAt(uint64_t offset, void* to, size_t n) override {
    while (true) {
      const ssize_t got = ::pread(fd_, to, n, static_cast<off_t>(offset));
      if (got >= 0) return static_cast<size_t>(got);
      const int error = errno;
      if (error != EINTR) return absl::Status(absl::ErrnoToStatusCode(error), std::strerror(error));
    }
  }

 private:
  const int fd_;
};

class RealEnv : public Env {
 public:
  absl::StatusOr<std::string> ReadFile(const std::string& path) override {
    SLUICE_ASSIGN_OR_RETURN(const uint64_t size, FileSize(path));
    if (size <= kMostFileBytes) return ReadRange(path, 0, size);
    return absl::FailedPreconditionError(absl::StrCat(
        "read ", path, ": it has ", size, " bytes, and no file that is read as a whole has more ",
        "than ", kMostFileBytes));
  }

  absl::StatusOr<std::string> ReadRange(const std::string& path, uint64_t offset,
                                        uint64_t n) override {
    OwnedDescriptor descriptor(path, O_RDONLY);
    if (descriptor.fd() < 0) return Error("open", path, errno);
    SLUICE_RETURN_IF_ERROR(CheckRegular(descriptor.fd(), "read", path));
    struct stat info;
    if (::fstat(descriptor.fd(), &info) != 0) return Error("stat", path, errno);
    // The file's size bounds the memory used, whatever the caller asks for.
    const uint64_t size = static_cast<uint64_t>(info.st_size);
    std::string bytes(offset >= size ? 0 : std::min(n, size - offset), '\0');
    SLUICE_RETURN_IF_ERROR(ReadInto(descriptor.fd(), path, offset, &bytes));
    return bytes;
  }

  absl::StatusOr<uint64_t> FileSize(const std::string& path) override {
    struct stat info;
    if (::stat(path.c_str(), &info) != 0) return Error("stat", path, errno);
    if (S_ISDIR(info.st_mode)) return Error("read", path, EISDIR);
    return static_cast<uint64_t>(info.st_size);
  }

  absl::Status WriteFile(const std::string& path,
                         absl::Span<const absl::string_view> pieces) override {
    SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<NewFile> file, StartFile(path));
    for (absl::string_view piece : pieces) SLUICE_RETURN_IF_ERROR(file->Append(piece));
    return file->Finish();
  }

  absl::StatusOr<std::unique_ptr<NewFile>> StartFile(const std::string& path) override {
    return StartUnfinished(path);
  }

  absl::Status AppendToFile(const std::string& path, absl::string_view bytes) override {
    OwnedDescriptor descriptor(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (descriptor.fd() < 0) return Error("open", path, errno);
    SLUICE_RETURN_IF_ERROR(CheckRegular(descriptor.fd(), "append to", path));
    SLUICE_RETURN_IF_ERROR(WriteAll(descriptor.fd(), path, bytes));
    const int error = descriptor.Close();
    return error == 0 ? absl::OkStatus() : Error("close", path, error);
  }

  absl::Status RenameFile(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) return Error("rename to", to, errno);
    return SyncFolder(FolderOf(to));
  }

  absl::StatusOr<FileIdentity> Publish(const std::string& path, absl::string_view bytes,
                                       const std::optional<FileIdentity>& expected) override {
    SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<UnfinishedFile> file, StartUnfinished(path));
    SLUICE_RETURN_IF_ERROR(file->Append(bytes));
    const absl::Status taken =
        expected ? PutInPlaceOf(*expected, path, file.get()) : file->FinishAsNew();
    if (absl::IsAborted(taken) || absl::IsAlreadyExists(taken)) {
      if (ReadFile(path).value_or("") != bytes || !Exists(path)) return taken;
    } else if (!taken.ok()) {
      return taken;
    }
    const auto found = Look(path);
    if (!found.ok()) return absl::AbortedError(absl::StrCat(path, " was removed meanwhile"));
    return found->identity;
  }

  absl::Status MakeDirs(const std::string& path) override {
    for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
      const std::string part = path.substr(0, end);
      const absl::Status made = MakeNewDir(part);
      if (absl::IsAlreadyExists(made)) {
        // The process that made it may have been killed before it synced it.
        SLUICE_RETURN_IF_ERROR(SyncFolder(FolderOf(part)));
      } else if (!made.ok()) {
        return made;
      }
      if (end == std::string::npos || end + 1 == path.size()) break;
    }
    struct stat info;
    if (::stat(path.c_str(), &info) != 0) return Error("make folder", path, errno);
    return S_ISDIR(info.st_mode) ? absl::OkStatus() : Error("make folder", path, ENOTDIR);
  }

  absl::Status MakeNewDir(const std::string& path) override {
    if (::mkdir(path.c_str(), 0777) != 0) return Error("make folder", path, errno);
    return SyncFolder(FolderOf(path));
  }

  absl::Status RemoveDir(const std::string& path) override {
    return ::rmdir(path.c_str()) == 0 ? absl::OkStatus() : Error("remove folder", path, errno);
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
    if (folder == nullptr) return Error("list", path, errno);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(folder.get())) {
      const absl::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    if (errno != 0) return Error("list", path, errno);
    std::sort(names.begin(), names.end());
    return names;
  }

  bool Exists(const std::string& path) override { return ::access(path.c_str(), F_OK) == 0; }

  absl::Status RemoveFile(const std::string& path) override {
    return ::unlink(path.c_str()) == 0 ? absl::OkStatus() : Error("remove", path, errno);
  }

 private:
  absl::StatusOr<std::unique_ptr<UnfinishedFile>> StartUnfinished(const std::string& path) {
    constexpr int kTries = 1000;
    static std::atomic<uint64_t> number{0};  // relaxed: only different numbers matter
    for (int i = 0;; ++i) {
      const std::string unfinished =
          absl::StrCat(path, ".", ::getpid(), ".", number.fetch_add(1, std::memory_order_relaxed),
                       kUnfinishedSuffix);
      auto file = std::make_unique<UnfinishedFile>(path, unfinished);
      if (file->opened().ok()) return file;
      // A process that had this pid and was killed may have left a file: in a container, each life
      // of a daemon has the same pid.
      if (!absl::IsAlreadyExists(file->opened()) || i == kTries) return file->opened();
    }
  }

  // Renames `file` over the version `expected` of the file at `path`. ABORTED: another is there.
  absl::Status PutInPlaceOf(const FileIdentity& expected, const std::string& path,
                            UnfinishedFile* file) {
    const absl::Status other = absl::AbortedError(absl::StrCat(path, " has another version now"));
    OwnedDescriptor there(path, O_RDONLY);
    if (there.fd() < 0) return errno == ENOENT ? other : Error("open", path, errno);
    // Callers who expect this version wait for each other here. The one who comes second finds that
    // the path leads to another file. File systems without locks do not keep others away.
    while (::flock(there.fd(), LOCK_EX) != 0 && errno == EINTR) {
    }
    SLUICE_ASSIGN_OR_RETURN(const FileInfo held, InfoOf(there.fd()));
    const auto now = Look(path);
    if (!now.ok() || !(now->identity == expected) || now->identity.inode != held.identity.inode)
      return other;
    return file->Finish();
  }
};

}  // namespace

absl::StatusOr<int> Env::OpenFile(const std::string& path, int flags, uint32_t mode) {
  // Opening a pipe would wait for its other end. With O_PATH nothing is opened.
  const int added = O_CLOEXEC | ((flags & O_PATH) != 0 ? 0 : O_NONBLOCK);
  const int fd = ::open(path.c_str(), flags | added, static_cast<mode_t>(mode));
  if (fd >= 0) return fd;
  const int error = errno;
  return absl::Status(absl::ErrnoToStatusCode(error), std::strerror(error));
}

FilePlace Env::PlaceOf(const std::string& path) {
  if (!HasScheme(path)) return FilePlace();
  return {path.substr(0, path.find(':')), false, false, false, false};
}

absl::StatusOr<FileIdentity> Env::Publish(const std::string& path, absl::string_view,
                                          const std::optional<FileIdentity>&) {
  return absl::UnimplementedError(absl::StrCat("publish ", path, ": not possible here"));
}

absl::Status Env::GiveUpFiles(const std::string&, const std::function<bool(const std::string&)>&) {
  return absl::OkStatus();
}

absl::StatusOr<FileInfo> Env::Look(const std::string& path) {
  // O_PATH opens nothing: it does not wait for a pipe's writer, and needs no permission to read.
  SLUICE_ASSIGN_OR_RETURN(const int fd, OpenFile(path, O_PATH));
  absl::StatusOr<FileInfo> info = InfoOf(fd);
  ::close(fd);
  return info;
}

absl::StatusOr<std::unique_ptr<FileReader>> Env::NewReader(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const int fd, OpenFile(path, O_RDONLY | O_NONBLOCK));
  absl::StatusOr<FileInfo> info = InfoOf(fd);
  if (!info.ok()) {
    ::close(fd);
    return info.status();
  }
  return std::make_unique<LocalReader>(fd, *std::move(info));
}

absl::StatusOr<FileMatches> Env::Match(const std::string& pattern, size_t most_names) {
  if (HasScheme(pattern))
    return absl::UnimplementedError("this process reads no data from places with URLs");
  return MatchLocalFiles(this, pattern, most_names);
}

absl::StatusOr<std::unique_ptr<NewFile>> Env::StartFile(const std::string& path) {
  return std::make_unique<FileInMemory>(this, path);
}

absl::Status Env::AppendToFile(const std::string& path, absl::string_view bytes) {
  absl::StatusOr<std::string> held = ReadFile(path);
  if (absl::IsNotFound(held.status())) held = "";
  if (!held.ok()) return held.status();
  return WriteFile(path, {*held, bytes});
}

std::string FinishedName(const std::string& unfinished) {
  absl::string_view name = unfinished;
  if (!absl::ConsumeSuffix(&name, kUnfinishedSuffix)) return "";
  for (int part = 0; part < 2; ++part) {  // the number, then the pid
    const size_t dot = name.rfind('.');
    uint64_t number = 0;
    if (dot == absl::string_view::npos || !absl::SimpleAtoi(name.substr(dot + 1), &number) ||
        absl::StrCat(number) != name.substr(dot + 1)) {
      return "";
    }
    name = name.substr(0, dot);
  }
  return std::string(name);
}

bool IsSameFile(Env* env, const std::string& a, const std::string& b) {
  // Files of stores and servers have no other paths.
  if (HasScheme(a) || HasScheme(b)) return a == b && env->Look(a).ok();
  const auto of_a = env->Look(a), of_b = env->Look(b);
  return of_a.ok() && of_b.ok() && of_a->identity.device == of_b->identity.device &&
         of_a->identity.inode == of_b->identity.inode;
}

Env* Env::Real() {
  static RealEnv* const env = new RealEnv;
  return env;
}

}  // namespace sluice
