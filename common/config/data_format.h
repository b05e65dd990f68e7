// The formats of data files (data_formats.inc), and what the configuration must know of each
// without reading a file. Only a format's own code asks for its enumerator; all other code asks for
// these properties.
//
// Thread safety: pure functions; the descriptions are constants.
#pragma once

#include <string>
#include <vector>

#include "proto/config.pb.h"

namespace sluice {

// How many values one cell of a column has, apart from what the options of a feature make of its
// text.
enum class CellValues {
  kOne,
  kAny,      // a categorical feature has several values
  kWeighted  // and each value has a weight
};

struct DataFormat {
  // data.csv says how lines are cut into cells, and csv.header or csv.columns what the columns are.
  bool delimited = false;
  const char* delimiter = "";    // delimited: the default
  bool fixed_delimiter = false;  // delimited: no other one is allowed
  bool slots = false;            // data.slots names the columns
  // The label has its place, as the column "label"; data.label.column is empty.
  bool label_first = false;
  bool numbered = false;         // columns are numbers, which no '*' matches
  bool signed_labels = false;    // -1 is label 0
  bool weighted_labels = false;  // a label may have a weight without data.weight_column
  bool absent_labels = false;    // csv.missing holds for the label too
  bool json = false;             // lines are JSON
  bool rows = false;             // files are no text, and positions in them are rows
  bool names_in_lines =
      false;  // each line names its columns, and may leave out those without a value
  // A line that does not fit the columns may be a header; says what to do with it. Empty: no file
  // has one.
  const char* remedy_of_header = "";
  // Where the configuration names the columns, for messages: "'x' is not ... ".
  const char* place_of_columns = "";
  // The indices of columns that messages about too many features name: one-hot data.
  const char* one_hot = "";
  // The columns in the order of a line, where format or configuration names them; else none.
  std::vector<std::string> (*named_columns)(const DataConfig& data) = nullptr;
  CellValues (*values_of)(const DataConfig& data, const std::string& column) = nullptr;
};

// Without a format: a description without properties.
const DataFormat& FormatOf(const DataConfig& data);

// "CSV, TSV, ... or JSON_LINES".
std::string FormatNames();

inline CellValues ValuesOf(const DataConfig& data, const std::string& column) {
  return FormatOf(data).values_of(data, column);
}

}  // namespace sluice
