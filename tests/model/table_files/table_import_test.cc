#include "model/table_files/table_import.h"

#include <cmath>
#include <filesystem>
#include <map>

#include "absl/strings/match.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/saved_model.h"
#include "gmock/gmock.h"
#include "model/features/feature_compiler.h"
#include "model/table_files/feature_keys.h"
#include "tests/model/table_files/table_files_for_test.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TableImportTest : public TableFilesTest {
 protected:
  // The rows of a table of the output.
  std::map<uint64_t, std::vector<float>> RowsOf(const std::string& table) const {
    std::map<uint64_t, std::vector<float>> rows;
    const Manifest manifest = *ReadManifest(options_.output, env_);
    EXPECT_TRUE(
        VisitShards(options_.output, manifest, table, env_, [&](uint32_t, ShardValues piece) {
          const size_t dim = piece.keys.empty() ? 0 : piece.weights.size() / piece.keys.size();
          for (size_t i = 0; i < piece.keys.size(); ++i) {
            rows[piece.keys[i]].assign(piece.weights.begin() + i * dim,
                                       piece.weights.begin() + (i + 1) * dim);
          }
          return absl::OkStatus();
        }).ok());
    return rows;
  }

  void ExpectRefused(const std::vector<std::string>& files, const std::vector<std::string>& parts) {
    const auto report = Import(files);
    EXPECT_EQ(report.status().code(), absl::StatusCode::kInvalidArgument) << report.status();
    for (const std::string& part : parts)
      EXPECT_THAT(std::string(report.status().message()), HasSubstr(part));
    EXPECT_FALSE(env_->Exists(options_.output + "/MANIFEST"));
  }
};

TEST_F(TableImportTest, KeysAndWeightsBecomeTheRowsOfAModel) {
  const auto report = Import({WriteNpzFile("rows.npz", Rows(1000))});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->rows, 1000u);
  EXPECT_EQ(report->digest, ReadManifest(options_.output, env_)->model_digest());
  const auto rows = RowsOf("embedding");
  ASSERT_EQ(rows.size(), 1000u);
  // The columns of the table are wide, then embedding.
  EXPECT_THAT(rows.at(7), ElementsAre(7.0f, 7.0f, 7.0f + 0.1f, 7.0f + 0.1f * 2));
  EXPECT_TRUE(RowsOf("ids").empty());
}

TEST_F(TableImportTest, AShardThatIsTooLargeForMemoryGivesTheSameModel) {
  const auto whole = Import({WriteNpzFile("rows.npz", Rows(1000))});
  ASSERT_TRUE(whole.ok()) << whole.status();
  options_.output = Path("large");
  options_.most_shard_bytes = 1;
  const auto large = Import({Path("rows.npz")});
  ASSERT_TRUE(large.ok()) << large.status();
  EXPECT_EQ(large->digest, whole->digest);
  options_.output = Path("twice");
  auto arrays = Rows(20);
  auto* const keys = reinterpret_cast<uint64_t*>(arrays[0].bytes.data());
  keys[7] = keys[3];
  ExpectRefused({WriteNpzFile("twice.npz", arrays)}, {"occurs twice", "row 3", "row 7"});
}

TEST_F(TableImportTest, OtherTablesOfAJobHaveItsInitialValues) {
  ASSERT_TRUE(Import({WriteNpzFile("rows.npz", Rows(3))}).ok());
  const Manifest manifest = *ReadManifest(options_.output, env_);
  const auto layouts = *CreateTableLayouts(manifest.tables(), job_.train().seed());
  size_t dense = 0;
  for (const auto& layout : layouts) {
    if (layout->sparse()) continue;
    ++dense;
    std::vector<float> initial(layout->elements());
    layout->InitialElements(0, initial.size(), initial.data());
    EXPECT_TRUE(VisitShards(options_.output, manifest, layout->name(), env_,
                            [&](uint32_t, ShardValues piece) {
                              for (size_t i = 0; i < piece.weights.size(); ++i)
                                EXPECT_EQ(piece.weights[i], initial[piece.first_element + i]);
                              return absl::OkStatus();
                            })
                    .ok());
  }
  EXPECT_GT(dense, 0u);
}

TEST_F(TableImportTest, AModelThatIsExportedAndImportedHasItsDigest) {
  ASSERT_TRUE(Import({WriteNpzFile("rows.npz", Rows(500))}).ok());
  const std::string digest = ReadManifest(options_.output, env_)->model_digest();
  ExportOptions exported;
  exported.model = options_.output;
  exported.table = "embedding";
  exported.output = Path("out.npz");
  const auto rows = ExportTable(exported, BuiltInSpecs(), env_);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->rows, 500u);
  options_.like = exported.model;
  options_.output = Path("again");
  const auto report = Import({exported.output});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->digest, digest);
  EXPECT_THAT(report->unused_columns, IsEmpty());
}

TEST_F(TableImportTest, ACheckpointThatIsExportedAndImportedHasItsState) {
  auto arrays = Rows(40);
  std::vector<float> one(40), three(120);
  for (size_t i = 0; i < three.size(); ++i) three[i] = 0.5f + static_cast<float>(i);
  for (size_t i = 0; i < one.size(); ++i) one[i] = -1.0f - static_cast<float>(i);
  std::vector<uint64_t> last_seen(40, 9);
  std::vector<uint32_t> count(40);
  for (uint32_t i = 0; i < 40; ++i) count[i] = i + 1;
  for (const char* const name : {"state_wide_z", "state_wide_n"})
    arrays.push_back(ArrayOf(name, "<f4", {40, 1}, one));
  for (const char* const name : {"state_embedding_m", "state_embedding_v"})
    arrays.push_back(ArrayOf(name, "<f4", {40, 3}, three));
  options_.state = true;
  ExpectRefused({WriteNpzFile("lacks.npz", arrays)}, {"count, last_seen"});
  arrays.push_back(ArrayOf("count", "<u4", {40}, count));
  arrays.push_back(ArrayOf("last_seen", "<u8", {40}, last_seen));
  const auto report = Import({WriteNpzFile("rows.npz", arrays)});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(VerifyCheckpoint(options_.output, env_, nullptr, nullptr).ok());

  ExportOptions exported;
  exported.model = options_.output;
  exported.table = "embedding";
  exported.output = Path("a.npz");
  exported.state = true;
  ASSERT_TRUE(ExportTable(exported, BuiltInSpecs(), env_).ok());
  options_.like = options_.output;
  options_.output = Path("again");
  ASSERT_TRUE(Import({exported.output}).ok());
  exported.model = options_.output;
  exported.output = Path("b.npz");
  ASSERT_TRUE(ExportTable(exported, BuiltInSpecs(), env_).ok());
  for (const TestArray& array : arrays) {
    EXPECT_EQ(ReadArray(Path("a.npz"), array.name), ReadArray(Path("b.npz"), array.name));
    EXPECT_EQ(ReadArray(Path("a.npz"), array.name).size(),
              ReadArray(Path("rows.npz"), array.name).size());
  }
  // Weights alone are taken from a checkpoint, too, as a model.
  options_.state = false;
  options_.output = Path("model_of_it");
  const auto model = Import({Path("a.npz")});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_FALSE(ReadManifest(options_.output, env_)->has_checkpoint());
  EXPECT_EQ(model->unused_columns.size(), 6u);
  // A model has no state for the other tables.
  options_.state = true;
  options_.like = options_.output;
  options_.output = Path("none");
  ExpectRefused({Path("a.npz")}, {"--state", "have no optimizer state"});
}

TEST_F(TableImportTest, ARepeatedKeyIsRefusedWithItsRows) {
  auto arrays = Rows(100);
  uint64_t key = 4;
  arrays[0].bytes.replace(90 * 8, 8, reinterpret_cast<const char*>(&key), 8);
  ExpectRefused({WriteNpzFile("rows.npz", arrays)}, {"key 4 occurs twice", "row 3", "row 90"});
  EXPECT_FALSE(env_->Exists(options_.output));
}

TEST_F(TableImportTest, NaNAndInfinityAreRefusedWithRowAndKey) {
  for (const float bad : {NAN, INFINITY}) {
    auto arrays = Rows(100);
    arrays[2].bytes.replace((41 * 3 + 2) * 4, 4, reinterpret_cast<const char*>(&bad), 4);
    ExpectRefused({WriteNpzFile("rows.npz", arrays)},
                  {"row 41", "key 42", "value 2", "'embedding'"});
  }
}

TEST_F(TableImportTest, AWrongWidthIsRefused) {
  auto arrays = Rows(4);
  arrays[2].shape = {4, 4};
  ExpectRefused({WriteNpzFile("width.npz", arrays)}, {"'embedding'", "4 values", "has 3"});
  arrays[2].shape = {2, 3};
  ExpectRefused({WriteNpzFile("rows.npz", arrays)}, {"has 2 rows", "4"});
  ExpectRefused({WriteText("part-0", "1 0 0 0 0\n\n2 0 0 0\n")}, {"--feature"});
  options_.table = "ids";
  ExpectRefused({WriteText("part-0", "1 0 0 0 0\n\n2 0 0 0\n")},
                {"part-0:3", "key 2", "3 numbers"});
}

TEST_F(TableImportTest, AShapeThatIsNotThatOfTheBytesIsRefused) {
  auto arrays = Rows(50);
  // As many rows as need more shards than the fewest.
  for (TestArray& array : arrays) array.shape[0] = uint64_t{1} << 58;
  ExpectRefused({WriteNpzFile("many.npz", arrays)}, {"cut off"});
  for (TestArray& array : arrays) array.shape[0] = 40;
  ExpectRefused({WriteNpzFile("few.npz", arrays)}, {"more bytes than its shape"});
}

TEST_F(TableImportTest, RowsOfOtherFeaturesThanAskedForAreRefused) {
  options_.feature = "city";
  auto arrays = Rows(2);
  arrays[0] = {"value", "|S1", {2}, "ab"};
  arrays.push_back({"feature", "|S4", {2}, "cityhome"});
  ExpectRefused({WriteNpzFile("rows.npz", arrays)}, {"row 1", "'home'", "'city'"});
  arrays[3].bytes = "citycity";
  ASSERT_TRUE(Import({WriteNpzFile("city.npz", arrays)}).ok());
  // Without values there is only the number of a row.
  options_.output = Path("none");
  options_.feature = "";
  arrays.erase(arrays.begin());
  ExpectRefused({WriteNpzFile("numbers.npz", arrays)}, {"no column 'value'"});
}

TEST_F(TableImportTest, ValuesBecomeKeysByTheFeature) {
  options_.feature = "city";
  const std::string values = std::string("Rome\0", 5) + "Paris" + std::string("Oslo\0", 5);
  auto arrays = Rows(3);
  arrays[0] = {"value", "|S5", {3}, values};
  ASSERT_TRUE(Import({WriteNpzFile("rows.npz", arrays)}).ok());
  const auto rows = RowsOf("embedding");
  EXPECT_EQ(rows.at(ValueKey("Paris", SlotSeed("city")))[0], 2.0f);
  // An integer hashes as its decimal text.
  arrays[0] = ArrayOf("value", "<i8", {3}, std::vector<int64_t>{-7, 0, 12});
  options_.overwrite = true;
  ASSERT_TRUE(Import({WriteNpzFile("ints.npz", arrays)}).ok());
  EXPECT_EQ(RowsOf("embedding").at(ValueKey("-7", SlotSeed("city")))[0], 1.0f);
}

TEST_F(TableImportTest, IntegersAreKeysOnlyOfRawFeatures) {
  auto arrays = Rows(3);
  arrays[0] = ArrayOf("value", "<i8", {3}, std::vector<int64_t>{-1, 0, 12});
  ExpectRefused({WriteNpzFile("rows.npz", arrays)}, {"--feature=NAME", "city", "key: RAW"});
  options_.table = "ids";
  ASSERT_TRUE(Import({Path("rows.npz")}).ok());
  EXPECT_EQ(RowsOf("ids").at(UINT64_MAX)[0], 1.0f);
}

TEST_F(TableImportTest, RowsWithNumbersNeedAVocabularyOrARawFeature) {
  const TestArray weights = Rows(3)[2];
  const std::string file =
      WriteText("rows.npy", EncodeNpyHeader(weights.descr, weights.shape) + weights.bytes);
  options_.feature = "city";
  ExpectRefused({file}, {"--vocabulary", "key: RAW"});
  options_.vocabulary = WriteText("cities.txt", "Rome\nParis\n");
  ExpectRefused({file}, {"vocabulary has 2 lines"});
  options_.vocabulary = WriteText("cities.txt", "Rome\n\nOslo\r\n");
  auto report = Import({file});
  ASSERT_TRUE(report.ok()) << report.status();
  // An empty line is a row that is not wanted.
  EXPECT_EQ(report->rows, 2u);
  EXPECT_EQ(report->unmatched, 1u);
  // The file has no wide column.
  EXPECT_THAT(report->initial_columns, ElementsAre("wide"));
  EXPECT_EQ(RowsOf("embedding").at(ValueKey("Oslo", SlotSeed("city")))[1], 3.0f);
  EXPECT_EQ(report->unused_lines, 0u);
  options_.overwrite = true;
  options_.vocabulary = WriteText("more.txt", "city\nRome\nParis\nOslo\n");
  report = Import({file});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->unused_lines, 1u);
  options_.vocabulary = "";
  options_.feature = "id";
  options_.table = "";
  report = Import({file});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(RowsOf("ids").at(2)[1], 3.0f);
}

TEST_F(TableImportTest, ValuesThatTheFeatureDoesNotHaveAreReported) {
  options_.table = "";
  options_.feature = "kind";
  auto arrays = Rows(3);
  arrays[0] = {"value", "|S1", {3}, "axb"};
  const auto report = Import({WriteNpzFile("rows.npz", arrays)});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->table, "kinds");
  EXPECT_EQ(report->rows, 2u);
  EXPECT_EQ(report->unmatched, 1u);
  ASSERT_EQ(report->examples.size(), 1u);
  EXPECT_THAT(report->examples[0], AllOf(HasSubstr("'x'"), HasSubstr("row 1")));
}

TEST_F(TableImportTest, ValuesThatShareABucketAreRefused) {
  options_.table = "";
  options_.feature = "shop";
  auto arrays = Rows(6);  // of five buckets
  arrays[0] = {"value", "|S1", {6}, "abcdef"};
  ExpectRefused({WriteNpzFile("rows.npz", arrays)}, {"occurs twice", "value '", "hash_buckets"});
}

TEST_F(TableImportTest, TextPartsOfPaddleAreOneTable) {
  options_.table = "ids";
  options_.text_columns = {"_2", "wide", "_1", "embedding"};
  const auto report = Import({WriteText("part-0", "5 9 9 1 9 2 3 4\n6 9 9 5 9 6 7 8\n"),
                              WriteText("part-1", "18446744073709551615\t9\t9\t1\t9\t2\t3\t4\n")});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->rows, 3u);
  EXPECT_THAT(RowsOf("ids").at(6), ElementsAre(5, 6, 7, 8));
  EXPECT_EQ(RowsOf("ids").count(UINT64_MAX), 1u);
  options_.output = Path("other");
  ExpectRefused({Path("part-0"), WriteText("part-2", "7 9 9 1 9 2 3 4\n5 9 9 1 9 2 3 4\n")},
                {"part-0:1", "part-2:2", "key 5"});
  ExpectRefused({WriteText("part-3", "7 9 9 1 9 2 x 4\n")}, {"part-3:1", "key 7", "'x'"});
}

TEST_F(TableImportTest, TensorsOfDeepRecAreRead) {
  options_.table = "ids";
  auto arrays = Rows(4);
  std::vector<TestArray> ev;
  for (int part = 0; part < 2; ++part) {
    const std::string name = absl::StrCat("emb/part_", part);
    ev.push_back(
        ArrayOf(name + "-keys", "<i8", {2}, std::vector<int64_t>{10 * part, 10 * part + 1}));
    ev.push_back({name + "-values", "<f4", {2, 3}, arrays[2].bytes.substr(24 * part, 24)});
    ev.push_back(ArrayOf(name + "-freqs", "<i8", {2}, std::vector<int64_t>{1, 1}));
  }
  const auto report = Import({WriteNpzFile("ev.npz", ev)});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->rows, 4u);
  EXPECT_EQ(report->unused_columns.size(), 2u);
  EXPECT_EQ(RowsOf("ids").at(11)[1], 4.0f);
  // Of several variables one is named.
  ev.push_back(ArrayOf("other-keys", "<i8", {1}, std::vector<int64_t>{3}));
  ev.push_back(ArrayOf("other-values", "<f4", {1, 3}, std::vector<float>{1, 2, 3}));
  options_.output = Path("other");
  ExpectRefused({WriteNpzFile("two.npz", ev)}, {"--name", "emb, other"});
  options_.name = "other";
  ASSERT_TRUE(Import({Path("two.npz")}).ok());
  EXPECT_EQ(RowsOf("ids").size(), 1u);
}

TEST_F(TableImportTest, ADenseTableComesFromItsArray) {
  std::string dense;
  const auto spec = *ModelSpec::Create(job_, BuiltInSpecs());
  for (const TableConfig& table : spec->tables()) {
    if (table.kind() == TableConfig::DENSE && table.shape_size() == 2) dense = table.name();
  }
  ASSERT_TRUE(Import({WriteNpzFile("rows.npz", Rows(3))}).ok());
  ExportOptions exported;
  exported.model = options_.output;
  exported.table = dense;
  exported.output = Path("dense.npz");
  const auto report = ExportTable(exported, BuiltInSpecs(), env_);
  ASSERT_TRUE(report.ok()) << report.status();
  const std::string digest = ReadManifest(options_.output, env_)->model_digest();
  options_.like = options_.output;
  options_.output = Path("again");
  options_.table = dense;
  const auto again = Import({exported.output});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->digest, digest);
  options_.output = Path("wrong");
  options_.column = "embedding";
  ExpectRefused({exported.output}, {"--column", dense});
  options_.column = "";
  ExpectRefused(
      {WriteNpzFile("wrong.npz", {ArrayOf("weights", "<f4", {2}, std::vector<float>(2))})},
      {"the shape 2", dense});
}

TEST_F(TableImportTest, AnEarlierModelStaysWhenAnImportFails) {
  ASSERT_TRUE(Import({WriteNpzFile("rows.npz", Rows(3))}).ok());
  const Manifest before = *ReadManifest(options_.output, env_);
  EXPECT_EQ(Import({Path("rows.npz")}).status().code(), absl::StatusCode::kInvalidArgument);
  options_.overwrite = true;
  auto arrays = Rows(5);
  arrays[0].bytes.replace(8, 8, arrays[0].bytes.substr(0, 8));
  EXPECT_FALSE(Import({WriteNpzFile("twice.npz", arrays)}).ok());
  EXPECT_EQ(ReadManifest(options_.output, env_)->model_digest(), before.model_digest());
  EXPECT_EQ(RowsOf("embedding").size(), 3u);
  ASSERT_TRUE(Import({WriteNpzFile("five.npz", Rows(5))}).ok());
  EXPECT_EQ(RowsOf("embedding").size(), 5u);
}

TEST_F(TableImportTest, OptionsWithoutEffectAreRefused) {
  const std::string file = WriteNpzFile("rows.npz", Rows(3));
  options_.name = "emb";
  ExpectRefused({file}, {"--name", "rows.npz"});
  ExpectRefused({WriteText("part-0", "1 0 0 0 0\n")}, {"--name", "part-0"});
  options_.name = "";
  options_.text_columns = {"embedding"};
  ExpectRefused({file}, {"--text_columns", "rows.npz"});
}

TEST_F(TableImportTest, ATableIsNamedWhereSeveralAreThere) {
  options_.table = "";
  ExpectRefused({WriteNpzFile("rows.npz", Rows(3))}, {"--table=NAME", "embedding", "ids"});
  options_.table = "embeding";
  ExpectRefused({Path("rows.npz")}, {"did you mean 'embedding'"});
}

}  // namespace
}  // namespace sluice
