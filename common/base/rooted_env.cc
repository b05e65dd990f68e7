#include "common/base/rooted_env.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/local_path.h"
#include "common/base/status_macros.h"
#include "common/base/url_roots.h"

namespace sluice {
namespace {

// Opens `path` beneath the folder `root`; -1 and errno. EXDEV: the path leads out of it. glibc has
// no function for this system call.
int OpenBeneath(int root, const std::string& path, int flags, uint32_t mode) {
  constexpr int kTries = 100;
  open_how how = {};
  // Opening a pipe would wait for its other end. With O_PATH nothing is opened, and the kernel
  // refuses O_NONBLOCK.
  const int added = O_CLOEXEC | ((flags & O_PATH) != 0 ? 0 : O_NONBLOCK);
  how.flags = static_cast<uint64_t>(flags | added);
  // The kernel refuses a mode that has no effect.
  how.mode = (flags & O_CREAT) != 0 ? mode : 0;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  for (int i = 0;; ++i) {
    const long fd = ::syscall(SYS_openat2, root, path.c_str(), &how, sizeof(how));
    // EAGAIN: something was renamed or mounted while the kernel followed a "..".
    if (fd >= 0 || (errno != EAGAIN && errno != EINTR) || i == kTries) return static_cast<int>(fd);
  }
}

// Removes empty and "." components. ".." stays: only the kernel knows where it leads.
std::string WithoutEmptyParts(absl::string_view path) {
  std::string clean;
  for (absl::string_view part : absl::StrSplit(path, '/')) {
    if (!part.empty() && part != ".") absl::StrAppend(&clean, "/", part);
  }
  return clean;
}

class RootedDescriptor {
 public:
  explicit RootedDescriptor(int fd) : fd_(fd) {}
  RootedDescriptor(RootedDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  RootedDescriptor& operator=(RootedDescriptor&&) = delete;
  ~RootedDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// Names what failed, with a code that Env documents.
absl::Status OfOperation(absl::string_view operation, const std::string& path,
                         const absl::Status& why) {
  const bool known = absl::IsNotFound(why) || absl::IsPermissionDenied(why) ||
                     absl::IsAlreadyExists(why) || absl::IsFailedPrecondition(why);
  return absl::Status(known ? why.code() : absl::StatusCode::kInternal,
                      absl::StrCat(operation, " ", path, ": ", why.message()));
}

}  // namespace

struct RootedEnv::Root {
  // The part of `path` beneath this root, without a slash before it ("" for the root itself), or
  // nullptr. `path` has no empty parts.
  const char* Beneath(const std::string& path) const {
    for (const std::string* name : {&given, &real}) {
      if (!absl::StartsWith(path, *name)) continue;
      const char* const rest = path.c_str() + name->size();
      if (*rest == '\0') return rest;
      if (*rest == '/') return rest + 1;  // and not /data2 for the root /data
    }
    return nullptr;
  }

  std::string given, real;  // "" for the root folder of the machine
  bool writable = false;
  int fd = -1;  // of the RootedEnv
};

// An open file or folder, or a name in an open folder, as a path for `base`. A path through
// /proc/self/fd leads to what is open, wherever its names lead by now.
struct RootedEnv::Place {
  Place(std::string shown, int fd, const std::string& name = "")
      : descriptor(fd),
        folder(absl::StrCat("/proc/self/fd/", fd)),
        path(name.empty() ? folder : absl::StrCat(folder, "/", name)),
        shown_folder(name.empty() ? shown : shown.substr(0, shown.rfind('/'))) {}

  // Names the path as the caller knows it.
  absl::Status Named(const absl::Status& status) const {
    if (status.ok()) return status;
    return absl::Status(status.code(),
                        absl::StrReplaceAll(status.message(), {{folder, shown_folder}}));
  }
  template <typename T>
  absl::StatusOr<T> Named(absl::StatusOr<T> value) const {
    if (value.ok()) return value;
    return Named(value.status());
  }

  RootedDescriptor descriptor;
  std::string folder, path, shown_folder;
};

// Keeps the folder open until the file is finished.
class RootedEnv::PlacedFile : public NewFile {
 public:
  PlacedFile(Place place, std::unique_ptr<NewFile> file)
      : place_(std::move(place)), file_(std::move(file)) {}
  absl::Status Append(absl::string_view bytes) override {
    return place_.Named(file_->Append(bytes));
  }
  absl::Status Finish() override { return place_.Named(file_->Finish()); }

 private:
  const Place place_;
  const std::unique_ptr<NewFile> file_;
};

absl::StatusOr<std::unique_ptr<RootedEnv>> RootedEnv::Create(Env* base, const Roots& roots) {
  if (roots.output.empty()) {
    return absl::InvalidArgumentError(
        "--data_root confines only reading; also give --output_root, the folder for what jobs "
        "write");
  }
  std::unique_ptr<RootedEnv> env(new RootedEnv(base));
  const auto add = [&](const std::string& path, const char* flag, bool writable) {
    const auto refuse = [&](absl::string_view why) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, ": '", path, "' ", why, "; give the absolute path of a folder"));
    };
    if (HasScheme(path)) {
      const std::string problem = writable ? OutputUrlProblem(path) : DataUrlProblem(path);
      if (!problem.empty()) return refuse(problem);
      std::string root = path;
      while (absl::EndsWith(root, "/")) root.pop_back();
      if (root.size() <= root.find("://") + 2) return refuse("names no bucket or host");
      if (writable) env->url_output_roots_.push_back(root);
      env->url_roots_.push_back(std::move(root));
      return absl::OkStatus();
    }
    if (!absl::StartsWith(path, "/")) return refuse("does not begin with /");
    const int fd = ::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return refuse(absl::StrCat("cannot be opened: ", std::strerror(errno)));
    std::error_code error;
    const std::string real = std::filesystem::canonical(absl::StrCat("/proc/self/fd/", fd), error);
    env->roots_.push_back(
        {WithoutEmptyParts(path), WithoutEmptyParts(error ? path : real), writable, fd});
    return absl::OkStatus();
  };
  for (const std::string& path : roots.output)
    SLUICE_RETURN_IF_ERROR(add(path, "--output_root", true));
  for (const std::string& path : roots.data)
    SLUICE_RETURN_IF_ERROR(add(path, "--data_root", false));
  if (env->roots_.empty()) return env;  // all are URLs
  const RootedDescriptor probe(OpenBeneath(env->roots_[0].fd, ".", O_PATH, 0));
  if (probe.get() < 0) {
    return absl::UnimplementedError(absl::StrCat(
        "--output_root: this kernel, or a filter of system calls, lacks openat2 (",
        std::strerror(errno), "); use Linux 5.6 or later, or start without --output_root"));
  }
  return env;
}

RootedEnv::RootedEnv(Env* base)
    : base_(base), working_folder_([] {
        std::error_code error;
        return std::filesystem::current_path(error).string();
      }()) {}

RootedEnv::~RootedEnv() {
  for (const Root& root : roots_) ::close(root.fd);
}

std::string RootedEnv::Absolute(const std::string& path) const {
  return WithoutEmptyParts(absl::StartsWith(path, "/") ? path
                                                       : absl::StrCat(working_folder_, "/", path));
}

absl::Status RootedEnv::CheckUrl(const std::string& url, Use use) const {
  if (!absl::StartsWith(url, "s3://") && absl::StrContains(url, '#'))
    return Refuse("a '#' may hide where it ends; it is not below", use);
  if (IsBelowUrlRoot(url, use == Use::kRead ? url_roots_ : url_output_roots_))
    return absl::OkStatus();
  return Refuse(MayLeadOut(url) ? "'.', '..' or an encoded '/' may lead out of" : "it is not below",
                use);
}

absl::Status RootedEnv::CheckUrl(absl::string_view operation, const std::string& url,
                                 Use use) const {
  const absl::Status below = CheckUrl(url, use);
  return below.ok() ? below : OfOperation(operation, url, below);
}

absl::Status RootedEnv::Refuse(const std::string& why, Use use) const {
  std::vector<std::string> names = use == Use::kRead ? url_roots_ : url_output_roots_;
  for (const Root& root : roots_) {
    if (root.writable || use == Use::kRead) names.push_back(root.given.empty() ? "/" : root.given);
  }
  return absl::PermissionDeniedError(
      absl::StrCat(why, use == Use::kRead ? " --data_root or --output_root (" : " --output_root (",
                   absl::StrJoin(names, ", "),
                   "); name a path below it, or start the daemon with another root"));
}

absl::StatusOr<int> RootedEnv::Open(const std::string& path, Use use, int flags,
                                    uint32_t mode) const {
  if (HasScheme(path)) return Refuse("it is a URL, and not a path below", use);
  const std::string absolute = Absolute(path);
  bool leads_out = false;
  for (const Root& root : roots_) {
    const char* const rest = root.writable || use == Use::kRead ? root.Beneath(absolute) : nullptr;
    if (rest == nullptr) continue;
    const int fd = OpenBeneath(root.fd, *rest == '\0' ? "." : rest, flags, mode);
    if (fd >= 0) return fd;
    const int error = errno;
    // Roots may lie in each other.
    if (error != EXDEV) return absl::Status(absl::ErrnoToStatusCode(error), std::strerror(error));
    leads_out = true;
  }
  return Refuse(leads_out ? "a link or '..' leads out of" : "it is not below", use);
}

absl::StatusOr<RootedEnv::Place> RootedEnv::Find(absl::string_view operation,
                                                 const std::string& path) const {
  const auto fd = Open(path, Use::kRead, O_PATH, 0);
  if (!fd.ok()) return OfOperation(operation, path, fd.status());
  return Place(path, *fd);
}

absl::StatusOr<RootedEnv::Place> RootedEnv::FindName(absl::string_view operation,
                                                     const std::string& path) const {
  if (HasScheme(path))
    return OfOperation(operation, path, Refuse("it is a URL, and not a path below", Use::kWrite));
  const std::string absolute = Absolute(path);
  const size_t slash = absolute.rfind('/');
  const std::string name = absolute.substr(slash == std::string::npos ? 0 : slash + 1);
  // The root itself is not a name in it, and its parent is outside.
  if (name.empty() || name == "..")
    return OfOperation(operation, path, Refuse("it is not a name below", Use::kWrite));
  absl::StatusOr<int> fd = Open(absolute.substr(0, slash), Use::kWrite, O_PATH | O_DIRECTORY, 0);
  if (!fd.ok()) return OfOperation(operation, path, fd.status());
  return Place(absolute, *fd, name);
}

FilePlace RootedEnv::PlaceOf(const std::string& path) { return base_->PlaceOf(path); }

absl::StatusOr<FileInfo> RootedEnv::Look(const std::string& path) {
  if (!HasScheme(path)) return Env::Look(path);
  SLUICE_RETURN_IF_ERROR(CheckUrl(path, Use::kRead));
  return base_->Look(path);
}

absl::StatusOr<std::unique_ptr<FileReader>> RootedEnv::NewReader(const std::string& path) {
  if (!HasScheme(path)) return Env::NewReader(path);
  SLUICE_RETURN_IF_ERROR(CheckUrl(path, Use::kRead));
  return base_->NewReader(path);
}

absl::StatusOr<FileMatches> RootedEnv::Match(const std::string& pattern, size_t most_names) {
  if (!HasScheme(pattern)) return Env::Match(pattern, most_names);
  SLUICE_RETURN_IF_ERROR(CheckUrl(pattern, Use::kRead));
  return base_->Match(pattern, most_names);
}

absl::StatusOr<std::string> RootedEnv::ReadFile(const std::string& path) {
  if (HasScheme(path)) {
    SLUICE_RETURN_IF_ERROR(CheckUrl("read", path, Use::kRead));
    return base_->ReadFile(path);
  }
  SLUICE_ASSIGN_OR_RETURN(const Place place, Find("read", path));
  return place.Named(base_->ReadFile(place.path));
}

absl::StatusOr<std::string> RootedEnv::ReadRange(const std::string& path, uint64_t offset,
                                                 uint64_t n) {
  if (HasScheme(path)) {
    SLUICE_RETURN_IF_ERROR(CheckUrl("open", path, Use::kRead));
    return base_->ReadRange(path, offset, n);
  }
  SLUICE_ASSIGN_OR_RETURN(const Place place, Find("open", path));
  return place.Named(base_->ReadRange(place.path, offset, n));
}

absl::StatusOr<uint64_t> RootedEnv::FileSize(const std::string& path) {
  if (HasScheme(path)) {
    SLUICE_RETURN_IF_ERROR(CheckUrl("stat", path, Use::kRead));
    return base_->FileSize(path);
  }
  SLUICE_ASSIGN_OR_RETURN(const Place place, Find("stat", path));
  return place.Named(base_->FileSize(place.path));
}

absl::StatusOr<std::vector<std::string>> RootedEnv::List(const std::string& path) {
  if (HasScheme(path)) {
    SLUICE_RETURN_IF_ERROR(CheckUrl("list", path, Use::kRead));
    return base_->List(path);
  }
  SLUICE_ASSIGN_OR_RETURN(const Place place, Find("list", path));
  return place.Named(base_->List(place.path));
}

bool RootedEnv::Exists(const std::string& path) {
  if (HasScheme(path)) return CheckUrl(path, Use::kRead).ok() && base_->Exists(path);
  return Find("find", path).ok();
}

absl::StatusOr<int> RootedEnv::OpenFile(const std::string& path, int flags, uint32_t mode) {
  const bool changes = (flags & O_PATH) == 0 &&
                       ((flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)) != 0);
  return Open(path, changes ? Use::kWrite : Use::kRead, flags, mode);
}

absl::Status RootedEnv::WriteFile(const std::string& path,
                                  absl::Span<const absl::string_view> pieces) {
  if (HasScheme(path)) {
    SLUICE_RETURN_IF_ERROR(CheckUrl("create", path, Use::kWrite));
    return base_->WriteFile(path, pieces);
  }
  SLUICE_ASSIGN_OR_RETURN(const Place place, FindName("create", path));
  return place.Named(base_->WriteFile(place.path, pieces));
}

absl::StatusOr<std::unique_ptr<NewFile>> RootedEnv::StartFile(const std::string& path) {
  if (HasScheme(path)) {
    SLUICE_RETURN_IF_ERROR(CheckUrl("create", path, Use::kWrite));
    return base_->StartFile(path);
  }
  SLUICE_ASSIGN_OR_RETURN(Place place, FindName("create", path));
  auto file = base_->StartFile(place.path);
  if (!file.ok()) return place.Named(file.status());
  return std::make_unique<PlacedFile>(std::move(place), *std::move(file));
}

absl::Status RootedEnv::RenameFile(const std::string& from, const std::string& to) {
  SLUICE_ASSIGN_OR_RETURN(const Place old_place, FindName("rename", from));
  SLUICE_ASSIGN_OR_RETURN(const Place new_place, FindName("rename to", to));
  return new_place.Named(old_place.Named(base_->RenameFile(old_place.path, new_place.path)));
}

absl::StatusOr<FileIdentity> RootedEnv::Publish(const std::string& path, absl::string_view bytes,
                                                const std::optional<FileIdentity>& expected) {
  if (HasScheme(path)) {
    SLUICE_RETURN_IF_ERROR(CheckUrl("publish", path, Use::kWrite));
    return base_->Publish(path, bytes, expected);
  }
  SLUICE_ASSIGN_OR_RETURN(const Place place, FindName("publish", path));
  return place.Named(base_->Publish(place.path, bytes, expected));
}

absl::Status RootedEnv::GiveUpFiles(const std::string& folder,
                                    const std::function<bool(const std::string&)>& is_leftover) {
  if (!HasScheme(folder)) return absl::OkStatus();
  SLUICE_RETURN_IF_ERROR(CheckUrl("give up files in", folder, Use::kWrite));
  return base_->GiveUpFiles(folder, is_leftover);
}

absl::Status RootedEnv::MakeNewDir(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const Place place, FindName("make folder", path));
  return place.Named(base_->MakeNewDir(place.path));
}

absl::Status RootedEnv::MakeDirs(const std::string& path) {
  if (HasScheme(path)) {
    SLUICE_RETURN_IF_ERROR(CheckUrl("make folder", path, Use::kWrite));
    return base_->MakeDirs(path);
  }
  const std::string absolute = Absolute(path);
  // From the root on: its own parents are none of ours.
  for (const Root& root : roots_) {
    const char* const rest = root.writable ? root.Beneath(absolute) : nullptr;
    if (rest == nullptr) continue;
    size_t end = static_cast<size_t>(rest - absolute.c_str());
    while (end < absolute.size()) {
      end = std::min(absolute.find('/', end + 1), absolute.size());
      const std::string part = absolute.substr(0, end);
      if (absl::EndsWith(part, "/..")) continue;  // the kernel follows it in the next part
      const absl::Status made = MakeNewDir(part);
      if (!made.ok() && !absl::IsAlreadyExists(made)) return made;
      if (made.ok()) continue;
      // The process that made it may have been killed before it synced it.
      const auto folder =
          Open(part.substr(0, part.rfind('/')), Use::kWrite, O_RDONLY | O_DIRECTORY, 0);
      if (!folder.ok()) continue;  // one that may be written but not read cannot be synced
      const RootedDescriptor opened(*folder);
      if (::fsync(opened.get()) != 0 && errno != EINVAL) {
        const int error = errno;
        return OfOperation("sync folder", part,
                           absl::Status(absl::ErrnoToStatusCode(error), std::strerror(error)));
      }
    }
    break;
  }
  const auto made = Open(path, Use::kWrite, O_PATH | O_DIRECTORY, 0);
  if (!made.ok()) return OfOperation("make folder", path, made.status());
  ::close(*made);
  return absl::OkStatus();
}

absl::Status RootedEnv::RemoveDir(const std::string& path) {
  if (HasScheme(path)) {
    SLUICE_RETURN_IF_ERROR(CheckUrl("remove folder", path, Use::kWrite));
    return base_->RemoveDir(path);
  }
  SLUICE_ASSIGN_OR_RETURN(const Place place, FindName("remove folder", path));
  return place.Named(base_->RemoveDir(place.path));
}

absl::Status RootedEnv::RemoveFile(const std::string& path) {
  if (HasScheme(path)) {
    SLUICE_RETURN_IF_ERROR(CheckUrl("remove", path, Use::kWrite));
    return base_->RemoveFile(path);
  }
  SLUICE_ASSIGN_OR_RETURN(const Place place, FindName("remove", path));
  return place.Named(base_->RemoveFile(place.path));
}

}  // namespace sluice
