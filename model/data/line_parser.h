// Parses one line of a format into the values of the schema's columns.
//
// Memory: scratch space is reused. Values point into the line, which parsing may change (quotes are
// removed in place).
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/config.pb.h"

namespace sluice {

class LineParser {
 public:
  // `columns` is the number of FeatureSchema::columns().
  explicit LineParser(size_t columns) : values_(columns), missing_(new bool[columns]) {}
  virtual ~LineParser() = default;

  // Whether the line is blank or a comment, and so not an example.
  virtual bool Skips(std::string_view line) const;
  // INVALID_ARGUMENT says what is wrong with the line.
  virtual absl::Status Parse(char* line, size_t size) = 0;
  // The cells [columns] of the last line parsed, and which of them are missing.
  const std::string_view* values() const { return values_.data(); }
  const bool* missing() const { return missing_.get(); }

 protected:
  std::vector<std::string_view> values_;
  std::unique_ptr<bool[]> missing_;
};

// How delimited text is cut into cells.
struct Delimited {
  char delimiter = ',';
  bool quotes = true;  // RFC 4180, within one line
  bool trim = true;
  std::vector<std::string> missing;  // cells that stand for a missing value, besides the empty one
  std::string comment_prefix;        // empty: no comments

  static Delimited Criteo();
  // INVALID_ARGUMENT names the option and the fix.
  static absl::StatusOr<Delimited> FromConfig(const DataConfig& data);
  bool Skips(std::string_view line) const;
  // Stores at most cells->size() of the line's cells and returns how many there are.
  absl::StatusOr<size_t> Split(char* line, size_t size, std::vector<std::string_view>* cells) const;
  // Does the same for lines with quotes, one byte at a time.
  // REQUIRES: quotes.
  absl::StatusOr<size_t> SplitQuoted(char* line, size_t size,
                                     std::vector<std::string_view>* cells) const;
};

class DelimitedParser : public LineParser {
 public:
  // Text for the error about a line with a wrong number of values.
  struct Expected {
    std::string named_by = "the file has";  // says how many columns there are
    std::string one_is_missing;             // added when the line has one value less
  };
  // A line has `cells` cells. `cell_of_column` gives the cell of each of the schema's columns, or
  // -1 (always missing).
  DelimitedParser(Delimited format, std::vector<int> cell_of_column, size_t cells,
                  Expected expected)
      : LineParser(cell_of_column.size()),
        format_(std::move(format)),
        cell_of_column_(std::move(cell_of_column)),
        cells_(cells),
        expected_(std::move(expected)) {}
  bool Skips(std::string_view line) const override { return format_.Skips(line); }
  absl::Status Parse(char* line, size_t size) override;

 private:
  const Delimited format_;
  const std::vector<int> cell_of_column_;
  std::vector<std::string_view> cells_;  // scratch; its size is the number of cells expected
  const Expected expected_;
};

// `label [qid:Q] index:value ... [# comment]`; columns are named by their index.
class LibsvmParser : public LineParser {
 public:
  // Column 0 is the label; the others are indices as text ("" for none).
  explicit LibsvmParser(const std::vector<std::string>& columns);
  bool Skips(std::string_view line) const override {
    return LineParser::Skips(line) || line.front() == '#';
  }
  absl::Status Parse(char* line, size_t size) override;

 private:
  absl::flat_hash_map<std::string, int> column_of_index_;
};

}  // namespace sluice
