#include "scheduler/files/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/base/crc32c.h"
#include "common/base/env.h"

namespace sluice {
namespace {

uint64_t Fixed(const std::string& bytes, size_t at, int n) {
  uint64_t value = 0;
  for (int i = 0; i < n; ++i) {
    value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes.at(at + i))) << (8 * i);
  }
  return value;
}

uint32_t Unmasked(uint32_t masked) {
  const uint32_t rotated = masked - 0xA282EAD8u;
  return (rotated >> 17) | (rotated << 15);
}

// Returns the records of the file after checking each checksum.
std::vector<std::string> ReadRecords(const std::string& file) {
  std::vector<std::string> records;
  for (size_t at = 0; at < file.size();) {
    const uint64_t length = Fixed(file, at, 8);
    EXPECT_EQ(Unmasked(Fixed(file, at + 8, 4)), Crc32c(file.data() + at, 8));
    records.push_back(file.substr(at + 12, length));
    EXPECT_EQ(records.back().size(), length);
    EXPECT_EQ(Unmasked(Fixed(file, at + 12 + length, 4)),
              Crc32c(records.back().data(), records.back().size()));
    at += 16 + length;
  }
  return records;
}

// Returns the fields of a protobuf message by number; bytes become text.
std::map<int, std::pair<uint64_t, std::string>> Fields(const std::string& message) {
  std::map<int, std::pair<uint64_t, std::string>> fields;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const uint8_t byte = static_cast<uint8_t>(message.at(at++));
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < message.size()) {
    const uint64_t key = varint();
    auto& field = fields[static_cast<int>(key >> 3)];
    switch (key & 7) {
      case 0:
        field.first = varint();
        break;
      case 1:
        field.first = Fixed(message, at, 8);
        at += 8;
        break;
      case 2: {
        const uint64_t length = varint();
        field.second = message.substr(at, length);
        at += length;
        break;
      }
      case 5:
        field.first = Fixed(message, at, 4);
        at += 4;
        break;
      default:
        ADD_FAILURE() << "wire type " << (key & 7);
        return fields;
    }
  }
  return fields;
}

TEST(EventFileTest, ScalarsAndChecksumsReadBack) {
  const std::string dir = testing::TempDir() + "event_file_test";
  std::filesystem::remove_all(dir);
  const absl::Time now = absl::FromUnixMillis(1700000000500);
  auto file = EventFile::Create(Env::Real(), dir + "/deep", "host", now);
  ASSERT_TRUE(file.ok()) << file.status();
  (*file)->Add(now, 300, "train/loss", 0.25);
  (*file)->Add(now, 1, "eval/auc", 0.91);
  ASSERT_TRUE((*file)->Flush().ok());
  EXPECT_EQ((*file)->path(), dir + "/deep/events.out.tfevents.1700000000.host");

  const std::vector<std::string> records = ReadRecords(*Env::Real()->ReadFile((*file)->path()));
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(Fields(records[0])[3].second, "brain.Event:2");
  auto event = Fields(records[1]);
  double wall;
  std::memcpy(&wall, &event[1].first, 8);
  EXPECT_EQ(wall, 1700000000.5);
  EXPECT_EQ(event[2].first, 300u);
  auto value = Fields(Fields(event[5].second)[1].second);
  EXPECT_EQ(value[1].second, "train/loss");
  const uint32_t bits = static_cast<uint32_t>(value[2].first);
  float loss;
  std::memcpy(&loss, &bits, 4);
  EXPECT_EQ(loss, 0.25f);
}

// Files cannot grow beyond `bytes` until the end of the scope: a write to the limit is torn, and
// the next one fails.
class LimitedFiles {
 public:
  explicit LimitedFiles(rlim_t bytes) {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~LimitedFiles() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_;
};

TEST(EventFileTest, AFullDiskDropsPointsAndLeavesWholeRecords) {
  const std::string dir = testing::TempDir() + "event_file_test_full";
  std::filesystem::remove_all(dir);
  const auto file = EventFile::Create(Env::Real(), dir, "host", absl::UnixEpoch());
  ASSERT_TRUE(file.ok()) << file.status();
  (*file)->Add(absl::UnixEpoch(), 1, "a", 1);
  ASSERT_TRUE((*file)->Flush().ok());
  const std::string before = *Env::Real()->ReadFile((*file)->path());
  {
    const LimitedFiles full(before.size() + 20);  // less than a record
    for (int attempt = 0; attempt < 2; ++attempt) {
      (*file)->Add(absl::UnixEpoch(), 2, "dropped", 2);
      const absl::Status status = (*file)->Flush();
      ASSERT_FALSE(status.ok());
      EXPECT_THAT(std::string(status.message()), testing::HasSubstr((*file)->path()));
      EXPECT_THAT(std::string(status.message()), testing::HasSubstr("File too large"));
      EXPECT_EQ(*Env::Real()->ReadFile((*file)->path()), before);
    }
  }
  (*file)->Add(absl::UnixEpoch(), 3, "b", 3);
  ASSERT_TRUE((*file)->Flush().ok());
  const std::vector<std::string> records = ReadRecords(*Env::Real()->ReadFile((*file)->path()));
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(Fields(records[2])[2].first, 3u);
}

TEST(EventFileTest, AFileThatCannotBeginIsNotLeftBehind) {
  const std::string dir = testing::TempDir() + "event_file_test_none";
  std::filesystem::remove_all(dir);
  {
    const LimitedFiles full(5);
    EXPECT_FALSE(EventFile::Create(Env::Real(), dir, "host", absl::UnixEpoch()).ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir));
}

TEST(EventFileTest, UnusableFolderIsNamed) {
  const std::string file = testing::TempDir() + "event_file_test_plain";
  ASSERT_TRUE(Env::Real()->WriteFile(file, {absl::string_view("x")}).ok());
  const auto events = EventFile::Create(Env::Real(), file + "/sub", "host", absl::UnixEpoch());
  ASSERT_FALSE(events.ok());
  EXPECT_NE(events.status().message().find("event_file_test_plain"), absl::string_view::npos);
}

TEST(EventFileTest, IsReadAgainUpToATornRecord) {
  const std::string dir = testing::TempDir() + "/event_file_read";
  std::filesystem::remove_all(dir);
  const auto file = EventFile::Create(Env::Real(), dir, "h", absl::FromUnixMillis(1500));
  ASSERT_TRUE(file.ok()) << file.status();
  (*file)->AddRestart(absl::FromUnixSeconds(2));
  (*file)->Add(absl::FromUnixSeconds(3), 300, "train/loss", 0.5);
  (*file)->Add(absl::FromUnixSeconds(4), 301, "eval/auc", 0.25);
  ASSERT_TRUE((*file)->Flush().ok());
  const std::string path = (*file)->path();
  auto read = ReadEventFile(Env::Real(), path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->begun, absl::FromUnixMillis(1500));
  ASSERT_EQ(read->points.size(), 2u);
  EXPECT_EQ(read->points[0].tag, "train/loss");
  EXPECT_EQ(read->points[0].step, 300u);
  EXPECT_EQ(read->points[0].value, 0.5);
  EXPECT_EQ(read->points[1].wall_time, absl::FromUnixSeconds(4));
  for (uintmax_t size = std::filesystem::file_size(path) - 1; size > 60; size -= 7) {
    std::filesystem::resize_file(path, size);
    read = ReadEventFile(Env::Real(), path);
    ASSERT_TRUE(read.ok());
    EXPECT_LE(read->points.size(), 1u);
  }
  EXPECT_TRUE(absl::IsInvalidArgument(ReadEventFile(Env::Real(), "/etc/passwd").status()));
}

}  // namespace
}  // namespace sluice
