#include "model/data/line_parser.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <system_error>
#include <utility>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/csv_options.h"
#include "model/features/cell.h"

namespace sluice {
namespace {

bool IsBlank(char c) { return c == ' ' || c == '\t'; }

bool OnlyDigits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool AllBlank(std::string_view text) { return std::all_of(text.begin(), text.end(), IsBlank); }

std::string_view Trim(std::string_view cell) {
  while (!cell.empty() && IsBlank(cell.front())) cell.remove_prefix(1);
  while (!cell.empty() && IsBlank(cell.back())) cell.remove_suffix(1);
  return cell;
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

std::string LineParser::TextAt(size_t column) const {
  NumberText memory;
  return std::string(typed_.empty() ? values_[column] : TextOf(typed_[column], &memory));
}

void LineParser::Fill(const Constant& constant) {
  if (typed_.empty()) {
    if (!missing_[constant.column]) return;
    values_[constant.column] = constant.value;
    missing_[constant.column] = false;
  } else if (typed_[constant.column].kind() == Cell::Kind::kMissing) {
    typed_[constant.column] = Cell::Text(constant.value);
  }
}

void LineParser::CountValues(std::vector<uint64_t>* counts) const {
  counts->resize(typed_.size());
  for (size_t c = 0; c < typed_.size(); ++c)
    (*counts)[c] += typed_[c].kind() != Cell::Kind::kMissing;
}

absl::Status LineParser::ValueList::Add(std::string_view word, uint64_t index,
                                        std::string_view weight) {
  double number;
  if (!ParseNumber(weight, &number)) {
    return absl::InvalidArgumentError(
        absl::StrCat(QuotedCell(word), ": ", QuotedCell(weight), " is not a finite number"));
  }
  values.push_back(Cell::Unsigned(index));
  weights.push_back(number);
  return absl::OkStatus();
}

void LineParser::MarkMissing(const std::vector<std::string>& absent, size_t first) {
  // Most jobs name no values that stand for missing ones, and need no comparisons.
  if (absent.empty()) return;
  for (size_t column = first; column < values_.size(); ++column)
    missing_[column] |= std::find(absent.begin(), absent.end(), values_[column]) != absent.end();
}

Delimited Delimited::Criteo() {
  Delimited format;
  format.delimiter = "\t";
  format.quote = 0;
  format.trim = false;
  return format;
}

absl::StatusOr<Delimited> Delimited::FromConfig(const DataConfig& data) {
  for (const ConfigProblem& problem : FindCsvProblems(data))
    return absl::InvalidArgumentError(absl::StrCat(problem.path, ": ", problem.text));
  const CsvFormat& csv = data.csv();
  Delimited format;
  format.has_options = true;
  if (data.format() == DataConfig::TSV) format.delimiter = "\t";
  if (!csv.delimiter().empty()) format.delimiter = csv.delimiter();
  if (csv.has_quote()) format.quote = csv.quote().empty() ? '\0' : csv.quote()[0];
  if (!csv.escape().empty()) format.escape = csv.escape()[0];
  format.trim = !csv.has_trim() || csv.trim();
  format.merge = csv.merge_delimiters();
  format.missing.assign(csv.missing().begin(), csv.missing().end());
  format.comment_prefix = csv.comment_prefix();
  return format;
}

bool Delimited::Skips(std::string_view line) const {
  if (!comment_prefix.empty() && line.substr(0, comment_prefix.size()) == comment_prefix)
    return true;
  if (line.empty()) return true;
  const bool may_be_blank = trim && IsBlank(line.front());
  if (!may_be_blank && !merge) return false;
  // Merged delimiters have no cells between them.
  return std::all_of(line.begin(), line.end(), [this](char c) {
    const bool in_delimiter = delimiter.find(c) != std::string::npos;
    return in_delimiter ? merge : trim && IsBlank(c);
  });
}

absl::StatusOr<size_t> Delimited::Split(char* line, size_t size,
                                        std::vector<std::string_view>* cells) const {
  // Few lines have quotes. All others are split without looking at single characters.
  const auto has = [&](char c) { return c != 0 && std::memchr(line, c, size) != nullptr; };
  if (delimiter.size() > 1 || merge || has(quote) || has(escape))
    return SplitByCell(line, size, cells);
  std::string_view* const to = cells->data();
  const size_t room = cells->size();
  size_t count = 0;
  ForEachCell(line, size, delimiter[0], [&](const char* begin, const char* end) {
    std::string_view cell(begin, end - begin);
    if (trim) cell = Trim(cell);
    // Counted also beyond the room, so that the error can say how many there are.
    if (count < room) to[count] = cell;
    ++count;
  });
  return count;
}

namespace {

// Cuts cells out of lines one after the other. `kSimple`: the delimiter is one character, and there
// are no escapes and no merged delimiters, as in nearly all data.
template <bool kSimple>
class CellCutter {
 public:
  explicit CellCutter(const Delimited& format)
      : format_(format), first_(format.delimiter[0]), quote_(format.quote), trim_(format.trim) {}

  absl::StatusOr<size_t> Cut(char* line, size_t size, std::vector<std::string_view>* cells) const {
    char* at = line;
    char* const end = line + size;
    size_t count = 0;
    if (!kSimple && format_.merge) at = SkipDelimiters(at, end);
    while (true) {
      std::string_view cell;
      char* first = at;
      if (trim_) {
        while (first < end && IsBlank(*first) && !AtDelimiter(first, end)) ++first;
      }
      if (quote_ != 0 && first < end && *first == quote_) {
        at = first + 1;
        // The reader has joined the lines of a cell with line ends, if it found the closing quote.
        if (!TakeQuoted(&at, end, &cell)) return NotClosed(count);
        if (trim_) {
          while (at < end && IsBlank(*at) && !AtDelimiter(at, end)) ++at;
        }
        if (at < end && !AtDelimiter(at, end)) return TextBehind(count);
      } else {
        cell = TakePlain(&at, end);
        if (trim_) cell = Trim(cell);
      }
      if (count < cells->size()) (*cells)[count] = cell;
      ++count;
      if (at == end) return count;
      at += kSimple ? 1 : format_.delimiter.size();
      if (kSimple || !format_.merge) continue;
      at = SkipDelimiters(at, end);
      if (at == end) return count;  // delimiters at the end of a line are as those at its start
    }
  }

 private:
  static constexpr char kNoQuoting[] =
      "; if quotes are part of the text, set data.csv.quote: \"\" (other quotes and backslashes: "
      "data.csv.quote, data.csv.escape)";
  static absl::Status NotClosed(size_t count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "value ", count + 1,
        " has an opening quote, but no closing quote before a delimiter or a line end "
        "(within ",
        RecordRule::kMostBytes >> 10,
        " KiB, and with no lines in between that are records themselves)", kNoQuoting));
  }
  static absl::Status TextBehind(size_t count) {
    return absl::InvalidArgumentError(
        absl::StrCat("value ", count + 1, " has text after its closing quote", kNoQuoting));
  }

  bool AtDelimiter(const char* at, const char* end) const {
    if (kSimple) return *at == first_;
    const size_t n = format_.delimiter.size();
    return static_cast<size_t>(end - at) >= n && *at == first_ &&
           std::memcmp(at, format_.delimiter.data(), n) == 0;
  }
  char* SkipDelimiters(char* at, char* end) const {
    while (at < end && AtDelimiter(at, end)) at += format_.delimiter.size();
    return at;
  }

  // Takes a quoted cell and removes its doubled quotes and escapes in place. Moves *at from after
  // the opening quote to after the closing one. False when there is no closing quote.
  bool TakeQuoted(char** at, char* end, std::string_view* cell) const {
    char* const begin = *at;
    char* to = begin;
    for (char* from = begin; from < end; ++from) {
      if (!kSimple && format_.escape != 0 && *from == format_.escape) {
        if (++from == end) return false;
        *to++ = *from;
      } else if (*from != quote_) {
        *to++ = *from;
      } else if (from + 1 < end && from[1] == quote_) {
        *to++ = quote_;
        ++from;
      } else {
        *cell = std::string_view(begin, to - begin);
        *at = from + 1;
        return true;
      }
    }
    return false;
  }

  // Takes a cell without quotes, up to the next delimiter.
  std::string_view TakePlain(char** at, char* end) const {
    char* const begin = *at;
    if (kSimple) {
      *at = std::find(begin, end, first_);
      return std::string_view(begin, *at - begin);
    }
    bool escapes = false;
    char* stop = begin;
    for (; stop < end && !AtDelimiter(stop, end); ++stop) {
      if (format_.escape == 0 || *stop != format_.escape || stop + 1 == end) continue;
      escapes = true;
      ++stop;
    }
    *at = stop;
    const std::string_view cell(begin, stop - begin);
    // A value such as \N, which MySQL, Hive and Spark write for NULL, is declared as it is written.
    const std::vector<std::string>& missing = format_.missing;
    if (!escapes ||
        std::find(missing.begin(), missing.end(), trim_ ? Trim(cell) : cell) != missing.end()) {
      return cell;
    }
    char* to = begin;
    for (char* from = begin; from < stop; ++from) {
      if (*from == format_.escape && from + 1 < stop) ++from;
      *to++ = *from;
    }
    return std::string_view(begin, to - begin);
  }

  const Delimited& format_;
  const char first_;  // of the delimiter
  const char quote_;
  const bool trim_;
};

}  // namespace

absl::StatusOr<size_t> Delimited::SplitByCell(char* line, size_t size,
                                              std::vector<std::string_view>* cells) const {
  if (delimiter.size() == 1 && escape == 0 && !merge)
    return CellCutter<true>(*this).Cut(line, size, cells);
  return CellCutter<false>(*this).Cut(line, size, cells);
}

std::string DelimitedParser::HintFor(std::string_view line, size_t count) const {
  const std::string& delimiter = format_.delimiter;
  const auto has = [&](const std::string& text) { return line.find(text) != std::string::npos; };
  if (!format_.has_options) return "";
  if (format_.comment_prefix.empty() && !line.empty() && line.front() == '#')
    return "; if lines that begin with '#' are comments, set data.csv.comment_prefix: \"#\"";
  if (count == 1) return "; check data.csv.delimiter";
  if (count < cells_.size()) return "";
  if (format_.escape == 0 && has("\\" + delimiter)) {
    return "; if a backslash keeps a delimiter in its cell, set data.csv.escape: \"\\\\\"";
  }
  if (format_.quote != '\'' && (has(delimiter + "'") || line.front() == '\''))
    return "; if ' quotes cells, set data.csv.quote: \"'\"";
  if (format_.quote == 0 && has(delimiter + "\""))
    return "; if \" quotes cells, remove data.csv.quote";
  if (!format_.merge && has(delimiter + delimiter) && IsBlank(delimiter.front())) {
    return "; if several delimiters in a row count as one, set data.csv.merge_delimiters: true";
  }
  return "";
}

absl::Status DelimitedParser::Parse(char* line, size_t size) {
  SLUICE_ASSIGN_OR_RETURN(const size_t count, format_.Split(line, size, &cells_));
  if (count != cells_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the line has ", count, count == 1 ? " value" : " values", ", but ", expected_.named_by,
        " ", cells_.size(), cells_.size() == 1 ? " column" : " columns",
        count + 1 == cells_.size() ? expected_.one_is_missing : "", HintFor({line, size}, count)));
  }
  for (size_t column = 0; column < cell_of_column_.size(); ++column) {
    const int cell = cell_of_column_[column];
    values_[column] = cell < 0 ? std::string_view("") : cells_[cell];
    missing_[column] = values_[column].empty();
  }
  if (!format_.missing.empty()) MarkMissing(format_.missing);
  return absl::OkStatus();
}

namespace {

// A feature index of LIBSVM. False for any text but decimal digits.
bool ParseIndex(std::string_view text, uint64_t* index) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *index);
  return error == std::errc() && end == text.data() + text.size();
}

// Takes the next word, up to a blank, off *rest; empty at the end of the line.
std::string_view NextWord(std::string_view* rest) {
  while (!rest->empty() && IsBlank(rest->front())) rest->remove_prefix(1);
  const size_t end = std::min(rest->find_first_of(" \t"), rest->size());
  const std::string_view word = rest->substr(0, end);
  rest->remove_prefix(end);
  return word;
}

absl::Status NoIndex(std::string_view word, std::string_view index) {
  if (index.empty() || index == "-") {
    return absl::InvalidArgumentError(absl::StrCat(QuotedCell(word), " is not index:value"));
  }
  const bool negative = index.front() == '-' && OnlyDigits(index.substr(1));
  return absl::InvalidArgumentError(absl::StrCat(
      QuotedCell(word), ": ", QuotedCell(index),
      negative ? " is a negative index; LIBSVM counts features from 0 or 1 up: number them anew"
               : " is no index; LIBSVM names features by numbers: number them, or use CSV, whose "
                 "columns have names"));
}

// Whether the first word of a line, "index:...", may be a feature: "1:0.5" is that, or a label with
// a weight. Indices ascend, so one that does not is behind a label. `after`: the rest of the line.
bool MayBeFeature(std::string_view name, std::string_view after) {
  const std::string_view next = NextWord(&after);
  uint64_t index = 0, next_index = 0;
  return ParseIndex(name, &index) &&
         (next.empty() ||
          (ParseIndex(next.substr(0, next.find(':')), &next_index) && next_index > index));
}

// Says how to correct lines that begin with a word that may be a feature.
std::string WriteLabels(std::string_view word) {
  return absl::StrCat("write the label before it (1 ", std::string(word),
                      " ...), or, if it is a label with a weight, write a sign before it (+",
                      std::string(word), " ...)");
}

absl::Status NoLabel(std::string_view word) {
  return absl::InvalidArgumentError(
      absl::StrCat("the line begins with ", QuotedCell(word),
                   ", which may be a feature, where most lines of the file begin with a label; ",
                   WriteLabels(word)));
}

absl::Status LooksLikeFfm(std::string_view word) {
  return absl::InvalidArgumentError(absl::StrCat(
      QuotedCell(word),
      " is not index:value; it looks like libffm's field:feature:value: set data.format: LIBFFM, "
      "whose columns are the fields"));
}

}  // namespace

LibsvmParser::LibsvmParser(const std::vector<std::string>& columns,
                           std::vector<std::string> missing, FirstWord first_word, IsLabel is_label)
    : LineParser(columns.size()),
      absent_(std::move(missing)),
      first_word_(first_word),
      is_label_(std::move(is_label)),
      has_weight_column_(columns.size() > 1 && !columns[1].empty()) {
  for (size_t i = 1; i < columns.size(); ++i) {
    uint64_t index;
    if (columns[i] == "qid") qid_column_ = static_cast<int>(i);
    if (columns[i] == kAllIndices) indices_column_ = static_cast<int>(i);
    if (ParseIndex(columns[i], &index)) column_of_index_[index] = static_cast<int>(i);
  }
  if (indices_column_ >= 0) typed_.resize(columns.size());
}

int LibsvmParser::SuggestsLabels(std::string_view line, const IsLabel& is_label) {
  std::string_view rest = line.substr(0, line.find('#'));
  const std::string_view word = NextWord(&rest);
  const size_t colon = word.find(':');
  const std::string_view name = word.substr(0, colon);
  if (!is_label(name)) return colon == std::string_view::npos ? 0 : -1;
  if (colon == std::string_view::npos) return 1;
  return MayBeFeature(name, rest) ? 0 : 1;
}

absl::Status LibsvmParser::TakeLabel(std::string_view* rest) {
  std::string_view after = *rest;
  const std::string_view word = NextWord(&after);
  const size_t colon = word.find(':');
  const std::string_view name = word.substr(0, colon);
  if (colon != std::string_view::npos) {
    if (name == "qid") return absl::OkStatus();
    if (word.find(':', colon + 1) != std::string_view::npos) return LooksLikeFfm(word);
    if (first_word_ != FirstWord::kLabel && MayBeFeature(name, after)) {
      if (first_word_ == FirstWord::kClearLabel) return NoLabel(word);
      if (first_word_ == FirstWord::kFeature || !is_label_(name)) return absl::OkStatus();
    }
    if (has_weight_column_) {
      return absl::InvalidArgumentError(
          absl::StrCat(QuotedCell(word),
                       " is a label with a weight, and data.weight_column names another weight; "
                       "keep one of them"));
    }
    values_[1] = word.substr(colon + 1);
    missing_[1] = false;
  }
  values_[0] = name;
  missing_[0] = name.empty();
  *rest = after;
  return absl::OkStatus();
}

absl::Status LibsvmParser::TakeFeature(std::string_view word) {
  const size_t colon = word.find(':');
  const std::string_view name = word.substr(0, colon);
  if (name == "qid" && colon != std::string_view::npos) {
    if (qid_column_ < 0) return absl::OkStatus();
    values_[qid_column_] = word.substr(colon + 1);
    missing_[qid_column_] = false;
    return absl::OkStatus();
  }
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == word.size())
    return absl::InvalidArgumentError(absl::StrCat(QuotedCell(word), " is not index:value"));
  const std::string_view value = word.substr(colon + 1);
  uint64_t index;
  if (!ParseIndex(name, &index)) return NoIndex(word, name);
  const auto column = column_of_index_.find(index);
  if (value.find(':') != std::string_view::npos) return LooksLikeFfm(word);
  if (indices_column_ >= 0 && std::find(absent_.begin(), absent_.end(), value) == absent_.end())
    SLUICE_RETURN_IF_ERROR(indices_.Add(word, index, value));
  // Indices that no feature uses are usual, and need no memory.
  if (column == column_of_index_.end()) return absl::OkStatus();
  if (!values_[column->second].empty())
    return absl::InvalidArgumentError(absl::StrCat("index ", index, " occurs twice"));
  values_[column->second] = value;
  missing_[column->second] = false;
  return absl::OkStatus();
}

absl::Status LibsvmParser::Parse(char* line, size_t size) {
  indices_.Clear();
  std::fill(values_.begin(), values_.end(), std::string_view(""));
  std::fill_n(missing_.get(), values_.size(), true);
  std::string_view rest(line, size);
  // LIBSVM files end lines with comments.
  rest = rest.substr(0, rest.find('#'));
  SLUICE_RETURN_IF_ERROR(TakeLabel(&rest));
  for (std::string_view word = NextWord(&rest); !word.empty(); word = NextWord(&rest))
    SLUICE_RETURN_IF_ERROR(TakeFeature(word));
  // The label is as the file writes it: `missing: "-1"` is about features.
  MarkMissing(absent_, kFirstFeature);
  if (indices_column_ < 0) return absl::OkStatus();
  for (size_t c = 0; c < values_.size(); ++c)
    typed_[c] = missing_[c] ? Cell() : Cell::Text(values_[c]);
  typed_[indices_column_] = indices_.cell();
  return absl::OkStatus();
}

LibffmParser::LibffmParser(const std::vector<std::string>& columns)
    : LineParser(columns.size()), lists_(columns.size()) {
  typed_.resize(columns.size());
  for (size_t i = 1; i < columns.size(); ++i) {
    uint64_t field;
    if (ParseIndex(columns[i], &field)) column_of_field_[field] = static_cast<int>(i);
  }
}

absl::Status LibffmParser::TakeFeature(std::string_view word) {
  const size_t colon = word.find(':');
  const size_t second = colon == std::string_view::npos ? colon : word.find(':', colon + 1);
  if (second == std::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        QuotedCell(word), " is not field:index:value",
        colon == std::string_view::npos ? "" : "; for index:value set data.format: LIBSVM"));
  }
  uint64_t field, index;
  if (!ParseIndex(word.substr(0, colon), &field) ||
      !ParseIndex(word.substr(colon + 1, second - colon - 1), &index)) {
    return absl::InvalidArgumentError(
        absl::StrCat(QuotedCell(word),
                     " is not field:index:value with numbers for field and "
                     "index; number them, as libffm needs it too"));
  }
  const auto column = column_of_field_.find(field);
  // Fields that no feature uses need no memory.
  if (column == column_of_field_.end()) return absl::OkStatus();
  return lists_[column->second].Add(word, index, word.substr(second + 1));
}

absl::Status LibffmParser::Parse(char* line, size_t size) {
  std::fill(typed_.begin(), typed_.end(), Cell());
  for (ValueList& list : lists_) list.Clear();
  std::string_view rest(line, size);
  rest = rest.substr(0, rest.find('#'));
  std::string_view after = rest;
  const std::string_view label = NextWord(&after);
  if (label.find(':') == std::string_view::npos) {
    typed_[0] = Cell::Text(label);
    rest = after;
  }
  for (std::string_view word = NextWord(&rest); !word.empty(); word = NextWord(&rest))
    SLUICE_RETURN_IF_ERROR(TakeFeature(word));
  for (const auto& [field, column] : column_of_field_) typed_[column] = lists_[column].cell();
  return absl::OkStatus();
}

void LibsvmLabels::Add(std::string_view line, uint64_t number) {
  std::string_view rest = line.substr(0, line.find('#'));
  const std::string_view word = NextWord(&rest);
  const size_t colon = word.find(':');
  const std::string_view name = word.substr(0, colon);
  // The parser names libffm's field:feature:value as what it is.
  if (colon == std::string_view::npos || word.find(':', colon + 1) != std::string_view::npos) {
    ++plain_;
    return;
  }
  if (name != "qid" && !MayBeFeature(name, rest)) {
    ++weighted_;
    return;
  }
  const bool is_label = is_label_(name);
  ++(is_label ? either_ : features_);
  if (first_number_ == 0) {
    first_number_ = number;
    first_word_ = std::string(word);
  }
  if (!is_label) return;
  if (either_ == 1) one_label_ = std::string(name);
  several_labels_ = several_labels_ || name != one_label_;
  some_weight_ = some_weight_ || word.substr(colon) != ":1";
}

absl::StatusOr<LibsvmParser::FirstWord> LibsvmLabels::Decide() const {
  using FirstWord = LibsvmParser::FirstWord;
  // No line without a label begins so.
  if (weighted_ > 0 && weighted_ + plain_ >= features_) return FirstWord::kLabel;
  if (plain_ >= either_ + features_) return FirstWord::kClearLabel;
  // A malformed line must not decide for all others.
  if (plain_ == 0 && features_ <= either_ / 10 && several_labels_ && some_weight_)
    return FirstWord::kLabel;
  return absl::InvalidArgumentError(absl::StrCat(
      "its lines seem to have no labels: line ", first_number_, " begins with ",
      QuotedCell(first_word_), ", and so do most of its first lines; ", WriteLabels(first_word_)));
}

}  // namespace sluice
