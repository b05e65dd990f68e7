#include "scheduler/service/job_numbers.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace sluice {

uint64_t JobNumbers::Next(const std::string& name) const {
  Numbers numbers;
  if (!Read(&numbers)) return 1;
  for (const auto& [known, number] : numbers) {
    if (known == name) return number + 1;
  }
  return 1;
}

absl::Status JobNumbers::Took(const std::string& name, uint64_t number) {
  if (path_.empty()) return absl::OkStatus();
  Numbers numbers;
  if (!Read(&numbers)) {
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

bool JobNumbers::Read(Numbers* numbers) const {
  if (path_.empty() || !env_->Exists(path_)) return true;
  // Names have 64 characters at most.
  constexpr uint64_t kMostBytes = kMostNames * 100;
  const std::string text = env_->ReadRange(path_, 0, kMostBytes).value_or("");
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
