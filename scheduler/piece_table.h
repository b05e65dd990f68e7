// Sync: the pieces of the training data that the ranks have counted, put together.
//
// Thread safety: pure.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// All pieces, sorted by file and begin. `files`: the training files that all ranks see.
// FAILED_PRECONDITION, naming file and rank, when the pieces do not cover each file once from its
// begin to its end: a file changed while it was counted. INVALID_ARGUMENT when a report's columns
// have different lengths.
absl::StatusOr<DataPieces> MergePieces(const std::vector<IndexReport>& by_rank,
                                       const google::protobuf::RepeatedPtrField<SeenFile>& files);

// Lines of all pieces, malformed ones among them.
uint64_t CountExamples(const DataPieces& pieces);

}  // namespace sluice
