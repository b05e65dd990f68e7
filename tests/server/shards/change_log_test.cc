#include "server/shards/change_log.h"

#include <gtest/gtest.h>

#include <string>

#include "common/wire/frame.h"

namespace sluice {
namespace {

ReplicaHeader NextHeader(ChangeLog* log) {
  Message message;
  EXPECT_TRUE(log->Next(&message));
  return DecodeReplica(message)->header;
}

FrameId Frame(uint32_t rank, uint64_t sequence) {
  FrameId frame;
  frame.rank = rank;
  frame.incarnation = 1;
  frame.sequence = sequence;
  frame.weight = 2;
  return frame;
}

Message Bytes(const std::string& text) { return {Slice::FromString(text)}; }

TEST(ChangeLogTest, PartsOfOneFrameLeaveTogetherInTheirOrder) {
  ChangeLog log(1 << 20);
  log.AddPart(0, 0, Frame(1, 5), 0, Bytes("aaaa"));
  log.AddPart(1, 2, Frame(1, 5), 3, Bytes("bbbbbbbb"));
  log.AddPart(1, 2, Frame(0, 9), 1, Bytes("cccc"));
  Message message;
  ASSERT_TRUE(log.Next(&message));
  auto decoded = DecodeReplica(message);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const ReplicaHeader& header = decoded->header;
  EXPECT_EQ(header.position(), 3u);
  ASSERT_EQ(header.changes_size(), 2);
  EXPECT_EQ(header.changes(0).rank(), 1u);
  EXPECT_EQ(header.changes(0).at().sequence(), 5u);
  EXPECT_EQ(header.changes(0).weight(), 2);
  ASSERT_EQ(header.changes(0).parts().shard_size(), 2);
  EXPECT_EQ(header.changes(0).parts().table(1), 1u);
  EXPECT_EQ(header.changes(0).parts().shard(1), 2u);
  EXPECT_EQ(header.changes(0).parts().rows(1), 3u);
  EXPECT_EQ(header.changes(1).rank(), 0u);
  std::string payload(decoded->payload.remaining(), '\0');
  decoded->payload.Copy(payload.data(), payload.size());
  EXPECT_EQ(payload, "aaaabbbbbbbbcccc");
}

TEST(ChangeLogTest, AnErasureStandsBetweenThePartsOfAFrame) {
  ChangeLog log(1 << 20);
  const uint64_t keys[] = {7, 9};
  log.AddFlush(1, 2);
  log.AddErasure(1, 2, keys, 2);
  log.AddPart(1, 2, Frame(0, 0), 1, Bytes("aaaa"));
  log.AddErasure(1, 2, keys, 1);
  log.AddFlush(1, 2);
  Message message;
  ASSERT_TRUE(log.Next(&message));
  auto decoded = DecodeReplica(message);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const ReplicaHeader& header = decoded->header;
  EXPECT_EQ(header.position(), 5u);
  ASSERT_EQ(header.changes_size(), 5);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(header.changes(i).erase(), i == 1 || i == 3) << i;
    EXPECT_EQ(header.changes(i).flush(), i == 0 || i == 4) << i;
    EXPECT_EQ(header.changes(i).parts().shard(0), 2u);
  }
  EXPECT_EQ(header.changes(1).parts().rows(0), 2u);
  EXPECT_EQ(header.changes(3).parts().rows(0), 1u);
  EXPECT_EQ(decoded->payload.remaining(), 4 + 3 * sizeof(uint64_t));
  uint64_t first = 0;
  decoded->payload.Copy(&first, sizeof(first));
  EXPECT_EQ(first, 7u);
}

TEST(ChangeLogTest, AMessageIsNoLargerThanAChunk) {
  ChangeLog log(1 << 30);
  for (uint64_t i = 1; i <= 5; ++i)
    log.AddPart(0, 0, Frame(0, i), 0, Bytes(std::string(kChunkBytes / 2, 'x')));
  for (const uint64_t position : {1, 2, 3, 4, 5}) EXPECT_EQ(NextHeader(&log).position(), position);
  Message message;
  EXPECT_FALSE(log.Next(&message));
}

TEST(ChangeLogTest, NothingBesideAShardThatIsSetAsideWaits) {
  ChangeLog log(1 << 20);
  log.SetAside(1, 0);
  log.AddFlush(1, 0);
  log.AddFlush(0, 0);
  log.Drop(1, 0);
  log.AddComplete();
  const ReplicaHeader header = NextHeader(&log);
  EXPECT_EQ(header.changes_size(), 1);
  EXPECT_TRUE(header.complete());
  EXPECT_EQ(header.position(), 2u) << "a change that an image holds has no position";
  EXPECT_EQ(log.end(), 2u);
}

TEST(ChangeLogTest, AClosedLogStillCountsAndSendsNothing) {
  ChangeLog log(1 << 20);
  log.AddFlush(0, 0);
  log.Close();
  log.AddFlush(0, 0);
  Message message;
  EXPECT_FALSE(log.Next(&message));
  EXPECT_EQ(log.end(), 2u) << "a change that is never sent must not count as confirmed";
  EXPECT_TRUE(log.status().ok()) << "its owner has closed it";
}

TEST(ChangeLogTest, ClosesWhenTooMuchIsNotConfirmedAndCountsWhatItDrops) {
  ChangeLog log(2000);
  log.AddFlush(0, 0);
  Message message;
  ASSERT_TRUE(log.Next(&message));
  EXPECT_FALSE(log.Next(&message));
  log.Confirm(1);
  for (int i = 0; i < 7; ++i) log.AddFlush(0, 0);
  EXPECT_TRUE(log.status().ok());
  log.AddFlush(0, 0);
  EXPECT_TRUE(absl::IsResourceExhausted(log.status()));
  EXPECT_FALSE(log.Next(&message));
  log.AddFlush(0, 0);
  EXPECT_EQ(log.end(), 10u);
}

TEST(ChangeLogTest, ChangesThatAreSetAsideFollowTheImage) {
  ChangeLog log(1 << 20);
  log.SetAside(1, 0);
  log.AddFlush(1, 0);  // in the second image
  log.SetAside(1, 0);
  log.AddFlush(1, 0);
  log.AddFlush(1, 1);
  EXPECT_EQ(log.end(), 1u);
  Message message;
  ASSERT_TRUE(log.Next(&message));
  EXPECT_EQ(DecodeReplica(message)->header.changes(0).parts().shard(0), 1u);
  EXPECT_FALSE(log.Next(&message));
  log.Release(1, 0);
  ASSERT_TRUE(log.Next(&message));
  const ReplicaHeader header = DecodeReplica(message)->header;
  EXPECT_EQ(header.position(), 2u);
  ASSERT_EQ(header.changes_size(), 1);
  EXPECT_EQ(header.changes(0).parts().shard_size(), 1);
}

}  // namespace
}  // namespace sluice
