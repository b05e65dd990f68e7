// What a rank finds when it looks at the training data, before anything is trained.
//
// Async and Geo: the text sizes of this rank's share of the files. Sync: the lines of its share of
// the pieces, counted without parsing them, or known from their cache files. Plain pieces are
// shared out evenly; a compressed file has one rank that counts all of it.
//
// Thread safety: functions of one thread.
#pragma once

#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"
#include "worker/job_context.h"
#include "worker/piece_reader.h"

namespace sluice {

// Sync: *table gets the files, with PER_RANK_FILES also the pieces; with GLOBAL the scheduler sends
// these (UsePieces).
// REQUIRES: context.files.
absl::Status IndexTrainingData(const JobContext& context, PieceTable* table, IndexReport* report);

// Takes over the pieces of all ranks. INVALID_ARGUMENT when they do not belong to the files of
// *table.
absl::Status UsePieces(const DataPieces& pieces, PieceTable* table);

}  // namespace sluice
