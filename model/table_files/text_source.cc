// Text: a row a line, a key and its numbers between blanks or tabs, as Paddle saves tables: "key v
// v ...". Several files are the parts of one table. Plain, gzip or zstd.
#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/config/closest_name.h"
#include "model/data/line_reader.h"
#include "model/data/text_reader.h"
#include "model/features/cell.h"
#include "model/table_files/table_source.h"

namespace sluice {
namespace {

class TextSource : public TableSource {
 public:
  TextSource(std::vector<std::string> files, const SourceOptions& options, Env* env)
      : files_(std::move(files)), options_(options), columns_(*options.columns), env_(env) {}

  absl::Status Init() {
    row_name_ = RowName::kInteger;
    has_.resize(columns_.floats().size());
    if (options_.names_only) {
      row_name_ = options_.names_are_values ? RowName::kText : RowName::kKey;
      return absl::OkStatus();
    }
    if (options_.state) {
      return absl::InvalidArgumentError(
          "--state: a text has no state of this optimizer; leave it out to take the weights alone");
    }
    std::vector<std::string> names = options_.text_columns;
    if (names.empty() && !options_.column.empty()) names = {options_.column};
    for (size_t i = 0; names.empty() && i < columns_.groups(); ++i)
      fields_.push_back({i, columns_.floats()[i].dim});
    for (const std::string& name : names) SLUICE_RETURN_IF_ERROR(AddField(name));
    for (const Field& field : fields_) {
      width_ += field.numbers;
      if (field.column != kLeftOut) has_[field.column] = true;
    }
    if (std::find(has_.begin(), has_.end(), true) == has_.end())
      return absl::InvalidArgumentError("--text_columns leaves out all numbers; name a column");
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Next(SourceBlock* block) override {
    block->Clear();
    while (block->rows < kSourceRows) {
      if (lines_ == nullptr) {
        if (file_ == files_.size()) break;
        SLUICE_ASSIGN_OR_RETURN(auto text, TextReader::Open(files_[file_], env_));
        lines_ = std::make_unique<LineReader>(std::move(text));
        line_ = 0;
      }
      LineReader::Line line;
      SLUICE_ASSIGN_OR_RETURN(const bool more, lines_->Next(&line));
      if (!more) {
        lines_.reset();
        ++file_;
        continue;
      }
      ++line_;
      if (line.too_long) return BadLine("is longer than 1 MiB");
      if (line.size == 0) continue;
      NoteLine();
      SLUICE_RETURN_IF_ERROR(AddRow({line.data, line.size}, block));
    }
    return block->rows > 0;
  }

  std::string PlaceOf(uint64_t row) const override {
    // The lines of rows follow each other, but for those after an empty line.
    const auto next =
        std::upper_bound(marks_.begin(), marks_.end(), row,
                         [](uint64_t wanted, const Mark& mark) { return wanted < mark.row; });
    if (next == marks_.begin()) return files_[0];
    const Mark& mark = *(next - 1);
    return absl::StrCat(files_[mark.file], ":", mark.line + (row - mark.row));
  }

 private:
  static constexpr size_t kLeftOut = SIZE_MAX;
  struct Field {
    size_t column;  // of the table, or kLeftOut
    uint64_t numbers;
  };
  // Row `row` is on line `line` of a file, and rows behind it on the lines behind.
  struct Mark {
    uint64_t row;
    size_t file;
    uint64_t line;
  };

  absl::Status AddField(const std::string& name) {
    uint64_t numbers = 0;
    if (absl::StartsWith(name, "_") && absl::SimpleAtoi(name.substr(1), &numbers)) {
      if (numbers == 0 || numbers > 1 << 20) {
        return absl::InvalidArgumentError(
            absl::StrCat("--text_columns: '", name, "' leaves out no numbers, or too many"));
      }
      fields_.push_back({kLeftOut, numbers});
      return absl::OkStatus();
    }
    std::vector<std::string> groups;
    for (size_t i = 0; i < columns_.groups(); ++i) {
      if (columns_.floats()[i].group == name) {
        fields_.push_back({i, columns_.floats()[i].dim});
        return absl::OkStatus();
      }
      groups.push_back(columns_.floats()[i].group);
    }
    return absl::InvalidArgumentError(
        absl::StrCat("the table has no column '", name, "'", DidYouMeanOrAll(name, groups)));
  }

  void NoteLine() {
    if (!marks_.empty() && marks_.back().file == file_ &&
        line_ - marks_.back().line == row_ - marks_.back().row)
      return;
    marks_.push_back({row_, file_, line_});
  }

  absl::Status BadLine(absl::string_view why) const {
    return absl::InvalidArgumentError(absl::StrCat(files_[file_], ":", line_, " ", why));
  }

  absl::Status AddName(absl::string_view line, SourceBlock* block) {
    uint64_t key = 0;
    if (row_name_ == RowName::kText) {
      block->texts.emplace_back(line);
    } else if (ParseKey(std::string_view(line.data(), line.size()), &key)) {
      block->numbers.push_back(key);
    } else {
      return BadLine(absl::StrCat("has '", absl::CHexEscape(line.substr(0, 40)),
                                  "', which is no key: an integer of 64 bits; give --feature=NAME "
                                  "if the lines are values"));
    }
    ++block->rows;
    ++row_;
    return absl::OkStatus();
  }

  absl::Status AddRow(absl::string_view line, SourceBlock* block) {
    if (options_.names_only) return AddName(line, block);
    words_ = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (words_.empty()) return BadLine("has no key");
    uint64_t key = 0;
    if (!ParseKey(std::string_view(words_[0].data(), words_[0].size()), &key)) {
      return BadLine(absl::StrCat("begins with '", absl::CHexEscape(words_[0].substr(0, 40)),
                                  "', which is no integer of 64 bits; a line is a key and its "
                                  "numbers, between blanks"));
    }
    if (words_.size() - 1 != width_) {
      return BadLine(absl::StrCat(
          "(key ", words_[0], ") has ", words_.size() - 1, " numbers, and the table's columns ",
          width_,
          "; give --text_columns, such as _4,wide,_1,embedding, to say which numbers are what"));
    }
    const size_t row = columns_.row_floats(), at = block->rows * row;
    if (block->floats.size() < at + row) block->floats.resize(kSourceRows * row);
    size_t word = 1;
    for (const Field& field : fields_) {
      for (uint64_t i = 0; i < field.numbers; ++i, ++word) {
        if (field.column == kLeftOut) continue;
        float value = 0;
        if (!absl::SimpleAtof(words_[word], &value)) {
          return BadLine(absl::StrCat("(key ", words_[0], ") has '",
                                      absl::CHexEscape(words_[word].substr(0, 40)),
                                      "', which is no number"));
        }
        block->floats[at + columns_.floats()[field.column].begin + i] = value;
      }
    }
    block->numbers.push_back(key);
    ++block->rows;
    ++row_;
    return absl::OkStatus();
  }

  const std::vector<std::string> files_;
  const SourceOptions options_;
  const TableColumns& columns_;
  Env* const env_;
  std::vector<Field> fields_;
  uint64_t width_ = 0;  // numbers of a line
  size_t file_ = 0;     // the file that is read
  std::unique_ptr<LineReader> lines_;
  uint64_t line_ = 0, row_ = 0;
  std::vector<Mark> marks_;
  std::vector<absl::string_view> words_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TableSource>> OpenTextSource(const std::vector<std::string>& files,
                                                            const SourceOptions& options,
                                                            Env* env) {
  auto source = std::make_unique<TextSource>(files, options, env);
  SLUICE_RETURN_IF_ERROR(source->Init());
  return source;
}

}  // namespace sluice
