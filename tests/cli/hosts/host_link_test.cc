#include "cli/hosts/host_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "common/base/clock.h"

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int Exit(int code) { return code << 8; }

TEST(HostLinkTest, SaysWhatIsWrongWithAHost) {
  const HostSpec b = {"me", "b", 1};
  const auto why = [&](int code, const std::string& errors) {
    return ExplainLinkEnd(b, {Exit(code), errors});
  };
  EXPECT_THAT(why(255, "ssh: connect to host b port 22: Connection refused\r\n"),
              AllOf(HasSubstr("cannot be reached"), HasSubstr("port 22")));
  EXPECT_THAT(why(255, "ssh: connect to host b port 22: No route to host"),
              HasSubstr("may be down"));
  EXPECT_THAT(why(255, "ssh: Could not resolve hostname b: Name or service not known"),
              HasSubstr("not known"));
  EXPECT_THAT(why(255, "me@b: Permission denied (publickey)."),
              AllOf(HasSubstr("refuses the key"), HasSubstr("ssh me@b true")));
  EXPECT_THAT(why(255, "Host key verification failed."), HasSubstr("known_hosts"));
  EXPECT_THAT(why(127, "sluice: error while loading shared libraries: libgloo.so.0: cannot open"),
              AllOf(HasSubstr("libgloo.so.0"), HasSubstr("--ship")));
  EXPECT_THAT(why(127, "sh: 1: sluice: not found"), HasSubstr("has no sluice"));
  EXPECT_THAT(why(1, "cannot make a folder in /tmp: No space left on device"),
              HasSubstr("full disk"));
  EXPECT_THAT(why(3, "\nlast words\n\n"), AllOf(HasSubstr("code 3"), HasSubstr("last words")));
}

TEST(HostLinkTest, SshNeverAsksAndGetsTheCommandAsOneWord) {
  const std::vector<std::string> line = SshCommandLine({"me", "fe80::1", 1}, "echo 'a'");
  EXPECT_EQ(line.front(), "ssh");
  EXPECT_THAT(line, testing::Contains("BatchMode=yes"));
  EXPECT_THAT(line, testing::Contains("RemoteCommand=none"));
  const std::vector<std::string> end(line.end() - 5, line.end());
  EXPECT_THAT(end, ElementsAre("-l", "me", "--", "fe80::1", "exec sh -c 'echo '\\''a'\\'''"));
}

// Waits for the end of the command and returns its lines.
std::vector<std::string> LinesUntilEnd(HostLink* link, LinkEnd* end) {
  std::vector<std::string> lines;
  for (;;) {
    for (std::string& line : link->Lines()) lines.push_back(std::move(line));
    if (const auto ended = link->Ended()) {
      *end = *ended;
      return lines;
    }
    Clock::Real()->Sleep(absl::Milliseconds(1));
  }
}

TEST(HostLinkTest, TheOwnHostNeedsNoSsh) {
  SshLinks links;
  auto link = links.Open({"", "127.0.0.1", 1},
                         "while read line; do echo got $line; done; echo no >&2; exit 3", "");
  ASSERT_TRUE(link.ok()) << link.status();
  (*link)->Send("one\n");
  (*link)->Send("two\n");
  (*link)->EndInput();
  LinkEnd end;
  EXPECT_THAT(LinesUntilEnd(link->get(), &end), ElementsAre("got one", "got two"));
  EXPECT_EQ(end.wait_status, Exit(3));
  EXPECT_EQ(end.errors, "no\n");
}

TEST(HostLinkTest, MuchArrivesWhole) {
  SshLinks links;
  auto link = links.Open({"", "127.0.0.1", 1}, "wc -c", "");
  ASSERT_TRUE(link.ok()) << link.status();
  for (int i = 0; i < 32; ++i) (*link)->Send(std::string(1 << 20, 'x'));
  (*link)->EndInput();
  LinkEnd end;
  EXPECT_THAT(LinesUntilEnd(link->get(), &end), ElementsAre("33554432"));
}

TEST(HostLinkTest, BeatsGoOutByThemselves) {
  SshLinks links;
  auto link = links.Open({"", "127.0.0.1", 1}, "read one; read two; echo $one $two", "0 beat\n");
  ASSERT_TRUE(link.ok()) << link.status();
  LinkEnd end;
  EXPECT_THAT(LinesUntilEnd(link->get(), &end), ElementsAre("0 beat 0 beat"));
}

}  // namespace
}  // namespace sluice::cli
