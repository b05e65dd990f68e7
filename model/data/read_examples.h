// Reads the examples of one piece of a text, from the cache or by parsing it.
//
// Thread safety: safe from any thread, where each has its own `scratch`, `bad` and `summary`.
#pragma once

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/data/data_source.h"
#include "model/data/example_cache.h"
#include "model/features/batch.h"
#include "model/features/feature_schema.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// Returns the examples of a piece from the cache (null: none), or parses them into *scratch and
// stores them. *scratch must then stay unchanged while they are used. Adds the summary of the data
// to *summary, which may be null. Statuses as DataSource::ReadPiece with need_label; a cached piece
// of a file that has changed fails in the same way.
absl::StatusOr<Examples> ReadExamples(const DataSource& data, const FeatureSchema& schema,
                                      ExampleCache* cache, const DataPiece& piece, Batch* scratch,
                                      BadLines* bad, DataSummary* summary = nullptr);

// The same for several pieces, one after the other. The pieces of a file stand together and ascend.
// They are one entry of the cache. While they are parsed, `next` is fetched
// (DataSource::FetchAhead), which will be read after them.
absl::StatusOr<Examples> ReadExamples(const DataSource& data, const FeatureSchema& schema,
                                      ExampleCache* cache, absl::Span<const DataPiece> pieces,
                                      Batch* scratch, BadLines* bad, DataSummary* summary = nullptr,
                                      absl::Span<const DataPiece> next = {});

}  // namespace sluice
