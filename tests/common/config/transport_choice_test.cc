#include "common/config/transport_choice.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(TransportChoiceTest, KnowsItsThreeNames) {
  EXPECT_EQ(*ParseTransportChoice("auto"), TransportChoice::kAuto);
  EXPECT_EQ(*ParseTransportChoice("grpc"), TransportChoice::kGrpc);
  EXPECT_EQ(*ParseTransportChoice("shm"), TransportChoice::kShm);
}

TEST(TransportChoiceTest, OtherNamesAreRefused) {
  for (const char* text : {"", "tcp", "SHM", "shm "}) {
    EXPECT_EQ(ParseTransportChoice(text).status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
}

}  // namespace
}  // namespace sluice
