// The real file system with a hook before each change, which can make the disk full, slow or dead.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
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
    if (!pieces.empty()) Tear(path, pieces[0]);
    return status;
  }
  absl::StatusOr<std::unique_ptr<NewFile>> StartFile(const std::string& path) override {
    auto file = real_->StartFile(path);
    if (!file.ok()) return file.status();
    return std::make_unique<HookedFile>(this, path, *std::move(file));
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
  // A file whose end is the one change.
  class HookedFile : public NewFile {
   public:
    HookedFile(HookedEnv* env, std::string path, std::unique_ptr<NewFile> file)
        : env_(env), path_(std::move(path)), file_(std::move(file)) {}
    absl::Status Append(absl::string_view bytes) override {
      if (first_.empty()) first_ = std::string(bytes);
      return file_->Append(bytes);
    }
    absl::Status Finish() override {
      absl::Status status = env_->before("write", path_);
      if (status.ok()) return file_->Finish();
      env_->Tear(path_, first_);
      return status;
    }

   private:
    HookedEnv* const env_;
    const std::string path_;
    const std::unique_ptr<NewFile> file_;
    std::string first_;
  };

  void Tear(const std::string& path, absl::string_view bytes) {
    if (!tears_writes) return;
    real_->WriteFile(path + ".7.7" + kUnfinishedSuffix, {bytes.substr(0, bytes.size() / 2)})
        .IgnoreError();
  }

  Env* const real_ = Env::Real();
};

}  // namespace sluice
