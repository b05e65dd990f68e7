// Makes a ColumnAppender, which computes the numbers and keys of a block column by column.
//
// A value of a dictionary is hashed once, however many rows have it. Rows that a column refuses,
// and only they, go the way of single examples, which says what is wrong.
//
// Memory: the numbers and keys of one block, and the keys of the values of the last dictionaries.
//
// Thread safety: one thread.
#pragma once

#include <memory>

#include "model/features/example_keys.h"
#include "model/features/example_numbers.h"
#include "model/features/feature_compiler.h"
#include "model/features/feature_schema.h"

namespace sluice {

// All arguments outlive it; `schema` and the others are made of `features`.
std::unique_ptr<ColumnAppender> MakeColumnAppender(const CompiledFeatures& features,
                                                   const FeatureSchema& schema,
                                                   const ExampleNumbers& numbers,
                                                   const ExampleKeys& keys);

}  // namespace sluice
