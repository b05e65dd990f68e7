#include "model/features/column_keys.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "common/base/hash.h"
#include "model/features/cell.h"

namespace sluice {
namespace {

using Kind = Cell::Kind;

constexpr uint32_t kNoWord = UINT32_MAX - 1;

}  // namespace

ColumnKeys::ColumnKeys(const CompiledFeatures& features, const ExampleKeys& written, bool weighted,
                       ColumnBlock* block)
    : f_(features),
      written_(written),
      weighted_(weighted),
      block_(*block),
      blocks_(features.categories.size()),
      crosses_(features.crosses.size()),
      dictionaries_(features.categories.size()) {
  for (const CompiledSlot& slot : f_.slots)
    slots_.push_back(slot.cross != kNone ? &crosses_[slot.cross] : &blocks_[slot.category]);
}

void ColumnKeys::Compute(const CellColumn* columns) {
  for (const CompiledCategory& category : f_.categories)
    Category(columns[category.column], category, &blocks_[category.index]);
  for (size_t x = 0; x < f_.crosses.size(); ++x) Cross(f_.crosses[x], &crosses_[x]);
}

ValueKeys ColumnKeys::KeysAndWord(const CompiledCategory& category, std::string_view value,
                                  uint32_t* word) {
  if (category.vocabulary.empty()) return KeysOfHash(category, KeyOfBytes(value, category.seed), 0);
  const size_t index = FindInVocabulary(category, value, nullptr);
  const bool known = index < category.vocabulary.size();
  *word = known ? static_cast<uint32_t>(index) : DataCounts::kOutOfVocabulary;
  return KeysOfHash(category,
                    known ? KeyOfBytes(value, category.seed) : category.unknown.out_of_vocabulary,
                    index);
}

ColumnKeys::ValueState ColumnKeys::KeysOfText(const CompiledCategory& category,
                                              std::string_view text, ValueKeys* keys,
                                              uint32_t* word) const {
  if (!category.raw) {
    *keys = KeysAndWord(category, text, word);
    return ValueState::kKey;
  }
  if (!ParseKey(text, &keys->key)) return ValueState::kBad;
  keys->own = keys->key;
  return ValueState::kKey;
}

ColumnKeys::ValueState ColumnKeys::KeysOfInteger(const CompiledCategory& category, int64_t value,
                                                 ValueKeys* keys, uint32_t* word) const {
  if (category.raw) {
    keys->own = keys->key = static_cast<uint64_t>(value);
    return ValueState::kKey;
  }
  char text[24];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  *keys = KeysAndWord(category, {text, static_cast<size_t>(end - text)}, word);
  return ValueState::kKey;
}

ColumnKeys::ValueState ColumnKeys::KeysOf(const CellColumn& column,
                                          const CompiledCategory& category, size_t value,
                                          DictionaryKeys* dictionary, ValueKeys* keys,
                                          uint32_t* word) const {
  switch (column.kind) {
    case Kind::kText: {
      if (dictionary == nullptr) return KeysOfText(category, column.text[value], keys, word);
      const size_t v = column.place(value);
      ValueState& state = dictionary->states[v];
      if (state == ValueState::kUnknown) {
        dictionary->words[v] = kNoWord;
        state = KeysOfText(category, column.text[v], keys, &dictionary->words[v]);
        dictionary->own[v] = keys->own;
        dictionary->hash[v] = keys->key;
      }
      keys->own = dictionary->own[v];
      keys->key = dictionary->hash[v];
      *word = dictionary->words[v];
      return state;
    }
    case Kind::kInteger:
      return KeysOfInteger(category, column.integers[value], keys, word);
    case Kind::kUnsigned: {
      const uint64_t number = column.unsigned_integers[value];
      if (number <= static_cast<uint64_t>(INT64_MAX) || category.raw)
        return KeysOfInteger(category, static_cast<int64_t>(number), keys, word);
      char text[24];
      const auto end = std::to_chars(text, text + sizeof text, number).ptr;
      return KeysOfText(category, {text, static_cast<size_t>(end - text)}, keys, word);
    }
    case Kind::kDouble: {
      const double number = column.doubles[value];
      if (!IsWhole(number)) return ValueState::kBad;
      return KeysOfInteger(category, static_cast<int64_t>(number), keys, word);
    }
    default:
      return ValueState::kBad;
  }
}

bool ColumnKeys::HasTexts(const DictionaryKeys& dictionary, const CellColumn& column) {
  if (!dictionary.complete || dictionary.ends.size() != column.dictionary_size) return false;
  size_t begin = 0;
  for (size_t v = 0; v < column.dictionary_size; begin = dictionary.ends[v++]) {
    const std::string_view text = column.text[v];
    if (text.size() != dictionary.ends[v] - begin ||
        std::memcmp(text.data(), dictionary.text.data() + begin, text.size()) != 0)
      return false;
  }
  return true;
}

ColumnKeys::DictionaryKeys* ColumnKeys::DictionaryOf(const CellColumn& column,
                                                     const CompiledCategory& category) {
  if (column.kind != Kind::kText || column.codes == nullptr) return nullptr;
  DictionaryKeys* const dictionary = &dictionaries_[category.index];
  if (dictionary->id == column.dictionary_id) return dictionary;
  dictionary->id = column.dictionary_id;
  // Each batch of a row group has its own copy of the dictionary. To compare is faster than to
  // hash.
  if (HasTexts(*dictionary, column)) return dictionary;
  const size_t size = column.dictionary_size;
  dictionary->own.resize(size);
  dictionary->hash.resize(size);
  dictionary->words.assign(size, kNoWord);
  // Text that is a RAW key may be none.
  dictionary->complete = size <= column.dictionary_rows && !category.raw;
  dictionary->states.assign(size, dictionary->complete ? ValueState::kKey : ValueState::kUnknown);
  dictionary->text.clear();
  dictionary->ends.clear();
  for (size_t v = 0; v < size && dictionary->complete; ++v) {
    dictionary->text.append(column.text[v]);
    dictionary->ends.push_back(dictionary->text.size());
    const ValueKeys keys = KeysAndWord(category, column.text[v], &dictionary->words[v]);
    dictionary->own[v] = keys.own;
    dictionary->hash[v] = keys.key;
  }
  return dictionary;
}

void ColumnKeys::OneKey(const CellColumn& column, const CompiledCategory& category, Keys* slot) {
  const std::vector<uint8_t>& missing = block_.missing(category.column);
  const ValueKeys of_missing = KeysOfMissing(category);
  const bool part = category.part != kNone,
             words = block_.counting() && !category.vocabulary.empty();
  DictionaryKeys* const dictionary = DictionaryOf(column, category);
  // RAW keys are copied.
  if (category.raw && !part && column.kind == Kind::kInteger) {
    std::copy(column.integers, column.integers + block_.rows(),
              reinterpret_cast<int64_t*>(slot->own.data()));
    const bool any = block_.HasMissing(category.column);
    for (size_t r = 0; r < block_.rows() && any; ++r) {
      if (missing[r] == 0) continue;
      slot->own[r] = of_missing.own;
      slot->present[r] = category.missing_is_value;
      slot->all_present &= category.missing_is_value;
    }
    return;
  }
  if (dictionary != nullptr && dictionary->complete && !words &&
      !block_.HasMissing(category.column)) {
    const uint64_t* const own = dictionary->own.data();
    for (size_t r = 0; r < block_.rows(); ++r) slot->own[r] = own[column.codes[r]];
    for (size_t r = 0; r < block_.rows() && part; ++r)
      slot->hash[r] = dictionary->hash[static_cast<size_t>(column.codes[r])];
    return;
  }
  for (size_t r = 0; r < block_.rows(); ++r) {
    ValueKeys keys = of_missing;
    if (missing[r] != 0) {
      slot->present[r] = category.missing_is_value;
      slot->all_present &= category.missing_is_value;
    } else {
      uint32_t word = kNoWord;
      if (KeysOf(column, category, r, dictionary, &keys, &word) == ValueState::kBad)
        block_.Refuse(r);
      if (words && word != kNoWord) slot->words.emplace_back(static_cast<uint32_t>(r), word);
    }
    slot->own[r] = keys.own;
    if (part) slot->hash[r] = keys.key;
  }
}

void ColumnKeys::KeysOfNumbers(const CellColumn& column, const CompiledCategory& category,
                               Keys* slot) {
  const std::vector<uint8_t>& missing = block_.missing(category.column);
  block_.ReadNumbers(column, category.column, category.date.get(), &numbers_);
  const ValueKeys of_missing = KeysOfMissing(category);
  const bool part = category.part != kNone,
             words = block_.counting() && !category.vocabulary.empty();
  const auto& bounds = category.boundaries;
  for (size_t r = 0; r < block_.rows(); ++r) {
    ValueKeys keys = of_missing;
    if (missing[r] != 0) {
      slot->present[r] = category.missing_is_value;
      slot->all_present &= category.missing_is_value;
    } else if (category.bucketed) {
      keys = KeysOfBucket(
          category,
          static_cast<size_t>(std::upper_bound(bounds.begin(), bounds.end(), numbers_[r]) -
                              bounds.begin()));
    } else {
      // The key of a date's part is that of its decimal text (feature_compiler.h).
      char text[16];
      const auto end = std::to_chars(text, text + sizeof text, static_cast<int>(numbers_[r])).ptr;
      uint32_t word = kNoWord;
      keys = KeysAndWord(category, {text, static_cast<size_t>(end - text)}, &word);
      if (words && word != kNoWord) slot->words.emplace_back(static_cast<uint32_t>(r), word);
    }
    slot->own[r] = keys.own;
    if (part) slot->hash[r] = keys.key;
  }
}

void ColumnKeys::List(const CellColumn& column, const CompiledCategory& category, Keys* slot) {
  const std::vector<uint8_t>& missing = block_.missing(category.column);
  const uint64_t of_missing = KeysOfMissing(category).own;
  const bool words = block_.counting() && !category.vocabulary.empty();
  const bool text = column.kind == Kind::kText;
  // Without weights beside them, texts may have theirs behind them.
  const bool written = text && column.weights == nullptr && category.weight_delimiter != 0;
  DictionaryKeys* const dictionary = DictionaryOf(column, category);
  slot->own.clear();
  slot->weights.clear();
  split_.Reset(0, 0);
  const auto add = [&](uint64_t key, double weight) {
    slot->own.push_back(key);
    if (weighted_) slot->weights.push_back(static_cast<float>(weight));
  };
  for (size_t r = 0; r < block_.rows(); ++r) {
    const size_t before = slot->own.size();
    // Weights that no one asked for are refused rather than left out.
    block_.Refuse(r, missing[r] == 0 && column.weights != nullptr && !category.weighted);
    const size_t first = missing[r] != 0 ? 0 : column.offsets[r];
    const size_t end = missing[r] != 0 ? 0 : column.offsets[r + 1];
    for (size_t v = first; v < end && !block_.IsRefused(r); ++v) {
      if (column.kind == Kind::kMissing || (column.absent != nullptr && column.absent[v] != 0) ||
          (column.kind == Kind::kDouble && std::isnan(column.doubles[v])))
        continue;
      if (written) {
        DataCounts counts;
        split_.keys.clear();
        split_.key_weights.clear();
        if (!written_
                 .AppendWritten(category, column.text[column.place(v)], words ? &counts : nullptr,
                                &split_)
                 .ok()) {
          block_.Refuse(r);
          continue;
        }
        for (size_t i = 0; i < split_.keys.size(); ++i)
          add(split_.keys[i], i < split_.key_weights.size() ? split_.key_weights[i] : 1);
        for (const auto& noted : counts.TakeValues())
          slot->words.emplace_back(static_cast<uint32_t>(r), noted.second);
        continue;
      }
      if (text && block_.IsAbsent(column.text[column.place(v)])) continue;
      const double weight = column.weights == nullptr ? 1 : column.weights[v];
      ValueKeys keys;
      uint32_t word = kNoWord;
      if (!(std::abs(weight) <= std::numeric_limits<float>::max()) ||
          (category.mean && weight < 0) ||
          KeysOf(column, category, v, dictionary, &keys, &word) == ValueState::kBad) {
        block_.Refuse(r);
        continue;
      }
      if (words && word != kNoWord) slot->words.emplace_back(static_cast<uint32_t>(r), word);
      add(keys.own, weight);
    }
    if (slot->own.size() == before && category.missing_is_value) add(of_missing, 1);
    slot->ends[r] = static_cast<uint32_t>(slot->own.size());
  }
}

void ColumnKeys::Written(const CellColumn& column, const CompiledCategory& category, Keys* slot) {
  const std::vector<uint8_t>& missing = block_.missing(category.column);
  const bool words = block_.counting() && !category.vocabulary.empty();
  split_.Reset(0, 0);
  for (size_t r = 0; r < block_.rows(); ++r) {
    const size_t before = split_.keys.size();
    if (missing[r] == 0) {
      DataCounts counts;
      if (!written_
               .AppendValues(category, column.text[column.place(r)], words ? &counts : nullptr,
                             &split_)
               .ok()) {
        block_.Refuse(r);
        split_.keys.resize(before);
        split_.key_weights.resize(std::min(split_.key_weights.size(), before));
      }
      for (const auto& noted : counts.TakeValues())
        slot->words.emplace_back(static_cast<uint32_t>(r), noted.second);
    } else if (category.missing_is_value) {
      split_.keys.push_back(KeysOfMissing(category).own);
    }
    slot->ends[r] = static_cast<uint32_t>(split_.keys.size());
  }
  slot->own.assign(split_.keys.begin(), split_.keys.end());
  slot->weights.assign(split_.key_weights.begin(), split_.key_weights.end());
  if (weighted_) slot->weights.resize(slot->own.size(), 1);
}

void ColumnKeys::Category(const CellColumn& column, const CompiledCategory& category, Keys* slot) {
  slot->words.clear();
  slot->single = slot->all_present = true;
  slot->own.resize(block_.rows());
  slot->present.assign(block_.rows(), 1);
  if (category.part != kNone) slot->hash.resize(block_.rows());
  const bool written = category.multi_value_delimiter != 0 || category.weight_delimiter != 0;
  if (category.part == kNone && !category.bucketed && category.date == nullptr) {
    if (column.is_list() || (written && column.kind == Kind::kText)) {
      slot->single = false;
      slot->ends.resize(block_.rows());
      return column.is_list() ? List(column, category, slot) : Written(column, category, slot);
    }
  }
  if (category.bucketed || category.date != nullptr) {
    KeysOfNumbers(column, category, slot);
  } else if (column.is_list()) {
    // One value is needed.
    const std::vector<uint8_t>& missing = block_.missing(category.column);
    const ValueKeys of_missing = KeysOfMissing(category);
    for (size_t r = 0; r < block_.rows(); ++r) {
      block_.Refuse(r, missing[r] == 0);
      slot->own[r] = of_missing.own;
      slot->hash[r] = of_missing.key;
      slot->present[r] = category.missing_is_value;
    }
    slot->all_present = category.missing_is_value;
  } else {
    OneKey(column, category, slot);
  }
}

void ColumnKeys::Cross(const CompiledCross& cross, Keys* slot) {
  slot->all_present = true;
  slot->own.assign(block_.rows(), cross.seed);
  slot->present.assign(block_.rows(), 1);
  for (const int part : cross.parts) {
    const Keys& of_part = blocks_[f_.part_categories[part]];
    slot->all_present &= of_part.all_present;
    for (size_t r = 0; r < block_.rows(); ++r) {
      slot->own[r] = CombineHash(slot->own[r], of_part.hash[r]);
      slot->present[r] &= of_part.present[r];
    }
  }
  for (uint64_t& key : slot->own) {
    key = cross.rows.empty() ? FoldKey(key, cross.hash_buckets, cross.seed)
                             : cross.rows.begin + key % cross.hash_buckets;
  }
}

void ColumnKeys::Append(size_t first, size_t end, Batch* batch) {
  const size_t slots = slots_.size(), rows = end - first;
  size_t at = batch->keys.size();
  const size_t offsets = batch->key_offsets.size();
  batch->key_offsets.resize(offsets + rows * slots);
  uint32_t* offset = batch->key_offsets.data() + offsets;
  bool single = true, all_present = true;
  size_t most = 0;
  for (const Keys* slot : slots_) {
    single &= slot->single;
    all_present &= slot->single && slot->all_present;
    most += slot->single ? rows : slot->ends[end - 1] - (first == 0 ? 0 : slot->ends[first - 1]);
  }
  batch->keys.resize(at + most);
  uint64_t* const keys = batch->keys.data();
  if (all_present) {
    for (size_t s = 0; s < slots; ++s) {
      uint64_t* to = keys + at + s;
      for (size_t r = first; r < end; ++r, to += slots) *to = slots_[s]->own[r];
    }
    for (size_t i = 0; i < rows * slots; ++i) offset[i] = static_cast<uint32_t>(at + i + 1);
    at += most;
  } else if (single) {
    for (size_t r = first; r < end; ++r) {
      for (const Keys* slot : slots_) {
        // Where the row has no key, the next one takes its place. There is room: a key for each
        // slot of each row.
        if (slot->present[r] != 0) keys[at++] = slot->own[r];
        *offset++ = static_cast<uint32_t>(at);
      }
    }
  } else {
    if (weighted_) batch->key_weights.resize(at, 1);
    for (size_t r = first; r < end; ++r) {
      for (const Keys* slot : slots_) {
        if (slot->single) {
          if (slot->present[r] != 0) {
            keys[at++] = slot->own[r];
            if (weighted_) batch->key_weights.push_back(1);
          }
        } else {
          for (size_t i = r == 0 ? 0 : slot->ends[r - 1]; i < slot->ends[r]; ++i) {
            keys[at++] = slot->own[i];
            if (weighted_) batch->key_weights.push_back(slot->weights[i]);
          }
        }
        *offset++ = static_cast<uint32_t>(at);
      }
    }
  }
  batch->keys.resize(at);
  // The keys of other slots count once.
  if (weighted_) batch->key_weights.resize(at, 1);
}

void ColumnKeys::Count(size_t first, size_t end, DataCounts* counts) const {
  for (const CompiledCategory& category : f_.categories) {
    if (category.vocabulary.empty()) continue;
    // By row, so that the rows of the run stand together.
    const auto& words = blocks_[category.index].words;
    auto word = std::lower_bound(words.begin(), words.end(),
                                 std::pair(static_cast<uint32_t>(first), uint32_t{0}));
    for (; word != words.end() && word->first < end; ++word)
      counts->CountValue(category.index, word->second, word->first - first);
  }
}

}  // namespace sluice
