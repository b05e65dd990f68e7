// Zeroes huge pages on its own thread ahead of need. The first touch of a huge page takes 0.4 ms,
// sometimes 40: the kernel must find 2 MiB of contiguous memory, or the hypervisor provides them
// only then. An insertion must not wait for that.
//
// A row store is a user. It takes a ready page if there is one, and otherwise continues with small
// pages (1.5 us each).
//
// Thread safety: safe from any thread. A User is guarded by its owner's lock. The mutex is taken
// last, under a shard's. No memory is mapped, touched or unmapped under it.
//
// Memory: at most kMost (64 MiB) of ready pages: one for each announced user, and one for every 8
// pages in use. There are none without users.
//
// The thread starts with the first announcement and sleeps while enough pages are ready. After the
// kernel refuses a page, the thread tries again when a user comes, takes a page or leaves.
// bad_alloc never leaves the thread.
#pragma once

#include <cstddef>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "server/shards/mapped_memory.h"

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

    // Tells the thread that this user will take pages soon. The first Take also announces.
    void Announce();
    // Returns kHugePage bytes, zeroed and already in memory; no data when no page is ready. Does
    // not wait.
    MappedMemory Take();
    // Returns memory that the caller no longer uses. A page from Take (`taken`) is zeroed for the
    // next Take if one is wanted; everything else goes back to the kernel. Does not wait.
    void Return(MappedMemory memory, bool taken);

   private:
    ReadyPages* const pages_;
    bool announced_ = false;
    size_t taken_ = 0;
  };

  ReadyPages() = default;
  // Waits until the thread has finished its current page.
  ~ReadyPages();
  ReadyPages(const ReadyPages&) = delete;
  ReadyPages& operator=(const ReadyPages&) = delete;

  // Returns the instance that all stores of a process share. It is never destroyed; its thread ends
  // with the process. There is only one because kMost bounds the spare memory of the process,
  // however many stores it has.
  static ReadyPages* OfProcess();

  // Pages taken by users that still exist.
  size_t taken_for_test();
  // Waits until enough pages are ready and returns their number; 0 when the kernel refuses them.
  size_t WaitUntilReadyForTest();

 private:
  size_t Wanted() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Changed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run();

  Mutex mutex_;
  CondVar changed_, settled_;
  size_t users_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t taken_ ABSL_GUARDED_BY(mutex_) = 0;  // by users that still exist
  std::vector<MappedMemory> ready_ ABSL_GUARDED_BY(mutex_);
  struct Returned {
    MappedMemory memory;
    bool taken = false;
  };
  std::vector<Returned> returned_ ABSL_GUARDED_BY(mutex_);  // for the thread
  // The kernel refused the last page, and nothing has changed since.
  bool refused_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
