// Derives from the ranks' index reports of a sync job the pieces of the training data and the
// number of global steps in an epoch.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/data/data_source.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// All ranks get the table of pieces in one message, and keep it.
inline constexpr int kMaxDataPieces = 2 << 20;
// Bounds an epoch, so that the steps of all epochs can be counted: 2^46 is 70 million million.
inline constexpr uint64_t kMaxExamples = uint64_t{1} << 46;

// FAILED_PRECONDITION: `n` pieces are more than kMaxDataPieces.
absl::Status CheckPieces(int64_t n);

// Merges the pieces that the ranks have counted, sorted by file and begin. `files`: the training
// files that all ranks see. FAILED_PRECONDITION, naming file and rank, when the pieces do not cover
// each file exactly once, because a file changed while it was counted.
// FAILED_PRECONDITION when there are more than kMaxDataPieces. INVALID_ARGUMENT when a report's
// columns have different lengths. `rows`: positions are rows, and the ends of files are not known
// here.
absl::StatusOr<DataPieces> MergePieces(const std::vector<IndexReport>& by_rank,
                                       const google::protobuf::RepeatedPtrField<SeenFile>& files,
                                       bool rows = false);

// Counts the lines of all pieces, malformed ones included. The sum stays at UINT64_MAX instead of
// wrapping.
uint64_t CountExamples(const DataPieces& pieces);

// Returns the global steps of an epoch. `examples`: by rank. GLOBAL: ceil(N / global_batch) for N
// examples in all, or the floor with drop_last. PER_RANK_FILES: the largest number of batches of
// any rank, rounded in the same way. FAILED_PRECONDITION when there is nothing to train.
// INVALID_ARGUMENT when there are more than kMaxExamples.
// REQUIRES: global_batch > 0.
absl::StatusOr<uint64_t> SyncSteps(const JobConfig& config, uint64_t global_batch,
                                   const std::vector<uint64_t>& examples);

// Returns the global steps of an epoch when the program gives the data: those that each rank has
// reported as its examples. FAILED_PRECONDITION when a rank does not know them, or two differ.
// INVALID_ARGUMENT when there are more than kMaxExamples.
absl::StatusOr<uint64_t> StepsOfSources(const std::vector<IndexReport>& by_rank);

// Returns FAILED_PRECONDITION: the training data has no examples. The message names the first of
// the `bad` lines, if there are any.
absl::Status NoExamples(const BadLines& bad);

}  // namespace sluice
