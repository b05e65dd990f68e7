#include "common/arrow/arrow_library.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"

namespace sluice {
namespace {

bool IsThere(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// The folder of the program, or of the shared library, that this code is part of.
std::string FolderOfThisCode() {
  Dl_info info = {};
  link_map* map = nullptr;
  std::string path;
  if (dladdr1(reinterpret_cast<const void*>(&OpenArrowLibrary), &info,
              reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0 &&
      map != nullptr)
    path = map->l_name;
  if (path.empty()) {  // the program itself has no name there
    char link[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", link, sizeof(link));
    path.assign(link, length > 0 ? length : 0);
  }
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

// How to get the library, for a program in this folder.
std::string Remedy(const std::string& folder) {
  for (const char* up : {"/..", "/../.."})
    if (IsThere(absl::StrCat(folder, up, "/CMakeCache.txt")))
      return "run ./dev arrow in the source tree";
  for (const char* up : {"", "/.."})
    if (IsThere(absl::StrCat(folder, up, "/py.typed"))) return "run pip install sluice-ps-arrow";
  return "put sluice-arrow.so with Arrow's libraries, as ./dev bundle packs them after "
         "./dev arrow, into the folder lib beside the program's folder";
}

absl::StatusOr<const SluiceArrowPlugin*> OpenAt(const std::string& path,
                                                const std::string& remedy) {
  const auto error = [&](const char* why) {
    return absl::FailedPreconditionError(
        absl::StrCat("Parquet needs Arrow, and ", path, " does not work: ", why, "; ", remedy));
  };
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) return error(dlerror());
  const auto plugin_of =
      reinterpret_cast<SluiceArrowPluginFunction>(dlsym(library, SLUICE_ARROW_PLUGIN_SYMBOL));
  if (plugin_of == nullptr) return error("it is another library");
  const SluiceArrowPlugin* const plugin = plugin_of(SLUICE_ARROW_PLUGIN_VERSION);
  if (plugin == nullptr) return error("it belongs to another version of Sluice");
  return plugin;
}

}  // namespace

absl::StatusOr<const SluiceArrowPlugin*> OpenArrowLibrary(const std::string& folder,
                                                          const std::string& named) {
  if (!named.empty()) return OpenAt(named, "SLUICE_ARROW names it");
  const std::string remedy = Remedy(folder);
  for (const char* place :
       {"", "/../lib", "/../lib/sluice", "/../../bin", "/../sluice_arrow", "/../../sluice_arrow"}) {
    const std::string path = absl::StrCat(folder, place, "/sluice-arrow.so");
    if (IsThere(path)) return OpenAt(path, remedy);
  }
  return absl::FailedPreconditionError(
      absl::StrCat("Parquet needs Arrow, which is not installed: ", remedy));
}

absl::StatusOr<const SluiceArrowPlugin*> ArrowLibrary() {
  static Mutex mutex;
  static const SluiceArrowPlugin* opened ABSL_GUARDED_BY(mutex) = nullptr;
  MutexLock lock(&mutex);
  if (opened != nullptr) return opened;
  const char* const named = std::getenv("SLUICE_ARROW");
  auto plugin = OpenArrowLibrary(FolderOfThisCode(), named == nullptr ? "" : named);
  if (plugin.ok()) opened = *plugin;
  return plugin;
}

}  // namespace sluice
