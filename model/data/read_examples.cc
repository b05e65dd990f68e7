#include "model/data/read_examples.h"

#include <algorithm>
#include <vector>

#include "common/base/hash.h"
#include "common/base/status_macros.h"
#include "model/data/text_reader.h"
#include "model/features/data_summary.h"

namespace sluice {
namespace {

// The pieces [first, last) of one file.
struct PiecesOfFile {
  size_t first = 0, last = 0;
};

std::vector<PiecesOfFile> ByFile(absl::Span<const DataPiece> pieces) {
  std::vector<PiecesOfFile> files;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (i == 0 || pieces[i].path != pieces[i - 1].path) files.push_back({i, i});
    files.back().last = i + 1;
  }
  return files;
}

// Identifies the files of the pieces as one: a change of any of them gives another identity.
absl::StatusOr<FileIdentity> IdentifyAll(absl::Span<const DataPiece> pieces,
                                         const std::vector<PiecesOfFile>& files, Env* env) {
  FileIdentity all;
  uint64_t names = 0, versions = 0;
  for (const PiecesOfFile& file : files) {
    SLUICE_ASSIGN_OR_RETURN(const FileIdentity one, IdentifyFile(pieces[file.first].path, env));
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

absl::Status Parse(const DataSource& data, absl::Span<const DataPiece> pieces,
                   const std::vector<PiecesOfFile>& files, Batch* examples, BadLines* bad) {
  std::vector<TextRange> ranges;
  for (const PiecesOfFile& file : files) {
    ranges.clear();
    for (size_t i = file.first; i < file.last; ++i)
      ranges.push_back({pieces[i].begin, pieces[i].end});
    SLUICE_RETURN_IF_ERROR(
        data.ReadPieces(pieces[file.first].path, ranges, /*need_label=*/true, examples, bad));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Examples> ReadExamples(const DataSource& data, const FeatureSchema& schema,
                                      ExampleCache* cache, const DataPiece& piece, Batch* scratch,
                                      BadLines* bad, DataSummary* summary) {
  return ReadExamples(data, schema, cache, absl::MakeConstSpan(&piece, 1), scratch, bad, summary);
}

absl::StatusOr<Examples> ReadExamples(const DataSource& data, const FeatureSchema& schema,
                                      ExampleCache* cache, absl::Span<const DataPiece> pieces,
                                      Batch* scratch, BadLines* bad, DataSummary* summary) {
  const std::vector<PiecesOfFile> files = ByFile(pieces);
  FileIdentity source;
  if (cache != nullptr) {
    // Also when the cache has the pieces: a job must not train some epochs on one version of a file
    // and some on another.
    for (const PiecesOfFile& file : files)
      SLUICE_RETURN_IF_ERROR(data.CheckUnchanged(pieces[file.first].path));
    SLUICE_ASSIGN_OR_RETURN(source, IdentifyAll(pieces, files, data.env()));
    Examples found = cache->Find(pieces, source, bad, summary);
    if (found.owner != nullptr) return found;
  }
  scratch->Reset(schema.numerics().size(), schema.slots().size());
  BadLines own;
  DataCounts counts;
  scratch->counts = cache != nullptr || summary != nullptr ? &counts : nullptr;
  const absl::Status read = Parse(data, pieces, files, scratch, &own);
  // `counts` ends with this call, but the batch lives on.
  scratch->counts = nullptr;
  SLUICE_RETURN_IF_ERROR(read);
  const DataSummary held = schema.Summarize(counts);
  if (summary != nullptr) AddSummary(held, summary);
  if (cache != nullptr) {
    // Store only what was parsed from files that did not change meanwhile.
    const auto after = IdentifyAll(pieces, files, data.env());
    if (after.ok() && *after == source) cache->Store(pieces, source, scratch->view(), own, held);
  }
  // Merged only here, so that an error adds nothing.
  bad->Merge(own);
  return Examples{scratch->view(), nullptr};
}

}  // namespace sluice
