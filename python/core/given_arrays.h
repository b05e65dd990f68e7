// The arrays of a batch that a program gives, as the bindings take them.
//
// Thread safety: pure functions, which do not need the interpreter lock unless they say so.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "common/arrow/arrow_c_data.h"
#include "python/core/given_batch.h"

namespace sluice {

using GivenFloats =
    nanobind::ndarray<const float, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
// [B], or [B, dim] of a vector (GivenFeatures checks the size).
using GivenNumbers = nanobind::ndarray<const double, nanobind::c_contig, nanobind::device::cpu>;
using GivenInts =
    nanobind::ndarray<const int64_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
// The stream of an object with __arrow_c_stream__, which returns `capsule`. It is to be taken over,
// as the interface's rules say. Needs the interpreter lock; raises TypeError or ValueError.
inline ArrowArrayStream* StreamOf(const nanobind::capsule& capsule) {
  if (std::string_view(capsule.name() == nullptr ? "" : capsule.name()) != "arrow_array_stream")
    throw nanobind::type_error("__arrow_c_stream__ gave no capsule named arrow_array_stream");
  auto* const stream = static_cast<ArrowArrayStream*>(capsule.data());
  if (stream->release == nullptr)
    throw nanobind::value_error("the source's stream was read before");
  return stream;
}

using GivenValues = std::pair<GivenInts, std::optional<GivenInts>>;  // values, offsets

// Copies the arrays, whose memory is the program's.
inline GivenBatch CopyOfGiven(size_t examples, const std::optional<GivenFloats>& label,
                              const std::optional<GivenFloats>& weight,
                              const std::vector<GivenNumbers>& numbers,
                              const std::vector<GivenValues>& values) {
  const auto floats = [](const auto& array) {
    return std::vector<float>(array.data(), array.data() + array.size());
  };
  const auto ints = [](const GivenInts& array) {
    return std::vector<int64_t>(array.data(), array.data() + array.size());
  };
  GivenBatch batch;
  batch.n = examples;
  if (label.has_value()) batch.label = floats(*label);
  if (weight.has_value()) batch.weight = floats(*weight);
  for (const GivenNumbers& one : numbers)
    batch.numbers.emplace_back(one.data(), one.data() + one.size());
  for (const auto& [keys, offsets] : values) {
    batch.values.push_back({ints(keys), {}});
    if (offsets.has_value()) batch.values.back().offsets = ints(*offsets);
  }
  return batch;
}

}  // namespace sluice
