// The seam to the file system: everything that reads or writes files does so through an Env.
//
// Paths are UTF-8, separated by '/'. Errors name the operation, the path and the system's reason.
// Their codes are NOT_FOUND when the path does not exist, ALREADY_EXISTS, RESOURCE_EXHAUSTED when
// the disk or a quota is full, PERMISSION_DENIED, and INTERNAL.
//
// Thread safety: safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/file_identity.h"

namespace sluice {

// A file that is written piece by piece and appears under its name only when it is complete.
//
// If it is destroyed before Finish, it leaves nothing behind.
//
// Thread safety: one thread.
class NewFile {
 public:
  virtual ~NewFile() = default;
  virtual absl::Status Append(absl::string_view bytes) = 0;
  // Syncs the file, renames it and syncs its folder, like WriteFile. This is the last call.
  virtual absl::Status Finish() = 0;
};

// A file that is open for reading at any offset. It stays the file that was opened, whatever its
// path leads to later.
//
// Thread safety: one thread.
class FileReader {
 public:
  explicit FileReader(FileInfo info) : info_(std::move(info)) {}
  virtual ~FileReader() = default;
  // As it was when the file was opened.
  const FileInfo& info() const { return info_; }
  // Reads at most n > 0 bytes; 0 only at the end of the file. Errors are the reason alone.
  // FAILED_PRECONDITION: the file is no longer the one that was opened (a store's object).
  virtual absl::StatusOr<size_t> ReadAt(uint64_t offset, void* to, size_t n) = 0;
  // Promises that what is read next ends about there, so that a reader that fetches ahead fetches
  // little in vain.
  virtual void ExpectEnd(uint64_t) {}

 private:
  const FileInfo info_;
};

// What Env::Match finds.
struct FileMatches {
  std::vector<std::string> paths;  // sorted
  size_t names_read = 0;
  bool too_many_names = false;  // the bound was reached, and paths may be missing
  // The first folder that may not be read, and why; OK: there is none.
  std::string unreadable;
  absl::Status why;
};

// Where files are, and what can be done there.
struct FilePlace {
  std::string name = "local";  // the scheme of its URLs; "local" for paths without one
  bool rename = true;          // a file takes its name when it is complete; folders exist
  bool lock = true;            // files and folders can be locked
  bool map = true;             // OpenFile gives descriptors, which can be mapped
  bool write = true;           // files can be written and removed, and Publish decides races
};

class Env {
 public:
  virtual ~Env() = default;

  // The part of a path before "://" chooses the place; a path without it is local. This base class
  // has local files only.
  virtual FilePlace PlaceOf(const std::string& path);

  // Tells what a path leads to, without opening it. Errors are the reason alone, as OpenFile's.
  virtual absl::StatusOr<FileInfo> Look(const std::string& path);
  // Opens a file, or a pipe without waiting for its other end, for reading. Errors as Look.
  virtual absl::StatusOr<std::unique_ptr<FileReader>> NewReader(const std::string& path);
  // The files that a pattern of the shell matches. Reads at most `most_names` names of files and
  // folders. Errors are the reason alone; a folder that may not be read is none (FileMatches).
  virtual absl::StatusOr<FileMatches> Match(const std::string& pattern, size_t most_names);

  // For small files: Real() refuses those of more than kMostFileBytes with FAILED_PRECONDITION.
  virtual absl::StatusOr<std::string> ReadFile(const std::string& path) = 0;
  static constexpr uint64_t kMostFileBytes = 256 << 20;
  // Bytes [offset, offset + n), or fewer at the end of the file.
  virtual absl::StatusOr<std::string> ReadRange(const std::string& path, uint64_t offset,
                                                uint64_t n) = 0;
  virtual absl::StatusOr<uint64_t> FileSize(const std::string& path) = 0;

  // Makes the file hold the pieces, one after another. On any failure the file keeps what it held
  // before: the bytes are written to a file next to it and synced, then renamed, then the folder is
  // synced. Real() makes that file under a name that nothing has. It skips names that are taken, by
  // a file that a killed process has left or by somebody else's, and changes nothing under them.
  virtual absl::Status WriteFile(const std::string& path,
                                 absl::Span<const absl::string_view> pieces) = 0;
  // The same for pieces that need not be in memory together. This base class keeps them all until
  // Finish, which calls WriteFile; Real() writes each at once.
  virtual absl::StatusOr<std::unique_ptr<NewFile>> StartFile(const std::string& path);

  // Adds the bytes to the end of the file, which is made if it does not exist. They survive the
  // death of the process, but not that of the machine. When it fails, a part of them may be in the
  // file. This base class rewrites the whole file. Real() lets only the owner read and write a file
  // that it makes, and adds the bytes with one write, so that processes may share the file.
  virtual absl::Status AppendToFile(const std::string& path, absl::string_view bytes);

  // Gives the file at `from` the name `to`, replacing any file there: atomically, and durably even
  // if the machine crashes afterwards.
  virtual absl::Status RenameFile(const std::string& from, const std::string& to) = 0;

  // Makes the small file hold `bytes` if what is there now is still `expected` (none: no file), and
  // returns its new identity. Atomic, also between hosts: of several callers who expect the same,
  // one succeeds. When the file already holds exactly `bytes`, that is success, too: the reply to
  // an earlier try may have been lost. So writers who must not take each other's success for their
  // own put something of their own into the bytes. Errors: ALREADY_EXISTS when no file was expected
  // and there is one; ABORTED when another version is there, or none. This base class refuses
  // (UNIMPLEMENTED).
  virtual absl::StatusOr<FileIdentity> Publish(const std::string& path, absl::string_view bytes,
                                               const std::optional<FileIdentity>& expected);

  // Gives up the files below the folder that StartFile has begun and nobody will finish: those
  // whose name, relative to the folder, `is_leftover`. A store keeps the parts of files that killed
  // processes were uploading, unseen. This base class has none. UNIMPLEMENTED: the place does not
  // tell which files were begun.
  virtual absl::Status GiveUpFiles(const std::string& folder,
                                   const std::function<bool(const std::string&)>& is_leftover);

  // Makes the folder and its missing parents. On a place without folders (FilePlace::rename is
  // false) the names of files alone make them: this and RemoveDir do nothing, MakeNewDir and
  // RenameFile refuse. Syncs each into the folder around it, also those that
  // exist: the process that made them may have been killed before its sync. OK when the folder
  // exists.
  virtual absl::Status MakeDirs(const std::string& path) = 0;
  // Makes one folder, whose parent exists. ALREADY_EXISTS when the name is taken. When several
  // callers race, even in different processes, exactly one makes it.
  virtual absl::Status MakeNewDir(const std::string& path) = 0;
  // The folder must be empty.
  virtual absl::Status RemoveDir(const std::string& path) = 0;
  // The names in a folder, sorted, without "." and "..".
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& path) = 0;
  virtual bool Exists(const std::string& path) = 0;
  virtual absl::Status RemoveFile(const std::string& path) = 0;

  // Opens a file or folder as open(2) does, with O_CLOEXEC, for callers that map, lock or write it
  // in place. The caller closes the descriptor. Errors have the code of the system's error, and
  // their message is the reason alone.
  virtual absl::StatusOr<int> OpenFile(const std::string& path, int flags, uint32_t mode = 0);

  // The machine's file system; never destroyed.
  static Env* Real();
};

// True when `env` finds both paths and they lead to the same file or folder, even through links or
// in another spelling.
bool IsSameFile(Env* env, const std::string& a, const std::string& b);

// The suffix of files that WriteFile has not finished. A crash may leave one behind.
inline constexpr char kUnfinishedSuffix[] = ".unfinished";
// The name that WriteFile was to give to `unfinished`; "" when WriteFile makes no such names.
std::string FinishedName(const std::string& unfinished);

}  // namespace sluice
