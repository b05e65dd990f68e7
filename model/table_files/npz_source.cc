// Arrays of NumPy: .npz, and .npy with the weights alone.
//
// An .npz has the arrays of table_columns.h; or DeepRec's tensors of an exported EmbeddingVariable,
// NAME-keys, NAME-values (NAME-freqs and NAME-versions are not read), in parts NAME/part_I-keys,
// ... where the variable is partitioned.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/config/closest_name.h"
#include "model/table_files/array_reader.h"
#include "model/table_files/npy.h"
#include "model/table_files/table_source.h"
#include "model/table_files/zip_reader.h"

namespace sluice {
namespace {

constexpr absl::string_view kNpy = ".npy";
constexpr size_t kMostBlockTextBytes = 16 << 20;
constexpr absl::string_view kEvKeys = "-keys", kEvValues = "-values";

absl::Status InFile(const std::string& place, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(place, " ", status.message()));
}

class NpzSource : public TableSource {
 public:
  NpzSource(std::string file, const SourceOptions& options)
      : path_(std::move(file)), options_(options), columns_(*options.columns) {}

  absl::Status Init(Env* env) {
    auto opened = env->NewReader(path_);
    if (!opened.ok()) return InFile(absl::StrCat("cannot read ", path_, ":"), opened.status());
    file_ = *std::move(opened);
    has_.resize(columns_.floats().size());
    return absl::EndsWith(path_, kNpy) ? InitNpy() : InitNpz();
  }

  absl::StatusOr<bool> Next(SourceBlock* block) override {
    block->Clear();
    while (part_ < parts_.size() && done_ == parts_[part_].rows) {
      for (auto& array : parts_[part_].floats) SLUICE_RETURN_IF_ERROR(array.second.CheckEnd());
      for (auto& array : parts_[part_].named) SLUICE_RETURN_IF_ERROR(array.second.CheckEnd());
      ++part_;
      done_ = 0;
    }
    if (part_ == parts_.size()) return false;
    Part& part = parts_[part_];
    const size_t n = std::min<uint64_t>(part.block_rows, part.rows - done_);
    block->rows = n;
    const size_t row = columns_.row_floats();
    block->floats.resize(n * row);
    for (auto& [column, array] : part.floats) {
      SLUICE_RETURN_IF_ERROR(array.ReadFloats(
          n, array.header().width(), row, block->floats.data() + columns_.floats()[column].begin));
    }
    for (auto& [name, array] : part.named) {
      if (name == kKeyColumn || name == kValueColumn) {
        SLUICE_RETURN_IF_ERROR(array.is_text() ? array.ReadTexts(n, &block->texts)
                                               : array.ReadIntegers(n, &block->numbers));
      } else if (name == kFeatureColumn) {
        SLUICE_RETURN_IF_ERROR(array.ReadTexts(n, &block->features));
      } else if (name == kCountColumn) {
        SLUICE_RETURN_IF_ERROR(array.ReadIntegers(n, &block->count));
      } else {
        SLUICE_RETURN_IF_ERROR(array.ReadIntegers(n, &block->last_seen));
      }
    }
    done_ += n;
    return true;
  }

  std::string PlaceOf(uint64_t row) const override {
    for (const Part& part : parts_) {
      if (row < part.rows) return absl::StrCat(path_, part.name, ", row ", row);
      row -= part.rows;
    }
    return path_;
  }

 private:
  // Arrays with the same rows.
  struct Part {
    std::string name;  // " (NAME/part_0)", or ""
    uint64_t rows = 0;
    size_t block_rows = kSourceRows;                     // fewer where texts are long
    std::vector<std::pair<size_t, ArrayReader>> floats;  // by the table's columns
    std::map<std::string, ArrayReader> named;
  };

  std::string PlaceOfArray(const std::string& name) const {
    return absl::StrCat(path_, ": array '", name, "'");
  }

  // Checks the rows and the type of an array.
  absl::Status CheckArray(const ArrayReader& array, bool fits, absl::string_view wanted,
                          Part* part) const {
    const NpyHeader& header = array.header();
    if (!fits) {
      return absl::InvalidArgumentError(
          absl::StrCat(array.place(), " has the type ", header.descr, "; it must be ", wanted));
    }
    if (header.shape.empty())
      return absl::InvalidArgumentError(absl::StrCat(array.place(), " has no rows, but one value"));
    const bool first = part->floats.empty() && part->named.empty();
    if (!first && header.rows() != part->rows) {
      return absl::InvalidArgumentError(absl::StrCat(array.place(), " has ", header.rows(),
                                                     " rows, and the arrays before it ", part->rows,
                                                     "; they must have the same"));
    }
    part->rows = header.rows();
    return absl::OkStatus();
  }

  absl::Status AddFloats(size_t column, ArrayReader array, Part* part) {
    SLUICE_RETURN_IF_ERROR(CheckArray(array, array.header().kind == 'f', "floats", part));
    const TableColumns::Floats& wanted = columns_.floats()[column];
    if (array.header().shape.size() > 2) {
      return absl::InvalidArgumentError(absl::StrCat(array.place(), " has the shape ",
                                                     absl::StrJoin(array.header().shape, " x "),
                                                     "; save it as [rows, ", wanted.dim, "]"));
    }
    if (array.header().width() != wanted.dim)
      return WrongWidth(array.place(), array.header().width(), wanted.name, wanted.dim);
    has_[column] = true;
    part->floats.emplace_back(column, std::move(array));
    return absl::OkStatus();
  }

  absl::Status AddWeights(ArrayReader array, Part* part) {
    SLUICE_ASSIGN_OR_RETURN(
        const size_t column,
        ChooseGroup(columns_, options_.column, array.header().width(), array.place()));
    return AddFloats(column, std::move(array), part);
  }

  absl::Status AddNamed(const std::string& name, ArrayReader array, Part* part) {
    const bool text = name == kFeatureColumn, either = name == kValueColumn;
    const bool fits = (array.is_integer() && !text) || (array.is_text() && (text || either));
    SLUICE_RETURN_IF_ERROR(CheckArray(array, fits && array.header().shape.size() <= 1,
                                      text     ? "texts, one a row"
                                      : either ? "integers or texts, one a row"
                                               : "integers, one a row",
                                      part));
    if (name == kKeyColumn || name == kValueColumn) {
      signed_numbers_ = array.header().kind == 'i';
      if (name == kValueColumn) row_name_ = array.is_text() ? RowName::kText : RowName::kInteger;
    }
    part->block_rows = std::min(
        part->block_rows,
        std::max<size_t>(1, kMostBlockTextBytes / std::max<size_t>(1, array.header().item_bytes)));
    part->named.emplace(name, std::move(array));
    return absl::OkStatus();
  }

  absl::Status InitNpy() {
    SLUICE_ASSIGN_OR_RETURN(ArrayReader array,
                            ArrayReader::Open(path_, std::make_unique<FileStream>(
                                                         file_, 0, file_->info().identity.size)));
    row_name_ = RowName::kNumber;
    parts_.emplace_back();
    if (options_.names_only) {
      row_name_ = RowName::kKey;
      SLUICE_RETURN_IF_ERROR(AddNamed(options_.names_are_values ? kValueColumn : kKeyColumn,
                                      std::move(array), &parts_.back()));
      return Finish();
    }
    SLUICE_RETURN_IF_ERROR(AddWeights(std::move(array), &parts_.back()));
    return Finish();
  }

  absl::StatusOr<ArrayReader> OpenArray(const ZipReader::Member& member) {
    const std::string name(absl::StripSuffix(member.name, kNpy));
    auto stream = zip_->Read(member);
    if (!stream.ok()) return InFile(path_, stream.status());
    return ArrayReader::Open(PlaceOfArray(name), *std::move(stream));
  }

  absl::Status InitNpz() {
    auto zip = ZipReader::Open(file_);
    if (!zip.ok()) return InFile(path_, zip.status());
    zip_ = *std::move(zip);
    std::map<std::string, const ZipReader::Member*> arrays;
    for (const ZipReader::Member& member : zip_->members()) {
      if (absl::EndsWith(member.name, kNpy))
        arrays[std::string(absl::StripSuffix(member.name, kNpy))] = &member;
    }
    const bool deeprec = std::any_of(arrays.begin(), arrays.end(), [](const auto& array) {
      return absl::EndsWith(array.first, kEvKeys);
    });
    if (!deeprec && !options_.name.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--name=", options_.name, ": ", path_,
                       " has no EmbeddingVariables of DeepRec, NAME-keys; leave it out"));
    }
    SLUICE_RETURN_IF_ERROR(deeprec ? AddVariable(arrays) : AddTable(arrays));
    return Finish();
  }

  absl::Status AddTable(const std::map<std::string, const ZipReader::Member*>& arrays) {
    Part part;
    const auto take = [&](const std::string& name) {
      const auto found = arrays.find(name);
      return found == arrays.end() ? nullptr : found->second;
    };
    std::vector<std::string> named = {kKeyColumn};
    if (take(kKeyColumn) == nullptr) {
      row_name_ = RowName::kNumber;
      named = {kValueColumn, kFeatureColumn};
    }
    if (options_.state) named.insert(named.end(), {kCountColumn, kLastSeenColumn});
    std::vector<std::string> read;
    for (const std::string& name : named) {
      const ZipReader::Member* const member = take(name);
      if (member == nullptr) continue;
      SLUICE_ASSIGN_OR_RETURN(ArrayReader array, OpenArray(*member));
      SLUICE_RETURN_IF_ERROR(AddNamed(name, std::move(array), &part));
      read.push_back(name);
    }
    for (size_t i = 0; i < columns_.floats().size() && !options_.names_only; ++i) {
      const std::string& name = columns_.floats()[i].name;
      const ZipReader::Member* const member = take(name);
      if (member == nullptr || (i >= columns_.groups() && !options_.state)) continue;
      SLUICE_ASSIGN_OR_RETURN(ArrayReader array, OpenArray(*member));
      SLUICE_RETURN_IF_ERROR(AddFloats(i, std::move(array), &part));
      read.push_back(name);
    }
    const ZipReader::Member* const weights = take(kWeightsColumn);
    if (weights != nullptr && part.floats.empty() && !options_.names_only) {
      SLUICE_ASSIGN_OR_RETURN(ArrayReader array, OpenArray(*weights));
      SLUICE_RETURN_IF_ERROR(AddWeights(std::move(array), &part));
      read.push_back(kWeightsColumn);
    }
    has_features_ = part.named.count(kFeatureColumn) > 0;
    for (const auto& [name, member] : arrays) {
      if (std::find(read.begin(), read.end(), name) == read.end()) unused_.push_back(name);
    }
    if (options_.names_only) {
      if (part.named.empty() || part.named.begin()->first == kFeatureColumn) {
        return absl::InvalidArgumentError(
            absl::StrCat(path_, " has no array 'key' or 'value', which name rows; it has ",
                         absl::StrJoin(unused_, ", ")));
      }
    } else if (part.floats.empty()) {
      std::vector<std::string> names;
      for (size_t i = 0; i < columns_.groups(); ++i) names.push_back(columns_.floats()[i].name);
      return absl::InvalidArgumentError(
          absl::StrCat(path_, " has no array of the table's weights (", absl::StrJoin(names, ", "),
                       "); it has ", absl::StrJoin(unused_, ", ")));
    }
    parts_.push_back(std::move(part));
    return absl::OkStatus();
  }

  // The name of the variable to which a part belongs.
  static std::string VariableOf(const std::string& part) {
    const size_t at = part.rfind("/part_");
    return at == std::string::npos ? part : part.substr(0, at);
  }

  absl::Status AddVariable(const std::map<std::string, const ZipReader::Member*>& arrays) {
    std::vector<std::string> names;  // of the parts
    std::vector<std::string> variables;
    for (const auto& [name, member] : arrays) {
      if (!absl::EndsWith(name, kEvKeys)) continue;
      names.push_back(std::string(absl::StripSuffix(name, kEvKeys)));
      const std::string variable = VariableOf(names.back());
      if (variables.empty() || variables.back() != variable) variables.push_back(variable);
    }
    const std::string chosen =
        options_.name.empty() && variables.size() == 1 ? variables[0] : options_.name;
    if (std::find(variables.begin(), variables.end(), chosen) == variables.end()) {
      return absl::InvalidArgumentError(
          chosen.empty() ? absl::StrCat(path_, " has ", variables.size(),
                                        " EmbeddingVariables; give --name=NAME, one of ",
                                        absl::StrJoin(variables, ", "))
                         : absl::StrCat(path_, " has no EmbeddingVariable '", chosen, "'",
                                        DidYouMeanOrAll(chosen, variables)));
    }
    row_name_ = RowName::kInteger;
    for (const std::string& name : names) {
      if (VariableOf(name) != chosen) continue;
      const auto values = arrays.find(absl::StrCat(name, kEvValues));
      if (values == arrays.end() && !options_.names_only) {
        return absl::InvalidArgumentError(
            absl::StrCat(path_, " has '", name, kEvKeys, "' but no '", name, kEvValues, "'"));
      }
      Part part;
      part.name = absl::StrCat(" (", name, ")");
      SLUICE_ASSIGN_OR_RETURN(ArrayReader keys, OpenArray(*arrays.at(absl::StrCat(name, kEvKeys))));
      SLUICE_RETURN_IF_ERROR(CheckArray(keys, keys.is_integer() && keys.header().shape.size() == 1,
                                        "integers, one a row", &part));
      signed_numbers_ = keys.header().kind == 'i';
      part.named.emplace(kKeyColumn, std::move(keys));
      if (!options_.names_only) {
        SLUICE_ASSIGN_OR_RETURN(ArrayReader floats, OpenArray(*values->second));
        SLUICE_RETURN_IF_ERROR(AddWeights(std::move(floats), &part));
      }
      parts_.push_back(std::move(part));
    }
    for (const auto& [name, member] : arrays) {
      const size_t dash = name.rfind('-');
      const bool read = (absl::EndsWith(name, kEvKeys) || absl::EndsWith(name, kEvValues)) &&
                        VariableOf(name.substr(0, dash)) == chosen;
      if (!read) unused_.push_back(name);
    }
    return absl::OkStatus();
  }

  absl::Status Finish() {
    for (const Part& part : parts_) rows_ += part.rows;
    if (!options_.state) return absl::OkStatus();
    const auto& named = parts_[0].named;
    return CheckHasState(path_, columns_, has_,
                         named.count(kCountColumn) > 0 && named.count(kLastSeenColumn) > 0);
  }

  const std::string path_;
  const SourceOptions options_;
  const TableColumns& columns_;
  std::shared_ptr<FileReader> file_;
  std::unique_ptr<ZipReader> zip_;
  std::vector<Part> parts_;
  size_t part_ = 0;    // the part that is read
  uint64_t done_ = 0;  // its rows that have been read
};

}  // namespace

absl::StatusOr<std::unique_ptr<TableSource>> OpenNpzSource(const std::string& file,
                                                           const SourceOptions& options, Env* env) {
  auto source = std::make_unique<NpzSource>(file, options);
  SLUICE_RETURN_IF_ERROR(source->Init(env));
  return source;
}

}  // namespace sluice
