// What the cells of examples hold, counted while they are parsed: missing values, values outside of
// a vocabulary, and which values of vocabularies and of the label occur at all.
//
// A line counts as a whole or not at all: what AddValue and AddLabelValue say of it counts with
// CountExample, and is gone with DropLine. Memory: a bit a vocabulary value that occurs. Thread
// safety: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace sluice {

class DataCounts {
 public:
  static constexpr uint32_t kOutOfVocabulary = UINT32_MAX;
  // Of a category: counts of examples, each once however many values it has.
  struct Vocabulary {
    uint64_t out_of_vocabulary = 0;
    std::string seen;       // bit i of byte i / 8: value i has occurred
    uint64_t last_out = 0;  // number, from 1, of the last example with a value outside
  };

  // Of the line being parsed. `category`: index of a category with a vocabulary; `value`: index in
  // it, or kOutOfVocabulary.
  void AddValue(uint32_t category, uint32_t value) { line_.emplace_back(category, value); }
  // Index in label.positive followed by label.negative.
  void AddLabelValue(uint32_t value) { label_value_ = static_cast<int64_t>(value); }
  void CountExample(const bool* missing, size_t columns, bool positive);
  void DropLine() {
    line_.clear();
    label_value_ = -1;
  }

  uint64_t examples() const { return examples_; }
  uint64_t positive() const { return positive_; }
  uint64_t MissingIn(size_t column) const {
    return column < missing_.size() ? missing_[column] : 0;
  }
  // Null: nothing was counted of it.
  const Vocabulary* OfCategory(size_t category) const {
    return category < vocabularies_.size() ? &vocabularies_[category] : nullptr;
  }
  const std::string& label_values_seen() const { return label_values_seen_; }

 private:
  void CountValues();

  uint64_t examples_ = 0, positive_ = 0;
  std::vector<uint64_t> missing_;  // [columns]
  std::vector<Vocabulary> vocabularies_;
  std::string label_values_seen_;
  // Of the line being parsed.
  std::vector<std::pair<uint32_t, uint32_t>> line_;  // category, value
  int64_t label_value_ = -1;
};

}  // namespace sluice
