// Identifies a file and a version of its contents. Opaque: only places make identities, and others
// compare them.
//
// Thread safety: a value.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

struct FileIdentity {
  // Set for a local file; 0 for a file of a store or a server.
  uint64_t device = 0, inode = 0;
  uint64_t size = 0;
  int64_t modified_ns = 0;  // of a local file
  // When content or attributes last changed; no program can set it back. Comparisons ignore it,
  // because a new owner or another link to the file also changes it. Of a file of a store or a
  // server: a number made from `tag`.
  int64_t changed_ns = 0;
  // The version that a store or a server names, such as an ETag; "" for a local file.
  std::string tag;
  bool operator==(const FileIdentity& other) const {
    return device == other.device && inode == other.inode && size == other.size &&
           modified_ns == other.modified_ns && tag == other.tag;
  }
};

// Describes the file or folder that a path leads to.
struct FileInfo {
  enum class Kind { kFile, kFolder, kOther };  // kOther: a pipe, a socket or a device
  Kind kind = Kind::kFile;
  FileIdentity identity;
};

}  // namespace sluice
