#include "model/data/read_examples.h"

#include <algorithm>
#include <vector>

#include "common/base/hash.h"
#include "common/base/status_macros.h"
#include "model/data/text_reader.h"
#include "model/data/wait_together.h"
#include "model/features/data_summary.h"

namespace sluice {
namespace {

std::vector<FilePieces> ByFile(absl::Span<const DataPiece> pieces) {
  std::vector<FilePieces> files;
  for (const DataPiece& piece : pieces) {
    if (files.empty() || files.back().path != piece.path) files.push_back({piece.path, {}});
    files.back().pieces.push_back({piece.begin, piece.end});
  }
  return files;
}

// Identifies the files of the pieces as one: a change of any of them gives another identity.
absl::StatusOr<FileIdentity> IdentifyAll(const std::vector<FilePieces>& files, Env* env) {
  FileIdentity all;
  uint64_t names = 0, versions = 0;
  for (const FilePieces& file : files) {
    SLUICE_ASSIGN_OR_RETURN(const FileIdentity one, IdentifyFile(file.path, env));
    if (files.size() == 1) return one;
    all.size += one.size;
    all.modified_ns = std::max(all.modified_ns, one.modified_ns);
    // The number of the tag, of files that have one. Comparisons ignore that of other files.
    const int64_t tag = one.tag.empty() ? 0 : one.changed_ns;
    for (const uint64_t value :
         {one.device, one.inode, one.size, static_cast<uint64_t>(one.modified_ns),
          static_cast<uint64_t>(tag)})
      names = CombineHash(names, value);
    for (const int64_t value : {static_cast<int64_t>(one.size), one.modified_ns, one.changed_ns})
      versions = CombineHash(versions, static_cast<uint64_t>(value));
  }
  all.inode = names;
  // The cache compares this. It has no inodes, so hosts whose inodes differ can share a cache.
  all.changed_ns = static_cast<int64_t>(versions);
  return all;
}

// Has the versions of files that are far away asked for at once. The place remembers the answers.
void LookAtAll(const std::vector<FilePieces>& files, Env* env) {
  std::vector<const std::string*> far;
  for (const FilePieces& file : files)
    if (!env->PlaceOf(file.path).map) far.push_back(&file.path);
  if (far.size() > 1) WaitTogether(far.size(), [&](size_t i) { (void)env->Look(*far[i]); });
}

}  // namespace

absl::StatusOr<Examples> ReadExamples(const DataSource& data, const FeatureSchema& schema,
                                      ExampleCache* cache, const DataPiece& piece, Batch* scratch,
                                      BadLines* bad, DataSummary* summary) {
  return ReadExamples(data, schema, cache, absl::MakeConstSpan(&piece, 1), scratch, bad, summary);
}

absl::StatusOr<Examples> ReadExamples(const DataSource& data, const FeatureSchema& schema,
                                      ExampleCache* cache, absl::Span<const DataPiece> pieces,
                                      Batch* scratch, BadLines* bad, DataSummary* summary,
                                      absl::Span<const DataPiece> next) {
  const std::vector<FilePieces> files = ByFile(pieces);
  LookAtAll(files, data.env());
  FileIdentity source;
  if (cache != nullptr) {
    // Also when the cache has the pieces: a job must not train some epochs on one version of a file
    // and some on another.
    for (const FilePieces& file : files) SLUICE_RETURN_IF_ERROR(data.CheckUnchanged(file.path));
    SLUICE_ASSIGN_OR_RETURN(source, IdentifyAll(files, data.env()));
    Examples found = cache->Find(pieces, source, bad, summary);
    if (found.owner != nullptr) return found;
  }
  scratch->Reset(schema.numerics().size(), schema.slots().size());
  BadLines own;
  DataCounts counts;
  scratch->counts = cache != nullptr || summary != nullptr ? &counts : nullptr;
  if (files.size() > 1) data.FetchAhead(files);
  data.FetchAhead(ByFile(next));
  absl::Status read;
  for (const FilePieces& file : files) {
    if (read.ok())
      read = data.ReadPieces(file.path, file.pieces, /*need_label=*/true, scratch, &own);
  }
  // `counts` ends with this call, but the batch lives on.
  scratch->counts = nullptr;
  SLUICE_RETURN_IF_ERROR(read);
  const DataSummary held = schema.Summarize(counts);
  if (summary != nullptr) AddSummary(held, summary);
  if (cache != nullptr) {
    // Store only what was parsed from files that did not change meanwhile.
    const auto after = IdentifyAll(files, data.env());
    if (after.ok() && *after == source) cache->Store(pieces, source, scratch->view(), own, held);
  }
  // Merged only here, so that an error adds nothing.
  bad->Merge(own);
  return Examples{scratch->view(), nullptr};
}

}  // namespace sluice
