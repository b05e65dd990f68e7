// Huge pages that a thread of their own zeroes ahead of need: the first touch of a huge page takes
// 0.4 ms and at times 40 (the kernel looks for 2 MiB in one piece, or the hypervisor gives them
// only then), which whoever inserts a row must not wait for.
//
// A row store is a user: it takes a page where there is one ready, and goes on with small pages
// (1.5 us each) where there is none.
//
// Thread safety: safe; a User is its owner's. Nothing is mapped, touched or unmapped under the
// mutex, which is taken last: under a shard's.
//
// Memory: the pages that are ready: one a user that has announced itself and one for every 8 that
// users have taken, at most kMost (64 MiB) in all; none without a user. The thread starts with the
// first announcement and sleeps while as many are ready as should be. After a refusal it tries
// again when a user comes, takes or leaves: bad_alloc never leaves the thread.
#pragma once

#include <cstddef>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "server/mapped_memory.h"

namespace sluice {

class ReadyPages {
 public:
  static constexpr size_t kMost = 32;

  class User {
   public:
    // `pages` outlives the user.
    explicit User(ReadyPages* pages) : pages_(pages) {}
    ~User();
    User(const User&) = delete;
    User& operator=(const User&) = delete;

    // Will take pages soon; the first Take announces too.
    void Announce();
    // kHugePage bytes, zeroed and in memory; without data when none is ready. Does not wait.
    MappedMemory Take();
    // `memory` will not be used again: the thread zeroes it for the next Take, if it is a page that
    // Take gave (`taken`) and one is wanted, or gives it back to the kernel. Does not wait.
    void Return(MappedMemory memory, bool taken);

   private:
    ReadyPages* const pages_;
    bool announced_ = false;
    size_t taken_ = 0;
  };

  ReadyPages() = default;
  // Waits for the page that the thread is at.
  ~ReadyPages();
  ReadyPages(const ReadyPages&) = delete;
  ReadyPages& operator=(const ReadyPages&) = delete;

  // The one that all stores of a process share. Never destroyed: its thread ends with the process.
  static ReadyPages* OfProcess();

  // By users that are still there.
  size_t taken_for_test();
  // Waits until as many are ready as should be and returns how many; 0 when they cannot be got.
  size_t WaitUntilReadyForTest();

 private:
  size_t Wanted() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Changed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run();

  Mutex mutex_;
  CondVar changed_, settled_;
  size_t users_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t taken_ ABSL_GUARDED_BY(mutex_) = 0;  // by users that are still there
  std::vector<MappedMemory> ready_ ABSL_GUARDED_BY(mutex_);
  struct Returned {
    MappedMemory memory;
    bool taken = false;
  };
  std::vector<Returned> returned_ ABSL_GUARDED_BY(mutex_);  // for the thread
  bool refused_ ABSL_GUARDED_BY(mutex_) = false;  // the last page; since then nothing has changed
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
