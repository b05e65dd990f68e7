#include "model/features/data_counts.h"

#include <utility>

namespace sluice {
namespace {

void SetBit(uint64_t bit, std::string* bits) {
  if (bits->size() <= bit / 8) bits->resize(bit / 8 + 1, '\0');
  (*bits)[bit / 8] = static_cast<char>((*bits)[bit / 8] | 1 << bit % 8);
}

}  // namespace

void DataCounts::CountValues() {
  for (const auto& [category, value] : line_) {
    if (vocabularies_.size() <= category) vocabularies_.resize(category + 1);
    Vocabulary& vocabulary = vocabularies_[category];
    if (value != kOutOfVocabulary) {
      SetBit(value, &vocabulary.seen);
      // An example counts once, however many of its values are outside.
    } else if (std::exchange(vocabulary.last_out, examples_) != examples_) {
      ++vocabulary.out_of_vocabulary;
    }
  }
}

void DataCounts::CountExample(const bool* missing, size_t columns, bool positive) {
  ++examples_;
  positive_ += positive;
  if (missing_.size() < columns) missing_.resize(columns);
  uint64_t* const counts = missing_.data();
  for (size_t i = 0; i < columns; ++i) counts[i] += missing[i];
  if (!line_.empty()) CountValues();
  if (label_value_ >= 0) SetBit(static_cast<uint64_t>(label_value_), &label_values_seen_);
  DropLine();
}

}  // namespace sluice
