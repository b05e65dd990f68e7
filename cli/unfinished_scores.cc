#include "cli/unfinished_scores.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/output_target.h"
#include "common/base/status_macros.h"
#include "common/daemon/process_info.h"

namespace sluice::cli {
namespace {

constexpr char kPart[] = ".part-";
constexpr uint64_t kHeadBytes = 64 << 10;

// A number as Sluice writes it, without leading zeros.
bool IsNumber(absl::string_view text) {
  return !text.empty() && (text.size() == 1 || text[0] != '0') &&
         std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

// "nan", or a probability as "%.9g".
bool IsScore(absl::string_view text) {
  if (text == "nan") return true;
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(c) || c == '.' || c == 'e' || c == '-';
  });
  double value = 0;
  return plain && absl::SimpleAtod(text, &value) && value >= 0 && value <= 1;
}

// Returns whether the file is empty, or each complete line in its first kHeadBytes is a score, with
// or without an id before it.
bool HoldsScores(Env* env, const std::string& path) {
  const auto head = env->ReadRange(path, 0, kHeadBytes);
  if (!head.ok()) return false;
  const size_t end = head->rfind('\n');
  if (end == std::string::npos) return head->empty();
  for (const absl::string_view line : absl::StrSplit(head->substr(0, end), '\n')) {
    if (!IsScore(line.substr(line.rfind('\t') + 1))) return false;  // npos + 1 is 0
  }
  return true;
}

bool IsLeft(Env* env, const std::string& path) {
  // A link or a pipe of this name is not Sluice's. O_NOFOLLOW refuses the link; O_NONBLOCK avoids
  // waiting for the pipe's writer.
  const int fd = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat info;
  const bool free = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
                    flock(fd, LOCK_EX | LOCK_NB) == 0;
  close(fd);
  return free && HoldsScores(env, path);
}

// The unfinished files of one process, by name.
struct OfProcess {
  std::vector<std::string> files;  // without `joined`
  std::string joined;              // part-all; "" for none
  bool has_parts = false;
};

// The keys are the pids in the names.
std::map<std::string, OfProcess> FindUnfinished(Env* env, const std::string& folder,
                                                const std::string& name) {
  std::map<std::string, OfProcess> found;
  const std::string prefix = name + ".";
  for (const std::string& entry : env->List(folder).value_or(std::vector<std::string>())) {
    absl::string_view rest = entry;
    if (!absl::ConsumePrefix(&rest, prefix)) continue;
    const absl::string_view pid = rest.substr(0, rest.find('.'));
    if (!IsNumber(pid)) continue;
    rest.remove_prefix(pid.size());
    const std::string path = absl::StrCat(folder, "/", entry);
    if (rest == kUnfinishedSuffix) {
      found[std::string(pid)].files.push_back(path);
    } else if (absl::ConsumePrefix(&rest, kPart)) {
      OfProcess& process = found[std::string(pid)];
      if (rest == kJoinedParts) process.joined = path;
      if (!IsNumber(rest)) continue;
      process.files.push_back(path);
      process.has_parts = true;
    }
  }
  return found;
}

}  // namespace

std::string PartPrefix(const std::string& output, pid_t pid) {
  return absl::StrCat(output, ".", pid, kPart);
}

absl::StatusOr<int> ClaimUnfinished(const std::string& file) {
  SLUICE_ASSIGN_OR_RETURN(const int fd, CreateUnfinished(file));
  flock(fd, LOCK_EX | LOCK_NB);
  return fd;
}

void RemoveUnfinishedScores(const std::string& output, Env* env) {
  const size_t slash = output.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : output.substr(0, slash + 1);
  const std::string name = slash == std::string::npos ? output : output.substr(slash + 1);
  for (const auto& [pid, process] : FindUnfinished(env, folder, name)) {
    uint32_t number = 0;
    if (!absl::SimpleAtoi(pid, &number) || !ProcessHasEnded(number)) continue;
    // A part has no lock once it is complete, so part-all tells whether its process lives.
    if (process.has_parts && (process.joined.empty() || !IsLeft(env, process.joined))) continue;
    for (const std::string& file : process.files) {
      if (IsLeft(env, file)) unlink(file.c_str());
    }
    // part-all goes last, so that the next run finds the parts that this one could not remove.
    if (!process.joined.empty() && IsLeft(env, process.joined)) unlink(process.joined.c_str());
  }
}

}  // namespace sluice::cli
