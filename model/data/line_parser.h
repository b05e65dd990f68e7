// Parses one line of a format into the values of the schema's columns.
//
// Memory: scratch space is reused. Values point into the line, which parsing may change (quotes are
// removed in place).
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/data/record_rule.h"
#include "model/features/example_cells.h"
#include "proto/config.pb.h"

namespace sluice {

class LineParser {
 public:
  // `columns` is the number of FeatureSchema::columns().
  explicit LineParser(size_t columns) : values_(columns), missing_(new bool[columns]) {}
  virtual ~LineParser() = default;

  // Whether the line is blank, a comment or a repeated header, and so not an example.
  virtual bool Skips(std::string_view line) const;
  // Whether a line that is skipped repeats the header of the file, as in files joined by cat.
  virtual bool RepeatsHeader(std::string_view) const { return false; }
  // INVALID_ARGUMENT says what is wrong with the line.
  virtual absl::Status Parse(char* line, size_t size) = 0;
  // A column that has one value in all lines, which the lines do not have.
  struct Constant {
    size_t column = 0;
    std::string value;
  };
  // `constants` outlive the parser.
  void SetConstants(const std::vector<Constant>* constants) { constants_ = constants; }
  // Sets them where the last line has no value.
  void FillConstants() {
    if (constants_ == nullptr) return;
    for (const Constant& constant : *constants_) Fill(constant);
  }
  // The cells [columns] of the last line parsed.
  ExampleCells cells() const {
    if (typed_.empty()) return {values_.data(), missing_.get(), nullptr};
    return {nullptr, nullptr, typed_.data(), missing_.get()};
  }
  // The text of one of them, for messages and ids; "" when it is missing.
  std::string TextAt(size_t column) const;
  // Counts the typed cells that are not missing, by column.
  void CountValues(std::vector<uint64_t>* counts) const;
  // Counts the columns that the last line names, also those without a value.
  virtual void CountNames(std::vector<uint64_t>* counts) const { CountValues(counts); }

 protected:
  // The values of a cell that has several of them. Keeps its memory from line to line.
  struct ValueList {
    std::vector<Cell> values;
    std::vector<double> weights;  // [values], or empty: each is 1

    void Clear() {
      values.clear();
      weights.clear();
    }
    // Adds an index whose weight is written as text. `word` is for the message.
    absl::Status Add(std::string_view word, uint64_t index, std::string_view weight);
    // Valid until the list changes.
    Cell cell() const {
      if (values.empty()) return Cell();
      return Cell::List(values.data(), values.size(), weights.empty() ? nullptr : weights.data());
    }
  };

  // Marks the columns, from `first` on, whose values are among `absent`.
  void MarkMissing(const std::vector<std::string>& absent, size_t first = 0);
  // Places of the columns of features. Label and weight come before them.
  static constexpr size_t kFirstFeature = 2;

  std::vector<std::string_view> values_;
  std::unique_ptr<bool[]> missing_;
  // [columns] when the parser makes typed cells, in place of values_ and missing_; else empty.
  std::vector<Cell> typed_;

 private:
  void Fill(const Constant& constant);

  const std::vector<Constant>* constants_ = nullptr;
};

// How delimited text is cut into cells.
struct Delimited {
  std::string delimiter = ",";
  char quote = '"';  // RFC 4180; 0: cells are not quoted
  char escape = 0;   // takes the next character as it is; 0: none
  bool trim = true;
  bool has_options = false;          // data.csv may change how lines are read
  bool merge = false;                // several delimiters in a row count as one
  std::vector<std::string> missing;  // cells that stand for a missing value, besides the empty one
  std::string comment_prefix;        // empty: no comments

  static Delimited Criteo();
  // INVALID_ARGUMENT names the option and the fix.
  static absl::StatusOr<Delimited> FromConfig(const DataConfig& data);
  // The rule for line ends inside of cells.
  RecordRule record_rule() const { return {delimiter, quote, escape, trim, comment_prefix, merge}; }
  bool Skips(std::string_view line) const;
  // Stores at most cells->size() of the line's cells and returns how many there are.
  absl::StatusOr<size_t> Split(char* line, size_t size, std::vector<std::string_view>* cells) const;
  // Does the same one cell at a time: for lines with quotes or escapes, and for other delimiters
  // than a single character.
  absl::StatusOr<size_t> SplitByCell(char* line, size_t size,
                                     std::vector<std::string_view>* cells) const;
};

class DelimitedParser final : public LineParser {
 public:
  // Text for the error about a line with a wrong number of values.
  struct Expected {
    std::string named_by = "the file has";  // says how many columns there are
    std::string one_is_missing;             // added when the line has one value less
  };
  // A line has `cells` cells. `cell_of_column` gives the cell of each of the schema's columns, or
  // -1 (always missing). `header` is the file's header line; empty when it has none.
  DelimitedParser(Delimited format, std::vector<int> cell_of_column, size_t cells,
                  Expected expected, std::string header = "")
      : LineParser(cell_of_column.size()),
        format_(std::move(format)),
        cell_of_column_(std::move(cell_of_column)),
        cells_(cells),
        expected_(std::move(expected)),
        header_(std::move(header)) {}
  bool Skips(std::string_view line) const override {
    return format_.Skips(line) || RepeatsHeader(line);
  }
  bool RepeatsHeader(std::string_view line) const override {
    return line.size() == header_.size() && !line.empty() && line == header_;
  }
  absl::Status Parse(char* line, size_t size) override;

 private:
  // The option that may read a line with `count` cells, which are not as many as expected.
  std::string HintFor(std::string_view line, size_t count) const;

  const Delimited format_;
  const std::vector<int> cell_of_column_;
  std::vector<std::string_view> cells_;  // scratch; its size is the number of cells expected
  const Expected expected_;
  const std::string header_;
};

// `label[:weight] [qid:Q] index:value ... [# comment]`; columns are named by their index. The
// column kAllIndices has all indices as values, and their values as weights.
class LibsvmParser : public LineParser {
 public:
  static constexpr char kAllIndices[] = "indices";
  using IsLabel = std::function<bool(std::string_view)>;
  // How the first word of a line is read. "1:0.5" may be a label with a weight, as XGBoost writes
  // it, or a feature. Indices ascend, so it is a label if the next index is 1 or 0.
  enum class FirstWord {
    kLabel,        // always as a label
    kClearLabel,   // as a label; a word that may be a feature is an error
    kLabelByRule,  // a word that may be a feature is a label if `is_label` accepts it
    kFeature       // a word that may be a feature is one, and the line has no label
  };
  // Column 0 is the label, column 1 the weight; the others are indices as text ("" for none), or
  // kAllIndices.
  // Values of features among `missing` are missing. `is_label` is for kLabelByRule.
  LibsvmParser(const std::vector<std::string>& columns, std::vector<std::string> missing,
               FirstWord first_word, IsLabel is_label = nullptr);
  // Whether the line tells that the lines of its file have labels: 1, that they have none: -1, or
  // neither: 0.
  static int SuggestsLabels(std::string_view line, const IsLabel& is_label);
  bool Skips(std::string_view line) const override {
    return LineParser::Skips(line) || line.front() == '#';
  }
  absl::Status Parse(char* line, size_t size) override;

 private:
  // Takes the first word when it is a label.
  absl::Status TakeLabel(std::string_view* rest);
  absl::Status TakeFeature(std::string_view word);

  absl::flat_hash_map<uint64_t, int> column_of_index_;
  int qid_column_ = -1;      // of the values, where the job asks for the qid
  int indices_column_ = -1;  // of the values, where the job asks for all indices
  ValueList indices_;
  const std::vector<std::string> absent_;
  const FirstWord first_word_;
  const IsLabel is_label_;
  const bool has_weight_column_;
};

// `label field:index:value ... [# comment]`, as libffm reads it; columns are named by their field.
// A column has all indices of its field as values, and their values as weights.
class LibffmParser : public LineParser {
 public:
  // `columns` as LibsvmParser. A line that begins with a feature has no label.
  explicit LibffmParser(const std::vector<std::string>& columns);
  bool Skips(std::string_view line) const override {
    return LineParser::Skips(line) || line.front() == '#';
  }
  absl::Status Parse(char* line, size_t size) override;

 private:
  absl::Status TakeFeature(std::string_view word);

  absl::flat_hash_map<uint64_t, int> column_of_field_;
  std::vector<ValueList> lists_;  // [columns]
};

// Tells from the first lines of a LIBSVM file that must have labels what their first words are.
class LibsvmLabels {
 public:
  explicit LibsvmLabels(LibsvmParser::IsLabel is_label) : is_label_(std::move(is_label)) {}

  // `line` is neither blank nor a comment. `number`: from 1.
  void Add(std::string_view line, uint64_t number);
  // Most lines decide. Where all begin with a word that may be a feature, these words are labels
  // with weights if there are several labels and another weight than 1. Otherwise the words are
  // rather features, whose first index is always the same, or which are one-hot.
  // INVALID_ARGUMENT: the lines seem to have no labels; says what to do.
  absl::StatusOr<LibsvmParser::FirstWord> Decide() const;

 private:
  const LibsvmParser::IsLabel is_label_;
  uint64_t plain_ = 0, weighted_ = 0;  // lines that begin with a label, and with one and a weight
  uint64_t either_ = 0;                // those that may begin with a label or a feature
  uint64_t features_ = 0;              // those that begin with a feature that is no label
  std::string first_word_;             // of the first of the last two
  uint64_t first_number_ = 0;          // and its line
  std::string one_label_;              // of the lines of either_
  bool several_labels_ = false, some_weight_ = false;
};

}  // namespace sluice
