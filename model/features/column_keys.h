// Computes the keys of a block of columns, a column at a time: of categories, buckets, parts of
// dates and crosses.
//
// A value of a dictionary is hashed once, however many rows have it.
//
// Memory: the keys of one block, and those of the values of the last dictionaries.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/features/batch.h"
#include "model/features/cell_column.h"
#include "model/features/column_block.h"
#include "model/features/example_keys.h"
#include "model/features/feature_compiler.h"
#include "model/features/value_keys.h"

namespace sluice {

class ColumnKeys {
 public:
  // All arguments outlive it. `weighted`: batches have key_weights.
  ColumnKeys(const CompiledFeatures& features, const ExampleKeys& written, bool weighted,
             ColumnBlock* block);

  // The keys of the block, whose rows it refuses where a value is none.
  void Compute(const CellColumn* columns);
  // Appends those of the rows [first, end), and their offsets.
  void Append(size_t first, size_t end, Batch* batch);
  // Counts the values of vocabularies of these rows, after Compute in a block that is counted.
  void Count(size_t first, size_t end, DataCounts* counts) const;

 private:
  // What became of one value.
  enum class ValueState : uint8_t { kUnknown, kKey, kAbsent, kBad };

  // The keys of the values of a dictionary, each computed when a row has it first; or all at once,
  // if there are more rows than values.
  struct DictionaryKeys {
    uint64_t id = 0;
    bool complete = false;
    std::string text;          // complete: the values, by which another copy is known
    std::vector<size_t> ends;  // of each in `text`
    std::vector<ValueState> states;
    std::vector<uint64_t> own, hash;
    std::vector<uint32_t> words;  // of the vocabulary
  };

  // The keys of a slot, or of a part of crosses, for all rows of a block.
  struct Keys {
    bool single = true;            // a row has at most one key: own[row], if present[row]
    bool all_present = true;       // single: each row has it
    std::vector<uint64_t> own;     // what the slot appends: by row, or one after the other
    std::vector<uint64_t> hash;    // by row: what crosses combine
    std::vector<uint8_t> present;  // by row
    std::vector<uint32_t> ends;    // several keys: [rows] those of row r end there
    std::vector<float> weights;    // several keys, with weights: as `own`
    // The values of the vocabulary: row, and index in it.
    std::vector<std::pair<uint32_t, uint32_t>> words;
  };

  void Category(const CellColumn& column, const CompiledCategory& category, Keys* slot);
  void OneKey(const CellColumn& column, const CompiledCategory& category, Keys* slot);
  void KeysOfNumbers(const CellColumn& column, const CompiledCategory& category, Keys* slot);
  void List(const CellColumn& column, const CompiledCategory& category, Keys* slot);
  void Written(const CellColumn& column, const CompiledCategory& category, Keys* slot);
  void Cross(const CompiledCross& cross, Keys* slot);
  // kKey, or kBad.
  ValueState KeysOfText(const CompiledCategory& category, std::string_view text, ValueKeys* keys,
                        uint32_t* word) const;
  ValueState KeysOfInteger(const CompiledCategory& category, int64_t value, ValueKeys* keys,
                           uint32_t* word) const;
  // What becomes of the value number `value` of a column that is not bucketed and no date.
  ValueState KeysOf(const CellColumn& column, const CompiledCategory& category, size_t value,
                    DictionaryKeys* dictionary, ValueKeys* keys, uint32_t* word) const;
  static bool HasTexts(const DictionaryKeys& dictionary, const CellColumn& column);
  DictionaryKeys* DictionaryOf(const CellColumn& column, const CompiledCategory& category);
  // The word of the vocabulary, and the keys, of a value.
  static ValueKeys KeysAndWord(const CompiledCategory& category, std::string_view value,
                               uint32_t* word);

  const CompiledFeatures& f_;
  const ExampleKeys& written_;
  const bool weighted_;
  ColumnBlock& block_;
  std::vector<Keys> blocks_;   // by category
  std::vector<Keys> crosses_;  // by cross
  std::vector<const Keys*> slots_;
  std::vector<DictionaryKeys> dictionaries_;  // by category
  std::vector<double> numbers_;               // [rows], of a column
  Batch split_;
};

}  // namespace sluice
