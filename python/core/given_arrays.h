// The arrays of a batch that a program gives, as the bindings take them.
//
// Thread safety: pure functions. The interpreter lock is not needed.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "python/core/given_batch.h"

namespace sluice {

using GivenFloats =
    nanobind::ndarray<const float, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using GivenInts =
    nanobind::ndarray<const int64_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using GivenValues = std::pair<GivenInts, std::optional<GivenInts>>;  // values, offsets

// Copies the arrays, whose memory is the program's.
inline GivenBatch CopyOfGiven(size_t examples, const std::optional<GivenFloats>& label,
                              const std::optional<GivenFloats>& weight,
                              const std::vector<GivenFloats>& numbers,
                              const std::vector<GivenValues>& values) {
  const auto floats = [](const GivenFloats& array) {
    return std::vector<float>(array.data(), array.data() + array.size());
  };
  const auto ints = [](const GivenInts& array) {
    return std::vector<int64_t>(array.data(), array.data() + array.size());
  };
  GivenBatch batch;
  batch.n = examples;
  if (label.has_value()) batch.label = floats(*label);
  if (weight.has_value()) batch.weight = floats(*weight);
  for (const GivenFloats& one : numbers) batch.numbers.push_back(floats(one));
  for (const auto& [keys, offsets] : values) {
    batch.values.push_back({ints(keys), {}});
    if (offsets.has_value()) batch.values.back().offsets = ints(*offsets);
  }
  return batch;
}

}  // namespace sluice
