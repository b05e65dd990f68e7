// Indexes this rank's share of the training data before anything is trained.
//
// Async and Geo: finds the text sizes of this rank's share of the files. Sync: counts the lines of
// its share of the pieces without parsing them, or takes the counts from their cache files. The
// ranks share the pieces of plain files evenly; one rank counts all of a compressed file. Files of
// rows tell their numbers of rows; every rank looks at all of them, since the cut depends on all.
//
// Thread safety: one thread.
#pragma once

#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"
#include "worker/context/job_context.h"
#include "worker/data/piece_reader.h"

namespace sluice {

// Indexes this rank's share into *report, and lists the files in *table. Sync with PER_RANK_FILES
// also puts the pieces into *table; with GLOBAL the scheduler sends them later (UsePieces).
// REQUIRES: context.files is set.
absl::Status IndexTrainingData(const JobContext& context, PieceTable* table, IndexReport* report);

// Puts into *table what IndexTrainingData puts there, for a rank that joins after INDEX. Reads only
// the beginnings of the files; with PER_RANK_FILES it counts the lines of this rank's files.
// REQUIRES: context.files is set.
absl::Status ListTrainingData(const JobContext& context, PieceTable* table);

// Puts the pieces of all ranks into *table. INVALID_ARGUMENT when they do not belong to its files.
absl::Status UsePieces(const DataPieces& pieces, PieceTable* table);

}  // namespace sluice
