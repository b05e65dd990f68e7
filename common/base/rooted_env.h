// An Env that confines the paths which jobs and other processes name to folders of the operator.
//
// A path must begin with a root, written as it was given or as it is without links. The kernel
// finds the rest beneath the root: it refuses `..` and links that lead out. It checks while it
// opens, so a link that is swapped in meanwhile leads nowhere else. A change acts on a name in a
// folder that was opened this way, and follows no link under that name.
//
// A root may also be a URL, below which `base` reads, and below an output root also writes, files
// of a place (common/places). Then URLs elsewhere are refused; without such a root all URLs are.
//
// Errors: PERMISSION_DENIED names the path, the roots and their flags. Other errors are those of
// `base`. Exists is false for a path that is refused.
//
// Thread safety: safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/env.h"

namespace sluice {

class RootedEnv : public Env {
 public:
  struct Roots {
    std::vector<std::string> data;    // for reading (--data_root)
    std::vector<std::string> output;  // for reading and writing (--output_root)
  };

  // The roots that are URLs, without slashes at their ends.
  const std::vector<std::string>& url_roots() const { return url_roots_; }

  // `base` outlives the Env and has the files of the machine, since it is given paths in
  // /proc/self/fd. INVALID_ARGUMENT when there is no output root, or when a root is not the
  // absolute path of a folder or a URL of data; UNIMPLEMENTED when the kernel cannot confine paths
  // (Linux 5.6 can).
  static absl::StatusOr<std::unique_ptr<RootedEnv>> Create(Env* base, const Roots& roots);
  ~RootedEnv() override;

  FilePlace PlaceOf(const std::string& path) override;
  absl::StatusOr<FileInfo> Look(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<FileReader>> NewReader(const std::string& path) override;
  absl::StatusOr<FileMatches> Match(const std::string& pattern, size_t most_names) override;
  absl::StatusOr<std::string> ReadFile(const std::string& path) override;
  absl::StatusOr<std::string> ReadRange(const std::string& path, uint64_t offset,
                                        uint64_t n) override;
  absl::StatusOr<uint64_t> FileSize(const std::string& path) override;
  absl::Status WriteFile(const std::string& path,
                         absl::Span<const absl::string_view> pieces) override;
  absl::StatusOr<std::unique_ptr<NewFile>> StartFile(const std::string& path) override;
  absl::Status RenameFile(const std::string& from, const std::string& to) override;
  absl::StatusOr<FileIdentity> Publish(const std::string& path, absl::string_view bytes,
                                       const std::optional<FileIdentity>& expected) override;
  absl::Status GiveUpFiles(const std::string& folder,
                           const std::function<bool(const std::string&)>& is_leftover) override;
  absl::Status MakeDirs(const std::string& path) override;
  absl::Status MakeNewDir(const std::string& path) override;
  absl::Status RemoveDir(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override;
  bool Exists(const std::string& path) override;
  absl::Status RemoveFile(const std::string& path) override;
  // A path that may be written, created or truncated must lie below an output root.
  absl::StatusOr<int> OpenFile(const std::string& path, int flags, uint32_t mode = 0) override;

 private:
  enum class Use { kRead, kWrite };
  struct Root;
  struct Place;
  class PlacedFile;
  explicit RootedEnv(Env* base);

  std::string Absolute(const std::string& path) const;
  // PERMISSION_DENIED: the URL is not below a root that is one.
  absl::Status CheckUrl(const std::string& url, Use use) const;
  // The same, naming the operation and the URL.
  absl::Status CheckUrl(absl::string_view operation, const std::string& url, Use use) const;
  absl::Status Refuse(const std::string& why, Use use) const;
  // Opens what the path leads to. Messages are the reason alone.
  absl::StatusOr<int> Open(const std::string& path, Use use, int flags, uint32_t mode) const;
  // The file or folder to which the path leads, for reading.
  absl::StatusOr<Place> Find(absl::string_view operation, const std::string& path) const;
  // The name of the path in its folder, for a change.
  absl::StatusOr<Place> FindName(absl::string_view operation, const std::string& path) const;

  Env* const base_;
  const std::string working_folder_;  // relative paths begin here
  // Constant after Create:
  std::vector<Root> roots_;
  // Without slashes at their ends; the latter are some of the former.
  std::vector<std::string> url_roots_, url_output_roots_;
};

}  // namespace sluice
