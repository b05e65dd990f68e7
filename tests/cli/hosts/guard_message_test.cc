#include "cli/hosts/guard_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

using ::testing::ElementsAre;

TEST(GuardMessageTest, AnyBytesComeBack) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const GuardMessage message = {7, "start", {"", "a b", "100%", all, "\n"}};
  const std::string line = Encode(message);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto read = ParseGuardMessage(absl::string_view(line).substr(0, line.size() - 1));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->tag, 7U);
  EXPECT_EQ(read->verb, "start");
  EXPECT_EQ(read->fields, message.fields);
}

TEST(GuardMessageTest, WhatALoginScriptPrintsIsNoMessage) {
  for (const char* line : {"", "Welcome to b", "7", "-1 beat", "1 a%2", "1 a%", "1 %4g"})
    EXPECT_FALSE(ParseGuardMessage(line).ok()) << line;
}

TEST(GuardMessageTest, LinesComeWhole) {
  LineCutter cutter;
  EXPECT_THAT(cutter.Take("one\ntw"), ElementsAre("one"));
  EXPECT_THAT(cutter.Take(""), ElementsAre());
  EXPECT_THAT(cutter.Take("o\n\nthree"), ElementsAre("two", ""));
  EXPECT_THAT(cutter.Take("\n"), ElementsAre("three"));
}

TEST(GuardMessageTest, ALineWithoutAnEndIsBounded) {
  LineCutter cutter;
  const std::string much(LineCutter::kMostBytes, 'x');
  cutter.Take(much);
  cutter.Take(much);
  EXPECT_THAT(cutter.Take("\nnext\n"), ElementsAre(much, "next"));
}

}  // namespace
}  // namespace sluice::cli
