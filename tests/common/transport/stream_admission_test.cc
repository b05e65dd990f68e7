#include "common/transport/stream_admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/common/base/failing_allocations.h"

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

// A server with places for 16 streams, 8 of them silent ones of a peer.
class FullStreamAdmissionTest : public testing::Test {
 protected:
  // Opens the next stream, over a connection of its own; returns the numbers of those given up.
  std::vector<int> Open(const std::string& certificate, int host) {
    const std::string peer = absl::StrCat(certificate, "@", host);
    const std::string connection = absl::StrCat(host, ":", opened_);
    std::vector<int> given_up;
    for (const StreamAdmission::Id id :
         admission_.Open(&streams_[opened_++], {peer, connection, certificate}))
      given_up.push_back(static_cast<int>(static_cast<const char*>(id) - streams_.data()));
    return given_up;
  }
  // The same for a stream that speaks.
  std::vector<int> Speak(const std::string& certificate, int host) {
    const std::vector<int> given_up = Open(certificate, host);
    admission_.Spoke(&streams_[opened_ - 1]);
    return given_up;
  }

  StreamAdmission::Id IdOf(int stream) const { return &streams_[stream]; }

  StreamAdmission admission_{16, 8};

 private:
  std::array<char, 1000> streams_{};
  int opened_ = 0;
};

TEST_F(FullStreamAdmissionTest, ACertificateWithMoreThanAQuarterGivesUpItsNewest) {
  Speak("worker 1", 1);                                                  // stream 0
  for (int host = 1; host <= 15; ++host) Speak("worker 7", 100 + host);  // streams 1 to 15
  EXPECT_EQ(admission_.open(), 16u);
  EXPECT_THAT(Speak("operator", 2), ElementsAre(1)) << "hosts have one each: the oldest one's";
  EXPECT_THAT(Speak("worker 1", 1), ElementsAre(2));
  EXPECT_THAT(Open("worker 7", 200), ElementsAre(18)) << "its own newcomers are refused";
  EXPECT_EQ(admission_.open(), 16u);
}

TEST_F(FullStreamAdmissionTest, OtherHostsOfTheCertificateKeepTheirStreams) {
  for (int host = 1; host <= 4; ++host) Speak("worker", host);  // streams 0 to 3
  for (int i = 0; i < 12; ++i) Speak("worker", 9);              // streams 4 to 15
  for (int stream = 15; stream > 7; --stream) {
    EXPECT_THAT(Speak("operator", stream % 2), ElementsAre(stream)) << "of the host with the most";
  }
}

TEST_F(FullStreamAdmissionTest, ACertificateEndsNoneOfItsOwnStreamsThatHaveSpoken) {
  for (int i = 0; i < 16; ++i) Speak("worker", 9);
  EXPECT_THAT(Open("worker", 9), ElementsAre(16)) << "the newcomer";
  EXPECT_THAT(Open("worker", 1), ElementsAre(17)) << "also on another host";
  EXPECT_TRUE(admission_.HasMoreThanAQuarter("worker"));
  EXPECT_FALSE(admission_.HasMoreThanAQuarter("operator"));
  EXPECT_TRUE(admission_.IsOf(IdOf(3), "worker"));
  EXPECT_FALSE(admission_.IsOf(IdOf(3), "operator"));
  EXPECT_FALSE(admission_.IsOf(IdOf(17), "worker")) << "it is not open";
}

TEST_F(FullStreamAdmissionTest, AtAQuarterACertificateKeepsItsStreams) {
  for (const char* certificate : {"a", "b", "c", "d"}) {
    for (int i = 0; i < 4; ++i) Speak(certificate, i);
  }
  EXPECT_THAT(Open("e", 1), ElementsAre(16)) << "there is no room for the newcomer";
  EXPECT_EQ(admission_.silent(), 0u);
}

TEST_F(FullStreamAdmissionTest, WithoutACertificateNobodyLosesAStreamThatHasSpoken) {
  for (int i = 0; i < 16; ++i) Speak("", i);
  EXPECT_THAT(Open("", 1), ElementsAre(16));
}

TEST_F(FullStreamAdmissionTest, SilentStreamsMakeRoomBeforeThoseThatHaveSpoken) {
  for (int i = 0; i < 10; ++i) Speak("worker", i);
  for (int i = 0; i < 6; ++i) Open("flood", 20 + i);  // streams 10 to 15
  for (int stream = 10; stream < 15; ++stream)
    EXPECT_THAT(Speak("operator", 1), ElementsAre(stream)) << "more than two are silent";
  // A few may be about to speak.
  EXPECT_THAT(Speak("operator", 1), ElementsAre(0)) << "the newest of the oldest host";
  EXPECT_EQ(admission_.silent(), 1u);
}

TEST_F(FullStreamAdmissionTest, ClosedStreamsCountForNobody) {
  for (int round = 0; round < 3; ++round) {
    const int first = 32 * round;
    for (int i = 0; i < 16; ++i) EXPECT_THAT(Speak("worker", i), IsEmpty()) << round;
    for (int i = 0; i < 16; ++i) admission_.Closed(IdOf(first + i));
    for (int i = 0; i < 16; ++i) EXPECT_THAT(Open("worker", i), IsEmpty()) << round;
    for (int i = 16; i < 32; ++i) admission_.Closed(IdOf(first + i));
    EXPECT_EQ(admission_.open(), 0u);
    EXPECT_EQ(admission_.silent(), 0u);
  }
}

TEST_F(StreamAdmissionTest, EndsOfUnknownStreamsAreIgnored) {
  Open("a", "a:1");
  Close(0);
  Close(0);
  Speak(0);
  EXPECT_EQ(admission_.open(), 0u);
  EXPECT_EQ(admission_.silent(), 0u);
}

// A failed allocation leaves nothing behind that would count, or that a later stream would meet.
TEST(StreamAdmissionMemoryTest, AStreamForWhichThereIsNoMemoryChangesNothing) {
  StreamAdmission admission(3, 3);
  const char ids[4] = {};
  const auto opener = [](int i) {
    const std::string long_name(50, static_cast<char>('a' + i));
    return StreamAdmission::Opener{long_name, long_name + ":1", long_name};
  };
  for (int i = 0; i < 3; ++i) {
    const size_t open = i;
    std::vector<StreamAdmission::Id> given_up;
    EXPECT_GT(FailEachAllocation([&] { given_up = admission.Open(&ids[i], opener(i)); },
                                 [&] {
                                   EXPECT_EQ(admission.open(), open);
                                   EXPECT_EQ(admission.silent(), 0u);
                                   EXPECT_FALSE(admission.IsOpen(&ids[i]));
                                 }),
              5);
    EXPECT_THAT(given_up, IsEmpty());
    EXPECT_GT(FailEachAllocation([&] { admission.Spoke(&ids[i]); },
                                 [&] { EXPECT_EQ(admission.silent(), 1u); }),
              3);
    EXPECT_EQ(admission.silent(), 0u);
  }
  // The newest stream of the certificate with the most makes room: all have spoken, once each.
  EXPECT_THAT(admission.Open(&ids[3], opener(3)), ElementsAre(&ids[0]));
}

}  // namespace
}  // namespace sluice
