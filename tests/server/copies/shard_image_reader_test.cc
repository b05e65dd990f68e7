#include "server/copies/shard_image_reader.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/optimizer/update_rule.h"
#include "common/saved_model/shard_file.h"
#include "server/shards/shard.h"

namespace sluice {
namespace {

constexpr uint64_t kKeys = 100;

// Table 0 is dense; table 1 is sparse, with one column and two shards.
TableLayouts Layouts() {
  OptimizerConfig optimizer;
  optimizer.mutable_momentum();
  optimizer.set_learning_rate(0.1f);
  optimizer = WithDefaults(optimizer);
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  TableConfig* const dense = tables.Add();
  dense->set_name("w");
  dense->set_kind(TableConfig::DENSE);
  dense->add_shape(6);
  dense->mutable_initializer()->set_constant(1);
  *dense->mutable_optimizer() = optimizer;
  TableConfig* const sparse = tables.Add();
  sparse->set_name("e");
  sparse->set_kind(TableConfig::SPARSE);
  sparse->set_num_shards(2);
  ColumnGroup* const column = sparse->add_columns();
  column->set_name("deep");
  column->set_dim(2);
  column->mutable_initializer()->set_constant(0.5f);
  *column->mutable_optimizer() = optimizer;
  return CreateTableLayouts(tables, 1).value();
}

class ShardImageReaderTest : public testing::TestWithParam<uint32_t> {
 protected:
  std::unique_ptr<Shard> NewShard(uint32_t table, uint32_t index = 0) {
    UpdatePolicy policy;
    policy.worker_num = 1;
    policy.mode = Mode::kAsync;
    return (table == 0 ? MakeDenseShard : MakeSparseShard)(layouts_[table], index, policy);
  }
  // A shard that has applied two frames.
  std::unique_ptr<Shard> Trained(uint32_t table, uint32_t index = 0) {
    std::unique_ptr<Shard> shard = NewShard(table, index);
    for (uint64_t sequence = 1; sequence <= 2; ++sequence) {
      PushPart part;
      if (table == 0) {
        part.rows = 6;
      } else {
        for (uint64_t key = 0; key < kKeys; ++key) {
          if (layouts_[1]->ShardOf(key) == index) part.keys.push_back(key);
        }
        part.rows = static_cast<uint32_t>(part.keys.size());
      }
      part.values.assign(part.rows * (table == 0 ? 1 : 2), 0.25f);
      EXPECT_EQ(shard->Apply({0, 1, sequence, 1, {}}, &part).status, PART_OK);
    }
    return shard;
  }
  static std::vector<std::string> ImageOf(Shard* shard) {
    CutOptions options;
    options.state = true;
    const std::unique_ptr<ShardCut> cut = shard->BeginCut(options);
    std::vector<std::string> pieces;
    for (std::string piece; cut->Next(&piece).value();) pieces.push_back(piece);
    return pieces;
  }
  // Reads pieces until one is refused.
  static absl::Status Read(const std::vector<std::string>& pieces, ShardImageReader* reader) {
    for (const std::string& piece : pieces) {
      const absl::Status added = reader->Add(piece);
      if (!added.ok()) return added;
    }
    return absl::OkStatus();
  }

  const TableLayouts layouts_ = Layouts();
};

// The positions of ranks, in the header's facts, are left to Shard::RestoreRanks.
std::vector<std::string> WithoutHeader(const std::vector<std::string>& image) {
  return {image.begin() + 1, image.end()};
}

TEST_P(ShardImageReaderTest, TheNewShardHasTheSameValuesAndState) {
  const std::vector<std::string> image = ImageOf(Trained(GetParam()).get());
  ASSERT_GE(image.size(), 3u);  // header, blocks, index
  const auto copy = NewShard(GetParam());
  EXPECT_NE(WithoutHeader(ImageOf(copy.get())), WithoutHeader(image));
  ShardImageReader reader(copy.get());
  for (const std::string& piece : image) {
    EXPECT_FALSE(reader.done());
    ASSERT_TRUE(reader.Add(piece).ok());
  }
  EXPECT_TRUE(reader.done());
  EXPECT_EQ(WithoutHeader(ImageOf(copy.get())), WithoutHeader(image));
  EXPECT_TRUE(absl::IsInvalidArgument(reader.Add("more")));
}

TEST_P(ShardImageReaderTest, ADamagedBlockIsDataLoss) {
  std::vector<std::string> image = ImageOf(Trained(GetParam()).get());
  image[1].back() ^= 1;
  const auto copy = NewShard(GetParam());
  ShardImageReader reader(copy.get());
  EXPECT_TRUE(absl::IsDataLoss(Read(image, &reader)));
  EXPECT_FALSE(reader.done());
}

TEST_P(ShardImageReaderTest, PiecesOutOfOrderAreRefused) {
  const std::vector<std::string> image = ImageOf(Trained(GetParam()).get());
  const auto copy = NewShard(GetParam());
  ShardImageReader without_header(copy.get());
  EXPECT_TRUE(absl::IsInvalidArgument(without_header.Add(image[1])));
  ShardImageReader header_twice(copy.get());
  ASSERT_TRUE(header_twice.Add(image[0]).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(header_twice.Add(image[0] + "x")));
}

TEST_P(ShardImageReaderTest, ImagesOfOtherShardsAreRefused) {
  const auto copy = NewShard(GetParam());
  for (const auto& other : {Trained(1 - GetParam()), Trained(1, 1)}) {
    ShardImageReader reader(copy.get());
    EXPECT_TRUE(absl::IsInvalidArgument(Read(ImageOf(other.get()), &reader)));
  }
}

TEST_P(ShardImageReaderTest, AnImageOfOtherElementsIsRefused) {
  std::vector<std::string> image = ImageOf(Trained(GetParam()).get());
  const size_t preamble = kShardFileMagic.size() + sizeof(uint32_t);
  ShardFileHeader header;
  ASSERT_TRUE(header.ParseFromString(image[0].substr(preamble)));
  header.set_first_element(1);
  image[0] = EncodeShardFileHeader(header);
  const auto copy = NewShard(GetParam());
  ShardImageReader reader(copy.get());
  const absl::Status read = Read(image, &reader);
  // A sparse shard has no elements, so the field means nothing there.
  EXPECT_EQ(absl::IsInvalidArgument(read), GetParam() == 0) << read;
}

INSTANTIATE_TEST_SUITE_P(DenseAndSparse, ShardImageReaderTest, testing::Values(0, 1));

}  // namespace
}  // namespace sluice
