#include "model/data/read_examples.h"

#include "common/base/status_macros.h"
#include "model/data/text_reader.h"
#include "model/features/data_summary.h"

namespace sluice {

absl::StatusOr<Examples> ReadExamples(const DataSource& data, const FeatureSchema& schema,
                                      ExampleCache* cache, const DataPiece& piece, Batch* scratch,
                                      BadLines* bad, DataSummary* summary) {
  absl::StatusOr<FileIdentity> source = FileIdentity();
  if (cache != nullptr) {
    // Also when the cache has the piece: a job must not train some epochs on one version of a file
    // and some on another.
    SLUICE_RETURN_IF_ERROR(data.CheckUnchanged(piece.path));
    source = IdentifyFile(piece.path, data.env());
    if (!source.ok()) return source.status();
    Examples found = cache->Find(piece, *source, bad, summary);
    if (found.owner != nullptr) return found;
  }
  scratch->Reset(schema.numerics().size(), schema.slots().size());
  BadLines own;
  DataCounts counts;
  scratch->counts = cache != nullptr || summary != nullptr ? &counts : nullptr;
  const absl::Status read =
      data.ReadPiece(piece.path, piece.begin, piece.end, /*need_label=*/true, scratch, &own);
  // `counts` ends with this call, but the batch lives on.
  scratch->counts = nullptr;
  SLUICE_RETURN_IF_ERROR(read);
  const DataSummary held = schema.Summarize(counts);
  if (summary != nullptr) AddSummary(held, summary);
  if (cache != nullptr) {
    // Store only what was parsed from a file that did not change meanwhile.
    const auto after = IdentifyFile(piece.path, data.env());
    if (after.ok() && *after == *source) cache->Store(piece, *source, scratch->view(), own, held);
  }
  // Merged only here, so that an error adds nothing.
  bad->Merge(own);
  return Examples{scratch->view(), nullptr};
}

}  // namespace sluice
