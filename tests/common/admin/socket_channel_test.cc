#include "common/admin/socket_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>
#include <thread>

#include "tests/common/security/test_certificates.h"
#include "tests/common/security/tls_client.h"

namespace sluice {
namespace {

using Progress = SocketChannel::Progress;

class SocketChannelTest : public testing::Test {
 protected:
  SocketChannelTest() {
    signal(SIGPIPE, SIG_IGN);
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends_), 0);
  }
  ~SocketChannelTest() override {
    for (const int end : ends_) close(end);
  }
  // The server's channel, with TLS.
  std::unique_ptr<SocketChannel> WithTls() {
    TlsServer::Options options;
    options.files = certificates_.Of(PeerRole::kScheduler);
    options.clock = Clock::Real();
    options.env = Env::Real();
    auto server = TlsServer::Create(std::move(options));
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    return std::make_unique<SocketChannel>(ends_[0], server_->NewSession());
  }
  void SendRaw(const std::string& bytes) {
    EXPECT_EQ(send(ends_[1], bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }
  // Repeats the operation while it awaits something that comes.
  template <class Operation>
  Progress Finish(const Operation& operation) {
    for (;;) {
      const Progress progress = operation();
      if (progress != Progress::kAwaitsReading && progress != Progress::kAwaitsWriting)
        return progress;
      pollfd at = {ends_[0],
                   static_cast<short>(progress == Progress::kAwaitsReading ? POLLIN : POLLOUT), 0};
      if (poll(&at, 1, 10000) != 1) return progress;
    }
  }

  TestCertificates certificates_{"socket_channel"};
  std::unique_ptr<TlsServer> server_;
  int ends_[2];
};

TEST_F(SocketChannelTest, WithoutTlsBytesPassUnchanged) {
  SocketChannel channel(ends_[0], nullptr);
  EXPECT_EQ(channel.Handshake(), Progress::kDone);
  char buffer[10];
  size_t n = 7;
  EXPECT_EQ(channel.Read(buffer, sizeof(buffer), &n), Progress::kAwaitsReading);
  EXPECT_EQ(n, 0);
  SendRaw("abc");
  EXPECT_EQ(channel.Read(buffer, sizeof(buffer), &n), Progress::kDone);
  EXPECT_EQ(std::string(buffer, n), "abc");
  EXPECT_EQ(channel.Write("defg", 4, &n), Progress::kDone);
  EXPECT_EQ(n, 4);
  channel.EndWriting();
  EXPECT_EQ(recv(ends_[1], buffer, sizeof(buffer), 0), 4);
  EXPECT_EQ(recv(ends_[1], buffer, sizeof(buffer), 0), 0);
  shutdown(ends_[1], SHUT_WR);
  EXPECT_EQ(channel.Read(buffer, sizeof(buffer), &n), Progress::kEnded);
}

TEST_F(SocketChannelTest, AWriteThatNobodyReadsAwaitsWriting) {
  const std::string much(1 << 20, 'x');
  SocketChannel plain(ends_[0], nullptr);
  Progress progress = Progress::kDone;
  size_t n = 0;
  for (int i = 0; i < 100 && progress == Progress::kDone; ++i)
    progress = plain.Write(much.data(), much.size(), &n);
  EXPECT_EQ(progress, Progress::kAwaitsWriting);
}

TEST_F(SocketChannelTest, WithTlsBothEndsExchangeBytesAndEndInOrder) {
  const auto channel = WithTls();
  std::thread client([this] {
    const TlsContext context = TlsClient(certificates_.Of(PeerRole::kOperator));
    const TlsSession session(SSL_new(context.get()));
    SSL_set_fd(session.get(), ends_[1]);
    EXPECT_EQ(SSL_connect(session.get()), 1);
    EXPECT_EQ(SSL_write(session.get(), "question", 8), 8);
    char buffer[100];
    EXPECT_EQ(SSL_read(session.get(), buffer, sizeof(buffer)), 6);
    const int end = SSL_read(session.get(), buffer, sizeof(buffer));
    EXPECT_EQ(SSL_get_error(session.get(), end), SSL_ERROR_ZERO_RETURN) << "a truncated answer";
    SSL_shutdown(session.get());
  });
  EXPECT_EQ(Finish([&] { return channel->Handshake(); }), Progress::kDone);
  EXPECT_EQ(PeerOf(*channel->tls())->role, PeerRole::kOperator);
  char buffer[5];
  size_t n = 0;
  EXPECT_EQ(Finish([&] { return channel->Read(buffer, sizeof(buffer), &n); }), Progress::kDone);
  EXPECT_EQ(std::string(buffer, n), "quest");
  EXPECT_TRUE(channel->has_data()) << "what is decrypted does not show in poll";
  EXPECT_EQ(channel->Read(buffer, sizeof(buffer), &n), Progress::kDone);
  EXPECT_EQ(Finish([&] { return channel->Write("answer", 6, &n); }), Progress::kDone);
  channel->EndWriting();
  EXPECT_EQ(Finish([&] { return channel->Read(buffer, sizeof(buffer), &n); }), Progress::kEnded);
  client.join();
}

TEST_F(SocketChannelTest, AHandshakeAwaitsTheClientAndSeesItLeave) {
  const auto channel = WithTls();
  EXPECT_EQ(channel->Handshake(), Progress::kAwaitsReading);
  EXPECT_FALSE(channel->peer_has_sent_anything());
  shutdown(ends_[1], SHUT_WR);
  EXPECT_EQ(channel->Handshake(), Progress::kFailed);
  EXPECT_FALSE(channel->peer_has_sent_anything());
  EXPECT_NE(channel->failure(), "");
}

TEST_F(SocketChannelTest, HttpAndGarbageFailTheHandshake) {
  const auto channel = WithTls();
  SendRaw("GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(channel->Handshake(), Progress::kFailed);
  EXPECT_TRUE(channel->peer_has_sent_anything());
  EXPECT_TRUE(channel->peer_speaks_http());
  size_t n = 0;
  while (channel->Drop(&n) == Progress::kDone) {
  }
  const SocketChannel::Progress dropped = channel->Drop(&n);
  EXPECT_EQ(dropped, Progress::kAwaitsReading);
  SocketChannel other(ends_[0], server_->NewSession());
  SendRaw(std::string(100, '\x80'));
  EXPECT_EQ(other.Handshake(), Progress::kFailed);
  EXPECT_FALSE(other.peer_speaks_http());
  EXPECT_NE(other.failure(), "");
}

}  // namespace
}  // namespace sluice
