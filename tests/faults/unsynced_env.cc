#include "tests/faults/unsynced_env.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

constexpr size_t kSectorBytes = 512;

absl::Status NotFound(const std::string& path) {
  return absl::NotFoundError(absl::StrCat(path, " does not exist"));
}

std::vector<std::string> NamesOf(const std::string& path) {
  return absl::StrSplit(path, '/', absl::SkipEmpty());
}

// The folder around the last name.
std::string FolderOf(const std::string& path) {
  std::vector<std::string> names = NamesOf(path);
  if (!names.empty()) names.pop_back();
  std::string folder;
  for (const std::string& name : names) absl::StrAppend(&folder, "/", name);
  return folder.empty() ? "/" : folder;
}

// A number below n, or 0. The library's distributions differ between compilers.
uint64_t Draw(std::mt19937_64* random, uint64_t n) { return n == 0 ? 0 : (*random)() % n; }

// The bytes that a file of `bytes` has after a loss, when the first `synced` are safe.
std::string Torn(const std::string& bytes, size_t synced, std::mt19937_64* random) {
  std::string left = bytes;
  switch (Draw(random, 4)) {
    case 0:
      return left.substr(0, synced);
    case 1:
      return left;
    case 2:
      return left.substr(0, synced + Draw(random, bytes.size() - synced + 1));
    default:  // the size reached the disk before the bytes
      for (size_t at = synced; at < left.size(); at += kSectorBytes - at % kSectorBytes) {
        const size_t end = std::min(left.size(), at + kSectorBytes - at % kSectorBytes);
        if (Draw(random, 2) == 0) std::fill(left.begin() + at, left.begin() + end, '\0');
      }
      return left;
  }
}

}  // namespace

class UnsyncedEnv::UnfinishedFile : public NewFile {
 public:
  UnfinishedFile(UnsyncedEnv* env, std::string path, std::string unfinished,
                 std::shared_ptr<Node> node)
      : env_(env),
        path_(std::move(path)),
        unfinished_(std::move(unfinished)),
        node_(std::move(node)) {}
  ~UnfinishedFile() override {
    if (!renamed_) env_->Remove(unfinished_, /*folder=*/false).IgnoreError();
  }

  absl::Status Append(absl::string_view bytes) override {
    SLUICE_RETURN_IF_ERROR(env_->Begin(absl::StrCat("append ", unfinished_)));
    node_->bytes.append(bytes.data(), bytes.size());
    return absl::OkStatus();
  }
  absl::Status Finish() override {
    SLUICE_RETURN_IF_ERROR(
        env_->Begin(absl::StrCat("sync ", unfinished_, " ", node_->bytes.size())));
    node_->synced_bytes = node_->bytes.size();
    SLUICE_RETURN_IF_ERROR(env_->Rename(unfinished_, path_));
    renamed_ = true;
    return env_->SyncFolder(FolderOf(path_));
  }

 private:
  UnsyncedEnv* const env_;
  const std::string path_, unfinished_;
  const std::shared_ptr<Node> node_;
  bool renamed_ = false;
};

UnsyncedEnv::UnsyncedEnv() : root_(std::make_shared<Node>()) { root_->folder = true; }

void UnsyncedEnv::Restart() {
  steps_.clear();
  steps_left_ = UINT64_MAX;
  failed_ = false;
}

void UnsyncedEnv::LoseUnsynced(std::mt19937_64* random) {
  LoseIn(root_.get(), random);
  Restart();
}

void UnsyncedEnv::Apply(const Change& change, Names* names) {
  const auto removed = names->find(change.removed);
  if (removed != names->end() && removed->second == change.node) names->erase(removed);
  if (!change.added.empty()) (*names)[change.added] = change.node;
}

void UnsyncedEnv::LoseIn(Node* node, std::mt19937_64* random) {
  if (!node->folder) {
    node->bytes = Torn(node->bytes, node->synced_bytes, random);
    node->synced_bytes = node->bytes.size();
    return;
  }
  // A journal keeps a first part of the changes. Other disks keep any of them.
  const bool journal = Draw(random, 2) == 0;
  const size_t kept = Draw(random, node->unsynced.size() + 1);
  for (size_t i = 0; i < node->unsynced.size(); ++i) {
    if (journal ? i < kept : Draw(random, 2) == 0) Apply(node->unsynced[i], &node->synced_names);
  }
  node->unsynced.clear();
  node->names = node->synced_names;
  for (const auto& [name, inner] : node->names) LoseIn(inner.get(), random);
}

absl::Status UnsyncedEnv::Begin(std::string step) {
  if (steps_left_ == 0) {
    failed_ = true;
    return absl::AbortedError(absl::StrCat("the process has ended before: ", step));
  }
  --steps_left_;
  steps_.push_back(std::move(step));
  return absl::OkStatus();
}

std::shared_ptr<UnsyncedEnv::Node> UnsyncedEnv::Find(const std::string& path) const {
  std::shared_ptr<Node> node = root_;
  for (const std::string& name : NamesOf(path)) {
    const auto found = node->names.find(name);
    if (found == node->names.end()) return nullptr;
    node = found->second;
  }
  return node;
}

absl::StatusOr<std::shared_ptr<UnsyncedEnv::Node>> UnsyncedEnv::FindFile(
    const std::string& path) const {
  std::shared_ptr<Node> node = Find(path);
  if (node == nullptr) return NotFound(path);
  if (node->folder) return absl::FailedPreconditionError(absl::StrCat(path, " is a folder"));
  return node;
}

absl::StatusOr<UnsyncedEnv::Place> UnsyncedEnv::FindPlace(const std::string& path) const {
  const std::vector<std::string> names = NamesOf(path);
  if (names.empty()) return absl::FailedPreconditionError("/ is the root folder");
  const std::string folder = FolderOf(path);
  Place place{Find(folder), names.back()};
  if (place.folder == nullptr) return NotFound(folder);
  if (!place.folder->folder) {
    return absl::FailedPreconditionError(absl::StrCat(folder, " is not a folder"));
  }
  return place;
}

absl::StatusOr<std::string> UnsyncedEnv::ReadFile(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const std::shared_ptr<Node> file, FindFile(path));
  return file->bytes;
}

absl::StatusOr<std::string> UnsyncedEnv::ReadRange(const std::string& path, uint64_t offset,
                                                   uint64_t n) {
  SLUICE_ASSIGN_OR_RETURN(const std::shared_ptr<Node> file, FindFile(path));
  return offset >= file->bytes.size() ? "" : file->bytes.substr(offset, n);
}

absl::StatusOr<uint64_t> UnsyncedEnv::FileSize(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const std::shared_ptr<Node> file, FindFile(path));
  return file->bytes.size();
}

absl::Status UnsyncedEnv::WriteFile(const std::string& path,
                                    absl::Span<const absl::string_view> pieces) {
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<NewFile> file, StartFile(path));
  for (absl::string_view piece : pieces) SLUICE_RETURN_IF_ERROR(file->Append(piece));
  return file->Finish();
}

absl::StatusOr<std::unique_ptr<NewFile>> UnsyncedEnv::StartFile(const std::string& path) {
  const std::string unfinished = absl::StrCat(path, ".1.", next_unfinished_++, kUnfinishedSuffix);
  SLUICE_RETURN_IF_ERROR(Begin(absl::StrCat("create ", unfinished)));
  SLUICE_ASSIGN_OR_RETURN(const Place place, FindPlace(unfinished));
  const auto node = std::make_shared<Node>();
  place.folder->unsynced.push_back({"", place.name, node});
  place.folder->names[place.name] = node;
  return std::make_unique<UnfinishedFile>(this, path, unfinished, node);
}

absl::Status UnsyncedEnv::RenameFile(const std::string& from, const std::string& to) {
  SLUICE_RETURN_IF_ERROR(Rename(from, to));
  return SyncFolder(FolderOf(to));
}

absl::Status UnsyncedEnv::Rename(const std::string& from, const std::string& to) {
  SLUICE_RETURN_IF_ERROR(Begin(absl::StrCat("rename ", from, " ", to)));
  SLUICE_ASSIGN_OR_RETURN(const Place old_place, FindPlace(from));
  SLUICE_ASSIGN_OR_RETURN(const Place place, FindPlace(to));
  if (place.folder != old_place.folder) {
    return absl::UnimplementedError(absl::StrCat("rename ", from, " into another folder"));
  }
  SLUICE_ASSIGN_OR_RETURN(const std::shared_ptr<Node> node, FindFile(from));
  if (const auto replaced = Find(to); replaced != nullptr && replaced->folder) {
    return absl::FailedPreconditionError(absl::StrCat(to, " is a folder"));
  }
  place.folder->unsynced.push_back({old_place.name, place.name, node});
  Apply(place.folder->unsynced.back(), &place.folder->names);
  return absl::OkStatus();
}

absl::Status UnsyncedEnv::SyncFolder(const std::string& path) {
  SLUICE_RETURN_IF_ERROR(Begin(absl::StrCat("sync_folder ", path)));
  const std::shared_ptr<Node> folder = Find(path);
  if (folder == nullptr) return NotFound(path);
  folder->synced_names = folder->names;
  folder->unsynced.clear();
  return absl::OkStatus();
}

absl::Status UnsyncedEnv::MakeDirs(const std::string& path) {
  std::string part;
  for (const std::string& name : NamesOf(path)) {
    absl::StrAppend(&part, "/", name);
    const absl::Status made = MakeNewDir(part);
    if (absl::IsAlreadyExists(made)) {
      SLUICE_RETURN_IF_ERROR(SyncFolder(FolderOf(part)));
    } else if (!made.ok()) {
      return made;
    }
  }
  const std::shared_ptr<Node> node = Find(path);
  if (node == nullptr) return NotFound(path);
  if (!node->folder) return absl::FailedPreconditionError(absl::StrCat(path, " is not a folder"));
  return absl::OkStatus();
}

absl::Status UnsyncedEnv::MakeNewDir(const std::string& path) {
  SLUICE_RETURN_IF_ERROR(Begin(absl::StrCat("mkdir ", path)));
  SLUICE_ASSIGN_OR_RETURN(const Place place, FindPlace(path));
  const auto node = std::make_shared<Node>();
  node->folder = true;
  if (!place.folder->names.emplace(place.name, node).second) {
    return absl::AlreadyExistsError(absl::StrCat(path, " exists"));
  }
  place.folder->unsynced.push_back({"", place.name, node});
  return SyncFolder(FolderOf(path));
}

absl::Status UnsyncedEnv::RemoveFile(const std::string& path) {
  return Remove(path, /*folder=*/false);
}

absl::Status UnsyncedEnv::RemoveDir(const std::string& path) {
  return Remove(path, /*folder=*/true);
}

absl::Status UnsyncedEnv::Remove(const std::string& path, bool folder) {
  SLUICE_RETURN_IF_ERROR(Begin(absl::StrCat(folder ? "rmdir " : "unlink ", path)));
  SLUICE_ASSIGN_OR_RETURN(const Place place, FindPlace(path));
  const std::shared_ptr<Node> node = Find(path);
  if (node == nullptr) return NotFound(path);
  if (node->folder != folder || !node->names.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(path, " cannot be removed so"));
  }
  place.folder->unsynced.push_back({place.name, "", node});
  Apply(place.folder->unsynced.back(), &place.folder->names);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> UnsyncedEnv::List(const std::string& path) {
  const std::shared_ptr<Node> folder = Find(path);
  if (folder == nullptr) return NotFound(path);
  if (!folder->folder) return absl::FailedPreconditionError(absl::StrCat(path, " is a file"));
  std::vector<std::string> names;
  for (const auto& entry : folder->names) names.push_back(entry.first);
  return names;
}

bool UnsyncedEnv::Exists(const std::string& path) { return Find(path) != nullptr; }

}  // namespace sluice
