#include "model/data/line_parser.h"

#include <algorithm>
#include <cstring>
#include <utility>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "model/features/cell.h"

namespace sluice {
namespace {

bool IsBlank(char c) { return c == ' ' || c == '\t'; }

bool AllBlank(std::string_view text) { return std::all_of(text.begin(), text.end(), IsBlank); }

std::string_view Trim(std::string_view cell) {
  while (!cell.empty() && IsBlank(cell.front())) cell.remove_prefix(1);
  while (!cell.empty() && IsBlank(cell.back())) cell.remove_suffix(1);
  return cell;
}

// Takes a quoted cell and removes its doubled quotes in place. Moves *at from after the opening
// quote to after the closing one. False when there is no closing quote.
bool TakeQuoted(char** at, char* end, std::string_view* cell) {
  char* const begin = *at;
  char* to = begin;
  for (char* from = begin; from < end; ++from) {
    if (*from != '"') {
      *to++ = *from;
    } else if (from + 1 < end && from[1] == '"') {
      *to++ = '"';
      ++from;
    } else {
      *cell = std::string_view(begin, to - begin);
      *at = from + 1;
      return true;
    }
  }
  return false;
}

constexpr size_t kMaskBytes = 64;

// Bit i is set when p[i] is `wanted`. Reads kMaskBytes bytes.
uint64_t MaskOf(const char* p, char wanted) {
  uint64_t mask = 0;
#if defined(__SSE2__)
  // 64 bytes at a time: finding delimiters is most of the cost of splitting a line.
  const __m128i pattern = _mm_set1_epi8(wanted);
  for (int i = 0; i < 4; ++i) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p) + i);
    const uint32_t equal = static_cast<uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, pattern)));
    mask |= static_cast<uint64_t>(equal) << (16 * i);
  }
#else
  for (size_t i = 0; i < kMaskBytes; ++i) mask |= static_cast<uint64_t>(p[i] == wanted) << i;
#endif
  return mask;
}

// Calls cell(begin, end) for each cell of a line without quotes, in order.
template <typename F>
void ForEachCell(const char* line, size_t size, char delimiter, F cell) {
  const char* begin = line;
  char rest[kMaskBytes];  // a copy of the last bytes, so that no byte after the line is read
  for (size_t at = 0; at < size; at += kMaskBytes) {
    const char* block = line + at;
    const size_t n = std::min(kMaskBytes, size - at);
    if (n < kMaskBytes) {
      std::memcpy(rest, block, n);
      block = rest;
    }
    uint64_t mask = MaskOf(block, delimiter);
    if (n < kMaskBytes) mask &= (uint64_t{1} << n) - 1;
    for (; mask != 0; mask &= mask - 1) {
      const char* const end = line + at + __builtin_ctzll(mask);
      cell(begin, end);
      begin = end + 1;
    }
  }
  cell(begin, line + size);
}

}  // namespace

bool LineParser::Skips(std::string_view line) const { return AllBlank(line); }

Delimited Delimited::Criteo() {
  Delimited format;
  format.delimiter = '\t';
  format.quotes = false;
  format.trim = false;
  return format;
}

absl::StatusOr<Delimited> Delimited::FromConfig(const DataConfig& data) {
  const CsvFormat& csv = data.csv();
  const bool tsv = data.format() == DataConfig::TSV;
  Delimited format;
  format.delimiter = tsv ? '\t' : ',';
  if (!csv.delimiter().empty()) {
    const std::string& text = csv.delimiter();
    // These characters already have a meaning, in quotes and at line ends.
    if (text.size() != 1 || text == "\"" || text == "\n" || text == "\r" || text[0] == '\0') {
      return absl::InvalidArgumentError(absl::StrCat("data.csv.delimiter is ", QuotedCell(text),
                                                     "; use one character other than a quote or a "
                                                     "line end"));
    }
    if (tsv && text != "\t") {
      return absl::InvalidArgumentError(absl::StrCat("data.csv.delimiter is ", QuotedCell(text),
                                                     " but data.format is TSV; use format CSV"));
    }
    format.delimiter = text[0];
  }
  format.trim = !csv.has_trim() || csv.trim();
  format.missing.assign(csv.missing().begin(), csv.missing().end());
  format.comment_prefix = csv.comment_prefix();
  return format;
}

bool Delimited::Skips(std::string_view line) const {
  if (!comment_prefix.empty() && line.substr(0, comment_prefix.size()) == comment_prefix)
    return true;
  if (line.empty()) return true;
  if (!trim || !IsBlank(line.front())) return false;
  return std::all_of(line.begin(), line.end(),
                     [this](char c) { return IsBlank(c) && c != delimiter; });
}

absl::StatusOr<size_t> Delimited::Split(char* line, size_t size,
                                        std::vector<std::string_view>* cells) const {
  // Few lines have quotes. All others are split without looking at single characters.
  if (quotes && std::memchr(line, '"', size) != nullptr) return SplitQuoted(line, size, cells);
  std::string_view* const to = cells->data();
  const size_t room = cells->size();
  size_t count = 0;
  ForEachCell(line, size, delimiter, [&](const char* begin, const char* end) {
    std::string_view cell(begin, end - begin);
    if (trim) cell = Trim(cell);
    // Counted also beyond the room, so that the error can say how many there are.
    if (count < room) to[count] = cell;
    ++count;
  });
  return count;
}

absl::StatusOr<size_t> Delimited::SplitQuoted(char* line, size_t size,
                                              std::vector<std::string_view>* cells) const {
  char* at = line;
  char* const end = line + size;
  size_t count = 0;
  while (true) {
    std::string_view cell;
    char* first = at;
    if (trim) {
      while (first < end && IsBlank(*first) && *first != delimiter) ++first;
    }
    if (first < end && *first == '"') {
      at = first + 1;
      // A quoted cell may hold the delimiter, but no line end: pieces of a file are cut at every
      // line end.
      if (!TakeQuoted(&at, end, &cell)) {
        return absl::InvalidArgumentError(
            absl::StrCat("value ", count + 1, " has an opening quote but no closing quote"));
      }
      if (trim) {
        while (at < end && IsBlank(*at) && *at != delimiter) ++at;
      }
      if (at < end && *at != delimiter) {
        return absl::InvalidArgumentError(
            absl::StrCat("value ", count + 1, " has text after its closing quote"));
      }
    } else {
      char* const stop = std::find(at, end, delimiter);
      cell = std::string_view(at, stop - at);
      if (trim) cell = Trim(cell);
      at = stop;
    }
    if (count < cells->size()) (*cells)[count] = cell;
    ++count;
    if (at == end) return count;
    ++at;  // the delimiter
  }
}

absl::Status DelimitedParser::Parse(char* line, size_t size) {
  SLUICE_ASSIGN_OR_RETURN(const size_t count, format_.Split(line, size, &cells_));
  if (count != cells_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the line has ", count, count == 1 ? " value" : " values", ", but ", expected_.named_by,
        " ", cells_.size(), cells_.size() == 1 ? " column" : " columns",
        count + 1 == cells_.size() ? expected_.one_is_missing : ""));
  }
  for (size_t column = 0; column < cell_of_column_.size(); ++column) {
    const int cell = cell_of_column_[column];
    values_[column] = cell < 0 ? std::string_view("") : cells_[cell];
    missing_[column] = values_[column].empty();
  }
  // Most jobs name no values that stand for missing ones, and need no comparisons.
  if (format_.missing.empty()) return absl::OkStatus();
  for (size_t column = 0; column < cell_of_column_.size(); ++column) {
    const auto& absent = format_.missing;
    missing_[column] |= std::find(absent.begin(), absent.end(), values_[column]) != absent.end();
  }
  return absl::OkStatus();
}

LibsvmParser::LibsvmParser(const std::vector<std::string>& columns) : LineParser(columns.size()) {
  for (size_t i = 1; i < columns.size(); ++i) {
    if (!columns[i].empty()) column_of_index_[columns[i]] = static_cast<int>(i);
  }
}

absl::Status LibsvmParser::Parse(char* line, size_t size) {
  std::fill(values_.begin(), values_.end(), std::string_view(""));
  std::fill_n(missing_.get(), values_.size(), true);
  std::string_view rest(line, size);
  // LIBSVM files end lines with comments.
  rest = rest.substr(0, rest.find('#'));
  bool first = true;
  while (true) {
    while (!rest.empty() && IsBlank(rest.front())) rest.remove_prefix(1);
    if (rest.empty()) return absl::OkStatus();
    const size_t end = std::min(rest.find_first_of(" \t"), rest.size());
    const std::string_view token = rest.substr(0, end);
    rest.remove_prefix(end);
    const size_t colon = token.find(':');
    // A line may lack its label. Then its first word is a feature already.
    const bool is_label = first && colon == std::string_view::npos;
    first = false;
    if (is_label) {
      values_[0] = token;
      missing_[0] = false;
      continue;
    }
    if (colon == std::string_view::npos || colon == 0 || colon + 1 == token.size()) {
      return absl::InvalidArgumentError(absl::StrCat(QuotedCell(token), " is not index:value"));
    }
    const auto column = column_of_index_.find(absl::string_view(token.data(), colon));
    // Indices that no feature uses are usual, and need no memory.
    if (column == column_of_index_.end()) continue;
    if (!missing_[column->second]) {
      return absl::InvalidArgumentError(absl::StrCat("index ", column->first, " occurs twice"));
    }
    values_[column->second] = token.substr(colon + 1);
    missing_[column->second] = false;
  }
}

}  // namespace sluice
