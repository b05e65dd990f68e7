// An Env in memory that forgets what was not synced, as a disk does when its power fails.
//
// Changes are made in the steps of Env::Real(), which unsynced_env_test.cc compares. Each has a
// line in steps():
//   create PATH, append PATH, sync PATH SIZE, rename FROM TO, sync_folder PATH, mkdir PATH,
//   unlink PATH, rmdir PATH
// FailAfter ends the process between any two of them. Then Restart starts it again on the same
// machine, where nothing is lost, or LoseUnsynced starts the machine again after a power failure.
//
// A power failure keeps what POSIX promises, and chance decides about the rest:
// - The bytes of a file up to its last sync stay. A part of the later bytes survives, and any
//   sector of this part may hold zeros.
// - The names in a folder at its last sync_folder stay, except those changed later. Each later
//   change is there or not, whatever happened to the others; a rename is one change. Syncing a file
//   does not sync its name.
// - A folder that is not there has lost all that is in it.
//
// Limits: paths are absolute and have no "..". A file is renamed within its folder only; another
// rename returns UNIMPLEMENTED.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/base/env.h"

namespace sluice {

class UnsyncedEnv : public Env {
 public:
  UnsyncedEnv();

  // After `steps` more steps, all changes fail with ABORTED and do nothing, as if the process had
  // ended. Reads continue.
  void FailAfter(uint64_t steps) { steps_left_ = steps; }
  // True when a change has failed for that reason.
  bool failed() const { return failed_; }
  // Starts the process again. The machine has kept running.
  void Restart();
  // Starts the machine again after its power has failed. The generator decides what is lost; equal
  // ones decide equally.
  void LoseUnsynced(std::mt19937_64* random);

  // The steps since the last call of Restart or LoseUnsynced, also those that could not be made,
  // such as the mkdir of a folder that exists.
  const std::vector<std::string>& steps() const { return steps_; }

  absl::StatusOr<std::string> ReadFile(const std::string& path) override;
  absl::StatusOr<std::string> ReadRange(const std::string& path, uint64_t offset,
                                        uint64_t n) override;
  absl::StatusOr<uint64_t> FileSize(const std::string& path) override;
  absl::Status WriteFile(const std::string& path,
                         absl::Span<const absl::string_view> pieces) override;
  absl::StatusOr<std::unique_ptr<NewFile>> StartFile(const std::string& path) override;
  absl::Status RenameFile(const std::string& from, const std::string& to) override;
  absl::Status MakeDirs(const std::string& path) override;
  absl::Status MakeNewDir(const std::string& path) override;
  absl::Status RemoveDir(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override;
  bool Exists(const std::string& path) override;
  absl::Status RemoveFile(const std::string& path) override;

 private:
  struct Node;
  using Names = std::map<std::string, std::shared_ptr<Node>>;
  // A change of a folder's names. One of the names may be "".
  struct Change {
    std::string removed, added;
    std::shared_ptr<Node> node;
  };
  // A file or a folder.
  struct Node {
    bool folder = false;
    std::string bytes;
    size_t synced_bytes = 0;
    Names names, synced_names;
    std::vector<Change> unsynced;  // from synced_names to names, in order
  };
  // The folder around a path, and the last name of the path.
  struct Place {
    std::shared_ptr<Node> folder;
    std::string name;
  };
  class UnfinishedFile;

  // Null when there is nothing under the path.
  std::shared_ptr<Node> Find(const std::string& path) const;
  absl::StatusOr<std::shared_ptr<Node>> FindFile(const std::string& path) const;
  // NOT_FOUND when the folder does not exist.
  absl::StatusOr<Place> FindPlace(const std::string& path) const;
  // Counts a step. ABORTED when the process has ended before it.
  absl::Status Begin(std::string step);
  absl::Status Rename(const std::string& from, const std::string& to);
  absl::Status SyncFolder(const std::string& path);
  absl::Status Remove(const std::string& path, bool folder);

  static void Apply(const Change& change, Names* names);
  static void LoseIn(Node* node, std::mt19937_64* random);

  const std::shared_ptr<Node> root_;
  std::vector<std::string> steps_;
  uint64_t steps_left_ = UINT64_MAX;
  bool failed_ = false;
  uint64_t next_unfinished_ = 0;
};

}  // namespace sluice
