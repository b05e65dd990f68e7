// What a program's network gets and gives, by name: numbers, rows of collections, parameters.
//
// The declaration in the job (ProgramConfig) and the plan of its sparse tables decide all of it, so
// every worker derives the same shape.
//
// Format:
//   sparse row      [values of its first collection][of the second] ..., Table::columns
//   dense tensor    row-major, in the order of ProgramConfig.parameters
//
// Thread safety: plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

struct ProgramShape {
  struct Number {
    std::string feature;
    uint32_t dim = 0;  // of a vector; 0: one number
    size_t size() const { return dim == 0 ? 1 : dim; }
  };
  // Where the values of a collection are in the rows of a table.
  struct Columns {
    uint32_t collection = 0;  // index in collections
    uint32_t begin = 0;       // floats before it in the row
    uint32_t dim = 0;
  };
  struct Table {
    std::string name;
    uint32_t dim = 0;              // floats of a row
    std::vector<Columns> columns;  // side by side, from 0 on
  };
  struct Slot {
    std::string feature;
    uint32_t table = 0;  // index in tables
    bool mean = false;   // CategoricalFeature.pooling; false: sum
  };
  struct Collection {
    std::string name;
    uint32_t dim = 0;
    std::vector<uint32_t> slots;  // indices in slots, in the order of Collection.features
  };
  struct Parameter {
    std::string name;
    std::vector<uint64_t> shape;  // at least one dimension
    bool buffer = false;
    bool frozen = false;  // no step changes it (common/optimizer/frozen_rule.h)
    size_t elements = 0;
  };

  std::vector<Number> numbers;  // in the order of Batch::numeric
  std::vector<Slot> slots;      // in the order of Batch::key_offsets
  std::vector<Table> tables;    // in the order of ModelSpec::sparse_tables()
  std::vector<Collection> collections;
  std::vector<Parameter> parameters;  // in the order of ModelSpec::dense_tables()

  // Of an example.
  size_t num_numeric() const {
    size_t sum = 0;
    for (const Number& number : numbers) sum += number.size();
    return sum;
  }
};

}  // namespace sluice
