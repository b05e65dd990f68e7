#include "common/shm_transport/pending_stream.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/common/transport/recording_streams.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Message TextMessage(std::string text) { return {Slice::FromString(std::move(text))}; }

// Records what happened to a stream that was opened.
struct Opened {
  std::vector<std::string> events;  // "+TEXT": sent; "close"; "gone"
  std::function<void(const std::string& text)> on_send;
  StreamCallbacks callbacks;
};

class FakeStream : public Stream {
 public:
  explicit FakeStream(Opened* opened) : opened_(opened) {}
  ~FakeStream() override { opened_->events.push_back("gone"); }
  void Send(Message message) override {
    const std::string text = Flat(message);
    opened_->events.push_back("+" + text);
    if (opened_->on_send != nullptr) opened_->on_send(text);
  }
  void Close() override { opened_->events.push_back("close"); }

 private:
  Opened* const opened_;
};

class PendingStreamTest : public ::testing::Test {
 protected:
  static constexpr size_t kMaxQueuedBytes = 100;

  PendingStreamTest() : stream_(Address(), Callbacks(), kMaxQueuedBytes) {}

  static PserverAddress Address() { return PserverAddress("pserver-0"); }
  StreamCallbacks Callbacks() {
    StreamCallbacks callbacks;
    callbacks.on_message = [this](Message message) { received_.push_back(Flat(message)); };
    callbacks.on_closed = [this](absl::Status status) {
      closed_.push_back(status.code());
      if (on_closed_ != nullptr) on_closed_();
    };
    return callbacks;
  }
  void Send(const std::string& text) { stream_.Send(TextMessage(text)); }
  void Open() {
    stream_.Open([this](StreamCallbacks callbacks) {
      opened_.callbacks = std::move(callbacks);
      ++opens_;
      return std::make_unique<FakeStream>(&opened_);
    });
  }
  // Whether `flag` is set within a short time, in which a call that does not wait would end.
  static bool SetSoon(const std::atomic<bool>& flag) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
    while (!flag && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return flag;
  }

  std::vector<std::string> received_;
  std::vector<absl::StatusCode> closed_;
  std::function<void()> on_closed_;
  Opened opened_;
  int opens_ = 0;
  PendingStream stream_;
};

TEST_F(PendingStreamTest, MessagesWaitForTheStreamAndKeepTheirOrder) {
  Send("a");
  Send("b");
  EXPECT_THAT(opened_.events, IsEmpty());
  Open();
  EXPECT_THAT(opened_.events, ElementsAre("+a", "+b"));
  Send("c");
  EXPECT_THAT(opened_.events, ElementsAre("+a", "+b", "+c"));
  stream_.Drop();
  EXPECT_EQ(opened_.events.back(), "gone");
  EXPECT_THAT(closed_, IsEmpty()) << "the stream that was opened calls on_closed";
}

TEST_F(PendingStreamTest, AMessageThatIsSentWhileTheQueueIsHandedOnComesAfterIt) {
  Send("a");
  Send("b");
  opened_.on_send = [this](const std::string& text) {
    if (text == "a") Send("c");
  };
  Open();
  EXPECT_THAT(opened_.events, ElementsAre("+a", "+b", "+c"));
}

TEST_F(PendingStreamTest, TheStreamThatIsOpenedHasTheCallbacks) {
  Open();
  opened_.callbacks.on_message(TextMessage("hello"));
  opened_.callbacks.on_closed(absl::OkStatus());
  EXPECT_THAT(received_, ElementsAre("hello"));
  EXPECT_THAT(closed_, ElementsAre(absl::StatusCode::kOk));
}

TEST_F(PendingStreamTest, CloseWaitsForTheQueueAndEndsTheSending) {
  Send("a");
  stream_.Close();
  Send("late");
  Open();
  Send("later");
  EXPECT_THAT(opened_.events, ElementsAre("+a", "close"));
}

TEST_F(PendingStreamTest, CloseWhileTheQueueIsHandedOnClosesTheStreamOnce) {
  Send("a");
  Send("b");
  opened_.on_send = [this](const std::string& text) {
    if (text == "a") stream_.Close();
  };
  Open();
  EXPECT_THAT(opened_.events, ElementsAre("+a", "+b", "close"));
}

TEST_F(PendingStreamTest, CloseOfAnOpenStreamClosesIt) {
  Open();
  stream_.Close();
  Send("late");
  EXPECT_THAT(opened_.events, ElementsAre("close"));
}

TEST_F(PendingStreamTest, AStreamThatEndedDoesNotOpen) {
  Send("lost");
  stream_.End(absl::UnavailableError("nobody listens"));
  stream_.End(absl::InternalError("again"));
  Send("late");
  Open();
  EXPECT_EQ(opens_, 0);
  stream_.Drop();
  EXPECT_THAT(closed_, ElementsAre(absl::StatusCode::kUnavailable));
}

TEST_F(PendingStreamTest, TheEndReleasesTheQueueBeforeItIsTold) {
  auto held = std::make_shared<std::string>("lost");
  const std::weak_ptr<std::string> watch = held;
  Message message;
  message.emplace_back(held->data(), held->size(), held);
  held.reset();
  stream_.Send(std::move(message));
  ASSERT_FALSE(watch.expired());
  bool released = false;
  on_closed_ = [&] { released = watch.expired(); };
  stream_.End(absl::UnavailableError("nobody listens"));
  EXPECT_TRUE(released);
}

TEST_F(PendingStreamTest, AQueueBeyondTheBoundEndsTheStream) {
  Send(std::string(kMaxQueuedBytes, 'x'));
  EXPECT_THAT(closed_, IsEmpty());
  Send("y");
  EXPECT_THAT(closed_, ElementsAre(absl::StatusCode::kResourceExhausted));
  Open();
  EXPECT_EQ(opens_, 0);
}

TEST_F(PendingStreamTest, TheBoundIsThatOfTheOtherStreamOnceItIsOpened) {
  Send("a");
  opened_.on_send = [this](const std::string& text) {
    if (text == "a") Send(std::string(kMaxQueuedBytes + 1, 'x'));
  };
  Open();
  Send(std::string(kMaxQueuedBytes + 1, 'y'));
  EXPECT_EQ(opened_.events.size(), 3u);
  EXPECT_THAT(closed_, IsEmpty());
}

TEST_F(PendingStreamTest, OnlyTheOtherStreamEndsAnOpenOne) {
  Open();
  stream_.End(absl::UnavailableError("too late"));
  EXPECT_THAT(closed_, IsEmpty());
  Send("a");
  EXPECT_THAT(opened_.events, ElementsAre("+a"));
}

TEST_F(PendingStreamTest, AStreamThatIsDroppedWhileItConnectsIsCancelled) {
  Send("lost");
  stream_.Drop();
  EXPECT_THAT(closed_, ElementsAre(absl::StatusCode::kCancelled));
  Open();
  EXPECT_EQ(opens_, 0);
}

TEST_F(PendingStreamTest, DropWaitsForTheStreamThatOpens) {
  std::atomic<bool> opening{false}, dropped{false};
  Send("a");
  opened_.on_send = [&](const std::string&) {
    opening = true;
    EXPECT_FALSE(SetSoon(dropped));
  };
  std::thread connecting([&] { Open(); });
  while (!opening) std::this_thread::yield();
  stream_.Drop();
  dropped = true;
  EXPECT_THAT(opened_.events, ElementsAre("+a", "gone"));
  EXPECT_THAT(closed_, IsEmpty());
  connecting.join();
}

TEST_F(PendingStreamTest, DropWaitsForTheCallbackThatRuns) {
  std::atomic<bool> calling{false}, dropped{false};
  on_closed_ = [&] {
    calling = true;
    EXPECT_FALSE(SetSoon(dropped));
  };
  std::thread connecting([&] { stream_.End(absl::UnavailableError("nobody listens")); });
  while (!calling) std::this_thread::yield();
  stream_.Drop();
  dropped = true;
  EXPECT_THAT(closed_, ElementsAre(absl::StatusCode::kUnavailable));
  connecting.join();
}

}  // namespace
}  // namespace sluice
