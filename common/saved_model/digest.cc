// ModelDigest streams every shard file once and merges the runs of a sparse table's files by key.
#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/saved_model/export_chain.h"
#include "common/saved_model/manifest.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/shard_file.h"
#include "common/saved_model/shard_file_reader.h"

namespace sluice {
namespace {

// The memory of all read buffers together, and the largest and smallest buffer of one run.
constexpr size_t kBufferBytes = 64 << 20, kMaxBuffer = 1 << 20, kMinBuffer = 16 << 10;

// A position in one run of a sparse file.
struct Cursor {
  ValueReader reader;
  std::string records;
  size_t offset = 0;
  uint64_t key = 0;
  const std::string* path = nullptr;

  absl::string_view record() const { return {records.data() + offset, reader.record_bytes()}; }
  // Moves to the next record. Returns false at the end.
  absl::StatusOr<bool> Next(size_t buffer_bytes) {
    offset += records.empty() ? 0 : reader.record_bytes();
    if (offset == records.size()) {
      SLUICE_ASSIGN_OR_RETURN(records, reader.Next(buffer_bytes));
      offset = 0;
      if (records.empty()) return false;
    }
    std::memcpy(&key, records.data() + offset, sizeof(key));
    return true;
  }
};

// An entry of a heap of cursors with the least key in front.
using Head = std::pair<uint64_t, size_t>;  // key, cursor

// Moves the first head, whose key has changed, to its place in the heap.
void SiftDown(std::vector<Head>* heads) {
  const Head head = heads->front();
  size_t at = 0;
  for (size_t child = 1; child < heads->size(); child = 2 * at + 1) {
    if (child + 1 < heads->size() && (*heads)[child + 1] < (*heads)[child]) ++child;
    if (!((*heads)[child] < head)) break;
    (*heads)[at] = (*heads)[child];
    at = child;
  }
  (*heads)[at] = head;
}

absl::Status DigestDense(const TableConfig& table,
                         std::vector<std::unique_ptr<ShardFileReader>> readers, Sha256* sha) {
  SLUICE_ASSIGN_OR_RETURN(const uint64_t elements, CountElements(table));
  uint64_t next = 0;
  for (const auto& reader : readers) {
    // A gap or an overlap would give a digest of something that is no model.
    if (reader->header().first_element() != next) {
      return absl::DataLossError(absl::StrCat(reader->path(), " begins at element ",
                                              reader->header().first_element(), " of table '",
                                              table.name(), "', not at element ", next));
    }
    next += reader->header().elements();
    ValueReader run(reader.get(), 0, reader->runs());
    while (true) {
      SLUICE_ASSIGN_OR_RETURN(const std::string records, run.Next(kMaxBuffer));
      if (records.empty()) break;
      sha->Update(records.data(), records.size());
    }
  }
  if (next == elements) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("the files of table '", table.name(), "' hold ", next,
                                          " of ", elements, " elements: save the model again"));
}

absl::Status DigestSparse(const std::vector<std::unique_ptr<ShardFileReader>>& readers,
                          Sha256* sha) {
  std::vector<Cursor> cursors;
  for (const auto& reader : readers) {
    for (uint32_t r = 0; r < reader->runs(); ++r) {
      if (reader->RunBytes(r) == 0) continue;
      cursors.push_back({ValueReader(reader.get(), r, r + 1)});
      cursors.back().path = &reader->path();
    }
  }
  // One buffer for each run: their sum is bounded, however many runs there are.
  const size_t buffer_bytes =
      std::clamp(kBufferBytes / std::max<size_t>(1, cursors.size()), kMinBuffer, kMaxBuffer);
  std::vector<Head> heads;
  for (size_t i = 0; i < cursors.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(cursors[i].Next(buffer_bytes).status());
    heads.push_back({cursors[i].key, i});
  }
  std::make_heap(heads.begin(), heads.end(), std::greater<Head>());
  std::string merged;  // hashed in pieces, because one call costs as much as hashing a row
  bool first = true;
  uint64_t last = 0;
  while (!heads.empty()) {
    Cursor& cursor = cursors[heads.front().second];
    // Each file was checked alone. Two shards with one key come from a save that mixed two routes.
    if (!first && cursor.key == last) {
      return absl::DataLossError(absl::StrCat(*cursor.path, ": key ", last,
                                              " is also in another shard: save the model again"));
    }
    first = false;
    last = cursor.key;
    merged.append(cursor.record().data(), cursor.record().size());
    if (merged.size() >= kMinBuffer) {
      sha->Update(merged.data(), merged.size());
      merged.clear();
    }
    SLUICE_ASSIGN_OR_RETURN(const bool more, cursor.Next(buffer_bytes));
    if (more) {
      heads.front().first = cursor.key;
    } else {
      heads.front() = heads.back();
      heads.pop_back();
    }
    if (!heads.empty()) SiftDown(&heads);
  }
  sha->Update(merged.data(), merged.size());
  return absl::OkStatus();
}

// By name, so that a digest does not depend on the order of tables.
std::vector<const TableConfig*> TablesByName(const Manifest& manifest) {
  std::vector<const TableConfig*> tables;
  for (const TableConfig& table : manifest.tables()) tables.push_back(&table);
  std::sort(tables.begin(), tables.end(),
            [](const TableConfig* a, const TableConfig* b) { return a->name() < b->name(); });
  return tables;
}

}  // namespace

absl::StatusOr<std::string> DeltaDigest(const std::string& dir, const Manifest& manifest,
                                        Env* env) {
  SLUICE_ASSIGN_OR_RETURN(const std::string rows, ModelDigest(dir, manifest, env));
  const ExportFacts& facts = manifest.export_();
  const std::string head = absl::StrCat("sluice delta 1\n", facts.instance(), "\n", facts.from(),
                                        "\n", facts.to(), "\n", rows, "\n");
  Sha256 sha;
  sha.Update(head.data(), head.size());
  for (const TableConfig* table : TablesByName(manifest)) {
    if (table->kind() != TableConfig::SPARSE) continue;
    std::vector<uint64_t> gone;
    SLUICE_ASSIGN_OR_RETURN(const auto files, FilesOfTable(dir, manifest, *table));
    for (const SavedFile* file : files) {
      SLUICE_ASSIGN_OR_RETURN(const auto reader, ShardFileReader::Open(env, dir, *table, *file));
      const auto& keys = reader->header().gone();
      gone.insert(gone.end(), keys.begin(), keys.end());
    }
    std::sort(gone.begin(), gone.end());
    const std::string name = absl::StrCat(table->name(), "\n");
    sha.Update(name.data(), name.size());
    sha.Update(gone.data(), gone.size() * sizeof(uint64_t));
  }
  return sha.Finish();
}

absl::StatusOr<std::string> ModelDigest(const std::string& dir, const Manifest& manifest,
                                        Env* env) {
  Sha256 sha;
  for (const TableConfig* table : TablesByName(manifest)) {
    SLUICE_ASSIGN_OR_RETURN(const auto files, FilesOfTable(dir, manifest, *table));
    std::vector<std::unique_ptr<ShardFileReader>> readers;
    for (const SavedFile* file : files) {
      SLUICE_ASSIGN_OR_RETURN(auto reader, ShardFileReader::Open(env, dir, *table, *file));
      readers.push_back(std::move(reader));
    }
    SLUICE_RETURN_IF_ERROR(table->kind() == TableConfig::DENSE
                               ? DigestDense(*table, std::move(readers), &sha)
                               : DigestSparse(readers, &sha));
  }
  return sha.Finish();
}

}  // namespace sluice
