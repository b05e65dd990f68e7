// The real file system with a hook before and one after each change, which can make the disk full,
// slow or dead, and one before each read.
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
  // `what` is "write", "append", "rename", "mkdir", "remove" or "rmdir".
  std::function<absl::Status(const std::string& what, const std::string& path)> before;
  // Runs after each change that succeeded; may be empty.
  std::function<void(const std::string& what, const std::string& path)> after;
  // Runs before ReadFile, ReadRange and List, on their threads. When it fails, they return its
  // status. May be empty.
  std::function<absl::Status(const std::string& path)> before_read;
  // A write that `before` refuses leaves half of its bytes in an unfinished file, as a crash would.
  bool tears_writes = false;

  absl::StatusOr<std::string> ReadFile(const std::string& path) override {
    if (const absl::Status refused = BeforeRead(path); !refused.ok()) return refused;
    return real_->ReadFile(path);
  }
  absl::StatusOr<std::string> ReadRange(const std::string& path, uint64_t offset,
                                        uint64_t n) override {
    if (const absl::Status refused = BeforeRead(path); !refused.ok()) return refused;
    return real_->ReadRange(path, offset, n);
  }
  absl::StatusOr<uint64_t> FileSize(const std::string& path) override {
    return real_->FileSize(path);
  }
  absl::Status WriteFile(const std::string& path,
                         absl::Span<const absl::string_view> pieces) override {
    return Change(
        "write", path, [&] { return real_->WriteFile(path, pieces); },
        pieces.empty() ? "" : pieces[0]);
  }
  absl::StatusOr<std::unique_ptr<NewFile>> StartFile(const std::string& path) override {
    auto file = real_->StartFile(path);
    if (!file.ok()) return file.status();
    return std::make_unique<HookedFile>(this, path, *std::move(file));
  }
  absl::Status AppendToFile(const std::string& path, absl::string_view bytes) override {
    return Change("append", path, [&] { return real_->AppendToFile(path, bytes); });
  }
  absl::Status RenameFile(const std::string& from, const std::string& to) override {
    return Change("rename", to, [&] { return real_->RenameFile(from, to); });
  }
  absl::Status MakeDirs(const std::string& path) override {
    return Change("mkdir", path, [&] { return real_->MakeDirs(path); });
  }
  absl::Status MakeNewDir(const std::string& path) override {
    return Change("mkdir", path, [&] { return real_->MakeNewDir(path); });
  }
  absl::Status RemoveDir(const std::string& path) override {
    return Change("rmdir", path, [&] { return real_->RemoveDir(path); });
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    if (const absl::Status refused = BeforeRead(path); !refused.ok()) return refused;
    return real_->List(path);
  }
  bool Exists(const std::string& path) override { return real_->Exists(path); }
  absl::Status RemoveFile(const std::string& path) override {
    return Change("remove", path, [&] { return real_->RemoveFile(path); });
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
      return env_->Change(
          "write", path_, [&] { return file_->Finish(); }, first_);
    }

   private:
    HookedEnv* const env_;
    const std::string path_;
    const std::unique_ptr<NewFile> file_;
    std::string first_;
  };

  absl::Status BeforeRead(const std::string& path) const {
    return before_read ? before_read(path) : absl::OkStatus();
  }

  // Makes a change between its hooks. `bytes` are what a torn write leaves half of.
  absl::Status Change(const std::string& what, const std::string& path,
                      const std::function<absl::Status()>& change, absl::string_view bytes = "") {
    absl::Status status = before(what, path);
    if (!status.ok()) {
      if (what == "write") Tear(path, bytes);
      return status;
    }
    status = change();
    if (status.ok() && after) after(what, path);
    return status;
  }

  void Tear(const std::string& path, absl::string_view bytes) {
    if (!tears_writes) return;
    real_->WriteFile(path + ".7.7" + kUnfinishedSuffix, {bytes.substr(0, bytes.size() / 2)})
        .IgnoreError();
  }

  Env* const real_ = Env::Real();
};

}  // namespace sluice
