// A MetaStore in memory, for tests of its users.
//
// Several objects on the same contents act like schedulers on one store, or like one scheduler
// before and after a restart.
//
// Thread safety: safe from any thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/meta_store/meta_store.h"

namespace sluice {

class FakeMetaStore : public MetaStore {
 public:
  // The contents, which survive an object.
  struct Contents {
    Mutex mutex;
    uint64_t term ABSL_GUARDED_BY(mutex) = 0;
    std::map<std::string, std::string> entries ABSL_GUARDED_BY(mutex);
    int commits ABSL_GUARDED_BY(mutex) = 0;  // that were applied
  };

  FakeMetaStore() : FakeMetaStore(std::make_shared<Contents>()) {}
  explicit FakeMetaStore(std::shared_ptr<Contents> contents) : contents_(std::move(contents)) {}

  const std::shared_ptr<Contents>& contents() const { return contents_; }
  int commits() const {
    MutexLock lock(&contents_->mutex);
    return contents_->commits;
  }

  // All calls fail with `error`, without effect, until it is OK again.
  void SetErrorForTest(absl::Status error) {
    MutexLock lock(&contents_->mutex);
    error_ = std::move(error);
  }
  // The same for all calls that would write, until it is OK again.
  void RefuseWritesForTest(absl::Status error) {
    MutexLock lock(&contents_->mutex);
    refusal_ = std::move(error);
  }
  // The next commit that is applied returns UNAVAILABLE.
  void LoseNextAnswerForTest() {
    MutexLock lock(&contents_->mutex);
    lose_answer_ = true;
  }
  // Commits wait until they are no longer held.
  void HoldCommitsForTest(bool hold) {
    MutexLock lock(&contents_->mutex);
    hold_ = hold;
    changed_.NotifyAll();
  }

  absl::StatusOr<uint64_t> AcquireTerm() override {
    MutexLock lock(&contents_->mutex);
    SLUICE_RETURN_IF_ERROR(error_);
    SLUICE_RETURN_IF_ERROR(refusal_);
    acquired_ = ++contents_->term;
    return acquired_;
  }

  absl::Status Commit(uint64_t term, absl::Span<const Write> writes) override {
    MutexLock lock(&contents_->mutex);
    while (hold_) changed_.Wait(&contents_->mutex);
    SLUICE_RETURN_IF_ERROR(error_);
    if (!writes.empty()) SLUICE_RETURN_IF_ERROR(refusal_);
    SLUICE_RETURN_IF_ERROR(CheckCommit(term, acquired_, writes));
    if (term != contents_->term) return TermMismatch(term, contents_->term);
    for (const Write& write : writes) {
      if (write.value.has_value()) {
        contents_->entries[write.key] = *write.value;
      } else {
        contents_->entries.erase(write.key);
      }
    }
    ++contents_->commits;
    if (std::exchange(lose_answer_, false)) return absl::UnavailableError("the answer was lost");
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Entry>> Scan(const std::string& prefix) override {
    MutexLock lock(&contents_->mutex);
    SLUICE_RETURN_IF_ERROR(error_);
    std::vector<Entry> found;
    for (auto it = contents_->entries.lower_bound(prefix);
         it != contents_->entries.end() && absl::StartsWith(it->first, prefix); ++it) {
      found.push_back({it->first, it->second});
    }
    return found;
  }

 private:
  const std::shared_ptr<Contents> contents_;
  uint64_t acquired_ ABSL_GUARDED_BY(contents_->mutex) = 0;
  absl::Status refusal_ ABSL_GUARDED_BY(contents_->mutex);
  absl::Status error_ ABSL_GUARDED_BY(contents_->mutex);
  CondVar changed_;
  bool hold_ ABSL_GUARDED_BY(contents_->mutex) = false;
  bool lose_answer_ ABSL_GUARDED_BY(contents_->mutex) = false;
};

}  // namespace sluice
