// A thread that runs streams through shared memory.
//
// It looks at the rings of its busy streams in turn, yielding to other threads, and goes on to do
// so for 50 us after the last event: answers come within microseconds, and waking a sleeping thread
// takes longer (the same as RunGrpcEvents). A stream without events is put to sleep; its peer then
// wakes it through its socket. Without a busy stream the thread sleeps.
//
// Thread safety: safe from any thread, except Stop, which must not run on the thread itself.
#pragma once

#include <chrono>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/shared_memory/file_descriptor.h"
#include "common/shm_transport/shm_stream.h"

namespace sluice {

class ShmThread {
 public:
  // `check_every`: how often ShmStream::CheckPeer runs.
  explicit ShmThread(absl::Duration check_every);
  ~ShmThread();

  // Runs the stream from now on, until it is finished. Must not follow Stop.
  void Add(std::shared_ptr<ShmStream> stream);
  // Runs the stream soon, because another thread has changed its state.
  void Look(std::shared_ptr<ShmStream> stream);
  // Waits until all streams are finished, which their owners must bring about. Safe to call twice.
  void Stop();

 private:
  struct Entry {
    std::shared_ptr<ShmStream> stream;
    bool busy = false;
    ShmStream::Time last_event;
  };

  void Post(std::shared_ptr<ShmStream> stream, bool add);
  void Loop();
  // False: the thread ends.
  bool TakePosts(ShmStream::Time now);
  void MakeBusy(Entry* entry, ShmStream::Time now);
  // True: a stream had something to do.
  bool RunBusy(ShmStream::Time now);
  void Remove(ShmStream* stream);
  void CheckPeers(ShmStream::Time now);
  // Returns the number of events.
  int Poll(std::chrono::nanoseconds wait, ShmStream::Time now);

  const std::chrono::nanoseconds check_every_;
  FileDescriptor epoll_, posted_event_;

  // Used by the thread alone.
  std::unordered_map<ShmStream*, Entry> entries_;
  std::vector<ShmStream*> busy_;

  struct PostedStream {
    std::shared_ptr<ShmStream> stream;
    bool add;
  };
  Mutex mutex_;
  std::vector<PostedStream> posted_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;  // posts are dropped: nothing is left to run

  std::thread thread_;
};

}  // namespace sluice
