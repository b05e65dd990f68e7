// The seam to the file system: everything that reads or writes files does it through an Env.
//
// Paths are UTF-8, '/' separated. Errors name the operation, the path and the system's reason:
// NOT_FOUND when the path does not exist, ALREADY_EXISTS, RESOURCE_EXHAUSTED when the disk or a
// quota is full, PERMISSION_DENIED, INTERNAL. Thread safety: implementations are safe to call from
// any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace sluice {

// A file that is written piece by piece, and appears under its name only when it is complete.
// Destroyed before Finish, it leaves nothing behind. Thread safety: one thread.
class NewFile {
 public:
  virtual ~NewFile() = default;
  virtual absl::Status Append(absl::string_view bytes) = 0;
  // As WriteFile: synced, renamed, and the folder synced. Last call.
  virtual absl::Status Finish() = 0;
};

class Env {
 public:
  virtual ~Env() = default;

  virtual absl::StatusOr<std::string> ReadFile(const std::string& path) = 0;
  // Bytes [offset, offset + n), fewer at the end of the file.
  virtual absl::StatusOr<std::string> ReadRange(const std::string& path, uint64_t offset,
                                                uint64_t n) = 0;
  virtual absl::StatusOr<uint64_t> FileSize(const std::string& path) = 0;

  // The file holds the pieces, one after another: all or, whatever fails, what it held before.
  // Written beside it, synced, renamed, and the folder synced.
  virtual absl::Status WriteFile(const std::string& path,
                                 absl::Span<const absl::string_view> pieces) = 0;
  // The same in pieces that need not be in memory together. This base keeps them until Finish,
  // which calls WriteFile; Real() does not.
  virtual absl::StatusOr<std::unique_ptr<NewFile>> StartFile(const std::string& path);

  // `to` names the file of `from`, and what it named before is gone: at once, and still after a
  // crash of the machine.
  virtual absl::Status RenameFile(const std::string& from, const std::string& to) = 0;

  // With its parents, each synced into the folder around it; fine when it is there.
  virtual absl::Status MakeDirs(const std::string& path) = 0;
  // Makes one folder, whose parent exists. ALREADY_EXISTS when the name is taken: of several
  // callers, also in other processes, one makes it.
  virtual absl::Status MakeNewDir(const std::string& path) = 0;
  // The folder must be empty.
  virtual absl::Status RemoveDir(const std::string& path) = 0;
  // Names in a folder, sorted, without "." and "..".
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& path) = 0;
  virtual bool Exists(const std::string& path) = 0;
  virtual absl::Status RemoveFile(const std::string& path) = 0;

  // The machine's file system; never destroyed.
  static Env* Real();
};

// Both exist and are one file or folder, whatever the links and spellings of the two paths.
bool IsSameFile(const std::string& a, const std::string& b);

// Ends the names of files that WriteFile has not finished; a crash may leave one behind.
inline constexpr char kUnfinishedSuffix[] = ".unfinished";

}  // namespace sluice
