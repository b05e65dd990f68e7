#include "worker/step/geo_state_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/file_origin.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
constexpr char kGeoStateFileSaveId[] = "0123456789abcdef";

class GeoStateFileTest : public testing::Test {
 protected:
  GeoStateFileTest() : dir_(absl::StrCat(testing::TempDir(), "/geo_state_file_test.", getpid())) {
    fs::remove_all(dir_);
  }
  ~GeoStateFileTest() override { fs::remove_all(dir_); }

  // Two blocks and a half.
  SavedFile Write(uint64_t number = 77) {
    auto writer = GeoStateWriter::Create(Env::Real(), dir_ + "/step-3", 4, kGeoStateFileSaveId);
    EXPECT_TRUE(writer.ok()) << writer.status();
    EXPECT_TRUE((*writer)->Put(number).ok());
    EXPECT_TRUE((*writer)->Append(values_.data(), values_.size() * sizeof(float)).ok());
    const auto file = (*writer)->Finish();
    EXPECT_TRUE(file.ok()) << file.status();
    return *file;
  }
  absl::Status Read(const SavedFile& file, size_t missing = 0, uint64_t expected = 77) {
    auto reader = GeoStateReader::Open(Env::Real(), dir_ + "/step-3", file);
    if (!reader.ok()) return reader.status();
    uint64_t number = 0;
    std::vector<float> values(values_.size() - missing);
    absl::Status status = (*reader)->Get(&number);
    if (status.ok()) status = (*reader)->Read(values.data(), values.size() * sizeof(float));
    if (status.ok()) status = (*reader)->Finish();
    if (!status.ok()) return status;
    EXPECT_EQ(number, expected);
    EXPECT_EQ(values, std::vector<float>(values_.begin(), values_.end() - missing));
    return absl::OkStatus();
  }
  std::string path() const { return absl::StrCat(dir_, "/step-3/worker-4.", kGeoStateFileSaveId); }
  std::string Bytes() const {
    std::ifstream in(path(), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  void Replace(const std::string& bytes) const {
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << bytes;
  }

  const std::string dir_;
  const std::vector<float> values_ = [] {
    std::vector<float> values(160 << 10);
    std::iota(values.begin(), values.end(), 0.5f);
    return values;
  }();
};

TEST_F(GeoStateFileTest, ReadsBackTheBytesWithTheirSizeAndChecksum) {
  const SavedFile file = Write();
  EXPECT_EQ(file.name(), absl::StrCat("worker-4.", kGeoStateFileSaveId));
  const std::string bytes = Bytes();
  EXPECT_EQ(file.bytes(), bytes.size());
  EXPECT_EQ(file.crc32c(), Crc32c(bytes.data(), bytes.size()));
  EXPECT_TRUE(Read(file).ok()) << Read(file);
  EXPECT_TRUE(IsOwnFile(Env::Real(), path(), FileKind::kGeoState));
  EXPECT_FALSE(IsOwnFile(Env::Real(), path(), FileKind::kShard));
}

TEST_F(GeoStateFileTest, NothingRemainsOfAFileThatIsNotFinished) {
  {
    auto writer = GeoStateWriter::Create(Env::Real(), dir_ + "/step-3", 4, kGeoStateFileSaveId);
    ASSERT_TRUE(writer.ok());
    EXPECT_TRUE((*writer)->Append(values_.data(), values_.size() * sizeof(float)).ok());
  }
  EXPECT_TRUE(fs::is_empty(dir_ + "/step-3"));
}

TEST_F(GeoStateFileTest, EveryDamageIsFound) {
  const SavedFile file = Write();
  const std::string whole = Bytes();
  for (size_t at = 0; at < whole.size(); at += at < 64 || at + 64 > whole.size() ? 1 : 9973) {
    std::string bytes = whole;
    bytes[at] ^= 0x20;
    Replace(bytes);
    EXPECT_TRUE(absl::IsDataLoss(Read(file))) << at << ": " << Read(file);
  }
  for (const size_t n : {size_t{0}, size_t{5}, whole.size() - 1}) {
    Replace(whole.substr(0, n));
    EXPECT_TRUE(absl::IsDataLoss(Read(file))) << n;
    // Also when nothing else knows the size.
    SavedFile as_found = file;
    as_found.set_bytes(n);
    EXPECT_TRUE(absl::IsDataLoss(Read(as_found))) << n;
  }
  Replace(std::string(whole.size(), '\0'));
  EXPECT_TRUE(absl::IsDataLoss(Read(file)));
  Replace(whole + "x");
  EXPECT_TRUE(absl::IsDataLoss(Read(file)));
  fs::remove(path());
  EXPECT_TRUE(absl::IsDataLoss(Read(file)));
  Replace(whole);
  EXPECT_TRUE(Read(file).ok());
}

TEST_F(GeoStateFileTest, AnIntactFileOfAnotherRankOrCheckpointIsDamage) {
  const SavedFile other = Write(/*number=*/78);
  const std::string bytes_of_other = Bytes();
  const SavedFile file = Write();
  ASSERT_EQ(other.bytes(), file.bytes());
  ASSERT_NE(other.crc32c(), file.crc32c());
  Replace(bytes_of_other);
  EXPECT_TRUE(Read(other, /*missing=*/0, /*expected=*/78).ok());
  const absl::Status status = Read(file, /*missing=*/0, /*expected=*/78);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  for (const std::string& part : {path(), absl::StrCat(absl::Hex(file.crc32c(), absl::kZeroPad8)),
                                  absl::StrCat(absl::Hex(other.crc32c(), absl::kZeroPad8))}) {
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(part));
  }
}

TEST_F(GeoStateFileTest, ContentsThatAreLongerOrShorterThanExpectedAreDamage) {
  const SavedFile file = Write();
  EXPECT_TRUE(absl::IsDataLoss(Read(file, /*missing=*/1)));
  auto reader = GeoStateReader::Open(Env::Real(), dir_ + "/step-3", file);
  ASSERT_TRUE(reader.ok());
  std::vector<float> more(values_.size() + 3);
  EXPECT_TRUE(absl::IsDataLoss((*reader)->Read(more.data(), more.size() * sizeof(float))));
}

}  // namespace
}  // namespace sluice
