// A PEM file that is written under another name in its folder and gets its own name once it is
// whole.
//
// Several processes may write into one folder. Each holds a lock on its unfinished files, so that
// those of a killed process can be told from those that are being written.
//
// Format: PATH.PID.NUMBER.unfinished until Replace or FinishNew.
//
// Thread safety: one thread at a time.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "common/security/pem_reader.h"

namespace sluice {

class UnfinishedPem {
 public:
  UnfinishedPem(std::string path, mode_t mode) : path_(std::move(path)), mode_(mode) {}
  // Leaves nothing behind, unless the file has its name.
  ~UnfinishedPem();
  UnfinishedPem(const UnfinishedPem&) = delete;
  UnfinishedPem& operator=(const UnfinishedPem&) = delete;

  // Creates the file and has `write` write it, which returns false for an error of OpenSSL: then
  // INTERNAL. Other codes: those of the system.
  absl::Status Fill(const std::function<bool(FILE*)>& write);

  // Gives the file its name, durably. A file with this name is replaced.
  absl::Status Replace();
  // The same, but never replaces a file. ABORTED: there is one. The name becomes durable with the
  // next Replace in the folder. `link` is link(2), or a test's.
  using Link = int (*)(const char* from, const char* to);
  absl::Status FinishNew(Link link = ::link);

 private:
  absl::Status Failed(absl::string_view operation) const;
  // Makes the file under a new name and locks it.
  bool Create();

  const std::string path_;
  const mode_t mode_;
  std::string unfinished_;  // "" until there is a file
  OpenFile file_;           // holds the lock
};

// Removes the unfinished PEM files that killed processes have left in `folder`. A file that cannot
// be removed stays.
void RemoveUnfinishedPems(const std::string& folder);

}  // namespace sluice
