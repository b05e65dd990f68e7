#include "common/arrow/parquet.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "tests/common/arrow/arrow_columns.h"

namespace sluice {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

// Parquet's own numbers and marks.
constexpr size_t kFooterEndBytes = 8;  // the length of the footer, and "PAR1"

std::vector<std::optional<int64_t>> Keys(int64_t rows) {
  std::vector<std::optional<int64_t>> keys;
  for (int64_t row = 0; row < rows; ++row)
    keys.push_back(row % 7 == 3 ? std::nullopt : std::optional<int64_t>(row * 1000003));
  return keys;
}
std::vector<std::optional<float>> Weights(int64_t rows) {
  std::vector<std::optional<float>> weights;
  for (int64_t row = 0; row < rows; ++row) weights.push_back(row / 3.0f);
  return weights;
}
std::vector<std::optional<std::string>> Colours(int64_t rows) {
  std::vector<std::optional<std::string>> texts;
  for (int64_t row = 0; row < rows; ++row)
    texts.push_back(row % 5 == 4 ? std::nullopt
                                 : std::optional<std::string>(absl::StrCat("colour ", row % 5)));
  return texts;
}
TestColumns ThreeColumns(int64_t rows) {
  return {TestColumn::Numbers<int64_t>("key", "l", Keys(rows)),
          TestColumn::Numbers<float>("weight", "f", Weights(rows)),
          TestColumn::Texts("colour", Colours(rows))};
}

class ParquetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::Status there = OpenArrow();
    if (there.ok()) return;
    std::fprintf(stderr, "SKIPPED, NOT PASSED: parquet_test: %s\n",
                 std::string(there.message()).c_str());
    GTEST_SKIP() << there;
  }

  static std::string Written(const TestColumns& columns, const ParquetWriterOptions& options = {}) {
    std::string bytes;
    auto writer = ParquetWriter::Create(std::make_unique<NewMemoryFile>(&bytes),
                                        TestStructs::Schema(columns), options);
    EXPECT_TRUE(writer.ok()) << writer.status();
    EXPECT_EQ((*writer)->Write(TestStructs::Array(columns)), absl::OkStatus());
    EXPECT_EQ((*writer)->Finish(), absl::OkStatus());
    return bytes;
  }
  absl::StatusOr<std::unique_ptr<ParquetReader>> Open(const std::string& bytes) {
    return ParquetReader::Open(std::make_unique<MemoryFile>(&bytes, &reads_));
  }
  // Reads everything, and gives the number of rows.
  absl::StatusOr<uint64_t> Drain(const std::string& bytes, bool dictionaries = false) {
    auto reader = Open(bytes);
    if (!reader.ok()) return reader.status();
    std::vector<uint64_t> groups((*reader)->row_groups());
    std::iota(groups.begin(), groups.end(), 0);
    std::vector<int32_t> columns((*reader)->schema().n_children);
    std::iota(columns.begin(), columns.end(), 0);
    for (const uint64_t group : groups) {
      auto info = (*reader)->RowGroup(group, columns);
      if (!info.ok()) return info.status();
    }
    auto rows = (*reader)->Read(groups, columns, 100, dictionaries);
    if (!rows.ok()) return rows.status();
    uint64_t count = 0;
    while (true) {
      auto batch = (*rows)->Next();
      if (!batch.ok()) return batch.status();
      if (batch->empty()) return count;
      count += (*batch)->length;
    }
  }

  MemoryReads reads_;
};

TEST_F(ParquetTest, RowsComeBackFromEachCompression) {
  for (const char* compression : {"none", "snappy", "zstd", "gzip", "lz4"}) {
    SCOPED_TRACE(compression);
    const std::string bytes = Written(ThreeColumns(1000), {300, compression});
    auto reader = Open(bytes);
    ASSERT_TRUE(reader.ok()) << reader.status();
    ASSERT_EQ((*reader)->row_groups(), 4);
    ASSERT_EQ((*reader)->schema().n_children, 3);
    EXPECT_STREQ((*reader)->schema().children[0]->format, "l");
    EXPECT_STREQ((*reader)->schema().children[2]->name, "colour");
    // Some groups in an order of their own, and the columns likewise.
    auto rows = (*reader)->Read({3, 1}, {2, 0}, 128, false);
    ASSERT_TRUE(rows.ok()) << rows.status();
    EXPECT_STREQ((*rows)->schema().children[0]->name, "colour");
    std::vector<std::optional<std::string>> colours;
    std::vector<std::optional<int64_t>> keys;
    while (true) {
      auto batch = (*rows)->Next();
      ASSERT_TRUE(batch.ok()) << batch.status();
      if (batch->empty()) break;
      ASSERT_EQ((*batch)->n_children, 2);
      EXPECT_LE((*batch)->length, 128);
      for (int64_t row = 0; row < (*batch)->length; ++row) {
        colours.push_back(TextAt(*(*batch)->children[0], row));
        keys.push_back(NumberAt<int64_t>(*(*batch)->children[1], row));
      }
    }
    std::vector<std::optional<std::string>> wanted_colours;
    std::vector<std::optional<int64_t>> wanted_keys;
    for (const auto& [begin, end] : {std::pair(900, 1000), std::pair(300, 600)}) {
      for (int row = begin; row < end; ++row) {
        wanted_colours.push_back(Colours(1000)[row]);
        wanted_keys.push_back(Keys(1000)[row]);
      }
    }
    EXPECT_EQ(colours, wanted_colours);
    EXPECT_EQ(keys, wanted_keys);
  }
}

TEST_F(ParquetTest, RowGroupsTellTheirSizes) {
  const std::string bytes = Written(ThreeColumns(1000), {300, "none"});
  auto reader = Open(bytes);
  ASSERT_TRUE(reader.ok()) << reader.status();
  uint64_t stored = 0;
  for (uint64_t group = 0; group < 4; ++group) {
    auto all = (*reader)->RowGroup(group, {0, 1, 2});
    auto one = (*reader)->RowGroup(group, {1});
    ASSERT_TRUE(all.ok() && one.ok());
    EXPECT_EQ(all->rows, group < 3 ? 300 : 100);
    EXPECT_GE(one->bytes, one->rows * sizeof(float));
    EXPECT_LT(one->bytes, all->bytes);
    stored += all->stored_bytes;
  }
  EXPECT_LT(stored, bytes.size());
  EXPECT_FALSE((*reader)->RowGroup(0, {3}).ok());
  EXPECT_FALSE((*reader)->RowGroup(0, {-1}).ok());
  EXPECT_FALSE((*reader)->Read({0}, {3}, 10, false).ok());
  EXPECT_FALSE((*reader)->Read({0}, {0}, 0, false).ok());
}

TEST_F(ParquetTest, RowsWithoutColumnsAreCounted) {
  const std::string bytes = Written(ThreeColumns(1000), {300, "none"});
  auto reader = Open(bytes);
  ASSERT_TRUE(reader.ok()) << reader.status();
  auto rows = (*reader)->Read({0, 3}, {}, 128, false);
  ASSERT_TRUE(rows.ok()) << rows.status();
  int64_t count = 0;
  while (true) {
    auto batch = (*rows)->Next();
    ASSERT_TRUE(batch.ok()) << batch.status();
    if (batch->empty()) break;
    count += (*batch)->length;
  }
  EXPECT_EQ(count, 400);
}

TEST_F(ParquetTest, OnlyTheChosenColumnsAreRead) {
  constexpr int kColumns = 500, kRows = 4000;
  TestColumns columns;
  std::mt19937_64 random(1);
  for (int i = 0; i < kColumns; ++i) {
    std::vector<std::optional<double>> values;
    for (int row = 0; row < kRows; ++row) values.push_back(std::ldexp(random(), -64));
    columns.push_back(TestColumn::Numbers<double>(absl::StrCat("c", i), "g", values));
  }
  const std::string bytes = Written(columns, {kRows, "snappy"});
  auto reader = Open(bytes);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_LE(reads_.calls, 2);
  uint32_t footer = 0;
  std::memcpy(&footer, bytes.data() + bytes.size() - kFooterEndBytes, sizeof(footer));
  // The first read is a guess of the footer's length.
  EXPECT_LE(reads_.bytes, footer + kFooterEndBytes + (64 << 10));

  // Ten columns, of which three are neighbours.
  const std::vector<int32_t> chosen = {3, 50, 51, 52, 100, 170, 230, 333, 444, 499};
  auto info = (*reader)->RowGroup(0, chosen);
  ASSERT_TRUE(info.ok()) << info.status();
  const MemoryReads before = reads_;
  auto rows = (*reader)->Read({0}, chosen, 1000, false);
  ASSERT_TRUE(rows.ok()) << rows.status();
  int64_t count = 0;
  while (true) {
    auto batch = (*rows)->Next();
    ASSERT_TRUE(batch.ok()) << batch.status();
    if (batch->empty()) break;
    EXPECT_EQ(NumberAt<double>(*(*batch)->children[9], 0),
              reinterpret_cast<const double*>(columns[499].buffers[1].data())[count]);
    count += (*batch)->length;
  }
  EXPECT_EQ(count, kRows);
  EXPECT_EQ(reads_.bytes - before.bytes, info->stored_bytes);
  EXPECT_EQ(reads_.calls - before.calls, 8);
}

TEST_F(ParquetTest, TextsWithDictionariesKeepThem) {
  constexpr int kRows = 60000;
  // More bytes of different texts than a dictionary takes: the writer goes on without it.
  std::vector<std::optional<std::string>> unlike;
  for (int row = 0; row < kRows; ++row) unlike.push_back(absl::StrCat("a text of its own ", row));
  const std::string bytes =
      Written({TestColumn::Texts("few", Colours(kRows)), TestColumn::Texts("many", unlike)});
  for (const bool asked : {true, false}) {
    auto reader = Open(bytes);
    ASSERT_TRUE(reader.ok()) << reader.status();
    auto rows = (*reader)->Read({0}, {1, 0}, 50000, asked);
    ASSERT_TRUE(rows.ok()) << rows.status();
    EXPECT_EQ((*rows)->schema().children[1]->dictionary != nullptr, asked);
    EXPECT_EQ((*rows)->schema().children[0]->dictionary, nullptr);
    auto batch = (*rows)->Next();
    ASSERT_TRUE(batch.ok()) << batch.status();
    EXPECT_EQ((*batch)->children[1]->dictionary != nullptr, asked);
    for (int64_t row = 0; row < 50000; row += 997) {
      EXPECT_EQ(TextAt(*(*batch)->children[1], row), Colours(kRows)[row]);
      EXPECT_EQ(TextAt(*(*batch)->children[0], row), unlike[row]);
    }
  }
}

// More than the bytes that are kept of a group as stored.
TEST_F(ParquetTest, ALargeRowGroupIsReadInPieces) {
  constexpr int kRows = 5 << 20;
  TestColumns columns;
  for (const char* name : {"a", "b"}) {
    TestColumn column = {name, "g", kRows, 0, {"", std::string(kRows * sizeof(double), '\0')}};
    auto* const values = reinterpret_cast<double*>(&column.buffers[1][0]);
    for (int row = 0; row < kRows; ++row) values[row] = row * (*name == 'a' ? 1.0 : -1.0);
    columns.push_back(std::move(column));
  }
  const std::string bytes = Written(columns, {kRows, "none"});
  columns.clear();
  auto reader = Open(bytes);
  ASSERT_TRUE(reader.ok()) << reader.status();
  ASSERT_EQ((*reader)->row_groups(), 1);
  auto rows = (*reader)->Read({0}, {0, 1}, 1 << 16, false);
  ASSERT_TRUE(rows.ok()) << rows.status();
  int64_t row = 0;
  while (true) {
    auto batch = (*rows)->Next();
    ASSERT_TRUE(batch.ok()) << batch.status();
    if (batch->empty()) break;
    for (int64_t i = 0; i < (*batch)->length; i += 1001) {
      ASSERT_EQ(NumberAt<double>(*(*batch)->children[0], i), row + i);
      ASSERT_EQ(NumberAt<double>(*(*batch)->children[1], i), -(row + i));
    }
    row += (*batch)->length;
  }
  EXPECT_EQ(row, kRows);
  EXPECT_LE(reads_.most_bytes, 8 << 20);
  EXPECT_LE(reads_.bytes, bytes.size() + (128 << 10));
}

TEST_F(ParquetTest, OtherFilesAreRefused) {
  for (const std::string& bytes :
       {std::string(), std::string("PAR1"), std::string("label,age\n1,2\n"),
        std::string(100000, 'x'), std::string("PAR1") + std::string(100, '\xff') + "PAR1"}) {
    EXPECT_EQ(Open(bytes).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(ParquetTest, EncryptedFilesAreUnsupported) {
  std::string bytes = Written(ThreeColumns(10));
  bytes.replace(bytes.size() - 4, 4, "PARE");  // the mark of an encrypted footer
  EXPECT_EQ(Open(bytes).status().code(), absl::StatusCode::kUnimplemented);
}

TEST_F(ParquetTest, OtherCodecsAreUnsupported) {
  std::string bytes = Written({ThreeColumns(1000)[1]}, {1000, "snappy"});
  // In the footer's metadata of the column the codec follows the name: field 4, an int32.
  const std::string snappy = "\x06weight\x15\x02", lzo = "\x06weight\x15\x06";
  const size_t place = bytes.rfind(snappy);
  ASSERT_NE(place, std::string::npos);
  bytes.replace(place, snappy.size(), lzo);
  EXPECT_EQ(Drain(bytes).status().code(), absl::StatusCode::kUnimplemented)
      << Drain(bytes).status();
}

TEST_F(ParquetTest, TruncatedFilesAreRefused) {
  const std::string whole = Written(ThreeColumns(500), {200, "snappy"});
  ASSERT_EQ(*Drain(whole), 500);
  for (size_t size = 0; size < whole.size(); size += size + 100 < whole.size() ? 37 : 1)
    EXPECT_EQ(Drain(whole.substr(0, size)).status().code(), absl::StatusCode::kInvalidArgument)
        << size;
  // Bytes that are missing in the middle move the rest.
  const std::string middle = whole.substr(0, 1000) + whole.substr(1100);
  EXPECT_EQ(Drain(middle).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ParquetTest, ACorruptedPageIsFound) {
  const std::string whole = Written(ThreeColumns(500), {500, "none"});
  auto reader = Open(whole);
  ASSERT_TRUE(reader.ok()) << reader.status();
  // The weights are 2000 plain bytes.
  std::string bytes = whole;
  const float weight = 100 / 3.0f;
  const size_t place =
      whole.find(std::string(reinterpret_cast<const char*>(&weight), sizeof(weight)));
  ASSERT_NE(place, std::string::npos);
  bytes[place] ^= 1;
  const absl::Status status = Drain(bytes).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("CRC"));
}

TEST_F(ParquetTest, NoFlippedBytesCrash) {
  std::mt19937 random(20261129);
  for (const char* compression : {"none", "snappy", "zstd", "lz4"}) {
    const std::string whole = Written(ThreeColumns(120), {60, compression});
    int refused = 0;
    for (int i = 0; i < 400; ++i) {
      std::string bytes = whole;
      const int flips = 1 + random() % 4;
      // Half of them in the footer and the headers of the last pages.
      const size_t begin = i % 2 == 0 ? 0 : whole.size() / 2;
      for (int flip = 0; flip < flips; ++flip)
        bytes[begin + random() % (whole.size() - begin)] = random();
      const auto rows = Drain(bytes, i % 4 < 2);
      refused += !rows.ok();
      if (!rows.ok()) {
        EXPECT_THAT((std::vector<absl::StatusCode>{rows.status().code()}),
                    Each(::testing::AnyOf(absl::StatusCode::kInvalidArgument,
                                          absl::StatusCode::kUnimplemented,
                                          absl::StatusCode::kResourceExhausted)))
            << rows.status();
      }
    }
    EXPECT_GT(refused, 100);
  }
}

TEST_F(ParquetTest, AnErrorOfTheFileIsTheReadersError) {
  const std::string bytes = Written(ThreeColumns(1000), {100, "zstd"});
  ASSERT_TRUE(Drain(bytes).ok());
  const size_t calls = reads_.calls;
  ASSERT_GT(calls, 5);
  for (size_t call = 0; call < calls; ++call) {
    reads_ = {};
    reads_.fail_at = call;
    EXPECT_EQ(Drain(bytes).status(), absl::UnavailableError("the store is away")) << call;
  }
}

TEST_F(ParquetTest, AFileThatGetsShorterFails) {
  const std::string bytes = Written(ThreeColumns(1000), {100, "zstd"});
  reads_.cut_at = bytes.size() - 1;
  EXPECT_EQ(Drain(bytes).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ParquetTest, AFileAppearsOnlyWhenItIsFinished) {
  const TestColumns columns = ThreeColumns(1000);
  std::string bytes;
  {
    auto writer = ParquetWriter::Create(std::make_unique<NewMemoryFile>(&bytes),
                                        TestStructs::Schema(columns), {});
    ASSERT_TRUE(writer.ok()) << writer.status();
    EXPECT_EQ((*writer)->Write(TestStructs::Array(columns)), absl::OkStatus());
  }
  EXPECT_EQ(bytes, "");
}

TEST_F(ParquetTest, AFullDiskIsTheWritersError) {
  TestColumns columns = {TestColumn::Numbers<float>("weight", "f", Weights(400000))};
  const size_t size = Written(columns, {100000, "none"}).size();
  for (const size_t room : {size_t(0), size / 3, size - 1}) {
    std::string bytes;
    auto writer = ParquetWriter::Create(std::make_unique<NewMemoryFile>(&bytes, room),
                                        TestStructs::Schema(columns), {100000, "none"});
    ASSERT_TRUE(writer.ok()) << writer.status();
    absl::Status status = (*writer)->Write(TestStructs::Array(columns));
    const bool written = status.ok();
    status = (*writer)->Finish();
    EXPECT_EQ(status, absl::ResourceExhaustedError("disk full")) << room << written;
    EXPECT_EQ(bytes, "");
  }
}

TEST_F(ParquetTest, WritersRefuseWhatTheyCannotWrite) {
  const auto create = [](const TestColumns& columns, const ParquetWriterOptions& options) {
    std::string bytes;
    return ParquetWriter::Create(std::make_unique<NewMemoryFile>(&bytes),
                                 TestStructs::Schema(columns), options)
        .status();
  };
  const TestColumns columns = ThreeColumns(10);
  EXPECT_EQ(create(columns, {100, "rar"}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(create(columns, {0, "zstd"}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(create({{"odd", "no such type", 0, 0, {}}}, {}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(create({{"interval", "tiD", 0, 0, {}}}, {}).code(), absl::StatusCode::kUnimplemented);
  // A batch that is not of the schema.
  std::string bytes;
  auto writer = ParquetWriter::Create(std::make_unique<NewMemoryFile>(&bytes),
                                      TestStructs::Schema(columns), {});
  ASSERT_TRUE(writer.ok()) << writer.status();
  EXPECT_EQ((*writer)->Write(TestStructs::Array({columns[0]})).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ParquetTest, NothingOfItIsVisibleToTheProgramAndNoThreadIsStarted) {
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                         std::filesystem::directory_iterator());
  };
  const auto before = threads();
  const std::string bytes = Written(ThreeColumns(1000), {100, "zstd"});
  EXPECT_EQ(*Drain(bytes, true), 1000);
  EXPECT_EQ(threads(), before);
  // libparquet has functions of these names, too.
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "EVP_sha256"), reinterpret_cast<void*>(&EVP_sha256));
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "SluiceArrowPluginOf"), nullptr);
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "arrow_mi_free"), nullptr);
}

}  // namespace
}  // namespace sluice
