// Writes the files of a replica's tables for checkpoints, while training goes on.
//
// Memory: while files are written, a copy of the replica.
//
// Thread safety: Start is safe from any thread, as long as the replica does not change meanwhile.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "worker/dense_replica.h"

namespace sluice {

class ReplicaWriter {
 public:
  // `env` outlives this.
  explicit ReplicaWriter(Env* env) : env_(env) {}
  // Waits until the files are written and `done` has returned.
  ~ReplicaWriter();

  // Copies the replica, and writes its files (DenseReplica::Write) on a thread of its own, where it
  // then calls `done`. Calls it at once, with UNAVAILABLE, while the files of an earlier call are
  // written.
  using Done = std::function<void(const absl::StatusOr<std::vector<SavedFile>>& files)>;
  void Start(const DenseReplica& replica, std::string directory, std::string save_id, Done done);

 private:
  struct Files {
    DenseReplica::Image image;
    std::string directory, save_id;
    Done done;
  };
  void Run();

  Env* const env_;
  Mutex mutex_;
  CondVar changed_;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;  // with `next_`, or with files that Run has taken
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Files> next_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // started under the mutex by the first Start
};

}  // namespace sluice
