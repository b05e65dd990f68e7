// Fills a new shard from the pieces of an image: header, blocks and index that the input changes.
//
// Checks: a complete image gives a shard that can be saved and used; anything else is refused.
#include <cstring>
#include <memory>

#include "common/base/crc32c.h"
#include "common/saved_model/shard_file.h"
#include "server/copies/shard_image_reader.h"
#include "server/shards/shard.h"
#include "tests/fuzz/fuzz.h"
#include "tests/server/test_worker.h"

namespace sluice {
namespace {

constexpr int kMostPieces = 12;

// A dense table, a sparse one, and a sparse one whose rows go.
TableLayouts FuzzTables() {
  JobSpec spec = MakeSpec(2, true, 0, /*num_shards=*/1);
  TableConfig* const goes = spec.add_tables();
  *goes = spec.tables(1);
  goes->set_name("goes");
  goes->set_max_rows(4);
  goes->mutable_expire()->set_after_steps(9);
  goes->mutable_expire()->set_after_days(2);
  goes->mutable_evict()->set_half_life_days(1);
  goes->mutable_admit()->set_after(2);
  goes->mutable_admit()->set_sketch_kib(1);
  return LayoutsOf(spec);
}

std::unique_ptr<Shard> NewShard(const TableLayouts& layouts, size_t table, Mode mode,
                                FuzzedDataProvider* input) {
  UpdatePolicy policy;
  policy.worker_num = 2;
  policy.mode = mode;
  if (table == 2) {
    if (mode == Mode::kGeo) policy.mode = Mode::kAsync;  // Geo refuses what makes rows go
    policy.keeps_tombstones = input->ConsumeBool();
    policy.day = input->ConsumeIntegralInRange(0, 9);
  }
  return (table == 0 ? MakeDenseShard : MakeSparseShard)(layouts[table], 0, policy);
}

std::string HeaderPiece(Shard* shard, FuzzedDataProvider* input) {
  ShardFileHeader header;
  const TableLayout& table = shard->table();
  header.set_table(table.name());
  header.set_kind(table.config().kind());
  header.mutable_facts();
  header.set_state_floats(shard->saved_state_floats());
  if (table.sparse()) {
    header.set_dim(table.dim());
    header.set_rows(input->ConsumeIntegralInRange(0, 8));
  } else {
    header.set_elements(table.ShardElements(0));
  }
  ShardFileHeader change;
  if (change.ParseFromString(input->ConsumeRandomLengthString(60))) header.MergeFrom(change);
  return EncodeShardFileHeader(header);
}

std::string BlockPiece(Shard* shard, FuzzedDataProvider* input) {
  const TableLayout& table = shard->table();
  std::string piece;
  const int records = input->ConsumeIntegralInRange(0, 6);
  for (int i = 0; i < records; ++i) {
    if (table.sparse()) {
      const uint64_t key = input->ConsumeIntegralInRange<uint64_t>(0, 40);
      piece.append(reinterpret_cast<const char*>(&key), sizeof(key));
      piece.append(12 + 4 * (table.dim() + shard->saved_state_floats()),
                   static_cast<char>(input->ConsumeIntegral<uint8_t>()));
    } else {
      piece.append(4, static_cast<char>(input->ConsumeIntegral<uint8_t>()));
    }
  }
  piece += input->ConsumeRandomLengthString(3);
  return piece;
}

std::string IndexPiece(const ShardFileIndex& seen) {
  std::string piece = seen.SerializeAsString();
  const auto length = static_cast<uint32_t>(piece.size());
  piece.append(reinterpret_cast<const char*>(&length), sizeof(length));
  return piece;
}

// The shard can be saved, and takes a push.
void Use(Shard* shard) {
  CutOptions options;
  options.state = true;
  {
    const std::unique_ptr<ShardCut> cut = shard->BeginCut(options);
    std::string chunk;
    for (absl::StatusOr<bool> more = true; more.ok() && *more;) more = cut->Next(&chunk);
  }
  PushPart part;
  shard->Apply({0, 1, 1, 1, {}}, &part);
  shard->Flush();
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;  // NOLINT
  FuzzedDataProvider input(data, size);
  const auto mode = input.PickValueInArray({Mode::kSync, Mode::kAsync, Mode::kGeo});
  static const TableLayouts* const layouts = new TableLayouts(FuzzTables());
  const int table = input.ConsumeIntegralInRange(0, 2);
  const std::unique_ptr<Shard> shard = NewShard(*layouts, table, mode, &input);
  ShardImageReader reader(shard.get());
  ShardFileIndex seen;
  const size_t record_bytes =
      shard->table().sparse() ? 20 + 4 * (shard->table().dim() + shard->saved_state_floats()) : 4;
  for (int i = 0; i < kMostPieces && !reader.done(); ++i) {
    const int kind = i == 0 ? 0 : input.ConsumeIntegralInRange(0, 7);
    std::string piece;
    if (kind == 0) {
      piece = HeaderPiece(shard.get(), &input);
    } else if (kind < 5) {
      piece = BlockPiece(shard.get(), &input);
      seen.add_records(static_cast<uint32_t>(piece.size() / record_bytes));
      seen.add_crc32c(Crc32c(piece.data(), piece.size()));
    } else {
      piece = kind < 7 ? IndexPiece(seen) : input.ConsumeRandomLengthString(60);
    }
    const absl::Status added = reader.Add(piece);
    FUZZ_CHECK(added.ok() || added.code() == absl::StatusCode::kInvalidArgument ||
               added.code() == absl::StatusCode::kDataLoss);
    if (!added.ok()) return 0;
  }
  if (reader.done()) Use(shard.get());
  return 0;
}
