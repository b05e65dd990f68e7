#include "common/collective/gathered_headers.h"

#include <gtest/gtest.h>

#include "tests/common/collective/rank_threads.h"

namespace sluice {
namespace {

// Values that differ from rank to rank in each field, also in bits that are no number as floats.
OperationHeader HeaderOf(uint32_t rank) {
  OperationHeader header = WeightedMeanHeader(/*step=*/~uint64_t{0} - rank, /*n=*/1000 + rank,
                                              /*weight=*/0.1 * rank, Collective::Wire::kBf16);
  header.root = 0x7f800001 + rank;
  header.op = rank;
  return header;
}

void ExpectSame(const OperationHeader& got, const OperationHeader& expected) {
  EXPECT_EQ(got.kind, expected.kind);
  EXPECT_EQ(got.op, expected.op);
  EXPECT_EQ(got.root, expected.root);
  EXPECT_EQ(got.n, expected.n);
  EXPECT_EQ(got.step, expected.step);
  EXPECT_EQ(got.weight, expected.weight);
  EXPECT_EQ(got.wire, expected.wire);
}

TEST(GatheredHeadersTest, APlaceKeepsItsHeader) {
  GatheredHeaders headers(3);
  for (const uint32_t place : {2, 0}) headers.Put(place, HeaderOf(place));
  ExpectSame(headers.At(0), HeaderOf(0));
  ExpectSame(headers.At(2), HeaderOf(2));
  EXPECT_EQ(headers.At(1).kind, OperationHeader::kNone);
}

TEST(GatheredHeadersTest, PlacesFollowEachOther) {
  GatheredHeaders headers(5);
  EXPECT_EQ(headers.Places(0, 5).data(), headers.all().data());
  EXPECT_EQ(headers.Places(0, 5).size(), headers.all().size());
  const absl::Span<float> middle = headers.Places(2, 2);
  EXPECT_EQ(middle.size() * 5, headers.all().size() * 2);
  GatheredHeaders others(2);
  others.Put(0, HeaderOf(6));
  others.Put(1, HeaderOf(7));
  std::copy(others.all().begin(), others.all().end(), middle.begin());
  ExpectSame(headers.At(2), HeaderOf(6));
  ExpectSame(headers.At(3), HeaderOf(7));
  EXPECT_EQ(headers.At(4).kind, OperationHeader::kNone);
}

TEST(GatheredHeadersTest, AllGatherBringsThoseOfAllRanksToEach) {
  for (const uint32_t ranks : {1, 2, 3, 5}) {
    SCOPED_TRACE(ranks);
    RankThreads group("shm", ranks);
    group.Join();
    group.ExpectOk([&](uint32_t self, Collective& collective) {
      GatheredHeaders headers(ranks);
      headers.Put(self, HeaderOf(self));
      const absl::Status gathered = collective.AllGather(headers.all());
      if (gathered.ok())
        for (uint32_t rank = 0; rank < ranks; ++rank) ExpectSame(headers.At(rank), HeaderOf(rank));
      return gathered;
    });
  }
}

}  // namespace
}  // namespace sluice
