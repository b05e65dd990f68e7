#include "common/meta_store/record_parts.h"

#include <zstd.h>

#include <memory>
#include <new>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

constexpr char kPart[] = ".part/";
constexpr char kPacked = '\0';
// Shorter values are kept as they are.
constexpr size_t kPackedFrom = 16 << 10;
// Two parts fit into a commit, with their keys.
constexpr size_t kPartBytes = 512 << 10;
// The scheduler compresses while calls wait for the commit.
constexpr int kLevel = 1;

std::string PartKey(const std::string& id, size_t n) {
  return absl::StrCat(kPart, id, "/", absl::StrFormat("%06d", n));
}

std::string Compress(const std::string& value) {
  const std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)> context(ZSTD_createCCtx(),
                                                                   &ZSTD_freeCCtx);
  if (context == nullptr) throw std::bad_alloc();
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kLevel);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  std::string packed(ZSTD_compressBound(value.size()), '\0');
  const size_t n = ZSTD_compress2(context.get(), packed.data(), packed.size(), value.data(),
                                  value.size());
  // Only memory can lack: the buffer is large enough for everything.
  if (ZSTD_isError(n) != 0) throw std::bad_alloc();
  packed.resize(n);
  return packed;
}

struct Header {
  size_t parts = 0, bytes = 0;
  std::string id;
  std::string rest;  // compressed
};

// False when it is none.
bool ParseHeader(const std::string& value, Header* header) {
  const std::vector<std::string> fields = absl::StrSplit(value.substr(1), absl::MaxSplits('\n', 3));
  if (fields.size() != 4 || !absl::SimpleAtoi(fields[0], &header->parts) ||
      !absl::SimpleAtoi(fields[2], &header->bytes)) {
    return false;
  }
  header->id = fields[1];
  header->rest = fields[3];
  return header->bytes <= kMaxRecordBytes && header->parts <= kMaxRecordBytes / kPartBytes + 2;
}

absl::Status Damaged(const std::string& key, const std::string& why) {
  return absl::DataLossError(absl::StrCat("the scheduler's state is damaged: the record ",
                                          PrintableLine(key), " ", why,
                                          "; restore the store, or give an empty state_store"));
}

}  // namespace

CutRecord CutIntoParts(std::string value, const std::string& id) {
  CutRecord cut;
  if (value.size() < kPackedFrom && !(value.size() > 0 && value[0] == kPacked)) {
    cut.value = std::move(value);
    return cut;
  }
  const std::string packed = Compress(value);
  if (packed.size() > kPartBytes) {
    for (size_t at = 0; at < packed.size(); at += kPartBytes)
      cut.parts.push_back({PartKey(id, cut.parts.size()), packed.substr(at, kPartBytes)});
  }
  cut.value = absl::StrCat(std::string(1, kPacked), cut.parts.size(), "\n", id, "\n", value.size(),
                           "\n", cut.parts.empty() ? packed : "");
  return cut;
}

absl::StatusOr<JoinedRecords> JoinParts(std::vector<MetaStore::Entry> entries) {
  JoinedRecords joined;
  std::map<std::string, std::string> parts;
  for (MetaStore::Entry& entry : entries) {
    if (absl::StartsWith(entry.key, kPart)) parts[entry.key] = std::move(entry.value);
  }
  for (MetaStore::Entry& entry : entries) {
    if (absl::StartsWith(entry.key, kPart)) continue;
    if (entry.value.empty() || entry.value[0] != kPacked) {
      joined.records.push_back(std::move(entry));
      continue;
    }
    Header header;
    if (!ParseHeader(entry.value, &header)) return Damaged(entry.key, "has no valid header");
    std::string packed = std::move(header.rest);
    for (size_t n = 0; n < header.parts; ++n) {
      auto part = parts.extract(PartKey(header.id, n));
      if (part.empty()) return Damaged(entry.key, absl::StrCat("lacks its part ", n));
      packed += part.mapped();
      joined.parts[entry.key].push_back(part.key());
    }
    std::string value(header.bytes, '\0');
    const size_t n = ZSTD_decompress(value.data(), value.size(), packed.data(), packed.size());
    if (ZSTD_isError(n) != 0 || n != header.bytes)
      return Damaged(entry.key, "cannot be decompressed");
    joined.records.push_back({std::move(entry.key), std::move(value)});
  }
  for (const auto& part : parts) joined.left_over.push_back(part.first);
  return joined;
}

}  // namespace sluice
