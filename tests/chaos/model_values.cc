// model_values MODEL: prints, a line a value, "TABLE KEY VALUE" of a saved model whose rows have
// one value: by the key (sparse) or by the index of the element (dense).
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
          if (!dense && shard.weights.size() != shard.keys.size())
            return absl::InvalidArgumentError("the rows of " + table.name() +
                                              " have several values");
          for (size_t i = 0; i < shard.weights.size(); ++i) {
            const uint64_t key = dense ? shard.first_element + i : shard.keys[i];
            std::printf("%s %" PRIu64 " %.9g\n", table.name().c_str(), key, shard.weights[i]);
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
