#include "model/data/bad_lines.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sluice {

void BadLines::Add(const std::string& where, const absl::Status& why) {
  ++count;
  if (first.size() < kNamed) first.push_back(absl::StrCat(where, ": ", why.message()));
}

void BadLines::Merge(const BadLines& other) {
  count += other.count;
  for (const std::string& line : other.first) {
    if (first.size() < kNamed) first.push_back(line);
  }
}

std::string BadLines::Describe() const {
  if (count == 0) return "no malformed lines";
  std::string text = absl::StrCat(count, count == 1 ? " malformed line" : " malformed lines");
  if (first.empty()) return text;
  return absl::StrCat(
      text, count > first.size() ? absl::StrCat(", the first ", first.size(), ": ") : ": ",
      absl::StrJoin(first, "; "));
}

}  // namespace sluice
