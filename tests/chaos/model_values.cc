// model_values MODEL: prints the values of a saved model, a line for each row or element: "TABLE
// KEY VALUE..." with the key and all values of a row of a sparse table, or with the index of an
// element of a dense table and its value.
#include <cinttypes>
#include <cstdio>
#include <string>

#include "common/saved_model/saved_model.h"

namespace sluice {
namespace {

absl::Status Print(const std::string& dir) {
  const auto manifest = ReadManifest(dir, Env::Real());
  if (!manifest.ok()) return manifest.status();
  for (const TableConfig& table : manifest->tables()) {
    const bool dense = table.kind() == TableConfig::DENSE;
    const absl::Status status =
        VisitShards(dir, *manifest, table.name(), Env::Real(), [&](uint32_t, ShardValues shard) {
          const size_t n = dense ? shard.weights.size() : shard.keys.size();
          const size_t dim = n == 0 ? 0 : shard.weights.size() / n;
          for (size_t i = 0; i < n; ++i) {
            const uint64_t key = dense ? shard.first_element + i : shard.keys[i];
            std::printf("%s %" PRIu64, table.name().c_str(), key);
            for (size_t j = 0; j < dim; ++j) std::printf(" %.9g", shard.weights[i * dim + j]);
            std::printf("\n");
          }
          return absl::OkStatus();
        });
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: model_values MODEL\n");
    return 2;
  }
  const absl::Status status = sluice::Print(argv[1]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
