#include "common/places/remote_reader.h"

#include <atomic>
#include <map>
#include <set>
#include <thread>
#include <vector>

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
    ++requests_[offset];
    if (std::this_thread::get_id() != reader_) ahead_.insert(offset);
    bytes_ += n;
    if (!error_.ok()) return error_;
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
    return requests_;
  }

  void Fail(absl::Status error) {
    MutexLock lock(&mutex_);
    error_ = std::move(error);
  }
  // By a thread of the cache.
  bool WasFetchedAhead(uint64_t offset) {
    MutexLock lock(&mutex_);
    return ahead_.count(offset) > 0;
  }
  uint64_t Bytes() {
    MutexLock lock(&mutex_);
    return bytes_;
  }

 private:
  const std::thread::id reader_ = std::this_thread::get_id();
  Mutex mutex_;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  // All paths together.
  std::map<uint64_t, int> requests_ ABSL_GUARDED_BY(mutex_);
  std::set<uint64_t> ahead_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

class RemoteReaderTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kPart = 1 << 20;
  std::unique_ptr<RemoteReader> Open(uint64_t size, const std::string& path = "p") {
    return std::make_unique<RemoteReader>(
        RangeCache::File{&files_, path, IdentityOfVersion(size, "\"1\"")}, &cache_,
        [this](const absl::Status& status) {
          reported_ = status;
          ++reports_;
        });
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
  int reports_ = 0;
  RangeCache cache_{{kPart, 32 * kPart, 4}};
};

TEST_F(RemoteReaderTest, PiecesThatLieCloseComeInPartsThatReadersShare) {
  const uint64_t size = 4 * kPart + 100;
  // Two tasks of the same file.
  for (uint64_t first : {uint64_t{0}, uint64_t{64} << 10}) {
    std::vector<FileRange> pieces;
    for (uint64_t begin = first; begin < size; begin += 128 << 10) pieces.push_back({begin, 9000});
    const auto reader = Open(size);
    reader->ExpectPieces(pieces);
    for (const FileRange& piece : pieces)
      ReadAll(reader.get(), piece.begin, std::min(size, piece.begin + piece.bytes));
  }
  const auto requests = files_.Requests();
  EXPECT_EQ(requests.size(), 5u);
  for (const auto& [offset, times] : requests) {
    EXPECT_EQ(offset % kPart, 0u);
    EXPECT_EQ(times, 1) << offset;
  }
}

TEST_F(RemoteReaderTest, PiecesThatLieApartAreFetchedAloneAndAhead) {
  const uint64_t size = 28 * kPart;
  std::vector<FileRange> pieces;
  for (uint64_t begin = 5000; begin < size; begin += kPart + kPart / 2)
    pieces.push_back({begin, 20000});
  pieces.push_back({size - 100, 20000});  // ends behind the file
  const auto reader = Open(size);
  reader->ExpectPieces(pieces);
  for (const FileRange& piece : pieces)
    ReadAll(reader.get(), piece.begin, std::min(size, piece.begin + piece.bytes));
  EXPECT_EQ(files_.Requests().size(), pieces.size());
  EXPECT_EQ(files_.Bytes(), (pieces.size() - 1) * 20000 + 100);
  EXPECT_TRUE(files_.WasFetchedAhead(pieces.back().begin));
}

TEST_F(RemoteReaderTest, PiecesOfPartsThatAreInMemoryNeedNoRequest) {
  const uint64_t size = 28 * kPart;
  {
    const auto reader = Open(size);
    reader->ExpectEnd(4 * kPart);
    ReadAll(reader.get(), 2 * kPart, 4 * kPart);  // leaves whole parts
  }
  const size_t before = files_.Requests().size();
  const std::vector<FileRange> pieces = {{2 * kPart + 5000, 20000},   // in one part
                                         {3 * kPart - 100, 20000},    // in two
                                         {20 * kPart + 5000, 20000}};  // elsewhere
  const auto reader = Open(size);
  reader->ExpectPieces(pieces);
  for (const FileRange& piece : pieces)
    ReadAll(reader.get(), piece.begin, piece.begin + piece.bytes);
  const auto requests = files_.Requests();
  EXPECT_EQ(requests.size(), before + 1);
  EXPECT_EQ(requests.count(20 * kPart + 5000), 1u);
}

TEST_F(RemoteReaderTest, WhatAReaderExpectedIsThereForTheNextOne) {
  const uint64_t size = 28 * kPart;
  const std::vector<FileRange> pieces = {{5 * kPart + 5000, 20000}, {20 * kPart + 5000, 20000}};
  {
    const auto reader = Open(size);
    reader->ExpectHead();
    reader->ExpectPieces(pieces);
  }
  const auto reader = Open(size);
  ReadAll(reader.get(), 0, 1000);
  reader->ExpectPieces(pieces);
  for (const FileRange& piece : pieces)
    ReadAll(reader.get(), piece.begin, piece.begin + piece.bytes);
  const auto requests = files_.Requests();
  EXPECT_EQ(requests.size(), 3u);
  for (const auto& [offset, times] : requests) {
    EXPECT_EQ(times, 1) << offset;
    EXPECT_TRUE(files_.WasFetchedAhead(offset)) << offset;
  }
}

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
  EXPECT_LE(files_.Bytes(), RangeCache::kHeadBytes + 512);
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

TEST_F(RemoteReaderTest, NamedRangesAreFetchedAndNothingElse) {
  const auto reader = Open(100 * kPart);
  // Two that touch, two that overlap, a long one, and others that are not in the file.
  reader->ExpectRanges({{50 * kPart + 7, 3 * kPart},
                        {1000, 500},
                        {1500, 100},
                        {40 * kPart, 300'000},
                        {40 * kPart + 1000, 10},
                        {99 * kPart, 2 * kPart},
                        {UINT64_MAX - 5, 100},
                        {200 * kPart, 1}});
  ReadAll(reader.get(), 40 * kPart, 40 * kPart + 300'000);
  ReadAll(reader.get(), 1000, 1600);
  ReadAll(reader.get(), 50 * kPart + 7, 53 * kPart + 7);
  EXPECT_EQ(files_.Bytes(), 600 + 300'000 + 3 * kPart);
  EXPECT_THAT(
      files_.Requests(),
      ::testing::ElementsAre(::testing::Pair(1000, 1), ::testing::Pair(40 * kPart, 1),
                             ::testing::Pair(50 * kPart + 7, 1), ::testing::Pair(51 * kPart + 7, 1),
                             ::testing::Pair(52 * kPart + 7, 1)));
  EXPECT_TRUE(files_.WasFetchedAhead(52 * kPart + 7));
  // Bytes outside of the plan, and after it.
  ReadAll(reader.get(), 60 * kPart, 60 * kPart + 10);
  reader->ExpectRanges({});
  ReadAll(reader.get(), 1000, 1010);
}

TEST_F(RemoteReaderTest, RangesThatNobodyReadsMakeRoomForOthers) {
  const auto reader = Open(100 * kPart);
  for (uint64_t i = 0; i < 40; ++i) reader->ExpectRanges({{i * kPart + 3, kPart - 5}});
  const auto other = Open(100 * kPart, "q");
  other->ExpectRanges({{7 * kPart, kPart}});
  ReadAll(other.get(), 7 * kPart, 8 * kPart);
  EXPECT_TRUE(files_.WasFetchedAhead(7 * kPart));
}

TEST_F(RemoteReaderTest, SmallPiecesShareAPart) {
  for (uint64_t begin = 0; begin < 2 * kPart; begin += 128 << 10) {
    const auto reader = Open(2 * kPart);
    reader->ExpectEnd(begin + (128 << 10));
    ReadAll(reader.get(), begin, begin + (128 << 10));
  }
  EXPECT_LE(files_.Bytes(), 2 * kPart);
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

TEST_F(RemoteReaderTest, PartsFromMemoryAreNotReported) {
  const uint64_t size = 3 * kPart;
  const auto read = [&] {
    reports_ = 0;
    const auto reader = Open(size);
    reader->ExpectEnd(size);
    ReadAll(reader.get(), 0, size);
    return reports_;
  };
  EXPECT_GT(read(), 0);
  EXPECT_EQ(read(), 0);
}

TEST_F(RemoteReaderTest, ManyReadersTogetherFetchEachPartOnce) {
  constexpr int kReaders = 8;
  constexpr uint64_t kParts = 60, kBytes = 4096;
  RangeCache cache({kBytes, 128 * kBytes, 16});
  std::vector<std::unique_ptr<RemoteReader>> readers;
  for (int r = 0; r < kReaders; ++r) {
    readers.push_back(std::make_unique<RemoteReader>(
        RangeCache::File{&files_, std::to_string(r), IdentityOfVersion(kParts * kBytes, "\"1\"")},
        &cache, [](const absl::Status&) {}));
    readers.back()->ExpectEnd(kParts * kBytes);
  }
  for (uint64_t part = 0; part < kParts; ++part)
    for (const auto& reader : readers) ReadAll(reader.get(), part * kBytes, (part + 1) * kBytes);
  for (const auto& [offset, times] : files_.Requests()) EXPECT_EQ(times, kReaders) << offset;
}

TEST_F(RemoteReaderTest, PartsThatNobodyReadsGiveTheirRoomBack) {
  RangeCache cache({1024, 8 * 1024, 4});
  const uint64_t size = 200'000 * 1024;
  const RangeCache::File file{&files_, "p", IdentityOfVersion(size, "\"1\"")};
  for (uint64_t begin = 0; begin < 40; begin += 10) {
    RemoteReader reader(file, &cache, [](const absl::Status&) {});
    reader.ExpectEnd(size);
    // Leaves the parts that were fetched ahead, first by a jump and then by its end.
    ReadAll(&reader, begin * 1024, (begin + 1) * 1024);
    ReadAll(&reader, (begin + 50) * 1024, (begin + 51) * 1024);
  }
  // The threads may be busy with the parts that were left for a while.
  bool ahead = false;
  for (uint64_t number = 150; !ahead && number < 200'000; ++number) {
    cache.Prefetch(file, {number * 1024, 1024});
    bool fetched = false;
    ASSERT_TRUE(cache.Get(file, {number * 1024, 1024}, &fetched).ok());
    ahead = files_.WasFetchedAhead(number * 1024);
    std::this_thread::yield();
  }
  EXPECT_TRUE(ahead);
}

TEST_F(RemoteReaderTest, ErrorsReachTheReaderAndAreNotKept) {
  files_.Fail(absl::FailedPreconditionError("another version"));
  const auto reader = Open(4 * kPart);
  std::string buffer(kPart, '\0');
  EXPECT_EQ(reader->ReadAt(kPart, buffer.data(), buffer.size()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(reported_.code(), absl::StatusCode::kFailedPrecondition);
  files_.Fail(absl::UnavailableError("timeout"));
  EXPECT_EQ(reader->ReadAt(2 * kPart, buffer.data(), 9).status().code(),
            absl::StatusCode::kInternal)
      << "the job fails, and waits for nobody";
  files_.Fail(absl::OkStatus());
  EXPECT_TRUE(reader->ReadAt(kPart, buffer.data(), buffer.size()).ok());
}

}  // namespace
}  // namespace sluice
