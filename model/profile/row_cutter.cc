#include "model/profile/row_cutter.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/config/data_format.h"
#include "model/data/json_lines_parser.h"
#include "model/data/line_parser.h"
#include "model/features/cell.h"

namespace sluice {
namespace {

bool IsBlankLine(std::string_view line) {
  return line.find_first_not_of(" \t") == std::string_view::npos;
}

// Takes the next word off *rest; empty at the end of the line.
std::string_view TakeWord(std::string_view* rest) {
  rest->remove_prefix(std::min(rest->find_first_not_of(" \t"), rest->size()));
  const std::string_view word = rest->substr(0, rest->find_first_of(" \t"));
  rest->remove_prefix(word.size());
  return word;
}

class DelimitedCutter final : public RowCutter {
 public:
  DelimitedCutter(Delimited cut, const TextShape& shape) : cut_(std::move(cut)) {
    columns_ = shape.columns;
    cells_.resize(columns_.size());
    has_header_ = shape.data.csv().header();
  }

  bool Skips(std::string_view line) const override {
    return cut_.Skips(line) || (has_header_ && IsHeaderLine(line));
  }

  absl::Status Cut(char* line, size_t size) override {
    SLUICE_ASSIGN_OR_RETURN(const size_t count, cut_.Split(line, size, &cells_));
    if (count == cells_.size()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("the line has ", count,
                                                   count == 1 ? " value" : " values",
                                                   ", and most lines have ", cells_.size()));
  }

  RecordRule rule() const override {
    RecordRule rule = cut_.record_rule();
    rule.fewest_cells = rule.most_cells = columns_.size();
    return rule;
  }

 private:
  // Cheap for nearly all lines, which begin with another cell.
  bool IsHeaderLine(std::string_view line) const {
    const std::string& first = columns_.front();
    const size_t at = line.find(first);
    if (at == std::string_view::npos || at > 3) return false;
    std::string copy(line);
    std::vector<std::string_view> cells(columns_.size());
    const auto count = cut_.Split(copy.data(), copy.size(), &cells);
    return count.ok() && *count == columns_.size() &&
           std::equal(columns_.begin(), columns_.end(), cells.begin());
  }

  const Delimited cut_;
  bool has_header_ = false;
};

// Cells that are made, and not parts of a line: a list of values each.
class ListCells {
 public:
  void Clear() {
    for (std::string& cell : cells_) cell.clear();
  }
  void Add(size_t column, std::string_view value) {
    if (column >= cells_.size()) cells_.resize(column + 1);
    std::string& cell = cells_[column];
    if (!cell.empty()) cell += RowCutter::kListDelimiter;
    cell.append(value);
  }
  void Put(std::vector<std::string_view>* to) const {
    for (size_t c = 0; c < cells_.size(); ++c) {
      if (!cells_[c].empty()) (*to)[c] = cells_[c];
    }
  }

 private:
  std::vector<std::string> cells_;
};

absl::Status TooManyColumns(const char* what) {
  return absl::ResourceExhaustedError(
      absl::StrCat("the lines have more than ", RowCutter::kMostColumns, " ", what,
                   ", and sluice data check looks at so many columns; write the job by hand"));
}

// With the column "indices": all indices are the values of that one.
class LibsvmCutter final : public RowCutter {
 public:
  explicit LibsvmCutter(const TextShape& shape) : one_hot_(shape.columns.size() > 1) {
    columns_ = shape.columns;
    cells_.resize(columns_.size());
    if (one_hot_) has_lists_ = {false, true};
  }

  bool Skips(std::string_view line) const override {
    return IsBlankLine(line) || line.front() == '#';
  }

  absl::Status Cut(char* line, size_t size) override {
    std::fill(cells_.begin(), cells_.end(), std::string_view(""));
    indices_.Clear();
    std::string_view rest(line, size);
    rest = rest.substr(0, rest.find('#'));
    const std::string_view label = TakeWord(&rest);
    cells_[0] = label.substr(0, label.find(':'));
    for (std::string_view word = TakeWord(&rest); !word.empty(); word = TakeWord(&rest)) {
      const size_t colon = word.find(':');
      const std::string_view index = word.substr(0, colon);
      if (index == "qid") continue;
      double value;
      uint64_t number;
      if (colon == std::string_view::npos ||
          !absl::SimpleAtoi(absl::string_view(index.data(), index.size()), &number) ||
          !ParseNumber(word.substr(colon + 1), &value)) {
        return absl::InvalidArgumentError(absl::StrCat(QuotedCell(word), " is not index:value"));
      }
      if (one_hot_) {
        indices_.Add(1, index);
        continue;
      }
      const auto [place, is_new] = place_of_.try_emplace(number, columns_.size());
      if (is_new) {
        if (columns_.size() == kMostColumns) return TooManyColumns("indices");
        columns_.push_back(absl::StrCat(number));
        cells_.emplace_back();
      }
      cells_[place->second] = word.substr(colon + 1);
    }
    indices_.Put(&cells_);
    return absl::OkStatus();
  }

 private:
  const bool one_hot_;
  ListCells indices_;
  absl::flat_hash_map<uint64_t, size_t> place_of_;
};

// A column is a field, and its cells are the indices of the field; their values weigh them.
class LibffmCutter final : public RowCutter {
 public:
  LibffmCutter() {
    columns_ = {"label"};
    cells_.resize(1);
    has_lists_ = {false};
  }

  bool Skips(std::string_view line) const override {
    return IsBlankLine(line) || line.front() == '#';
  }

  absl::Status Cut(char* line, size_t size) override {
    std::fill(cells_.begin(), cells_.end(), std::string_view(""));
    lists_.Clear();
    std::string_view rest(line, size);
    rest = rest.substr(0, rest.find('#'));
    std::string_view after = rest;
    const std::string_view first = TakeWord(&after);
    if (first.find(':') == std::string_view::npos) {
      cells_[0] = first;
      rest = after;
    }
    for (std::string_view word = TakeWord(&rest); !word.empty(); word = TakeWord(&rest)) {
      const size_t colon = word.find(':');
      const size_t second = colon == std::string_view::npos ? colon : word.find(':', colon + 1);
      uint64_t field, index;
      double value;
      if (second == std::string_view::npos || !IsIndex(word.substr(0, colon), &field) ||
          !IsIndex(word.substr(colon + 1, second - colon - 1), &index) ||
          !ParseNumber(word.substr(second + 1), &value)) {
        return absl::InvalidArgumentError(
            absl::StrCat(QuotedCell(word), " is not field:index:value"));
      }
      const auto [place, is_new] = place_of_.try_emplace(field, columns_.size());
      if (is_new) {
        if (columns_.size() == kMostColumns) return TooManyColumns("fields");
        columns_.push_back(absl::StrCat(field));
        cells_.emplace_back();
        has_lists_.push_back(true);
      }
      lists_.Add(place->second, word.substr(colon + 1, second - colon - 1));
    }
    lists_.Put(&cells_);
    return absl::OkStatus();
  }

 private:
  static bool IsIndex(std::string_view text, uint64_t* index) {
    return absl::SimpleAtoi(absl::string_view(text.data(), text.size()), index);
  }

  ListCells lists_;
  absl::flat_hash_map<uint64_t, size_t> place_of_;
};

class JsonCutter final : public RowCutter {
 public:
  explicit JsonCutter(const TextShape& shape) : parser_(shape.columns) {
    columns_ = shape.columns;
    cells_.resize(columns_.size());
    has_lists_.resize(columns_.size());
    numbers_.resize(columns_.size());
  }

  bool Skips(std::string_view line) const override { return IsBlankLine(line); }

  absl::Status Cut(char* line, size_t size) override {
    SLUICE_RETURN_IF_ERROR(parser_.Parse(line, size));
    const Cell* const cells = parser_.cells().typed;
    lists_.Clear();
    for (size_t c = 0; c < cells_.size(); ++c) {
      if (cells[c].kind() != Cell::Kind::kList) {
        cells_[c] = TextOf(cells[c], &numbers_[c]);
        continue;
      }
      has_lists_[c] = true;
      cells_[c] = "";
      for (size_t v = 0; v < cells[c].size(); ++v) {
        NumberText memory;
        const std::string_view value = TextOf(cells[c].values()[v], &memory);
        if (!value.empty()) lists_.Add(c, value);
      }
    }
    lists_.Put(&cells_);
    return absl::OkStatus();
  }

 private:
  JsonLinesParser parser_;
  ListCells lists_;
  std::vector<NumberText> numbers_;  // [columns]
};

// Words slot:value in any order; the values of a slot are joined as in MultiSlot text.
class SlotValueCutter final : public RowCutter {
 public:
  explicit SlotValueCutter(const TextShape& shape) {
    columns_ = shape.columns;
    cells_.resize(columns_.size());
    joined_.resize(columns_.size());
    for (size_t c = 0; c < columns_.size(); ++c) place_of_.emplace(columns_[c], c);
  }

  bool Skips(std::string_view line) const override { return IsBlankLine(line); }

  absl::Status Cut(char* line, size_t size) override {
    for (std::string& cell : joined_) cell.clear();
    std::string_view rest(line, size);
    for (std::string_view word = TakeWord(&rest); !word.empty(); word = TakeWord(&rest)) {
      const size_t colon = word.rfind(':');
      double value;
      if (colon == std::string_view::npos || !ParseNumber(word.substr(colon + 1), &value))
        return absl::InvalidArgumentError(absl::StrCat(QuotedCell(word), " is not slot:value"));
      const auto place = place_of_.find(absl::string_view(word.data(), colon));
      if (place == place_of_.end()) continue;
      std::string& cell = joined_[place->second];
      if (!cell.empty()) cell += ' ';
      cell.append(word.substr(colon + 1));
    }
    std::copy(joined_.begin(), joined_.end(), cells_.begin());
    return absl::OkStatus();
  }

 private:
  std::vector<std::string> joined_;  // [columns]
  absl::flat_hash_map<std::string, size_t> place_of_;
};

class MultiSlotCutter final : public RowCutter {
 public:
  explicit MultiSlotCutter(const TextShape& shape) {
    columns_ = shape.columns;
    cells_.resize(columns_.size());
  }

  bool Skips(std::string_view line) const override { return IsBlankLine(line); }

  absl::Status Cut(char* line, size_t size) override {
    std::string_view rest(line, size);
    for (size_t slot = 0; slot < columns_.size(); ++slot) {
      const std::string_view head = TakeWord(&rest);
      uint32_t count;
      if (!absl::SimpleAtoi(absl::string_view(head.data(), head.size()), &count) || count == 0) {
        return absl::InvalidArgumentError(absl::StrCat(columns_[slot], ": ", QuotedCell(head),
                                                       " is no number of values from 1 up"));
      }
      const std::string_view before = rest;
      for (uint32_t i = 0; i < count; ++i) {
        double value;
        if (!ParseNumber(TakeWord(&rest), &value)) {
          return absl::InvalidArgumentError(
              absl::StrCat(columns_[slot], ": the line has fewer than ", count, " numbers here"));
        }
      }
      std::string_view cell = before.substr(0, before.size() - rest.size());
      cell.remove_prefix(std::min(cell.find_first_not_of(" \t"), cell.size()));
      cells_[slot] = cell;
    }
    if (!IsBlankLine(rest))
      return absl::InvalidArgumentError(absl::StrCat("the line goes on after ", columns_.back()));
    return absl::OkStatus();
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<RowCutter>> RowCutter::Create(const TextShape& shape) {
  if (shape.columns.size() > kMostColumns) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the lines have ", shape.columns.size(), " columns, and sluice data check looks at ",
        kMostColumns, " at most; write the job by hand"));
  }
  if (FormatOf(shape.data).delimited) {
    SLUICE_ASSIGN_OR_RETURN(Delimited cut, Delimited::FromConfig(shape.data));
    return std::unique_ptr<RowCutter>(new DelimitedCutter(std::move(cut), shape));
  }
  switch (shape.data.format()) {
    case DataConfig::LIBSVM:
      return std::unique_ptr<RowCutter>(new LibsvmCutter(shape));
    case DataConfig::LIBFFM:
      return std::unique_ptr<RowCutter>(new LibffmCutter());
    case DataConfig::JSON_LINES:
      return std::unique_ptr<RowCutter>(new JsonCutter(shape));
    case DataConfig::SLOT_VALUE:
      return std::unique_ptr<RowCutter>(new SlotValueCutter(shape));
    case DataConfig::MULTI_SLOT:
      return std::unique_ptr<RowCutter>(new MultiSlotCutter(shape));
    case DataConfig::CRITEO_TSV:
      return std::unique_ptr<RowCutter>(new DelimitedCutter(Delimited::Criteo(), shape));
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "sluice data check does not look at ", DataConfig::Format_Name(shape.data.format()),
          "; write the job by hand, and check it with sluice launch --dry_run"));
  }
}

}  // namespace sluice
