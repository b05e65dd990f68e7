// Checks that all ranks of a job see the same data files. Otherwise a file that one host lacks, or
// holds in another version, would be left out or read twice without a word.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "proto/scheduler.pb.h"

namespace sluice {

class SeenFiles {
 public:
  // Compares the report with the first one that was taken. FAILED_PRECONDITION names both ranks and
  // hosts, the first file that differs and how (missing, other size, other content), and how many
  // more there are. A time of change plays no part: copies may differ in it.
  absl::Status Take(uint32_t rank, const IndexReport& report);
  // The training files that all ranks see. REQUIRES: Take.
  const google::protobuf::RepeatedPtrField<SeenFile>& train() const { return first_->train_seen(); }

 private:
  uint32_t rank_ = 0;                 // of first_
  std::optional<IndexReport> first_;  // what it has seen, and its host
};

}  // namespace sluice
