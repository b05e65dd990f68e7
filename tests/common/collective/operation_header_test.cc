#include "common/collective/operation_header.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

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

}  // namespace
}  // namespace sluice
