#include "server/shards/row_cuts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "proto/config.pb.h"
#include "server/shards/ready_pages.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// Rows of one weight.
class RowCutsTest : public ::testing::Test {
 protected:
  uint32_t Insert(uint64_t key, float weight) {
    bool created;
    const uint32_t id = store_.FindOrInsert(key, &created);
    EXPECT_TRUE(created);
    store_.header(id)->version = cuts_.version_of_new_rows();
    *store_.weights(id) = weight;
    return id;
  }
  void Update(uint64_t key, float weight) {
    uint32_t id;
    store_.Find(&key, 1, &id);
    cuts_.BeforeUpdate(store_.row(id));
    *store_.weights(id) = weight;
  }
  uint32_t Erase(uint64_t key) {
    cuts_.MakeRoomToErase();
    const uint32_t id = store_.Unlink(key);
    cuts_.Free(id);
    return id;
  }
  std::unique_ptr<RowCuts::Reader> Begin() {
    RowCuts::Source source;
    source.mutex = &mutex_;
    source.expiry = &expiry_;
    source.days = &days_;
    auto reader = cuts_.NewReader({false, sizeof(float)}, source);
    cuts_.Begin(reader.get());
    return reader;
  }
  static std::map<uint64_t, float> Read(RowCuts::Reader* reader) {
    std::vector<uint64_t> keys(reader->size());
    std::vector<uint32_t> rows(reader->size());
    const size_t n = *reader->ReadKeys(0, keys.size(), keys.data(), rows.data());
    std::vector<float> weights(n);
    EXPECT_TRUE(
        reader->ReadRecords(rows.data(), n, sizeof(float), reinterpret_cast<char*>(weights.data()))
            .ok());
    std::map<uint64_t, float> read;
    for (size_t i = 0; i < n; ++i) read[keys[i]] = weights[i];
    return read;
  }

  Mutex mutex_;
  RowStore store_{1, 0, ReadyPages::OfProcess()};
  RowCuts cuts_{&store_};
  const RowExpiry expiry_{ExpireConfig()};
  const RowDays days_;
};

TEST_F(RowCutsTest, ACutHasTheRowsOfItsMoment) {
  for (uint64_t key = 1; key <= 4; ++key) Insert(key, static_cast<float>(key));
  auto reader = Begin();
  EXPECT_TRUE(cuts_.open());
  Update(1, 10);
  const uint32_t slot = Erase(2);
  Update(3, 30);
  Erase(3);
  EXPECT_TRUE(cuts_.WasErased(slot));
  EXPECT_NE(Insert(2, 20), slot) << "the bytes of the old row are still read";
  Insert(5, 50);
  Erase(5);
  EXPECT_FALSE(store_.is_free(slot));
  EXPECT_THAT(Read(reader.get()),
              ElementsAre(Pair(1, 1.0f), Pair(2, 2.0f), Pair(3, 3.0f), Pair(4, 4.0f)));
  Update(4, 40);
  reader = nullptr;
  EXPECT_FALSE(cuts_.open());
  EXPECT_TRUE(cuts_.erased().empty());
  EXPECT_TRUE(store_.is_free(slot));
  reader = Begin();
  EXPECT_THAT(Read(reader.get()), ElementsAre(Pair(1, 10.0f), Pair(2, 20.0f), Pair(4, 40.0f)));
}

TEST_F(RowCutsTest, AReaderThatWasNotBegunLeavesNothing) {
  Insert(1, 1);
  RowCuts::Source source;
  source.mutex = &mutex_;
  cuts_.NewReader({false, sizeof(float)}, source).reset();
  EXPECT_FALSE(cuts_.open());
  auto reader = Begin();
  EXPECT_THAT(Read(reader.get()), ElementsAre(Pair(1, 1.0f)));
}

}  // namespace
}  // namespace sluice
