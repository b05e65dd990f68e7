#include "model/data/partition_folders.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace sluice {
namespace {

// What writers put in place of null, which has no other name.
constexpr char kNullFolder[] = "__HIVE_DEFAULT_PARTITION__";

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = absl::ascii_tolower(static_cast<unsigned char>(c));
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

std::string Decoded(absl::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? HexDigit(text[i + 1]) : -1;
    const int low = high >= 0 ? HexDigit(text[i + 2]) : -1;
    if (low < 0) {
      decoded += text[i];
      continue;
    }
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return decoded;
}

}  // namespace

std::string FixedFolders(const std::string& pattern) {
  std::string plain;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '*' || c == '?' || c == '[' || c == '{') {
      const size_t slash = plain.rfind('/');
      return slash == std::string::npos ? "" : plain.substr(0, slash + 1);
    }
    if (c == '\\' && i + 1 < pattern.size()) ++i;
    plain += pattern[i];
  }
  return "";
}

std::vector<std::pair<std::string, std::string>> PartitionColumns(const DataConfig& data,
                                                                  const std::string& path) {
  size_t begin = 0;
  bool found = false;
  for (const auto* const patterns : {&data.train_files(), &data.eval_files()}) {
    for (const std::string& pattern : *patterns) {
      // A file that is named has no columns of folders.
      if (pattern == path && !found) return {};
      const std::string fixed = FixedFolders(pattern);
      if (fixed.empty() || !absl::StartsWith(path, fixed)) continue;
      begin = found ? std::min(begin, fixed.size()) : fixed.size();
      found = true;
    }
  }
  std::vector<std::pair<std::string, std::string>> columns;
  const std::vector<std::string> names = absl::StrSplit(path.substr(begin), '/');
  for (size_t i = 0; i + 1 < names.size(); ++i) {
    const size_t sign = names[i].find('=');
    if (sign == std::string::npos || sign == 0) continue;
    std::string name = Decoded(absl::string_view(names[i]).substr(0, sign));
    std::string value = Decoded(absl::string_view(names[i]).substr(sign + 1));
    if (value == kNullFolder) value.clear();
    const auto known = std::find_if(columns.begin(), columns.end(),
                                    [&](const auto& column) { return column.first == name; });
    if (known != columns.end()) {
      known->second = std::move(value);
    } else {
      columns.emplace_back(std::move(name), std::move(value));
    }
  }
  return columns;
}

}  // namespace sluice
