#include "worker/replica_writer.h"

#include <utility>

namespace sluice {

ReplicaWriter::~ReplicaWriter() {
  {
    MutexLock lock(&mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void ReplicaWriter::Start(const DenseReplica& replica, std::string directory, std::string save_id,
                          Done done) {
  bool was_busy = false;
  {
    MutexLock lock(&mutex_);
    was_busy = std::exchange(busy_, true);
  }
  if (was_busy) {
    // The disk is slow: the scheduler has given the earlier checkpoint up meanwhile.
    done(absl::UnavailableError("the files of an earlier checkpoint are still being written"));
    return;
  }
  Files files{replica.Copy(/*state=*/true), std::move(directory), std::move(save_id),
              std::move(done)};
  MutexLock lock(&mutex_);
  next_ = std::move(files);
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  changed_.NotifyAll();
}

void ReplicaWriter::Run() {
  for (;;) {
    std::optional<Files> files;
    {
      MutexLock lock(&mutex_);
      while (!next_ && !ending_) changed_.Wait(&mutex_);
      if (!next_) return;
      files = std::exchange(next_, std::nullopt);
    }
    const absl::StatusOr<std::vector<SavedFile>> written =
        DenseReplica::Write(files->image, files->directory, files->save_id, env_);
    {
      MutexLock lock(&mutex_);
      busy_ = false;
    }
    files->done(written);
  }
}

}  // namespace sluice
