// What a program's network gets, as Python sees it.
//
// Thread safety: free functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "model/program/program_shape.h"

namespace sluice {

// Where a collection has the rows of a feature: table, slot, first column, mean pooling.
using Lookup = std::tuple<uint32_t, uint32_t, uint32_t, bool>;

// By collection: its name, and the lookup of each of its features.
inline std::vector<std::pair<std::string, std::vector<Lookup>>> LookupsOf(
    const ProgramShape& shape) {
  std::vector<std::pair<std::string, std::vector<Lookup>>> lookups;
  for (uint32_t c = 0; c < shape.collections.size(); ++c) {
    std::vector<Lookup> of_collection;
    for (const uint32_t s : shape.collections[c].slots) {
      const ProgramShape::Slot& slot = shape.slots[s];
      for (const ProgramShape::Columns& columns : shape.tables[slot.table].columns) {
        if (columns.collection == c)
          of_collection.emplace_back(slot.table, s, columns.begin, slot.mean);
      }
    }
    lookups.emplace_back(shape.collections[c].name, std::move(of_collection));
  }
  return lookups;
}

// By collection: its name, the width of its values, and the names of its features.
using CollectionShape = std::tuple<std::string, uint32_t, std::vector<std::string>>;
inline std::vector<CollectionShape> CollectionsOf(const ProgramShape& shape) {
  std::vector<CollectionShape> collections;
  for (const ProgramShape::Collection& from : shape.collections) {
    std::vector<std::string> features;
    for (const uint32_t s : from.slots) features.push_back(shape.slots[s].feature);
    collections.emplace_back(from.name, from.dim, std::move(features));
  }
  return collections;
}

// By parameter and buffer: its name and shape.
using ParameterShape = std::pair<std::string, std::vector<uint64_t>>;
inline std::vector<ParameterShape> ParametersOf(const ProgramShape& shape) {
  std::vector<ParameterShape> parameters;
  for (const ProgramShape::Parameter& from : shape.parameters)
    parameters.emplace_back(from.name, from.shape);
  return parameters;
}

// (feature, dim of its vector or 0 for one number) by ProgramShape::numbers.
inline std::vector<std::pair<std::string, uint32_t>> NumbersOf(const ProgramShape& shape) {
  std::vector<std::pair<std::string, uint32_t>> numbers;
  for (const ProgramShape::Number& number : shape.numbers)
    numbers.emplace_back(number.feature, number.dim);
  return numbers;
}

inline std::vector<std::string> TableNamesOf(const ProgramShape& shape) {
  std::vector<std::string> names;
  for (const ProgramShape::Table& table : shape.tables) names.push_back(table.name);
  return names;
}

}  // namespace sluice
