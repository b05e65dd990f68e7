// Applies a chain of a base and up to three deltas, whose rows, gone keys and places in the chain
// the input gives, and of which it may damage one byte or change one manifest.
//
// Checks: an intact chain gives the model of its changes; a damaged one is refused or gives the
// same model; and a chain that does not follow is refused.
#include "common/saved_model/export_chain.h"

#include <cstring>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/saved_model/manifest.h"
#include "common/saved_model/saved_model.h"
#include "common/table/table_layout.h"
#include "tests/common/saved_model/memory_env.h"
#include "tests/common/saved_model/rows_of_map.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

constexpr uint64_t kFuzzInstance = 7;
using FuzzRows = std::map<uint64_t, float>;

TableLayouts FuzzTables() {
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  TableConfig* const table = tables.Add();
  table->set_name("t");
  table->set_kind(TableConfig::SPARSE);
  table->set_num_shards(2);
  table->add_columns()->set_dim(1);
  table->mutable_columns(0)->mutable_optimizer()->mutable_sgd();
  return *CreateTableLayouts(tables, 1);
}

Manifest WriteFuzzRows(const std::string& dir, const TableLayout& table, const FuzzRows& rows,
                       const std::set<uint64_t>& gone, bool delta, MemoryEnv* env) {
  Manifest manifest;
  *manifest.add_tables() = table.config();
  ModelRows weights;
  for (const auto& [key, value] : rows) weights[key] = {value};
  for (uint32_t shard = 0; shard < 2; ++shard) {
    auto shard_rows = std::make_unique<RowsOfMap>(table, shard, weights, gone);
    const auto cut = delta ? CutOfDelta(table, shard, std::move(shard_rows))
                           : CutOfRows(table, shard, std::move(shard_rows));
    *manifest.add_files() = *WriteShardFile(dir, table, shard, cut.get(), env);
  }
  return manifest;
}

// The text of a manifest with another checksum, which is right.
std::string Summed(std::string text) {
  const size_t line = text.rfind("crc32c: ");
  if (line != std::string::npos) text.resize(line);
  return absl::StrCat(text, "crc32c: ", Crc32c(text.data(), text.size()), "\n");
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;  // NOLINT
  FuzzedDataProvider input(data, size);
  static const TableLayouts& tables = *new TableLayouts(FuzzTables());
  MemoryEnv env;
  FuzzRows all;
  std::vector<ExportMember> chain;
  const int members = input.ConsumeIntegralInRange(1, 4);
  for (int m = 0; m < members; ++m) {
    FuzzRows rows;
    std::set<uint64_t> gone;
    for (int i = input.ConsumeIntegralInRange(0, 6); i > 0; --i) {
      const uint64_t key = input.ConsumeIntegralInRange<uint64_t>(0, 15);
      if (input.ConsumeBool()) {
        rows[key] = all[key] = static_cast<float>(input.ConsumeIntegralInRange(0, 9));
      } else {
        rows.erase(key);
        all.erase(key);
        gone.insert(key);
      }
    }
    const std::string dir = ExportFolder("/export", kFuzzInstance, 2 * m + 2);
    Manifest manifest = WriteFuzzRows(dir, *tables[0], m == 0 ? all : rows, gone, m > 0, &env);
    ExportFacts* const facts = manifest.mutable_export_();
    facts->set_instance(kFuzzInstance);
    facts->set_to(2 * m + 2);
    if (m > 0) {
      facts->set_from(2 * m);
      facts->set_chain(chain.back().facts().chain());
    }
    FUZZ_CHECK(FinishModel(dir, JobConfig(), std::move(manifest), &env).ok());
    chain.push_back(*ReadExport(dir, &env));
    FUZZ_CHECK(VerifyExport(chain.back(), &env).ok());
  }
  const auto whole = FinishModel("/whole", JobConfig(),
                                 WriteFuzzRows("/whole", *tables[0], all, {}, false, &env), &env);
  FUZZ_CHECK(whole.ok());
  const bool changed = input.ConsumeBool();
  if (changed) {
    const ExportMember& victim = chain[input.ConsumeIntegralInRange<size_t>(0, chain.size() - 1)];
    const std::vector<std::string> names = *env.List(victim.dir);
    const std::string name = names[input.ConsumeIntegralInRange<size_t>(0, names.size() - 1)];
    std::string bytes = env.Get(absl::StrCat(victim.dir, "/", name));
    if (bytes.empty()) return 0;
    bytes[input.ConsumeIntegralInRange<size_t>(0, bytes.size() - 1)] ^=
        static_cast<char>(input.ConsumeIntegralInRange(1, 255));
    if (name == "MANIFEST" && input.ConsumeBool()) bytes = Summed(bytes);
    env.Put(absl::StrCat(victim.dir, "/", name), bytes);
  }
  std::vector<ExportMember> again;
  for (const ExportMember& member : chain) {
    auto read = ReadExport(member.dir, &env);
    if (!read.ok()) {
      FUZZ_CHECK(changed);
      return 0;
    }
    VerifyExport(*read, &env).IgnoreError();
    again.push_back(*std::move(read));
  }
  const auto applied = ApplyChain(again, "/applied", input.ConsumeBool(), &env);
  // What a manifest says of steps may have changed, but never a row.
  FUZZ_CHECK(applied.ok() ? changed || applied->model_digest() == whole->model_digest() : changed);
  if (members > 2) FUZZ_CHECK(!CheckChain({chain[0], chain[2]}).ok());
  return 0;
}
