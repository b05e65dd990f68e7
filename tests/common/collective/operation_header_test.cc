#include "common/collective/operation_header.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/common/collective/rank_threads.h"

namespace sluice {
namespace {

std::vector<OperationHeader> ThreeMeans() {
  OperationHeader header;
  header.kind = OperationHeader::kWeightedMean;
  header.n = 10;
  header.step = 4;
  return std::vector<OperationHeader>(3, header);
}

TEST(OperationHeaderTest, SameOperationsAgree) {
  std::vector<OperationHeader> headers = ThreeMeans();
  headers[1].weight = 0;
  headers[2].weight = 17;
  EXPECT_TRUE(CheckAgreement(headers).ok());
  EXPECT_EQ(TotalWeight(headers), 18.0f);
}

TEST(OperationHeaderTest, AnyDifferenceIsADisagreement) {
  const std::vector<void (*)(OperationHeader*)> changes = {
      [](OperationHeader* h) { h->kind = OperationHeader::kAllReduce; },
      [](OperationHeader* h) { h->op = 1; },
      [](OperationHeader* h) { h->root = 1; },
      [](OperationHeader* h) { h->n = 11; },
      [](OperationHeader* h) { h->step = 5; },
      [](OperationHeader* h) { h->wire = 1; }};
  for (const auto change : changes) {
    for (int rank = 0; rank < 3; ++rank) {
      std::vector<OperationHeader> headers = ThreeMeans();
      change(&headers[rank]);
      EXPECT_EQ(CheckAgreement(headers).code(), absl::StatusCode::kInvalidArgument);
    }
  }
}

TEST(OperationHeaderTest, ImpossibleOperationsAreRefused) {
  const std::vector<void (*)(OperationHeader*)> changes = {
      [](OperationHeader* h) { h->kind = OperationHeader::kNone; },
      [](OperationHeader* h) { h->kind = OperationHeader::kFailed; },
      [](OperationHeader* h) { h->op = 4; },
      [](OperationHeader* h) { h->root = 3; },
      [](OperationHeader* h) { h->wire = 2; },
      [](OperationHeader* h) {
        h->kind = OperationHeader::kAllReduce;
        h->wire = 1;
      },
      [](OperationHeader* h) { h->weight = -1; },
      [](OperationHeader* h) { h->weight = 1e300; },
      [](OperationHeader* h) { h->weight = 1e-300; },
      [](OperationHeader* h) { h->weight = 3e38; },
      [](OperationHeader* h) { h->weight = std::numeric_limits<double>::quiet_NaN(); }};
  for (const auto change : changes) {
    std::vector<OperationHeader> headers = ThreeMeans();
    for (OperationHeader& header : headers) change(&header);
    EXPECT_EQ(CheckAgreement(headers).code(), absl::StatusCode::kInvalidArgument);
  }
}

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
