// Keeps records that are longer than a commit of a MetaStore: compressed, and cut into parts that
// have keys of their own.
//
// A record with parts is whole when its parts are written before it, and the parts of its earlier
// value are deleted after it.
//
// Format:
//   KEY           a short value as it is; or a zero byte, which no record begins with, and a header
//                 in text: the number of parts, the id of the parts, the bytes of the value, each
//                 with a '\n', then the compressed bytes if there are no parts
//   .part/ID/N    part N, six digits, of the compressed bytes
// Compressed: one zstd frame with its checksum.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/meta_store/meta_store.h"

namespace sluice {

// The most bytes of a record: what a message of the control plane may have.
inline constexpr size_t kMaxRecordBytes = size_t{64} << 20;

struct CutRecord {
  std::string value;                    // for the record's key
  std::vector<MetaStore::Write> parts;  // to be written before
};
// `id`: names the parts; no other record may ever have had it.
CutRecord CutIntoParts(std::string value, const std::string& id);

struct JoinedRecords {
  std::vector<MetaStore::Entry> records;                  // whole, in the order of their keys
  std::map<std::string, std::vector<std::string>> parts;  // by record: the keys of its parts
  std::vector<std::string> left_over;                     // keys of parts without a record
};
// `entries`: all that a store holds. DATA_LOSS names a record that lacks a part or is damaged.
absl::StatusOr<JoinedRecords> JoinParts(std::vector<MetaStore::Entry> entries);

}  // namespace sluice
