// Checks that all ranks of a job see the same data files. Otherwise a file that one host lacks, or
// has in another version, would silently be skipped or read twice.
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
  // Compares the report with the first one taken. FAILED_PRECONDITION names both ranks and hosts,
  // the first file that differs and how (missing, size, content), and how many more differ.
  // Modification times are ignored, because copies of a file may differ in them.
  absl::Status Take(uint32_t rank, const IndexReport& report);
  // Compares the training files with the files of an interrupted run. FAILED_PRECONDITION as Take.
  // REQUIRES: Take was called.
  absl::Status CheckSameAs(const google::protobuf::RepeatedPtrField<SeenFile>& earlier) const;
  // The training files that all ranks see.
  // REQUIRES: Take was called.
  const google::protobuf::RepeatedPtrField<SeenFile>& train() const { return first_->train_seen(); }

 private:
  uint32_t rank_ = 0;                 // of first_
  std::optional<IndexReport> first_;  // the files that this rank saw, and its host
};

}  // namespace sluice
