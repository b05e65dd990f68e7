// Files in memory. It counts the bytes that are read, and can refuse reads.
//
// Thread safety: safe from any thread. Set before_read before other threads use it.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/base/mutex.h"

namespace sluice {

class MemoryEnv : public Env {
 public:
  // Runs before each read, without a lock. When it fails, the read returns its status.
  std::function<absl::Status(const std::string& path, uint64_t offset, uint64_t n)> before_read;

  std::string Get(const std::string& path) {
    MutexLock lock(&mutex_);
    return files_[path];
  }
  void Put(const std::string& path, std::string bytes) {
    MutexLock lock(&mutex_);
    files_[path] = std::move(bytes);
  }
  // The bytes read since the last call.
  uint64_t TakeBytesRead() {
    MutexLock lock(&mutex_);
    return std::exchange(bytes_read_, 0);
  }

  absl::StatusOr<std::string> ReadFile(const std::string& path) override {
    return ReadRange(path, 0, UINT64_MAX);
  }
  absl::StatusOr<std::string> ReadRange(const std::string& path, uint64_t offset,
                                        uint64_t n) override {
    if (before_read) {
      absl::Status refused = before_read(path, offset, n);
      if (!refused.ok()) return refused;
    }
    MutexLock lock(&mutex_);
    const auto file = files_.find(path);
    if (file == files_.end()) return absl::NotFoundError(absl::StrCat("open ", path));
    const uint64_t size = file->second.size(), begin = std::min(offset, size);
    bytes_read_ += std::min(n, size - begin);
    return file->second.substr(begin, n);
  }
  absl::StatusOr<uint64_t> FileSize(const std::string& path) override {
    MutexLock lock(&mutex_);
    const auto file = files_.find(path);
    if (file == files_.end()) return absl::NotFoundError(absl::StrCat("stat ", path));
    return file->second.size();
  }
  absl::Status WriteFile(const std::string& path,
                         absl::Span<const absl::string_view> pieces) override {
    std::string bytes;
    for (const absl::string_view piece : pieces) bytes.append(piece.data(), piece.size());
    Put(path, std::move(bytes));
    return absl::OkStatus();
  }
  absl::Status RenameFile(const std::string& from, const std::string& to) override {
    MutexLock lock(&mutex_);
    const auto file = files_.find(from);
    if (file == files_.end()) return absl::NotFoundError(from);
    files_[to] = std::move(file->second);
    files_.erase(from);
    return absl::OkStatus();
  }
  absl::Status MakeDirs(const std::string&) override { return absl::OkStatus(); }
  absl::Status MakeNewDir(const std::string&) override { return absl::OkStatus(); }
  absl::Status RemoveDir(const std::string&) override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    MutexLock lock(&mutex_);
    std::vector<std::string> names;
    for (const auto& [name, bytes] : files_) {
      if (name.rfind(path + "/", 0) == 0) names.push_back(name.substr(path.size() + 1));
    }
    return names;
  }
  bool Exists(const std::string& path) override {
    MutexLock lock(&mutex_);
    return files_.count(path) > 0;
  }
  absl::Status RemoveFile(const std::string& path) override {
    MutexLock lock(&mutex_);
    return files_.erase(path) > 0 ? absl::OkStatus() : absl::NotFoundError(path);
  }

 private:
  Mutex mutex_;
  std::map<std::string, std::string> files_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_read_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice
