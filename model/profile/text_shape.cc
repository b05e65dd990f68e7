#include "model/profile/text_shape.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/config/data_columns.h"
#include "model/data/json_lines_parser.h"
#include "model/data/line_parser.h"
#include "model/data/text_form.h"
#include "model/features/cell.h"

namespace sluice {
namespace {

constexpr size_t kShapeLines = 400;

// The first lines without their ends. A last line that may be cut off is left out.
std::vector<std::string> LinesOf(std::string_view head, bool whole) {
  if (head.substr(0, 3) == "\xEF\xBB\xBF") head.remove_prefix(3);
  std::vector<std::string> lines;
  while (!head.empty() && lines.size() < kShapeLines) {
    const size_t end = head.find('\n');
    if (end == std::string_view::npos && !whole) break;
    std::string_view line = head.substr(0, end);
    head.remove_prefix(std::min(line.size() + 1, head.size()));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.find_first_not_of(" \t") != std::string_view::npos) lines.emplace_back(line);
  }
  return lines;
}

// They point into `line`.
std::vector<absl::string_view> WordsOf(absl::string_view line) {
  return absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
}

bool IsNumber(absl::string_view text) {
  double value;
  return ParseNumber({text.data(), text.size()}, &value);
}

// A line of LIBSVM: a number, then index:value words.
bool LooksLikeLibsvm(const std::string& line) {
  const std::vector<absl::string_view> words =
      WordsOf(absl::string_view(line).substr(0, line.find(" #")));
  if (words.empty() || !IsNumber(words[0].substr(0, words[0].find(':')))) return false;
  for (size_t i = 1; i < words.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(words[i], absl::MaxSplits(':', 1));
    uint64_t index;
    if (parts.first == "qid") continue;
    if (!absl::SimpleAtoi(parts.first, &index) || !IsNumber(parts.second)) return false;
  }
  return words.size() > 1 || IsNumber(words[0]);
}

bool IsLibsvm(const std::vector<std::string>& lines) {
  size_t like = 0, with_features = 0;
  for (const std::string& line : lines) {
    like += LooksLikeLibsvm(line);
    with_features += absl::StrContains(line, ':');
  }
  return with_features * 2 > lines.size() && like * 20 >= lines.size() * 19;
}

// Whether the indices of LIBSVM lines are values rather than columns: there are many, and nearly
// all of their values are 1.
bool IsOneHot(const std::vector<std::string>& lines) {
  constexpr size_t kManyIndices = 300;
  std::set<std::string> indices;
  size_t words = 0, ones = 0;
  for (const std::string& line : lines) {
    for (const absl::string_view word :
         WordsOf(absl::string_view(line).substr(0, line.find(" #")))) {
      const size_t colon = word.find(':');
      double value;
      if (colon == absl::string_view::npos || absl::StartsWith(word, "qid:")) continue;
      indices.emplace(word.substr(0, colon));
      ++words;
      const absl::string_view number = word.substr(colon + 1);
      ones += ParseNumber({number.data(), number.size()}, &value) && value == 1;
    }
  }
  return indices.size() > kManyIndices && ones * 20 >= words * 19;
}

// A line of LIBFFM: a label or none, then field:index:value words.
bool LooksLikeLibffm(const std::string& line) {
  const std::vector<absl::string_view> words = WordsOf(line);
  if (words.empty()) return false;
  const size_t first = IsNumber(words[0]) ? 1 : 0;
  if (first == words.size()) return false;
  return std::all_of(words.begin() + first, words.end(), [](absl::string_view word) {
    const std::vector<absl::string_view> parts = absl::StrSplit(word, ':');
    uint64_t number;
    return parts.size() == 3 && absl::SimpleAtoi(parts[0], &number) &&
           absl::SimpleAtoi(parts[1], &number) && IsNumber(parts[2]);
  });
}

// A line of SLOT_VALUE: name:number words, the first of which, the label, has letters.
bool LooksLikeSlotValue(const std::string& line) {
  const std::vector<absl::string_view> words = WordsOf(line);
  return words.size() > 1 && absl::ascii_isalpha(words[0][0]) &&
         std::all_of(words.begin(), words.end(), [](absl::string_view word) {
           const size_t colon = word.rfind(':');
           return colon != absl::string_view::npos && colon > 0 && IsNumber(word.substr(colon + 1));
         });
}

bool AreMost(const std::vector<std::string>& lines, bool (*like)(const std::string&)) {
  return static_cast<size_t>(std::count_if(lines.begin(), lines.end(), like)) * 20 >=
         lines.size() * 19;
}

// The slots of SLOT_VALUE lines, in the order in which they occur.
void FindSlots(const std::vector<std::string>& lines, TextShape* shape) {
  struct Found {
    bool digits = true;
    size_t lines = 0;
    std::set<size_t> counts;  // of values in a line
  };
  std::map<std::string, Found> found;
  for (const std::string& line : lines) {
    std::map<std::string, size_t> counts;
    for (const absl::string_view word : WordsOf(line)) {
      const size_t colon = word.rfind(':');
      if (colon == absl::string_view::npos) continue;
      const std::string name(word.substr(0, colon));
      if (found.find(name) == found.end()) shape->columns.push_back(name);
      found[name].digits = found[name].digits && word.substr(colon + 1).find_first_not_of(
                                                     "0123456789") == absl::string_view::npos;
      ++counts[name];
    }
    for (const auto& [name, count] : counts) {
      ++found[name].lines;
      found[name].counts.insert(count);
    }
  }
  shape->data.set_format(DataConfig::SLOT_VALUE);
  for (const std::string& name : shape->columns) {
    Slot* slot = shape->data.add_slots();
    slot->set_name(name);
    slot->set_type(found[name].digits ? Slot::UINT64 : Slot::FLOAT);
    if (found[name].counts == std::set<size_t>{1}) slot->set_dim(1);
  }
  shape->notes.push_back(
      "the slots are those of the first lines; words of other slots are skipped");
}

// The keys of the objects on the lines, in the order in which they occur.
void FindKeys(const std::vector<std::string>& lines, TextShape* shape) {
  std::set<std::string> known;
  size_t objects = 0;
  for (const std::string& line : lines) {
    objects += JsonLinesParser::FindColumns(line, [&](const std::string& name) {
                 if (known.insert(name).second) shape->columns.push_back(name);
               }).ok();
  }
  shape->data.set_format(DataConfig::JSON_LINES);
  shape->fitting = static_cast<double>(objects) / static_cast<double>(lines.size());
}

// The slots of a MultiSlot line, each with its values; empty when it is none.
std::vector<std::vector<absl::string_view>> SlotsOf(const std::string& line) {
  const std::vector<absl::string_view> words = WordsOf(line);
  std::vector<std::vector<absl::string_view>> slots;
  for (size_t at = 0; at < words.size();) {
    uint32_t count;
    if (!absl::SimpleAtoi(words[at], &count) || count == 0 || count > words.size() - at - 1)
      return {};
    std::vector<absl::string_view> values(words.begin() + at + 1, words.begin() + at + 1 + count);
    if (!std::all_of(values.begin(), values.end(), IsNumber)) return {};
    slots.push_back(std::move(values));
    at += count + 1;
  }
  return slots;
}

bool IsMultiSlot(const std::vector<std::string>& lines, TextShape* shape) {
  std::vector<std::set<size_t>> counts;
  std::vector<bool> digits;
  std::set<size_t> words;
  for (const std::string& line : lines) {
    if (absl::StrContains(line, '\t') || absl::StrContains(line, ',')) return false;
    const auto slots = SlotsOf(line);
    if (slots.size() < 2 || (!counts.empty() && slots.size() != counts.size())) return false;
    counts.resize(slots.size());
    digits.resize(slots.size(), true);
    for (size_t s = 0; s < slots.size(); ++s) {
      counts[s].insert(slots[s].size());
      for (const absl::string_view value : slots[s]) {
        digits[s] = digits[s] && value.find_first_not_of("0123456789") == absl::string_view::npos;
      }
    }
    words.insert(WordsOf(line).size());
  }
  const auto varies = [](const std::set<size_t>& c) { return c.size() > 1 || *c.begin() > 1; };
  // Columns of small numbers between blanks would be read as slots of one value each.
  if (std::none_of(counts.begin(), counts.end(), varies) && counts.size() < 3) return false;
  shape->data.set_format(DataConfig::MULTI_SLOT);
  for (size_t s = 0; s < counts.size(); ++s) {
    Slot* slot = shape->data.add_slots();
    slot->set_name(absl::StrCat("slot_", s + 1));
    slot->set_type(digits[s] ? Slot::UINT64 : Slot::FLOAT);
    if (counts[s].size() == 1 && *counts[s].begin() == 1) slot->set_dim(1);
    shape->columns.push_back(slot->name());
  }
  shape->notes.push_back("MultiSlot text names no slots: they are called slot_1, slot_2, ...");
  return true;
}

bool IsCriteo(const std::vector<std::string>& lines) {
  size_t like = 0;
  for (const std::string& line : lines) {
    const std::vector<absl::string_view> cells = absl::StrSplit(line, '\t');
    bool fits = cells.size() == 40 && (cells[0] == "0" || cells[0] == "1");
    for (size_t i = 1; fits && i < cells.size(); ++i) {
      if (cells[i].empty()) continue;
      fits = i <= 13
                 ? IsNumber(cells[i])
                 : cells[i].find_first_not_of("0123456789abcdefABCDEF") == absl::string_view::npos;
    }
    like += fits;
  }
  return like * 20 >= lines.size() * 19;
}

// One way to cut lines into cells.
struct Cutting {
  DataConfig data;  // of CSV or TSV
  Delimited cut;
  size_t cells = 0;          // that most lines have
  double fitting = 0;        // share of the lines that have so many
  double comma_numbers = 0;  // share of the cells with ',' that are numbers with a decimal comma
};

// The lines from `first` on that one record has, joined in *record; 0 when they cannot be cut.
size_t RecordAt(const Delimited& cut, const std::vector<std::string>& lines, size_t first,
                std::string* record) {
  constexpr size_t kMostLines = 8;  // of a quoted cell; more are rare
  std::vector<std::string_view> cells;
  for (size_t n = 1; n <= kMostLines && first + n <= lines.size(); ++n) {
    absl::StrAppend(record, n > 1 ? "\n" : "", lines[first + n - 1]);
    std::string copy = *record;  // cutting removes quotes
    cells.resize(copy.size() + 1);
    if (cut.Split(copy.data(), copy.size(), &cells).ok()) return n;
    if (cut.quote == 0) break;
  }
  return 0;
}

Cutting Try(const std::string& delimiter, const char* quote, bool escape, bool merge,
            const std::vector<std::string>& lines) {
  Cutting cutting;
  CsvFormat* csv = cutting.data.mutable_csv();
  cutting.data.set_format(delimiter == "\t" ? DataConfig::TSV : DataConfig::CSV);
  if (delimiter != "\t" && delimiter != ",") csv->set_delimiter(delimiter);
  if (quote != nullptr) csv->set_quote(quote);
  if (escape) csv->set_escape("\\");
  if (merge) csv->set_merge_delimiters(true);
  const auto cut = Delimited::FromConfig(cutting.data);
  if (!cut.ok()) return cutting;
  cutting.cut = *cut;
  std::map<size_t, size_t> records_with;
  size_t with_comma = 0, comma_numbers = 0, records = 0;
  std::vector<std::string_view> cells;
  for (size_t l = 0; l < lines.size(); ++records) {
    std::string record;
    const size_t joined = RecordAt(*cut, lines, l, &record);
    l += std::max<size_t>(joined, 1);
    if (joined == 0) continue;
    cells.resize(record.size() + 1);
    const auto count = cut->Split(record.data(), record.size(), &cells);
    ++records_with[*count];
    for (size_t i = 0; i < *count; ++i) {
      double value;
      if (cells[i].find(',') == std::string_view::npos) continue;
      ++with_comma;
      // Three digits may follow a separator of thousands.
      comma_numbers +=
          ParseCommaNumber(cells[i], &value) && cells[i].size() - cells[i].find(',') != 4;
    }
  }
  for (const auto& [count, n] : records_with) {
    const double share = static_cast<double>(n) / static_cast<double>(records);
    if (count < 2 || share < cutting.fitting) continue;
    cutting.cells = count;
    cutting.fitting = share;
  }
  if (with_comma > 0)
    cutting.comma_numbers = static_cast<double>(comma_numbers) / static_cast<double>(with_comma);
  return cutting;
}

// The share of the lines that have one of the texts.
double ShareWith(const std::vector<std::string>& lines, const std::vector<std::string>& texts) {
  size_t with = 0;
  for (const std::string& line : lines) {
    with += std::any_of(texts.begin(), texts.end(),
                        [&line](const std::string& text) { return absl::StrContains(line, text); });
  }
  return static_cast<double>(with) / static_cast<double>(lines.size());
}

// The best of the ways to quote with one delimiter; the usual one unless another is clearly better,
// or the lines show what is only written for another one.
Cutting BestQuoting(const std::string& delimiter, bool merge,
                    const std::vector<std::string>& lines) {
  constexpr double kNearly = 0.02, kSomeLines = 0.02, kMostLines = 0.5;
  Cutting best = Try(delimiter, nullptr, false, merge, lines);
  const auto consider = [&](const char* quote, bool escape, bool shown) {
    Cutting other = Try(delimiter, quote, escape, merge, lines);
    if (other.fitting > best.fitting + kNearly || (shown && other.fitting > best.fitting - kNearly))
      best = std::move(other);
  };
  // A backslash before a delimiter keeps it in its cell.
  if (ShareWith(lines, {"\\"}) > 0)
    consider(nullptr, true, ShareWith(lines, {"\\" + delimiter}) > kSomeLines);
  // "'a, b'": quotes beside delimiters, on both sides.
  if (ShareWith(lines, {"'"}) > 0) {
    consider("'", false,
             ShareWith(lines, {delimiter + "'"}) > kMostLines &&
                 ShareWith(lines, {"'" + delimiter}) > kMostLines);
  }
  if (ShareWith(lines, {"\""}) > 0) consider("", false, false);
  return best;
}

Cutting BestCutting(const std::vector<std::string>& lines) {
  Cutting best;
  const auto better = [](const Cutting& a, const Cutting& b) {
    constexpr double kNearly = 0.05;
    if (std::abs(a.fitting - b.fitting) > kNearly) return a.fitting > b.fitting;
    return a.cells > b.cells;
  };
  // In this order: of equal ones the first wins.
  for (const char* delimiter : {"\t", "::", ";", ",", "|", "\x01"}) {
    Cutting cutting = BestQuoting(delimiter, false, lines);
    if (cutting.cells < 2) continue;
    // "0,5;1,5" is cut at ';', however many commas there are.
    const bool decimal_comma =
        best.comma_numbers > 0.5 && best.fitting > 0.5 && delimiter[0] == ',';
    if (!decimal_comma && (best.cells == 0 || better(cutting, best))) best = std::move(cutting);
  }
  if (best.fitting < 0.8) {
    Cutting blanks = BestQuoting(" ", true, lines);
    if (blanks.cells >= 2 && blanks.fitting > best.fitting) best = std::move(blanks);
  }
  return best;
}

// "|", "#" or the like, when lines of another shape than the others begin with it.
std::string CommentPrefixOf(const std::vector<std::string>& lines) {
  const std::string& first = lines.front();
  for (const char* prefix : {"#", "%", "//", "|"}) {
    if (absl::StartsWith(first, prefix)) return prefix;
  }
  return "";
}

std::vector<std::string> CellsOf(const Delimited& cut, std::string line) {
  std::vector<std::string_view> cells(line.size() + 1);
  const auto count = cut.Split(line.data(), line.size(), &cells);
  if (!count.ok()) return {};
  return {cells.begin(), cells.begin() + *count};
}

// Whether the first line names the columns of the others.
bool IsHeader(const std::vector<std::string>& first,
              const std::vector<std::vector<std::string>>& others) {
  if (others.empty()) return false;
  size_t named = 0;
  for (const std::string& name : first) {
    if (IsNumber(name)) return false;
    named += !name.empty();
  }
  // Tables of pandas leave the name of their index empty.
  if (named + 1 < first.size()) return false;
  size_t numeric = 0, occurs = 0, longer = 0;
  for (size_t c = 0; c < first.size(); ++c) {
    size_t numbers = 0, same = 0;
    std::set<std::string> distinct;
    for (const std::vector<std::string>& row : others) {
      if (c >= row.size()) continue;
      numbers += IsNumber(row[c]);
      same += row[c] == first[c];
      distinct.insert(row[c]);
    }
    // NA before other numbers is no name when it comes again.
    numeric += numbers * 2 > others.size() && same == 0;
    occurs += same > 0 && !first[c].empty();
    // A column of few values, none of which is in the first line.
    longer += same == 0 && distinct.size() * 4 < others.size();
  }
  // A name may also be a value: a column "c" with a, b and c.
  return occurs == 0 ? numeric > 0 || longer * 2 > first.size() : numeric > occurs;
}

// Whether nearly all rows are a user, an item, a rating and seconds since 1970.
bool AreRatings(const std::vector<std::vector<std::string>>& rows) {
  size_t like = 0;
  for (const std::vector<std::string>& row : rows) {
    double number[4];
    bool numbers = row.size() == 4;
    for (size_t c = 0; numbers && c < 4; ++c) numbers = ParseNumber(row[c], &number[c]);
    constexpr double kMostStars = 10, kYear1985 = 5e8, kYear2128 = 5e9;
    like += numbers && number[2] >= 0 && number[2] <= kMostStars && number[3] > kYear1985 &&
            number[3] < kYear2128;
  }
  return like * 20 >= rows.size() * 19;
}

}  // namespace

absl::StatusOr<TextShape> GuessShape(const std::string& path, std::string_view head, bool whole) {
  std::vector<std::string> lines = LinesOf(head, whole);
  const auto refuse = [&path](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat("data file ", path, " ", why));
  };
  if (lines.empty()) {
    if (head.empty()) return refuse("is empty; give a file with lines");
    if (whole) return refuse("has no lines but empty ones; give a file with lines of data");
    return refuse(absl::StrCat("has no line end in its first ", head.size(),
                               " bytes; data files are text with a line for each example"));
  }
  for (const std::string& line : lines) {
    if (line.find('\0') == std::string::npos) continue;
    return refuse(
        "has bytes of 0 and is no text; data files are text (CSV, TSV, LIBSVM, MultiSlot): plain, "
        "gzip or zstd");
  }
  TextShape shape;
  if (IsCriteo(lines)) {
    shape.data.set_format(DataConfig::CRITEO_TSV);
    shape.columns = NamedColumns(shape.data);
    shape.columns[0] = "label";
    shape.notes.push_back(
        "40 columns of tab-separated text as in Criteo's click data: the label, 13 counts, 26 "
        "categories");
    return shape;
  }
  if (IsLibsvm(lines)) {
    shape.data.set_format(DataConfig::LIBSVM);
    shape.columns = {"label"};
    if (IsOneHot(lines)) {
      shape.columns.push_back(LibsvmParser::kAllIndices);
      shape.notes.push_back(
          "one-hot LIBSVM: each index is a value of one feature, \"indices\", and none a column");
    }
    return shape;
  }
  if (IsMultiSlot(lines, &shape)) return shape;
  if (AreMost(lines, &LooksLikeLibffm)) {
    shape.data.set_format(DataConfig::LIBFFM);
    shape.columns = {"label"};
    return shape;
  }
  if (AreMost(lines, &LooksLikeSlotValue)) {
    FindSlots(lines, &shape);
    return shape;
  }
  if (IsJson(head)) {
    FindKeys(lines, &shape);
    if (shape.fitting >= 0.5 && shape.columns.size() > 1) return shape;
    return refuse(absl::StrCat(
        "begins like JSON, but only ", static_cast<int>(shape.fitting * 100),
        " % of its lines are whole objects, with ", shape.columns.size(),
        shape.columns.size() == 1 ? " key" : " keys",
        "; each line holds one object with a label and at least one feature (jq -c . FILE writes "
        "an object on a line, jq -c '.[]' FILE those of an array)"));
  }

  std::string comment = CommentPrefixOf(lines);
  std::vector<std::string> tried = lines;
  if (!comment.empty()) {
    tried.erase(
        std::remove_if(tried.begin(), tried.end(),
                       [&](const std::string& line) { return absl::StartsWith(line, comment); }),
        tried.end());
    if (tried.size() * 2 < lines.size()) {
      comment.clear();
      tried = lines;
    }
  }
  const Cutting best = BestCutting(tried);
  if (best.cells < 2) {
    return refuse(
        "has one column only: no tab, comma, semicolon, bar or blank cuts its lines into the same "
        "number of values; give a file with a label and at least one feature in a line");
  }
  if (best.fitting < 0.5) {
    return refuse(absl::StrCat(
        "has lines with different numbers of values: only ", static_cast<int>(best.fitting * 100),
        " % have ", best.cells, " values between ",
        absl::StrCat("\"", absl::CHexEscape(best.cut.delimiter), "\""),
        "; CSV and TSV need as many values in each line as there are columns"));
  }
  shape.data = best.data;
  shape.fitting = best.fitting;
  // A first line "#id,label" has the cells of a header.
  if (CellsOf(best.cut, lines[0]).size() == best.cells) comment.clear();
  if (!comment.empty()) shape.data.mutable_csv()->set_comment_prefix(comment);
  if (best.comma_numbers > 0.5) shape.data.mutable_csv()->set_decimal_mark(",");
  std::vector<std::vector<std::string>> rows;
  for (const std::string& line : comment.empty() ? lines : tried)
    rows.push_back(CellsOf(best.cut, line));
  const std::vector<std::string> first = rows.front();
  rows.erase(rows.begin());
  if (first.size() == best.cells && IsHeader(first, rows)) {
    shape.data.mutable_csv()->set_header(true);
    shape.columns = first;
    return shape;
  }
  rows.push_back(first);
  if (AreRatings(rows)) {
    shape.columns = {"user", "item", "rating", "timestamp"};
    for (const std::string& name : shape.columns) shape.data.mutable_csv()->add_columns(name);
    shape.notes.push_back(
        "four columns without a header as in MovieLens' ratings: user, item, rating, timestamp");
    return shape;
  }
  for (size_t c = 0; c < best.cells; ++c) {
    shape.columns.push_back(absl::StrCat("c", c + 1));
    shape.data.mutable_csv()->add_columns(shape.columns.back());
  }
  shape.notes.push_back(absl::StrCat(
      "the first line is an example and no header: the columns are called c1 to c", best.cells));
  return shape;
}

}  // namespace sluice
