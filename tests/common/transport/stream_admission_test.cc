#include "common/transport/stream_admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class StreamAdmissionTest : public testing::Test {
 protected:
  // Opens the next stream and returns the numbers of those that are given up.
  std::vector<int> Open(const std::string& peer, const std::string& connection) {
    std::vector<int> given_up;
    for (const StreamAdmission::Id id : admission_.Open(&streams_[opened_++], {peer, connection}))
      given_up.push_back(static_cast<int>(static_cast<const char*>(id) - streams_.data()));
    return given_up;
  }
  int last() const { return opened_ - 1; }
  void Speak(int stream) { admission_.Spoke(&streams_[stream]); }
  void Close(int stream) { admission_.Closed(&streams_[stream]); }

  StreamAdmission admission_{6, 3};

 private:
  std::array<char, 100> streams_{};
  int opened_ = 0;
};

TEST(StreamAdmissionOfPeersTest, APeerWithTooManyOpenStreamsLosesItsOldestSilentOne) {
  StreamAdmission admission(6, 2, 3);
  const char ids[8] = {};
  const auto open = [&](int i, const std::string& peer) {
    return admission.Open(&ids[i], {peer, absl::StrCat(peer, ":1")});
  };
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(open(i, "a"), IsEmpty());
    if (i > 0) admission.Spoke(&ids[i]);
  }
  EXPECT_THAT(open(3, "a"), ElementsAre(&ids[0]));
  admission.Spoke(&ids[3]);
  EXPECT_THAT(open(4, "a"), ElementsAre(&ids[4])) << "the others have spoken";
  EXPECT_THAT(open(5, "b"), IsEmpty());
  admission.Closed(&ids[1]);
  EXPECT_THAT(open(6, "a"), IsEmpty());
  EXPECT_EQ(admission.open(), 4u);
}

TEST_F(StreamAdmissionTest, APeerWithTooManySilentStreamsLosesItsOldest) {
  for (int i = 0; i < 3; ++i) EXPECT_THAT(Open("a", "a:1"), IsEmpty());
  EXPECT_THAT(Open("a", "a:1"), ElementsAre(0));
  EXPECT_THAT(Open("b", "b:1"), IsEmpty()) << "another peer has room of its own";
  EXPECT_THAT(Open("a", "a:2"), ElementsAre(1));
  EXPECT_EQ(admission_.open(), 4u);
}

TEST_F(StreamAdmissionTest, AFloodGivesUpItsOwnStreamsWhenAWorkerSharesItsCertificate) {
  EXPECT_THAT(Open("a", "worker"), IsEmpty());
  const int worker = last();
  for (int i = 0; i < 20; ++i) {
    for (const int stream : Open("a", "flood")) EXPECT_NE(stream, worker);
  }
  Speak(worker);
  for (int i = 0; i < 20; ++i) {
    for (const int stream : Open("a", absl::StrCat("flood ", i))) EXPECT_NE(stream, worker);
  }
}

TEST_F(StreamAdmissionTest, StreamsThatHaveSpokenAreKeptAndLeaveRoomForSilentOnes) {
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(Open("a", "a:1"), IsEmpty());
    Speak(i);
  }
  EXPECT_THAT(Open("b", "b:1"), IsEmpty());
  EXPECT_THAT(Open("c", "c:1"), ElementsAre(5)) << "the maximum: the oldest silent one";
  Speak(6);
  EXPECT_THAT(Open("d", "d:1"), ElementsAre(7)) << "all others have spoken";
  Close(0);
  EXPECT_THAT(Open("d", "d:1"), IsEmpty());
  EXPECT_EQ(admission_.silent(), 1u);
}

TEST_F(StreamAdmissionTest, AtTheMaximumTheConnectionWithTheMostSilentStreamsGivesUpOne) {
  Open("a", "a:1");
  for (int i = 0; i < 3; ++i) Open("b", "b:1");
  Open("c", "c:1");
  Open("d", "d:1");
  EXPECT_THAT(Open("e", "e:1"), ElementsAre(1));
}

TEST_F(StreamAdmissionTest, EndsOfUnknownStreamsAreIgnored) {
  Open("a", "a:1");
  Close(0);
  Close(0);
  Speak(0);
  EXPECT_EQ(admission_.open(), 0u);
  EXPECT_EQ(admission_.silent(), 0u);
}

}  // namespace
}  // namespace sluice
