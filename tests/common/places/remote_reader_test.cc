#include "common/places/remote_reader.h"

#include <atomic>
#include <map>

#include "common/base/mutex.h"
#include "gmock/gmock.h"

namespace sluice {
namespace {

// Files whose byte at offset i is i % 251.
class NumberedFiles : public RemoteFiles {
 public:
  absl::StatusOr<FileIdentity> Identify(const std::string&) override {
    return IdentityOfVersion(0, "\"1\"");
  }
  absl::StatusOr<std::string> ReadRange(const std::string&, const FileIdentity&, uint64_t offset,
                                        size_t n) override {
    MutexLock lock(&mutex_);
    ++requests[offset];
    bytes += n;
    if (!error.ok()) return error;
    std::string text(n, '\0');
    for (size_t i = 0; i < n; ++i) text[i] = static_cast<char>((offset + i) % 251);
    return text;
  }
  absl::StatusOr<FileMatches> Match(
      const std::string&, size_t,
      const std::function<void(const std::string&, const FileIdentity&)>&) override {
    return FileMatches();
  }
  std::map<uint64_t, int> Requests() {
    MutexLock lock(&mutex_);
    return requests;
  }

  absl::Status error;
  std::map<uint64_t, int> requests;
  uint64_t bytes = 0;

 private:
  Mutex mutex_;
};

class RemoteReaderTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kPart = 1 << 20;
  std::unique_ptr<RemoteReader> Open(uint64_t size, const std::string& path = "p") {
    return std::make_unique<RemoteReader>(
        RangeCache::File{&files_, path, IdentityOfVersion(size, "\"1\"")}, &cache_,
        [this](const absl::Status& status) { reported_ = status; });
  }
  // Reads [begin, end) as a line reader does.
  static void ReadAll(FileReader* reader, uint64_t begin, uint64_t end) {
    std::string buffer(128 << 10, '\0');
    for (uint64_t at = begin; at < end;) {
      const auto got =
          reader->ReadAt(at, buffer.data(), std::min<uint64_t>(buffer.size(), end - at));
      ASSERT_TRUE(got.ok()) << got.status();
      ASSERT_GT(*got, 0u);
      for (size_t i = 0; i < *got; ++i)
        ASSERT_EQ(buffer[i], static_cast<char>((at + i) % 251)) << at + i;
      at += *got;
    }
  }

  NumberedFiles files_;
  absl::Status reported_;
  RangeCache cache_{{kPart, 32 * kPart, 4}};
};

TEST_F(RemoteReaderTest, EachPartIsFetchedOnce) {
  const uint64_t size = 5 * kPart + 12345;
  const auto reader = Open(size);
  ReadAll(reader.get(), 0, size);
  char byte;
  EXPECT_EQ(*reader->ReadAt(size, &byte, 1), 0u) << "the end";
  ReadAll(Open(size).get(), 0, size);
  ReadAll(Open(size).get(), 3 * kPart + 7, 4 * kPart);
  for (const auto& [offset, times] : files_.Requests()) {
    if (offset % kPart == 0 && offset > 0) {
      EXPECT_EQ(times, 1) << offset;
    }
  }
}

TEST_F(RemoteReaderTest, LittleIsFetchedWhereLittleIsWanted) {
  const auto reader = Open(100 * kPart);
  char bytes[512];
  reader->ExpectEnd(512);
  ASSERT_TRUE(reader->ReadAt(0, bytes, 512).ok());
  reader->ExpectEnd(100 * kPart);
  ASSERT_TRUE(reader->ReadAt(100 * kPart - 512, bytes, 512).ok());
  EXPECT_LE(files_.bytes, RangeCache::kHeadBytes + 512);
}

TEST_F(RemoteReaderTest, NothingIsFetchedBehindTheExpectedEnd) {
  {
    const auto reader = Open(100 * kPart);
    reader->ExpectEnd(12 * kPart);
    ReadAll(reader.get(), 10 * kPart, 12 * kPart);
  }
  for (const auto& [offset, times] : files_.Requests()) {
    EXPECT_GE(offset, 10 * kPart);
    EXPECT_LT(offset, 12 * kPart);
  }
}

TEST_F(RemoteReaderTest, SmallPiecesShareAPart) {
  for (uint64_t begin = 0; begin < 2 * kPart; begin += 128 << 10) {
    const auto reader = Open(2 * kPart);
    reader->ExpectEnd(begin + (128 << 10));
    ReadAll(reader.get(), begin, begin + (128 << 10));
  }
  EXPECT_LE(files_.bytes, 2 * kPart);
}

TEST_F(RemoteReaderTest, MemoryIsBounded) {
  RangeCache small({kPart, 2 * kPart, 4});
  RemoteReader reader({&files_, "p", IdentityOfVersion(20 * kPart, "\"1\"")}, &small,
                      [](const absl::Status&) {});
  ReadAll(&reader, 0, 20 * kPart);
  const int before = files_.Requests()[kPart];
  ReadAll(&reader, kPart, 2 * kPart);
  EXPECT_GT(files_.Requests()[kPart], before) << "it was dropped";
}

TEST_F(RemoteReaderTest, ErrorsReachTheReaderAndAreNotKept) {
  files_.error = absl::FailedPreconditionError("another version");
  const auto reader = Open(4 * kPart);
  std::string buffer(kPart, '\0');
  EXPECT_EQ(reader->ReadAt(kPart, buffer.data(), buffer.size()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(reported_.code(), absl::StatusCode::kFailedPrecondition);
  files_.error = absl::UnavailableError("timeout");
  EXPECT_EQ(reader->ReadAt(2 * kPart, buffer.data(), 9).status().code(),
            absl::StatusCode::kInternal)
      << "the job fails, and waits for nobody";
  files_.error = absl::OkStatus();
  EXPECT_TRUE(reader->ReadAt(kPart, buffer.data(), buffer.size()).ok());
}

}  // namespace
}  // namespace sluice
