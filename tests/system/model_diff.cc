// model_diff A B: prints, a line a table, the norm of the difference of two saved models over the
// norm of A. Exit 1 when their keys or shapes differ.
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "common/saved_model/saved_model.h"

namespace sluice {
namespace {

// Weights by key (sparse) or by index of the first element (dense).
using Values = std::map<uint64_t, std::vector<float>>;

absl::StatusOr<Values> Load(const std::string& dir, const Manifest& manifest,
                            const TableConfig& table) {
  Values values;
  const absl::Status status =
      VisitShards(dir, manifest, table.name(), Env::Real(), [&](uint32_t, ShardValues shard) {
        if (table.kind() == TableConfig::DENSE) {
          values[shard.first_element] = std::move(shard.weights);
        } else {
          const size_t dim = shard.keys.empty() ? 0 : shard.weights.size() / shard.keys.size();
          for (size_t i = 0; i < shard.keys.size(); ++i) {
            values[shard.keys[i]].assign(shard.weights.begin() + i * dim,
                                         shard.weights.begin() + (i + 1) * dim);
          }
        }
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  return values;
}

int Compare(const std::string& a_dir, const std::string& b_dir) {
  const auto a_manifest = ReadManifest(a_dir, Env::Real()),
             b_manifest = ReadManifest(b_dir, Env::Real());
  if (!a_manifest.ok() || !b_manifest.ok()) {
    std::fprintf(stderr, "%s %s\n", a_manifest.status().ToString().c_str(),
                 b_manifest.status().ToString().c_str());
    return 1;
  }
  for (const TableConfig& table : a_manifest->tables()) {
    const auto a = Load(a_dir, *a_manifest, table), b = Load(b_dir, *b_manifest, table);
    if (!a.ok() || !b.ok() || a->size() != b->size()) {
      std::fprintf(stderr, "table %s: cannot be compared\n", table.name().c_str());
      return 1;
    }
    double difference = 0, norm = 0;
    auto other = b->begin();
    for (const auto& [key, weights] : *a) {
      if (other->first != key || other->second.size() != weights.size()) {
        std::fprintf(stderr, "table %s: other keys\n", table.name().c_str());
        return 1;
      }
      for (size_t i = 0; i < weights.size(); ++i) {
        difference += std::pow(static_cast<double>(weights[i]) - other->second[i], 2);
        norm += std::pow(static_cast<double>(weights[i]), 2);
      }
      ++other;
    }
    std::printf("%s %.6g\n", table.name().c_str(),
                norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference));
  }
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: model_diff MODEL_A MODEL_B\n");
    return 2;
  }
  return sluice::Compare(argv[1], argv[2]);
}
