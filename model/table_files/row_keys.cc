#include "model/table_files/row_keys.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"

namespace sluice {

absl::StatusOr<RowKeys> RowKeys::Create(const JobConfig& job, const ModelSpec& spec,
                                        const Options& options, const TableSource& source,
                                        Env* env) {
  RowKeys keys(job, spec, source, options.table);
  SLUICE_RETURN_IF_ERROR(keys.CheckNames(options));
  if (!options.feature.empty()) {
    SLUICE_ASSIGN_OR_RETURN(keys.only_, keys.KeysOf(options.feature));
  }
  if (source.row_name() != RowName::kNumber) return keys;
  if (!options.vocabulary.empty()) {
    SLUICE_ASSIGN_OR_RETURN(keys.vocabulary_, Vocabulary::Read(options.vocabulary, env));
    return keys;
  }
  if (keys.only_ != nullptr && !keys.only_->raw()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the rows have only numbers, and feature '", options.feature,
        "' hashes its values: give --vocabulary=FILE, whose line i is the value of row i; or "
        "declare the feature with key: RAW, so that its values are the numbers"));
  }
  return keys;
}

absl::Status RowKeys::CheckNames(const Options& options) const {
  const auto features = [&] { return absl::StrJoin(FeaturesOf(spec_, table_), ", "); };
  const RowName name = source_.row_name();
  if (!options.vocabulary.empty() && (name != RowName::kNumber || options.feature.empty())) {
    return absl::InvalidArgumentError(
        name != RowName::kNumber
            ? "--vocabulary names rows that have only numbers; these have keys or values: leave it "
              "out"
            : absl::StrCat("--vocabulary needs --feature=NAME, the feature whose values it has: ",
                           "one of ", features()));
  }
  if (name == RowName::kKey) {
    if (options.feature.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "the file has keys of the table (key), not values of a feature; leave out --feature, or "
        "name the column value");
  }
  if (name == RowName::kNumber && source_.has_features()) {
    return absl::InvalidArgumentError(
        "the file has a column 'feature', but no column 'value' with the values of the rows; add "
        "it, or remove 'feature'");
  }
  if (!options.feature.empty() || source_.has_features()) return absl::OkStatus();
  // Integers may be the keys themselves, but only where the job says so.
  if (name != RowName::kText && HasRawKeys(job_, spec_, table_)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      name == RowName::kText ? "the rows have values" : "the rows have integers",
      ", which become keys by the job's feature: give --feature=NAME, one of ", features(),
      name == RowName::kText ? ""
                             : ". Integers are keys as they are only of features with key: RAW"));
}

absl::StatusOr<const FeatureKeys*> RowKeys::KeysOf(const std::string& feature) {
  const auto found = features_.find(feature);
  if (found != features_.end()) return &found->second;
  SLUICE_ASSIGN_OR_RETURN(FeatureKeys keys, FeatureKeys::Create(job_, spec_, feature));
  if (keys.table() != table_) {
    return absl::InvalidArgumentError(absl::StrCat("the rows of feature '", feature,
                                                   "' are in table '", keys.table(), "', not in '",
                                                   table_, "'"));
  }
  return &features_.emplace(feature, std::move(keys)).first->second;
}

std::string RowKeys::ValueOf(const SourceBlock& block, size_t i, uint64_t first_row) const {
  switch (source_.row_name()) {
    case RowName::kText:
      return block.texts[i];
    case RowName::kNumber:
      if (vocabulary_ && first_row + i < vocabulary_->size())
        return std::string(vocabulary_->value(first_row + i));
      return absl::StrCat(first_row + i);
    default:
      return source_.signed_numbers() ? absl::StrCat(static_cast<int64_t>(block.numbers[i]))
                                      : absl::StrCat(block.numbers[i]);
  }
}

std::string RowKeys::NameOf(const SourceBlock& block, size_t i, uint64_t first_row) const {
  if (source_.row_name() == RowName::kKey) return absl::StrCat("key ", block.numbers[i]);
  const std::string value = absl::CHexEscape(ValueOf(block, i, first_row).substr(0, 60));
  return absl::StrCat(
      "value '", value, "'",
      block.features.empty()
          ? ""
          : absl::StrCat(" of feature '", absl::CHexEscape(block.features[i]), "'"));
}

uint64_t RowKeys::LinesBehind(uint64_t rows) const {
  return vocabulary_ && vocabulary_->size() > rows ? vocabulary_->size() - rows : 0;
}

bool RowKeys::folded() const {
  return std::any_of(features_.begin(), features_.end(),
                     [](const auto& one) { return one.second.folded(); });
}

absl::Status RowKeys::Resolve(const SourceBlock& block, uint64_t first_row,
                              std::vector<std::optional<uint64_t>>* keys) {
  keys->clear();
  if (vocabulary_ && first_row + block.rows > vocabulary_->size()) {
    return absl::InvalidArgumentError(absl::StrCat("the vocabulary has ", vocabulary_->size(),
                                                   " lines, but the table has more rows; give one "
                                                   "with a line for each row"));
  }
  const RowName name = source_.row_name();
  const FeatureKeys* feature = only_;
  const std::string* of = nullptr;  // the feature of `feature`, where rows name theirs
  for (size_t i = 0; i < block.rows; ++i) {
    if (only_ != nullptr && !block.features.empty() && block.features[i] != only_->feature()) {
      return absl::InvalidArgumentError(absl::StrCat(
          source_.PlaceOf(first_row + i), " (", NameOf(block, i, first_row),
          ") is no row of feature '", only_->feature(),
          "'; leave out --feature, and each row has the feature of its column 'feature'"));
    }
    if (only_ == nullptr && !block.features.empty() &&
        (of == nullptr || *of != block.features[i])) {
      of = &block.features[i];
      SLUICE_ASSIGN_OR_RETURN(feature, KeysOf(*of));
    }
    if (feature == nullptr || (feature->raw() && !vocabulary_ && name != RowName::kText)) {
      keys->push_back(name == RowName::kNumber ? first_row + i : block.numbers[i]);
    } else {
      keys->push_back(feature->KeyOf(ValueOf(block, i, first_row)));
    }
  }
  return absl::OkStatus();
}

}  // namespace sluice
