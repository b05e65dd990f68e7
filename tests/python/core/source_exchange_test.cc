#include "python/core/source_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace sluice {
namespace {

bool Never() { return false; }

SourceExchange::Batch Numbered(uint64_t number) {
  auto batch = std::make_shared<GivenBatch>();
  batch->given_as = number;
  return batch;
}

SourceRequest Train(uint64_t start) {
  SourceRequest request;
  request.start = start;
  return request;
}

TEST(SourceExchangeTest, BatchesComeInOrderAndThenTheEnd) {
  SourceExchange exchange;
  const uint64_t number = exchange.Open(Train(7));
  std::thread program([&] {
    const auto request = exchange.Await(absl::Seconds(60));
    ASSERT_TRUE(request.ok() && request->has_value());
    EXPECT_EQ((*request)->start, 7u);
    for (uint64_t i = 1; i <= 10; ++i) EXPECT_TRUE(exchange.Give((*request)->number, Numbered(i)));
    exchange.EndBatches((*request)->number);
  });
  for (uint64_t i = 1; i <= 10; ++i) {
    const auto batch = exchange.Next(number, Never);
    ASSERT_TRUE(batch.ok() && *batch != nullptr) << batch.status();
    EXPECT_EQ((*batch)->given_as, i);
  }
  const auto end = exchange.Next(number, Never);
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(*end, nullptr);
  program.join();
}

TEST(SourceExchangeTest, AGivenBatchWaitsForRoomUntilNobodyWantsIt) {
  SourceExchange exchange;
  const uint64_t number = exchange.Open(Train(0));
  for (size_t i = 0; i < SourceExchange::kAhead; ++i)
    EXPECT_TRUE(exchange.Give(number, Numbered(i)));
  std::thread program([&] { EXPECT_FALSE(exchange.Give(number, Numbered(9))); });
  exchange.Close(number);
  program.join();
}

TEST(SourceExchangeTest, ANewerRequestClosesTheOlderOne) {
  SourceExchange exchange;
  const uint64_t older = exchange.Open(Train(0));
  EXPECT_TRUE(exchange.Give(older, Numbered(1)));
  const uint64_t newer = exchange.Open(Train(5));
  EXPECT_FALSE(exchange.Give(older, Numbered(2)));
  exchange.EndBatches(older);
  EXPECT_EQ(exchange.Next(older, Never).status().code(), absl::StatusCode::kCancelled);
  const auto request = exchange.Await(absl::ZeroDuration());
  ASSERT_TRUE(request.ok() && request->has_value());
  EXPECT_EQ((*request)->number, newer);
  EXPECT_FALSE(exchange.Await(absl::ZeroDuration())->has_value()) << "each request once";
  EXPECT_TRUE(exchange.Give(newer, Numbered(3)));
  EXPECT_EQ((*exchange.Next(newer, Never))->given_as, 3u);
}

TEST(SourceExchangeTest, ACountIsGivenOnce) {
  SourceExchange exchange;
  SourceRequest request;
  request.kind = SourceRequest::kCount;
  const uint64_t number = exchange.Open(request);
  exchange.Counted(number, 12);
  EXPECT_EQ(*exchange.Count(number, Never), 12u);
}

TEST(SourceExchangeTest, AWaitEndsWhenItIsStopped) {
  SourceExchange exchange;
  const uint64_t number = exchange.Open(Train(0));
  EXPECT_EQ(exchange.Next(number, [] { return true; }).status().code(),
            absl::StatusCode::kCancelled);
}

TEST(SourceExchangeTest, AFailureEndsBothSides) {
  SourceExchange exchange;
  const uint64_t number = exchange.Open(Train(0));
  EXPECT_TRUE(exchange.Give(number, Numbered(1)));
  exchange.Fail(absl::UnknownError("ZeroDivisionError"));
  exchange.End();
  EXPECT_EQ(exchange.Next(number, Never).status(), absl::UnknownError("ZeroDivisionError"));
  EXPECT_FALSE(exchange.Give(number, Numbered(2)));
  EXPECT_EQ(exchange.Await(absl::ZeroDuration()).status().code(), absl::StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace sluice
