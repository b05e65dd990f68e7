// Reads a folder whose MANIFEST and job file the input gives: as a model, as a checkpoint, and as
// one of several checkpoints.
//
// Checks: a manifest that is accepted stays the same when it is printed and read again.
#include "common/saved_model/manifest.h"

#include "common/base/crc32c.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/model_tables.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/shard_file.h"
#include "tests/common/saved_model/memory_env.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/message_mutator.h"

namespace sluice {
namespace {

constexpr char kRoot[] = "/checkpoints", kFolder[] = "/checkpoints/step-5";

void CheckText(const std::string& text) {
  const auto manifest = ParseManifest("MANIFEST", text);
  if (!manifest.ok()) {
    FUZZ_CHECK(manifest.status().code() == absl::StatusCode::kDataLoss ||
               manifest.status().code() == absl::StatusCode::kFailedPrecondition);
    return;
  }
  const auto printed = PrintManifest("MANIFEST", *manifest);
  FUZZ_CHECK(printed.ok());
  const auto again = ParseManifest("MANIFEST", *printed);
  FUZZ_CHECK(again.ok() && again->SerializeAsString() == manifest->SerializeAsString());
  for (const TableConfig& table : manifest->tables()) {
    const auto files = FilesOfTable("/dir", *manifest, table);
    FUZZ_CHECK(files.ok());
    FUZZ_CHECK(table.kind() != TableConfig::SPARSE || files->size() == table.num_shards());
    for (uint32_t i = 0; i < files->size(); ++i) {
      uint32_t shard = 0;
      FUZZ_CHECK(ParseShardFileName((*files)[i]->name(), table.name(), &shard) && shard == i);
    }
  }
  CheckTables("/dir", *manifest, {manifest->tables().begin(), manifest->tables().end()})
      .IgnoreError();
}

}  // namespace
}  // namespace sluice

// The input: the manifest, a zero byte, the job's file.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;  // NOLINT
  const std::string input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const std::string text = input.substr(0, zero);
  const std::string job = zero == std::string::npos ? "" : input.substr(zero + 1);
  const std::string summed =
      text + "crc32c: " + std::to_string(Crc32c(text.data(), text.size())) + "\n";
  CheckText(text);
  CheckText(summed);
  MemoryEnv env;
  for (const std::string& name : {std::string(kRoot), std::string(kFolder)}) {
    env.Put(name + "/MANIFEST", summed);
    env.Put(name + "/job.textproto", job);
  }
  ReadManifest(kFolder, &env).IgnoreError();
  ReadModelJob(kFolder, &env).IgnoreError();
  std::vector<absl::Status> damaged;
  for (const CheckpointInfo& found : ListCheckpoints(kRoot, &env, &damaged)) {
    CheckCheckpoint(found, &env).IgnoreError();
    VerifyCheckpoint(found.dir, &env, nullptr).IgnoreError();
  }
  std::vector<std::string> skipped;
  ChooseCheckpoint(kRoot, /*allow_older=*/true, &env, &skipped).IgnoreError();
  FindCheckpoint(kRoot, /*verify=*/true, &env, &skipped).IgnoreError();
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  return sluice::MutateText<sluice::Manifest>(data, size, max_size, seed);
}
