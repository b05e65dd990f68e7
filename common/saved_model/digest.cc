// ModelDigest: streams every shard file once; a sparse table's files are merged by key.
#include <algorithm>
#include <cstring>
#include <queue>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/saved_model/manifest_files.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/shard_file.h"

namespace sluice {
namespace {

// Memory of all read buffers together, and the most and least that one file has.
constexpr size_t kBufferBytes = 64 << 20, kMaxBuffer = 1 << 20, kMinBuffer = 16 << 10;

// A place in one sparse file.
struct Cursor {
  std::unique_ptr<ShardFileReader> reader;
  size_t buffer_bytes = 0;
  std::string records;
  size_t offset = 0;
  uint64_t key = 0;

  absl::string_view record() const { return {records.data() + offset, reader->record_bytes()}; }
  // False at the end.
  absl::StatusOr<bool> Next() {
    const bool first = records.empty();
    offset += first ? 0 : reader->record_bytes();
    if (offset == records.size()) {
      SLUICE_ASSIGN_OR_RETURN(records, reader->NextRecords(buffer_bytes));
      offset = 0;
      if (records.empty()) return false;
    }
    const uint64_t last = key;
    std::memcpy(&key, records.data() + offset, sizeof(key));
    if (!first && key <= last) {
      return absl::DataLossError(
          absl::StrCat(reader->path(), " is damaged: key ", key, " follows key ", last));
    }
    return true;
  }
};

absl::Status DigestDense(const TableConfig& table,
                         std::vector<std::unique_ptr<ShardFileReader>> readers, Sha256* sha) {
  SLUICE_ASSIGN_OR_RETURN(const uint64_t elements, CountElements(table));
  uint64_t next = 0;
  for (const auto& reader : readers) {
    if (reader->header().first_element() != next) {
      return absl::DataLossError(absl::StrCat(reader->path(), " begins at element ",
                                              reader->header().first_element(), " of table '",
                                              table.name(), "', expected ", next));
    }
    next += reader->header().elements();
    while (true) {
      SLUICE_ASSIGN_OR_RETURN(const std::string records, reader->NextRecords(kMaxBuffer));
      if (records.empty()) break;
      sha->Update(records.data(), records.size());
    }
  }
  if (next == elements) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("the files of table '", table.name(), "' hold ", next,
                                          " of ", elements, " elements: save the model again"));
}

absl::Status DigestSparse(std::vector<std::unique_ptr<ShardFileReader>> readers, Sha256* sha) {
  std::vector<Cursor> cursors(readers.size());
  using Head = std::pair<uint64_t, size_t>;  // key, cursor
  std::priority_queue<Head, std::vector<Head>, std::greater<Head>> heads;
  for (size_t i = 0; i < cursors.size(); ++i) {
    cursors[i].reader = std::move(readers[i]);
    cursors[i].buffer_bytes = std::clamp(kBufferBytes / cursors.size(), kMinBuffer, kMaxBuffer);
    SLUICE_ASSIGN_OR_RETURN(const bool more, cursors[i].Next());
    if (more) heads.push({cursors[i].key, i});
  }
  bool first = true;
  uint64_t last = 0;
  while (!heads.empty()) {
    Cursor& cursor = cursors[heads.top().second];
    const size_t index = heads.top().second;
    heads.pop();
    if (!first && cursor.key == last) {
      return absl::DataLossError(absl::StrCat(cursor.reader->path(), ": key ", last,
                                              " is also in another shard: save the model again"));
    }
    first = false;
    last = cursor.key;
    sha->Update(cursor.record().data(), cursor.record().size());
    SLUICE_ASSIGN_OR_RETURN(const bool more, cursor.Next());
    if (more) heads.push({cursor.key, index});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ModelDigest(const std::string& dir, const Manifest& manifest,
                                        Env* env) {
  std::vector<const TableConfig*> tables;
  for (const TableConfig& table : manifest.tables()) tables.push_back(&table);
  std::sort(tables.begin(), tables.end(),
            [](const TableConfig* a, const TableConfig* b) { return a->name() < b->name(); });
  Sha256 sha;
  for (const TableConfig* table : tables) {
    SLUICE_ASSIGN_OR_RETURN(const auto files, FilesOfTable(dir, manifest, *table));
    std::vector<std::unique_ptr<ShardFileReader>> readers;
    for (const SavedFile* file : files) {
      SLUICE_ASSIGN_OR_RETURN(auto reader, ShardFileReader::Open(env, dir, *table, *file));
      readers.push_back(std::move(reader));
    }
    SLUICE_RETURN_IF_ERROR(table->kind() == TableConfig::DENSE
                               ? DigestDense(*table, std::move(readers), &sha)
                               : DigestSparse(std::move(readers), &sha));
  }
  return sha.Finish();
}

}  // namespace sluice
