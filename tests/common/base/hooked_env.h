// The real file system with a hook before each change, which can make the disk full, slow or dead.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/base/env.h"

namespace sluice {

class HookedEnv : public Env {
 public:
  // Runs before each change. When it fails, the change is not made and the call returns its status.
  // `what` is "write", "rename", "mkdir", "remove" or "rmdir".
  std::function<absl::Status(const std::string& what, const std::string& path)> before;
  // A write that `before` refuses leaves half of its bytes in an unfinished file, as a crash would.
  bool tears_writes = false;

  absl::StatusOr<std::string> ReadFile(const std::string& path) override {
    return real_->ReadFile(path);
  }
  absl::StatusOr<std::string> ReadRange(const std::string& path, uint64_t offset,
                                        uint64_t n) override {
    return real_->ReadRange(path, offset, n);
  }
  absl::StatusOr<uint64_t> FileSize(const std::string& path) override {
    return real_->FileSize(path);
  }
  absl::Status WriteFile(const std::string& path,
                         absl::Span<const absl::string_view> pieces) override {
    absl::Status status = before("write", path);
    if (status.ok()) return real_->WriteFile(path, pieces);
    if (tears_writes && !pieces.empty()) {
      real_
          ->WriteFile(path + ".7.7" + kUnfinishedSuffix,
                      {pieces[0].substr(0, pieces[0].size() / 2)})
          .IgnoreError();
    }
    return status;
  }
  absl::Status RenameFile(const std::string& from, const std::string& to) override {
    absl::Status status = before("rename", to);
    return status.ok() ? real_->RenameFile(from, to) : status;
  }
  absl::Status MakeDirs(const std::string& path) override {
    absl::Status status = before("mkdir", path);
    return status.ok() ? real_->MakeDirs(path) : status;
  }
  absl::Status MakeNewDir(const std::string& path) override {
    absl::Status status = before("mkdir", path);
    return status.ok() ? real_->MakeNewDir(path) : status;
  }
  absl::Status RemoveDir(const std::string& path) override {
    absl::Status status = before("rmdir", path);
    return status.ok() ? real_->RemoveDir(path) : status;
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    return real_->List(path);
  }
  bool Exists(const std::string& path) override { return real_->Exists(path); }
  absl::Status RemoveFile(const std::string& path) override {
    absl::Status status = before("remove", path);
    return status.ok() ? real_->RemoveFile(path) : status;
  }

 private:
  Env* const real_ = Env::Real();
};

}  // namespace sluice
