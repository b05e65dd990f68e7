// Claims a folder of a store for a job, where no lock can: DIR/OWNER names the job that writes
// there.
//
// A job publishes OWNER if the folder has none, or takes over that of a job that has ended; with
// --overwrite or --resume that of any job. It looks at OWNER before each manifest, so a writer that
// has lost the folder fails there. A scheduler that continues a job takes the job's own OWNER over,
// so that the earlier scheduler fails in the same way.
//
// The claim first finds out whether the store heeds conditions, with an object of a name of its
// own. A store that makes it twice, or replaces a version that is gone, is refused unless the job
// promises a single writer.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/env.h"

namespace sluice {

class FolderOwner {
 public:
  struct Claimant {
    std::string job_id;
    std::vector<uint64_t> instances;  // of the job so far, the present one last
    bool again = false;               // an earlier scheduler may have claimed it for the job
    bool replaces = false;            // --overwrite or --resume
    bool single_writer = false;
  };
  // ALREADY_EXISTS: another job has the folder. UNIMPLEMENTED: the store ignores conditions, or
  // does not know them. Other errors are those of `env`, which outlives the owner.
  static absl::StatusOr<FolderOwner> Claim(Env* env, const std::string& folder,
                                           const Claimant& claimant);

  // OK while the folder is the job's. ABORTED: it is no longer.
  absl::Status Check() const;
  // Says that the job has ended. The object stays. OK too when another job has the folder.
  absl::Status Release();

 private:
  FolderOwner(Env* env, std::string path, std::string text, FileIdentity identity)
      : env_(env), path_(std::move(path)), text_(std::move(text)), identity_(std::move(identity)) {}

  Env* env_;
  std::string path_, text_;
  FileIdentity identity_;
};

}  // namespace sluice
