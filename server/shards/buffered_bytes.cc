#include "server/shards/buffered_bytes.h"

#include <algorithm>

#include "common/config/data_format.h"
#include "common/config/mode.h"

namespace sluice {
namespace {

constexpr uint64_t kUnlimited = UINT64_MAX;

uint64_t Sum(uint64_t a, uint64_t b) { return a > kUnlimited - b ? kUnlimited : a + b; }
uint64_t Product(uint64_t a, uint64_t b) {
  return a != 0 && b > kUnlimited / a ? kUnlimited : a * b;
}

// The number of keys that the feature has; kUnlimited: the data decides. 0: it makes no keys.
uint64_t KeysOfFeature(const Feature& feature) {
  switch (feature.kind_case()) {
    case Feature::kNumeric: {
      const auto boundaries = static_cast<uint64_t>(feature.numeric().boundaries_size());
      return boundaries == 0 ? 0 : boundaries + 1;
    }
    case Feature::kCategorical: {
      const CategoricalFeature& one = feature.categorical();
      if (one.vocabulary_size() > 0) return static_cast<uint64_t>(one.vocabulary_size()) + 2;
      return one.hash_buckets() > 0 ? Sum(one.hash_buckets(), 1) : kUnlimited;
    }
    case Feature::kCross:
      return feature.cross().hash_buckets() > 0 ? feature.cross().hash_buckets() : kUnlimited;
    default:
      return 0;
  }
}

// A cell of these formats may have any number of values.
bool IsMultiValued(const Feature& feature, const DataConfig& data) {
  return feature.has_categorical() &&
         (!feature.categorical().multi_value_delimiter().empty() || FormatOf(data).slots ||
          ValuesOf(data, feature.categorical().column()) != CellValues::kOne);
}

// Examples that a worker has in one step or, in async, in one frame.
uint64_t ExamplesOf(const JobSpec& spec) {
  const uint64_t workers = std::max(1u, spec.worker_num());
  return spec.global_batch() > 0 ? (spec.global_batch() - 1) / workers + 1
                                 : StepExamples(spec.config());
}

// The most keys of all sparse tables together that a worker pushes in one step, as far as the job
// tells: it pushes each key once. `several`: with any number of values in the cells of multi-valued
// features.
uint64_t KeysOf(const JobSpec& spec, bool several) {
  const uint64_t examples = ExamplesOf(spec);
  uint64_t keys = 0;
  for (const Feature& feature : spec.config().features()) {
    const uint64_t all = KeysOfFeature(feature);
    const bool any_number = several && IsMultiValued(feature, spec.config().data());
    keys = Sum(keys, any_number ? all : std::min(examples, all));
  }
  return keys;
}

// The part of `bytes` of a table that its shards on pserver `self` get. The hash spreads the keys
// evenly over the shards.
uint64_t PartHere(uint64_t bytes, const TableLayout& table, const TableRoute& route, int64_t self) {
  uint64_t here = 0;
  for (uint32_t s = 0; s < table.num_shards(); ++s)
    here += static_cast<int64_t>(route.owner(static_cast<int>(s))) == self;
  const uint64_t all = Product(bytes, here);
  return all == kUnlimited ? (here == 0 ? 0 : kUnlimited) : all / table.num_shards();
}

// What `ranks` workers buffer on pserver `self` when each of them pushes `keys` keys.
SparseBuffers BuffersOf(const JobSpec& spec, const TableLayouts& layouts, int64_t self,
                        uint64_t ranks, uint64_t keys, bool as_sum) {
  SparseBuffers buffers;
  // Which features are in which table is not known here. Any table may get all of the keys, but the
  // tables share them: together they take no more than all keys in the table with the largest rows.
  uint64_t most = 0;
  for (size_t t = 0; t < layouts.size(); ++t) {
    const TableLayout& table = *layouts[t];
    if (!table.sparse()) continue;
    const auto bytes_of = [&](uint64_t rows) {
      const uint64_t bytes = Product(Product(ranks, rows), BufferedRowBytes(table, as_sum));
      return PartHere(bytes, table, spec.route().tables(static_cast<int>(t)), self);
    };
    // With evict, one step may bring any number of rows; with admit, any number of keys without
    // one.
    const bool any_number = table.config().has_evict() || table.config().has_admit();
    const uint64_t limit = any_number ? UINT64_MAX : table.row_limit();
    const uint64_t bytes = bytes_of(std::min(keys, limit));
    most = std::max(most, bytes_of(keys));
    buffers.bytes = Sum(buffers.bytes, bytes);
    if (bytes <= buffers.most) continue;
    buffers.most = bytes;
    buffers.name = table.name();
  }
  buffers.bytes = std::min(buffers.bytes, most);
  return buffers;
}

}  // namespace

SparseBuffers SparseBuffersOf(const JobSpec& spec, const TableLayouts& layouts, int64_t self) {
  return BuffersOf(spec, layouts, self, spec.worker_num(), KeysOf(spec, /*several=*/false),
                   /*as_sum=*/false);
}

uint64_t MostBufferedOfRank(const JobSpec& spec, const TableLayouts& layouts, int64_t self,
                            const UpdatePolicy& policy, uint64_t available) {
  constexpr uint64_t kMargin = 4, kLeast = 4 << 20;
  const bool as_sum = policy.mode == Mode::kAsync;
  const auto bytes = [&](bool several) {
    const uint64_t of_frame =
        BuffersOf(spec, layouts, self, /*ranks=*/1, KeysOf(spec, several), as_sum).bytes;
    return Sum(Product(Product(kMargin, of_frame), as_sum ? policy.gradients_to_wait : 1), kLeast);
  };
  const uint64_t expected = bytes(/*several=*/false);
  // Without features the data decides how many keys a step has.
  const bool says_keys = KeysOf(spec, /*several=*/false) > 0;
  const uint64_t several = says_keys ? bytes(/*several=*/true) : kUnlimited;
  return std::max(expected, std::min(several, available / 2));
}

bool BufferBudget::Take(uint32_t rank, uint64_t bytes) {
  uint64_t taken = taken_[rank].load(std::memory_order_relaxed);
  do {
    if (bytes > most_ || taken > most_ - bytes) return false;
  } while (!taken_[rank].compare_exchange_weak(taken, taken + bytes, std::memory_order_relaxed));
  return true;
}

void BufferBudget::Give(uint32_t rank, uint64_t bytes) {
  taken_[rank].fetch_sub(bytes, std::memory_order_relaxed);
}

}  // namespace sluice
