// Counts what the data holds while it is parsed, merges the summaries of pieces and ranks
// (DataSummary), and warns about suspicious data.
//
// Thread safety: the free functions are safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/config.pb.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// Counts the cell contents of examples while they are parsed; FeatureSchema::Summarize makes a
// DataSummary of them.
//
// Counts missing values and values outside a vocabulary, and marks with bits which vocabulary and
// label values occur.
//
// Invariants: a line counts as a whole or not at all. CountExample counts the values that AddValue
// and AddLabelValue have noted; DropLine forgets them.
//
// Memory: one bit per vocabulary value that occurs.
//
// Thread safety: one thread.
class DataCounts {
 public:
  static constexpr uint32_t kOutOfVocabulary = UINT32_MAX;
  // The counts of a category. An example counts once, however many values it has.
  struct Vocabulary {
    uint64_t out_of_vocabulary = 0;
    std::string seen;       // bit i of byte i / 8: value i has occurred
    uint64_t last_out = 0;  // number, from 1, of the last example with a value outside it
  };

  // Notes a value of the line being parsed. `category` is the index of a category with a
  // vocabulary; `value` is an index in it, or kOutOfVocabulary.
  void AddValue(uint32_t category, uint32_t value) { line_.emplace_back(category, value); }
  // Notes the label of the line, as an index in label.positive followed by label.negative.
  void AddLabelValue(uint32_t value) { label_value_ = static_cast<int64_t>(value); }
  // A header line in the middle of a file was skipped.
  void CountRepeatedHeader() { ++repeated_headers_; }
  void CountExample(const bool* missing, size_t columns, bool positive);
  // The same for examples of columns, whose parts are counted one after the other: each value of a
  // vocabulary, with the place from 0 of its example among those that CountExamples counts then.
  void CountValue(uint32_t category, uint32_t value, uint64_t place);
  void CountLabelValue(uint32_t value);
  void CountMissing(size_t column, size_t columns, uint64_t n);
  void CountExamples(uint64_t n, uint64_t positive);
  // The values that AddValue has noted of the line, which is dropped.
  std::vector<std::pair<uint32_t, uint32_t>> TakeValues() {
    auto values = std::move(line_);
    DropLine();
    return values;
  }
  void DropLine() {
    line_.clear();
    label_value_ = -1;
  }

  uint64_t examples() const { return examples_; }
  uint64_t positive() const { return positive_; }
  uint64_t repeated_headers() const { return repeated_headers_; }
  uint64_t MissingIn(size_t column) const {
    return column < missing_.size() ? missing_[column] : 0;
  }
  // Null when no value of the category was counted.
  const Vocabulary* OfCategory(size_t category) const {
    return category < vocabularies_.size() ? &vocabularies_[category] : nullptr;
  }
  const std::string& label_values_seen() const { return label_values_seen_; }

 private:
  uint64_t examples_ = 0, positive_ = 0, repeated_headers_ = 0;
  std::vector<uint64_t> missing_;  // [columns]
  std::vector<Vocabulary> vocabularies_;
  std::string label_values_seen_;
  // The values of the line being parsed.
  std::vector<std::pair<uint32_t, uint32_t>> line_;  // category, value
  int64_t label_value_ = -1;
};

// Adds the summary of other text: sums the counts and unites the bits.
void AddSummary(const DataSummary& from, DataSummary* to);

// INVALID_ARGUMENT when a summary (bytes from a peer) has more features, or more values of a
// vocabulary or of the label, than the job.
absl::Status CheckSummary(const JobConfig& job, const DataSummary& summary);

// Whether the vocabulary or label value with index `value` has occurred.
bool HasOccurred(const std::string& seen, size_t value);

// What to do when the weights of all examples are 0.
std::string RemedyOfZeroWeights(const DataConfig& data);

// Warnings about the training data, one line each: a class without examples, a feature without
// values, or vocabulary values that never occur.
std::vector<std::string> WarningsOfTraining(const JobConfig& job, const DataSummary& training);
// Warnings about values of data.label that occur neither in the training nor in the evaluation
// data. An empty summary stands for no data.
std::vector<std::string> WarningsOfLabel(const JobConfig& job, const DataSummary& training,
                                         const DataSummary& evaluation);

}  // namespace sluice
