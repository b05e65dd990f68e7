#include "common/config/data_format.h"

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

std::vector<std::string> NoColumns(const DataConfig&) { return {}; }

CellValues OneValue(const DataConfig&, const std::string&) { return CellValues::kOne; }

std::vector<std::string> ListedColumns(const DataConfig& data) {
  return {data.csv().columns().begin(), data.csv().columns().end()};
}

std::vector<std::string> CriteoColumns(const DataConfig&) {
  std::vector<std::string> names = {"label"};
  for (int i = 1; i <= 13; ++i) names.push_back(absl::StrCat("I", i));
  for (int i = 1; i <= 26; ++i) names.push_back(absl::StrCat("C", i));
  return names;
}

std::vector<std::string> SlotColumns(const DataConfig& data) {
  std::vector<std::string> names;
  for (const Slot& slot : data.slots()) {
    if (slot.dim() <= 1) names.push_back(slot.name());
    for (uint32_t i = 0; slot.dim() > 1 && i < slot.dim(); ++i)
      names.push_back(absl::StrCat(slot.name(), ".", i));
  }
  return names;
}

CellValues ValuesOfSlot(const DataConfig& data, const std::string& column) {
  for (const Slot& slot : data.slots()) {
    if (slot.name() == column && slot.dim() == 0) return CellValues::kAny;
  }
  return CellValues::kOne;
}

DataFormat Describe() {
  DataFormat format;
  format.named_columns = &NoColumns;
  format.values_of = &OneValue;
  return format;
}

DataFormat DescribeCsv() {
  DataFormat format = Describe();
  format.delimited = true;
  format.delimiter = ",";
  format.absent_labels = true;
  format.remedy_of_header = "csv.header: true in place of columns";
  format.place_of_columns = "among data.csv.columns";
  format.named_columns = &ListedColumns;
  return format;
}

DataFormat DescribeTsv() {
  DataFormat format = DescribeCsv();
  format.delimiter = "\t";
  format.fixed_delimiter = true;
  return format;
}

// Columns are indices, which only the data knows.
DataFormat DescribeLibsvm() {
  DataFormat format = Describe();
  format.label_first = format.numbered = format.signed_labels = format.weighted_labels = true;
  // Data sets such as avazu, kdd12 and criteo are published in this form.
  format.one_hot =
      "; in one-hot LIBSVM data each index is a value: declare one feature of all indices, "
      "features { name: \"indices\" categorical {} }";
  format.values_of = [](const DataConfig&, const std::string& column) {
    return column == "indices" ? CellValues::kWeighted : CellValues::kOne;
  };
  return format;
}

DataFormat DescribeLibffm() {
  DataFormat format = Describe();
  format.label_first = format.numbered = format.signed_labels = true;
  format.one_hot =
      "; the columns of LIBFFM are fields and not indices: declare one feature for each field, "
      "such as name: \"{0..38}\"";
  // Other columns are those of folders.
  format.values_of = [](const DataConfig&, const std::string& column) {
    const bool field = column.find_first_not_of("0123456789") == std::string::npos;
    return field ? CellValues::kWeighted : CellValues::kOne;
  };
  return format;
}

DataFormat DescribeCriteoTsv() {
  DataFormat format = Describe();
  format.label_first = format.absent_labels = true;
  format.remedy_of_header = "format to TSV with csv.header: true";
  format.place_of_columns = "a column of CRITEO_TSV (label, I1 to I13, C1 to C26)";
  format.named_columns = &CriteoColumns;
  return format;
}

DataFormat DescribeMultiSlot() {
  DataFormat format = Describe();
  format.slots = true;
  format.place_of_columns = "among data.slots";
  format.named_columns = &SlotColumns;
  format.values_of = &ValuesOfSlot;
  return format;
}

DataFormat DescribeSlotValue() {
  DataFormat format = DescribeMultiSlot();
  format.names_in_lines = true;
  return format;
}

DataFormat DescribeJsonLines() {
  DataFormat format = Describe();
  format.absent_labels = format.json = format.names_in_lines = true;
  format.values_of = [](const DataConfig&, const std::string&) { return CellValues::kAny; };
  return format;
}

DataFormat DescribeParquet() {
  DataFormat format = Describe();
  format.absent_labels = format.rows = true;
  format.values_of = [](const DataConfig&, const std::string&) { return CellValues::kAny; };
  return format;
}

}  // namespace

const DataFormat& FormatOf(const DataConfig& data) {
  switch (data.format()) {
#define SLUICE_DATA_FORMAT(enumerator, Name)            \
  case DataConfig::enumerator: {                        \
    static const DataFormat kFormat = Describe##Name(); \
    return kFormat;                                     \
  }
#include "common/config/data_formats.inc"
#undef SLUICE_DATA_FORMAT
    default: {
      static const DataFormat kNone = Describe();
      return kNone;
    }
  }
}

std::string FormatNames() {
  const char* const names[] = {
#define SLUICE_DATA_FORMAT(enumerator, Name) #enumerator,
#include "common/config/data_formats.inc"
#undef SLUICE_DATA_FORMAT
  };
  constexpr size_t kNames = sizeof names / sizeof names[0];
  std::string text;
  for (size_t i = 0; i < kNames; ++i)
    absl::StrAppend(&text, i == 0 ? "" : i + 1 == kNames ? " or " : ", ", names[i]);
  return text;
}

}  // namespace sluice
