#include "model/data/example_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/crc32c.h"
#include "common/base/env.h"
#include "gmock/gmock.h"
#include "tests/model/data/files_for_test.h"

namespace sluice {
namespace {

// Where the header has its checksum, and an offset, a size and a checksum of each section.
constexpr size_t kCrcAt = 12, kSectionsAt = 152, kSectionBytes = 24, kSections = 8;

class ExampleFileTest : public ::testing::Test {
 protected:
  ExampleFileTest() {
    origin_.digest = std::string(64, 'd');
    origin_.source.size = 100;
    origin_.source.modified_ns = 5;
    origin_.source.changed_ns = 6;
    origin_.num_numeric = 1;
    origin_.num_slots = 2;
    bad_.Add("data:4", absl::InvalidArgumentError("bad"));
    summary_.set_examples(3);
  }

  ExampleView Examples() const { return {3, 1, 2, label_, weight_, numeric_, offsets_, keys_}; }

  // The bytes of the file of these examples.
  std::string Image(const ExampleView& examples) {
    const int fd = open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644);
    const ExampleFileImage image(origin_, examples, bad_, summary_);
    EXPECT_TRUE(image.WriteTo(fd, path_).ok());
    close(fd);
    EXPECT_EQ(std::filesystem::file_size(path_), image.bytes());
    return *Env::Real()->ReadFile(path_);
  }
  absl::StatusOr<std::shared_ptr<const ExampleFile>> Map(const std::string& bytes) {
    EXPECT_TRUE(Env::Real()->WriteFile(path_, {bytes}).ok());
    const int fd = open(path_.c_str(), O_RDONLY);
    auto file = ExampleFile::Map(fd, path_, bytes.size(), origin_);
    close(fd);  // the mapping stays
    return file;
  }
  // The code of Map or, if the header is right, of CheckContents.
  absl::StatusCode Check(const std::string& bytes) {
    const auto file = Map(bytes);
    return file.ok() ? (*file)->CheckContents().code() : file.status().code();
  }

  const TempFolder folder_;
  const std::string path_ = folder_.Path("file");
  const float label_[3] = {0, 1, 1}, weight_[3] = {1, 2, 1}, numeric_[3] = {1, 2, 3};
  const uint32_t offsets_[7] = {0, 1, 1, 2, 4, 5, 6};
  const uint64_t keys_[6] = {7, 8, 9, 10, 11, 12};
  ExampleOrigin origin_;
  BadLines bad_;
  DataSummary summary_;
};

template <class T>
void Put(T value, size_t at, std::string* bytes) {
  std::memcpy(bytes->data() + at, &value, sizeof(value));
}
uint64_t OffsetOf(size_t section, const std::string& bytes) {
  uint64_t offset = 0;
  std::memcpy(&offset, bytes.data() + kSectionsAt + section * kSectionBytes, sizeof(offset));
  return offset;
}
void SealHeader(std::string* bytes) {
  Put<uint32_t>(0, kCrcAt, bytes);
  Put<uint32_t>(Crc32c(bytes->data(), kSectionsAt + kSections * kSectionBytes), kCrcAt, bytes);
}

TEST_F(ExampleFileTest, HasWhatWasWritten) {
  const auto file = Map(Image(Examples()));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE((*file)->CheckContents().ok());
  const ExampleView view = (*file)->view();
  ASSERT_EQ(view.n, 3u);
  EXPECT_EQ(view.num_numeric, 1u);
  EXPECT_EQ(view.num_slots, 2u);
  EXPECT_EQ(std::memcmp(view.label, label_, sizeof(label_)), 0);
  EXPECT_EQ(std::memcmp(view.weight, weight_, sizeof(weight_)), 0);
  EXPECT_EQ(std::memcmp(view.numeric, numeric_, sizeof(numeric_)), 0);
  EXPECT_EQ(std::memcmp(view.key_offsets, offsets_, sizeof(offsets_)), 0);
  ASSERT_EQ(view.num_keys, 6u);
  EXPECT_EQ(std::memcmp(view.keys, keys_, sizeof(keys_)), 0);
  EXPECT_EQ(*view.file, path_);
  BadLines bad;
  (*file)->AddBadLines(&bad);
  EXPECT_EQ(bad.count, 1u);
  EXPECT_EQ(bad.first, bad_.first);
  DataSummary summary;
  ASSERT_TRUE((*file)->AddSummaryTo(&summary));
  EXPECT_EQ(summary.examples(), 3u);
}

TEST_F(ExampleFileTest, OneKeyPerSlotAndUnitWeightsTakeNoSpace) {
  const size_t whole = Image(Examples()).size();
  const float weight[] = {1, 1, 1};
  const uint32_t offsets[] = {0, 1, 2, 3, 4, 5, 6};
  const std::string bytes = Image({3, 1, 2, label_, weight, numeric_, offsets, keys_});
  EXPECT_EQ(bytes.size(), whole - 2 * 64);
  const auto file = Map(bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE((*file)->CheckContents().ok());
  EXPECT_EQ((*file)->view().weight, nullptr);
  EXPECT_EQ((*file)->view().key_offsets, nullptr);
  EXPECT_EQ((*file)->view().num_keys, 6u);
}

TEST_F(ExampleFileTest, WeightsOfKeysAreKept) {
  const float weights[] = {1, 0.5f, 2, 1, -1, 0};
  ExampleView examples = Examples();
  examples.key_weights = weights;
  const std::string bytes = Image(examples);
  const auto file = Map(bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE((*file)->CheckContents().ok());
  ASSERT_NE((*file)->view().key_weights, nullptr);
  EXPECT_EQ(std::memcmp((*file)->view().key_weights, weights, sizeof(weights)), 0);
  // Weights that are all 1 take no space.
  const float ones[] = {1, 1, 1, 1, 1, 1};
  examples.key_weights = ones;
  EXPECT_EQ(Image(examples), Image(Examples()));
  EXPECT_EQ((*Map(Image(examples)))->view().key_weights, nullptr);
}

TEST_F(ExampleFileTest, LinesAreCountedFromTheHeader) {
  Image(Examples());
  const int fd = open(path_.c_str(), O_RDONLY);
  const uint64_t bytes = std::filesystem::file_size(path_);
  const auto lines = ExampleFile::CountLines(fd, path_, bytes, origin_);
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_EQ(*lines, 4u);  // with the bad one
  EXPECT_EQ(ExampleFile::CountLines(fd, path_, bytes - 1, origin_).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_TRUE(ExampleFile::HasMagic(fd));
  close(fd);
}

TEST_F(ExampleFileTest, FilesOfAnotherOriginAreRefused) {
  const std::string bytes = Image(Examples());
  const ExampleOrigin own = origin_;
  std::vector<ExampleOrigin> others(6, own);
  others[0].digest[63] = 'e';
  others[1].source.size = 101;
  others[2].source.modified_ns = 7;
  others[3].source.changed_ns = 7;
  others[4].num_numeric = 2;
  others[5].num_slots = 1;
  for (const ExampleOrigin& other : others) {
    origin_ = other;
    EXPECT_EQ(Check(bytes), absl::StatusCode::kInvalidArgument);
  }
  origin_ = own;
  EXPECT_EQ(Check(bytes), absl::StatusCode::kOk);
  std::string newer = bytes;
  Put<uint32_t>(ExampleFile::kVersion + 1, 8, &newer);
  SealHeader(&newer);
  EXPECT_EQ(Check(newer), absl::StatusCode::kInvalidArgument);
}

TEST_F(ExampleFileTest, EveryChangedByteOfHeaderAndSectionsIsFound) {
  const std::string bytes = Image(Examples());
  std::vector<size_t> places;
  for (size_t at = 0; at < kSectionsAt + kSections * kSectionBytes; ++at) places.push_back(at);
  for (size_t s = 0; s < kSections; ++s) places.push_back(OffsetOf(s, bytes));
  for (const size_t at : places) {
    std::string damaged = bytes;
    damaged[at] ^= 1;
    EXPECT_EQ(Check(damaged), absl::StatusCode::kDataLoss) << at;
  }
  for (const size_t size : {0, 100, 4096}) {
    EXPECT_EQ(Check(bytes.substr(0, size)), absl::StatusCode::kDataLoss) << size;
  }
}

// A user who can write the file can also correct its checksums.
TEST_F(ExampleFileTest, SectionsThatDoNotFitAreRefusedWithRightChecksums) {
  const std::string bytes = Image(Examples());
  const auto with = [&bytes](uint64_t value, size_t at) {
    std::string changed = bytes;
    Put(value, at, &changed);
    SealHeader(&changed);
    return changed;
  };
  constexpr size_t kExamplesAt = 104, kKeysAt = 128;
  const uint64_t huge = uint64_t{1} << 62;  // times 4 it is 0
  for (const std::string& changed :
       {with(huge, kExamplesAt), with(4, kExamplesAt), with(7, kKeysAt), with(huge, kKeysAt),
        with(bytes.size(), kSectionsAt), with(UINT64_MAX - 63, kSectionsAt),
        with(4100, kSectionsAt), with(16, kSectionsAt + 8), with(huge, kSectionsAt + 8)}) {
    EXPECT_EQ(Check(changed), absl::StatusCode::kDataLoss);
  }
}

TEST_F(ExampleFileTest, OffsetsOfKeysMustAscendToTheNumberOfKeys) {
  const std::vector<std::vector<uint32_t>> wrong = {
      {1, 1, 1, 2, 4, 5, 6}, {0, 1, 1, 2, 4, 5, 7}, {0, 2, 1, 2, 4, 5, 6}};
  for (const auto& offsets : wrong) {
    std::string bytes = Image(Examples());
    const uint64_t at = OffsetOf(3, bytes);
    std::memcpy(bytes.data() + at, offsets.data(), 4 * offsets.size());
    Put<uint64_t>(Crc32c(offsets.data(), 4 * offsets.size()), kSectionsAt + 3 * kSectionBytes + 16,
                  &bytes);
    SealHeader(&bytes);
    EXPECT_EQ(Check(bytes), absl::StatusCode::kDataLoss);
  }
}

}  // namespace
}  // namespace sluice
