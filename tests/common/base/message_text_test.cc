#include "common/base/message_text.h"

#include <gtest/gtest.h>

#include <set>

#include "google/protobuf/descriptor.h"
#include "proto/scheduler.pb.h"

namespace sluice {
namespace {

PollRequest Report() {
  PollRequest request;
  request.set_secret("\n");
  request.mutable_progress()->set_doing("a\nb");
  HostedJob* const hosted = request.add_hosted();
  hosted->set_error("c\nd");
  hosted->add_tables()->set_name("e\nf");
  request.add_traces()->add_tracks("g\nh");
  return request;
}

TEST(MessageTextTest, SeesAllStringsAtAnyDepthUntilToldToStop) {
  std::set<std::string> seen;
  EXPECT_TRUE(EachText(
      Report(), [&](const auto*, const std::string& text) { return seen.insert(text).second; }));
  EXPECT_EQ(seen, (std::set<std::string>{"a\nb", "c\nd", "e\nf", "g\nh"}));
  int calls = 0;
  EXPECT_FALSE(EachText(Report(), [&](const auto*, const std::string&) {
    ++calls;
    return false;
  }));
  EXPECT_EQ(calls, 1);
}

TEST(MessageTextTest, ChangesStringsAndLeavesBytes) {
  PollRequest request = Report();
  MakePrintable(&request);
  EXPECT_EQ(request.progress().doing(), "a\\x0ab");
  EXPECT_EQ(request.hosted(0).error(), "c\\x0ad");
  EXPECT_EQ(request.hosted(0).tables(0).name(), "e\\x0af");
  EXPECT_EQ(request.traces(0).tracks(0), "g\\x0ah");
  EXPECT_EQ(request.secret(), "\n");
}

}  // namespace
}  // namespace sluice
