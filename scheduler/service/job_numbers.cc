#include "scheduler/service/job_numbers.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace sluice {

uint64_t JobNumbers::Next(const std::string& name) const {
  uint64_t newest = 0;
  std::vector<std::string> paths = OthersOfSeries();
  paths.push_back(path_);
  for (const std::string& path : paths) {
    Numbers numbers;
    if (!Read(path, &numbers)) continue;
    for (const auto& [known, number] : numbers) {
      if (known == name) newest = std::max(newest, number);
    }
  }
  return newest + 1;
}

std::vector<std::string> JobNumbers::OthersOfSeries() const {
  const size_t slash = path_.rfind('/');
  if (slash == std::string::npos) return {};
  const std::string folder = path_.substr(0, slash), file = path_.substr(slash);
  std::string first = folder;
  uint64_t own = 1;
  if (const size_t dash = folder.rfind('-');
      dash != std::string::npos && absl::SimpleAtoi(folder.substr(dash + 1), &own) && own > 1) {
    first = folder.substr(0, dash);
  } else {
    own = 1;
  }
  std::vector<std::string> others;
  for (uint64_t i = 1; i <= kMostFolders; ++i) {
    const std::string other = i == 1 ? first : absl::StrCat(first, "-", i);
    // A later folder exists only if those before it did when it was made.
    if (i > own && !env_->Exists(other)) break;
    if (other != folder) others.push_back(other + file);
  }
  return others;
}

absl::Status JobNumbers::Took(const std::string& name, uint64_t number) {
  if (path_.empty()) return absl::OkStatus();
  Numbers numbers;
  if (!Read(path_, &numbers)) {
    return absl::AlreadyExistsError(absl::StrCat(
        path_, " is not a file of Sluice; move it away, so that ids of jobs do not repeat"));
  }
  const auto same = [&](const auto& one) { return one.first == name; };
  numbers.erase(std::remove_if(numbers.begin(), numbers.end(), same), numbers.end());
  numbers.emplace_back(name, number);
  std::string text = kHead;
  for (size_t i = numbers.size() - std::min(numbers.size(), kMostNames); i < numbers.size(); ++i)
    absl::StrAppend(&text, numbers[i].first, " ", numbers[i].second, "\n");
  return env_->WriteFile(path_, {absl::string_view(text)});
}

bool JobNumbers::Read(const std::string& path, Numbers* numbers) const {
  if (path.empty() || !env_->Exists(path)) return true;
  // Names have 64 characters at most.
  constexpr uint64_t kMostBytes = kMostNames * 100;
  const std::string text = env_->ReadRange(path, 0, kMostBytes).value_or("");
  if (!absl::StartsWith(text, kHead)) return false;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    uint64_t number = 0;
    // 2^53: whatever the file says, ids stay short.
    if (words.size() == 2 && absl::SimpleAtoi(words[1], &number) && number < uint64_t{1} << 53)
      numbers->emplace_back(std::string(words[0]), number);
  }
  return true;
}

}  // namespace sluice
