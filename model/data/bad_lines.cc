#include "model/data/bad_lines.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sluice {
namespace {

// The words before a quoted name, which is no cell.
bool EndsWithNoun(absl::string_view text) {
  for (const absl::string_view noun : {"column ", "feature ", "slot "}) {
    if (absl::EndsWith(text, noun)) return true;
  }
  return false;
}

// The kind of "file:line: reason".
std::string KindOfNamed(absl::string_view line) {
  const size_t reason = line.find(": ");
  return KindOfBadLine(reason == absl::string_view::npos ? line : line.substr(reason + 2));
}

}  // namespace

std::string KindOfBadLine(absl::string_view message) {
  std::string kind;
  for (size_t i = 0; i < message.size(); ++i) {
    const char c = message[i];
    if (c == '"') {
      const size_t end = std::min(message.find('"', i + 1), message.size() - 1);
      if (EndsWithNoun(kind)) {
        kind.append(message.data() + i, end + 1 - i);
      } else {
        kind += "\"\"";
      }
      i = end;
    } else if (!absl::ascii_isdigit(c)) {
      kind += c;
    } else if (kind.empty() || kind.back() != '#') {
      kind += '#';
    }
  }
  return kind;
}

bool BadLines::Names(const absl::Status& why) const {
  if (first.size() >= kNamed) return false;
  const std::string kind = KindOfBadLine({why.message().data(), why.message().size()});
  return std::none_of(first.begin(), first.end(),
                      [&kind](const std::string& line) { return KindOfNamed(line) == kind; });
}

void BadLines::Add(const std::string& where, const absl::Status& why) {
  ++count;
  if (Names(why)) first.push_back(absl::StrCat(where, ": ", why.message()));
}

void BadLines::Merge(const BadLines& other) {
  count += other.count;
  for (const std::string& line : other.first) {
    const std::string kind = KindOfNamed(line);
    if (first.size() < kNamed &&
        std::none_of(first.begin(), first.end(),
                     [&kind](const std::string& known) { return KindOfNamed(known) == kind; })) {
      first.push_back(line);
    }
  }
}

std::string BadLines::Describe() const {
  if (count == 0) return "no malformed lines";
  std::string text = absl::StrCat(count, count == 1 ? " malformed line" : " malformed lines");
  if (first.empty()) return text;
  return absl::StrCat(text, count > first.size() ? ", such as " : ": ", absl::StrJoin(first, "; "));
}

absl::Status TooManyBadLines(absl::string_view what, uint64_t max_bad_lines, const BadLines& bad,
                             bool most) {
  return absl::FailedPreconditionError(absl::StrCat(
      what, " has more malformed lines than data.max_bad_lines = ", max_bad_lines,
      // Raising the limit would not help then.
      most ? "; most lines do not fit the job file, so correct data { ... } and features { ... } "
             "first (sluice launch --dry_run lists all problems): "
           : "; fix the data or raise the limit: ",
      bad.Describe()));
}

}  // namespace sluice
