#include "model/table_files/vocabulary.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "model/data/line_reader.h"
#include "model/data/text_reader.h"

namespace sluice {
namespace {

// A block of an .npz has room for the longest value in each row.
constexpr size_t kMostValueBytes = 4 << 10;

}  // namespace

absl::StatusOr<Vocabulary> Vocabulary::Read(const std::string& path, Env* env) {
  SLUICE_ASSIGN_OR_RETURN(auto text, TextReader::Open(path, env));
  LineReader lines(std::move(text));
  Vocabulary vocabulary;
  while (true) {
    LineReader::Line line;
    SLUICE_ASSIGN_OR_RETURN(const bool more, lines.Next(&line));
    if (!more) break;
    if (line.too_long) {
      return absl::InvalidArgumentError(absl::StrCat(path, ":", vocabulary.size() + 1,
                                                     " is longer than 1 MiB; is it a "
                                                     "vocabulary, one value a line?"));
    }
    vocabulary.text_.append(line.data, line.size);
    vocabulary.ends_.push_back(vocabulary.text_.size());
  }
  if (vocabulary.size() == 0)
    return absl::InvalidArgumentError(absl::StrCat(path, " has no lines; give one value a line"));
  if (vocabulary.size() > UINT32_MAX)
    return absl::InvalidArgumentError(absl::StrCat(path, " has more than 2^32 lines"));
  return vocabulary;
}

Vocabulary Vocabulary::Of(const std::vector<std::string>& values) {
  Vocabulary vocabulary;
  for (const std::string& value : values) {
    vocabulary.text_ += value;
    vocabulary.ends_.push_back(vocabulary.text_.size());
  }
  return vocabulary;
}

absl::Status Vocabulary::MakeIndex(const FeatureKeys& keys) {
  by_key_.clear();
  by_key_.reserve(size());
  for (size_t line = 0; line < size(); ++line) {
    if (value(line).empty()) continue;
    if (value(line).size() > kMostValueBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "line ", line + 1, " of the vocabulary has ", value(line).size(), " bytes, more than ",
          kMostValueBytes, "; is it a value of feature '", keys.feature(), "'?"));
    }
    const std::optional<uint64_t> key = keys.KeyOf(value(line));
    if (!key) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", line + 1, " of the vocabulary, '", absl::CHexEscape(value(line)),
                       "', is no value of feature '", keys.feature(), "'",
                       keys.raw() ? ", whose key: RAW takes integers of 64 bits" : ""));
    }
    by_key_.push_back({*key, static_cast<uint32_t>(line)});
  }
  std::sort(by_key_.begin(), by_key_.end());
  for (size_t i = 1; i < by_key_.size(); ++i) {
    if (by_key_[i].first != by_key_[i - 1].first) continue;
    const uint32_t a = by_key_[i - 1].second, b = by_key_[i].second;
    return absl::InvalidArgumentError(absl::StrCat(
        "lines ", a + 1, " and ", b + 1, " of the vocabulary, '", absl::CHexEscape(value(a)),
        "' and '", absl::CHexEscape(value(b)), "', have one key",
        keys.folded() ? absl::StrCat(", by the hash_buckets of feature '", keys.feature(),
                                     "'; keep one of them")
                      : "; remove one of them"));
  }
  return absl::OkStatus();
}

std::optional<uint32_t> Vocabulary::Find(uint64_t key) const {
  const auto found = std::lower_bound(by_key_.begin(), by_key_.end(), std::make_pair(key, 0u));
  if (found == by_key_.end() || found->first != key) return std::nullopt;
  return found->second;
}

}  // namespace sluice
