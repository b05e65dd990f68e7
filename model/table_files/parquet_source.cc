// Parquet, through common/arrow/parquet.h: the columns of table_columns.h. Weights and state are
// lists of floats, of fixed size or not; others are integers and texts.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/arrow/parquet.h"
#include "common/base/status_macros.h"
#include "model/table_files/table_source.h"

namespace sluice {
namespace {

// Of a batch; one long text in a dictionary may stand in every row.
constexpr size_t kMostBatchTextBytes = 256 << 20;

// Integers of `size` bytes at `from`, widened; negative ones in two's complement.
template <typename Narrow, typename Wide>
void AppendWidened(const void* from, int64_t offset, int64_t n, std::vector<Wide>* to) {
  const Narrow* const values = static_cast<const Narrow*>(from) + offset;
  for (int64_t i = 0; i < n; ++i) to->push_back(static_cast<Wide>(values[i]));
}

bool IsInteger(absl::string_view format) {
  return format.size() == 1 && absl::StrContains("cCsSiIlL", format);
}
bool IsSigned(absl::string_view format) { return absl::StrContains("csil", format); }

template <typename Wide>
void AppendIntegers(const ArrowArray& array, char format, std::vector<Wide>* to) {
  const void* const from = array.buffers[1];
  switch (format) {
    case 'c':
      return AppendWidened<int8_t>(from, array.offset, array.length, to);
    case 'C':
      return AppendWidened<uint8_t>(from, array.offset, array.length, to);
    case 's':
      return AppendWidened<int16_t>(from, array.offset, array.length, to);
    case 'S':
      return AppendWidened<uint16_t>(from, array.offset, array.length, to);
    case 'i':
      return AppendWidened<int32_t>(from, array.offset, array.length, to);
    case 'I':
      return AppendWidened<uint32_t>(from, array.offset, array.length, to);
    default:
      return AppendWidened<uint64_t>(from, array.offset, array.length, to);
  }
}

bool IsText(absl::string_view format) {
  return format.size() == 1 && absl::StrContains("uUzZ", format);
}

template <typename Offset>
void AppendText(const ArrowArray& array, int64_t i, std::vector<std::string>* to) {
  const auto* const offsets = static_cast<const Offset*>(array.buffers[1]) + array.offset;
  const char* const bytes = static_cast<const char*>(array.buffers[2]);
  to->emplace_back(bytes + offsets[i], static_cast<size_t>(offsets[i + 1] - offsets[i]));
}

// Text i of an array of this format.
void AppendText(const ArrowArray& array, char format, int64_t i, std::vector<std::string>* to) {
  return format == 'u' || format == 'z' ? AppendText<int32_t>(array, i, to)
                                        : AppendText<int64_t>(array, i, to);
}

class ParquetSource : public TableSource {
 public:
  ParquetSource(std::string file, const SourceOptions& options)
      : path_(std::move(file)), options_(options), columns_(*options.columns) {}

  absl::Status Init(Env* env) {
    auto file = env->NewReader(path_);
    if (!file.ok()) {
      return absl::Status(file.status().code(),
                          absl::StrCat("cannot read ", path_, ": ", file.status().message()));
    }
    auto reader = ParquetReader::Open(*std::move(file));
    if (!reader.ok()) return InFile(reader.status());
    reader_ = *std::move(reader);
    has_.resize(columns_.floats().size());
    SLUICE_RETURN_IF_ERROR(ChooseColumns());
    if (options_.state) {
      SLUICE_RETURN_IF_ERROR(CheckHasState(path_, columns_, has_,
                                           Find(kCountColumn) >= 0 && Find(kLastSeenColumn) >= 0));
    }
    std::vector<uint64_t> groups;
    for (uint64_t group = 0; group < reader_->row_groups(); ++group) {
      auto info = reader_->RowGroup(group, chosen_);
      if (!info.ok()) return InFile(info.status());
      rows_ += info->rows;
      groups.push_back(group);
    }
    auto batches = reader_->Read(groups, chosen_, kSourceRows, /*dictionaries=*/false);
    if (!batches.ok()) return InFile(batches.status());
    batches_ = *std::move(batches);
    // Dictionaries may be read with other types than the file's schema says.
    for (size_t i = 0; i < uses_.size(); ++i) {
      if (uses_[i].index_format == 0) continue;
      const ArrowSchema& read = *batches_->schema().children[i];
      uses_[i].index_format = read.dictionary == nullptr ? 0 : read.format[0];
      uses_[i].format = read.dictionary == nullptr ? read.format : read.dictionary->format;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Next(SourceBlock* block) override {
    block->Clear();
    while (true) {
      auto batch = batches_->Next();
      if (!batch.ok()) return InFile(batch.status());
      if (batch->empty()) return false;
      if ((*batch)->length == 0) continue;
      const ArrowArray& rows = **batch;
      block->rows = static_cast<size_t>(rows.length);
      block->floats.resize(block->rows * columns_.row_floats());
      for (size_t i = 0; i < uses_.size(); ++i) {
        ArrowArray column = *rows.children[i];
        column.offset += rows.offset;
        column.length = rows.length;
        SLUICE_RETURN_IF_ERROR(ReadColumn(uses_[i], column, block));
      }
      done_ += block->rows;
      return true;
    }
  }

  std::string PlaceOf(uint64_t row) const override { return absl::StrCat(path_, ", row ", row); }

 private:
  // What a chosen column is for: a column of the table, or one of the names.
  struct Use {
    std::string name;
    std::string format;  // of the values; of a list, of its items
    size_t floats = SIZE_MAX;
    uint64_t list = 0;       // values of a fixed-size list; 0: none, or of any size
    char offset_format = 0;  // of a list of any size: 'l' or 'L'
    char index_format = 0;   // of the numbers of categories, whose texts have `format`; 0: none
  };

  absl::Status InFile(const absl::Status& status) const {
    return absl::Status(status.code(), absl::StrCat(path_, ": ", status.message()));
  }
  absl::Status InColumn(const std::string& name, absl::string_view why) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": column '", name, "' ", why));
  }

  int32_t Find(absl::string_view name) const {
    const ArrowSchema& schema = reader_->schema();
    for (int64_t i = 0; i < schema.n_children; ++i) {
      if (schema.children[i]->name == name) return static_cast<int32_t>(i);
    }
    return -1;
  }

  absl::Status ChooseColumns() {
    const bool keys = Find(kKeyColumn) >= 0;
    if (!keys) row_name_ = RowName::kNumber;
    std::vector<std::string> named = {kKeyColumn};
    if (!keys) named = {kValueColumn, kFeatureColumn};
    if (options_.state) named.insert(named.end(), {kCountColumn, kLastSeenColumn});
    for (const std::string& name : named) {
      if (Find(name) >= 0) SLUICE_RETURN_IF_ERROR(UseNamed(name));
    }
    bool any = false;
    for (size_t i = 0; i < columns_.floats().size() && !options_.names_only; ++i) {
      if (i >= columns_.groups() && !options_.state) break;
      const int32_t column = Find(columns_.floats()[i].name);
      if (column < 0) continue;
      SLUICE_RETURN_IF_ERROR(UseFloats(column, i));
      any = true;
    }
    if (const int32_t weights = Find(kWeightsColumn);
        !any && weights >= 0 && !options_.names_only) {
      SLUICE_ASSIGN_OR_RETURN(Use use, FloatsOf(weights));
      // Lists of any size: the first one tells which column of the table they are.
      if (use.list == 0) {
        SLUICE_ASSIGN_OR_RETURN(use.list, FirstWidth(weights, use.offset_format));
      }
      SLUICE_ASSIGN_OR_RETURN(const size_t group,
                              ChooseGroup(columns_, options_.column, use.list,
                                          absl::StrCat(path_, ": column '", kWeightsColumn, "'")));
      SLUICE_RETURN_IF_ERROR(UseFloats(weights, group));
      any = true;
    }
    const ArrowSchema& schema = reader_->schema();
    for (int32_t i = 0; i < schema.n_children; ++i) {
      if (std::find(chosen_.begin(), chosen_.end(), i) == chosen_.end())
        unused_.push_back(schema.children[i]->name);
    }
    if (options_.names_only && row_name_ == RowName::kNumber) {
      return absl::InvalidArgumentError(
          absl::StrCat(path_, " has no column 'key' or 'value', which name rows; it has ",
                       absl::StrJoin(unused_, ", ")));
    }
    if (any || options_.names_only) return absl::OkStatus();
    std::vector<std::string> names;
    for (size_t i = 0; i < columns_.groups(); ++i) names.push_back(columns_.floats()[i].name);
    return absl::InvalidArgumentError(absl::StrCat(path_, " has no column of the table's weights (",
                                                   absl::StrJoin(names, ", "), "); it has ",
                                                   absl::StrJoin(unused_, ", ")));
  }

  absl::Status UseNamed(const std::string& name) {
    const int32_t column = Find(name);
    const ArrowSchema& schema = *reader_->schema().children[column];
    // Categories of pandas are texts in a dictionary, and the column has their numbers.
    const bool categories = schema.dictionary != nullptr;
    const std::string format = categories ? schema.dictionary->format : schema.format;
    const bool text = IsText(format);
    const bool wants_text = name == kFeatureColumn, either = name == kValueColumn;
    if (!((text && (wants_text || either)) || (IsInteger(format) && !wants_text && !categories))) {
      return InColumn(name, absl::StrCat("has the type ", format, " of Arrow; it must be ",
                                         wants_text ? "text"
                                         : either   ? "integers or text"
                                                    : "integers"));
    }
    if (name == kKeyColumn || either) signed_numbers_ = IsSigned(format);
    if (either) row_name_ = text ? RowName::kText : RowName::kInteger;
    has_features_ |= wants_text;
    Use use;
    use.name = name;
    use.format = format;
    if (categories) use.index_format = schema.format[0];
    uses_.push_back(std::move(use));
    chosen_.push_back(column);
    return absl::OkStatus();
  }

  // The type of a column of lists of floats.
  absl::StatusOr<Use> FloatsOf(int32_t column) const {
    const ArrowSchema& schema = *reader_->schema().children[column];
    const absl::string_view format = schema.format;
    Use use;
    use.name = schema.name;
    const bool list = absl::StartsWith(format, "+w:") || format == "+l" || format == "+L";
    const ArrowSchema& item = list ? *schema.children[0] : schema;
    use.format = item.format;
    if (use.format != "f" && use.format != "g") {
      return InColumn(use.name, absl::StrCat("has the type ", format,
                                             " of Arrow; it must be a list "
                                             "of float32 or float64"));
    }
    if (format == "+l" || format == "+L") use.offset_format = format == "+l" ? 'l' : 'L';
    if (absl::StartsWith(format, "+w:")) use.list = strtoull(schema.format + 3, nullptr, 10);
    if (!list) use.list = 1;
    return use;
  }

  // The number of values in the first list of a column; 0 when there is none.
  absl::StatusOr<uint64_t> FirstWidth(int32_t column, char offset_format) const {
    for (uint64_t group = 0; group < reader_->row_groups(); ++group) {
      auto rows = reader_->Read({group}, {column}, 1, /*dictionaries=*/false);
      if (!rows.ok()) return InFile(rows.status());
      auto batch = (*rows)->Next();
      if (!batch.ok()) return InFile(batch.status());
      if (batch->empty() || (*batch)->length == 0) continue;
      const ArrowArray& list = *(*batch)->children[0];
      const int64_t at = list.offset + (*batch)->offset;
      const auto width = [&](const auto* offsets) {
        return static_cast<uint64_t>(offsets[at + 1] - offsets[at]);
      };
      return offset_format == 'l' ? width(static_cast<const int32_t*>(list.buffers[1]))
                                  : width(static_cast<const int64_t*>(list.buffers[1]));
    }
    return 0;
  }

  absl::Status UseFloats(int32_t column, size_t floats) {
    SLUICE_ASSIGN_OR_RETURN(Use use, FloatsOf(column));
    const TableColumns::Floats& wanted = columns_.floats()[floats];
    if (use.list > 0 && use.list != wanted.dim) {
      return WrongWidth(absl::StrCat(path_, ": column '", use.name, "'"), use.list, wanted.name,
                        wanted.dim);
    }
    use.floats = floats;
    has_[floats] = true;
    uses_.push_back(std::move(use));
    chosen_.push_back(column);
    return absl::OkStatus();
  }

  static bool IsNull(const ArrowArray& array, int64_t i) {
    if (array.null_count == 0 || array.n_buffers == 0 || array.buffers[0] == nullptr) return false;
    const int64_t at = array.offset + i;
    return (static_cast<const uint8_t*>(array.buffers[0])[at / 8] >> (at % 8) & 1) == 0;
  }

  absl::Status CheckNoNulls(const Use& use, const ArrowArray& array, uint64_t per_row) const {
    for (int64_t i = 0; i < array.length; ++i) {
      if (!IsNull(array, i)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(PlaceOf(done_ + static_cast<uint64_t>(i) / per_row), ": column '", use.name,
                       "' is null; a row of a table has all its values"));
    }
    return absl::OkStatus();
  }

  absl::Status ReadColumn(const Use& use, const ArrowArray& array, SourceBlock* block) const {
    if (array.null_count != 0) SLUICE_RETURN_IF_ERROR(CheckNoNulls(use, array, 1));
    if (use.floats != SIZE_MAX) return ReadFloats(use, array, block);
    if (IsText(use.format)) {
      return ReadTexts(use, array, use.name == kFeatureColumn ? &block->features : &block->texts);
    }
    if (use.name != kCountColumn) {
      AppendIntegers(array, use.format[0],
                     use.name == kLastSeenColumn ? &block->last_seen : &block->numbers);
      return absl::OkStatus();
    }
    std::vector<uint64_t> wide;
    AppendIntegers(array, use.format[0], &wide);
    for (const uint64_t value : wide) {
      if (value > UINT32_MAX)
        return InColumn(use.name, absl::StrCat("has ", value, "; it must be below 2^32"));
      block->count.push_back(static_cast<uint32_t>(value));
    }
    return absl::OkStatus();
  }

  // Appends the texts of a column.
  absl::Status ReadTexts(const Use& use, const ArrowArray& array,
                         std::vector<std::string>* to) const {
    const auto refuse = [&](size_t row, absl::string_view why) {
      return absl::InvalidArgumentError(
          absl::StrCat(PlaceOf(done_ + row), ": column '", use.name, "' ", why));
    };
    const bool categories = use.index_format != 0;
    std::vector<uint64_t> indices;
    if (categories) AppendIntegers(array, use.index_format, &indices);
    const ArrowArray& texts = categories ? *array.dictionary : array;
    size_t bytes = 0;
    for (size_t row = 0; row < static_cast<size_t>(array.length); ++row) {
      const uint64_t i = categories ? indices[row] : row;
      if (categories &&
          (i >= static_cast<uint64_t>(texts.length) || IsNull(texts, static_cast<int64_t>(i))))
        return refuse(row, "has a category without a text");
      AppendText(texts, use.format[0], static_cast<int64_t>(i), to);
      bytes += to->back().size();
      if (bytes > kMostBatchTextBytes) return refuse(row, "has texts that are too long for values");
    }
    return absl::OkStatus();
  }

  absl::Status ReadFloats(const Use& use, const ArrowArray& array, SourceBlock* block) const {
    const TableColumns::Floats& column = columns_.floats()[use.floats];
    const bool list = use.offset_format != 0 || array.n_children > 0;
    ArrowArray items = list ? *array.children[0] : array;
    if (use.offset_format != 0) {
      SLUICE_RETURN_IF_ERROR(use.offset_format == 'l'
                                 ? FindItems<int32_t>(use, column, array, *block, &items)
                                 : FindItems<int64_t>(use, column, array, *block, &items));
    } else if (list) {
      items.offset += array.offset * column.dim;
    }
    items.length = array.length * column.dim;
    if (items.null_count != 0) SLUICE_RETURN_IF_ERROR(CheckNoNulls(use, items, column.dim));
    const size_t stride = columns_.row_floats();
    float* to = block->floats.data() + column.begin;
    if (use.format == "f") {
      const float* from = static_cast<const float*>(items.buffers[1]) + items.offset;
      for (int64_t i = 0; i < array.length; ++i, to += stride, from += column.dim)
        std::memcpy(to, from, column.dim * sizeof(float));
      return absl::OkStatus();
    }
    const double* from = static_cast<const double*>(items.buffers[1]) + items.offset;
    for (int64_t i = 0; i < array.length; ++i, to += stride, from += column.dim) {
      for (uint32_t j = 0; j < column.dim; ++j) to[j] = static_cast<float>(from[j]);
    }
    return absl::OkStatus();
  }

  // Checks that all lists have the column's width: their items then follow each other.
  template <typename Offset>
  absl::Status FindItems(const Use& use, const TableColumns::Floats& column,
                         const ArrowArray& array, const SourceBlock& block,
                         ArrowArray* items) const {
    const auto* const offsets = static_cast<const Offset*>(array.buffers[1]) + array.offset;
    for (int64_t i = 0; i < array.length; ++i) {
      const uint64_t width = static_cast<uint64_t>(offsets[i + 1] - offsets[i]);
      if (width == column.dim) continue;
      // The names of rows are read first.
      const std::string key = i < static_cast<int64_t>(block.numbers.size())
                                  ? absl::StrCat(" (key ", block.numbers[i], ")")
                                  : "";
      return WrongWidth(
          absl::StrCat(PlaceOf(done_ + static_cast<uint64_t>(i)), key, ": column '", use.name, "'"),
          width, column.name, column.dim);
    }
    items->offset += offsets[0];
    return absl::OkStatus();
  }

  const std::string path_;
  const SourceOptions options_;
  const TableColumns& columns_;
  std::unique_ptr<ParquetReader> reader_;
  std::vector<int32_t> chosen_;  // columns of the file
  std::vector<Use> uses_;        // of chosen_
  std::unique_ptr<ParquetRows> batches_;
  uint64_t done_ = 0;  // rows of earlier batches
};

}  // namespace

absl::StatusOr<std::unique_ptr<TableSource>> OpenParquetSource(const std::string& file,
                                                               const SourceOptions& options,
                                                               Env* env) {
  auto source = std::make_unique<ParquetSource>(file, options);
  SLUICE_RETURN_IF_ERROR(source->Init(env));
  return source;
}

}  // namespace sluice
