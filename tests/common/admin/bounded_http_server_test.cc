#include "common/admin/bounded_http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "tests/common/admin/http_connection.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kRequest[] = "GET /page HTTP/1.1\r\nHost: x\r\n\r\n";

class BoundedHttpServerTest : public testing::Test {
 protected:
  ~BoundedHttpServerTest() override { Stop(); }

  void Stop() {
    if (!thread_.joinable()) return;
    server_->stop();
    thread_.join();
  }

  void Start(BoundedHttpServer::Limits limits) {
    server_ = std::make_unique<BoundedHttpServer>(limits);
    server_->Get("/page", [](const httplib::Request&, httplib::Response& response) {
      response.set_content("content", "text/plain");
    });
    server_->Get("/large", [](const httplib::Request&, httplib::Response& response) {
      response.set_content(std::string(64 << 20, 'x'), "text/plain");
    });
    port_ = server_->bind_to_any_port("127.0.0.1");
    ASSERT_GT(port_, 0);
    thread_ = std::thread([this] { server_->listen_after_bind(); });
    while (!server_->is_running()) std::this_thread::yield();
  }

  std::unique_ptr<BoundedHttpServer> server_;
  int port_ = 0;

 private:
  std::thread thread_;
};

TEST_F(BoundedHttpServerTest, AnEndlessHeaderIsRefused) {
  Start({});
  HttpConnection client(port_);
  client.Send("GET /page HTTP/1.1\r\nX: ");
  size_t sent = 0;
  while (sent < (size_t{64} << 20) && client.Send(std::string(64 << 10, 'a'))) sent += 64 << 10;
  EXPECT_LT(sent, size_t{16} << 20) << "the server took " << sent << " bytes of one header";
}

TEST_F(BoundedHttpServerTest, ARequestThatIsTooLargeIsAnswered) {
  BoundedHttpServer::Limits limits;
  limits.request_bytes = 1000;
  Start(limits);
  const std::string begin = "GET /page HTTP/1.1\r\n";
  std::string headers;
  while (headers.size() < 2000) headers += "A: b\r\n";
  HttpConnection large(port_);
  large.Send(begin + headers + "\r\n");
  EXPECT_THAT(large.Receive(), StartsWith("HTTP/1.1 431"));
  HttpConnection small(port_);
  small.Send(begin + headers.substr(0, 600) + "\r\n");
  EXPECT_THAT(small.Receive(), StartsWith("HTTP/1.1 200"));
}

TEST_F(BoundedHttpServerTest, BytesThatDripInDoNotExtendTheTime) {
  BoundedHttpServer::Limits limits;
  limits.request_time = absl::Milliseconds(300);
  Start(limits);
  HttpConnection client(port_);
  client.Send("GET /page HTTP/1.1\r\nX: ");
  bool taken = true;
  for (int i = 0; i < 200 && taken; ++i) {
    taken = client.Send("a");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_FALSE(taken) << "the connection is still open after 4 s";
}

TEST_F(BoundedHttpServerTest, SilentConnectionsMakeRoomForOthers) {
  BoundedHttpServer::Limits limits;
  limits.request_time = absl::Hours(1);
  limits.busy_request_time = absl::Milliseconds(10);
  Start(limits);
  std::vector<std::unique_ptr<HttpConnection>> silent;
  for (int i = 0; i < 8; ++i) silent.push_back(std::make_unique<HttpConnection>(port_));
  HttpConnection client(port_);
  client.Send(kRequest);
  EXPECT_THAT(client.Receive(), HasSubstr("content"));
}

TEST_F(BoundedHttpServerTest, SlowRequestsMakeRoomForOthers) {
  BoundedHttpServer::Limits limits;
  limits.request_time = absl::Hours(1);
  limits.busy_request_time = absl::Milliseconds(10);
  Start(limits);
  std::vector<std::unique_ptr<HttpConnection>> slow;
  for (int i = 0; i < 8; ++i) {
    slow.push_back(std::make_unique<HttpConnection>(port_));
    slow.back()->Send("G");
  }
  HttpConnection client(port_);
  client.Send(kRequest);
  EXPECT_THAT(client.Receive(), HasSubstr("content"));
}

TEST_F(BoundedHttpServerTest, RangesDoNotMultiplyTheAnswer) {
  Start({});
  HttpConnection client(port_);
  client.Send("GET /page HTTP/1.1\r\nRange: bytes=0-6,0-6,0-6\r\n\r\n");
  const std::string answer = client.Receive();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(answer.find("content\r\n"), std::string::npos) << "parts: " << answer;
}

TEST_F(BoundedHttpServerTest, ConnectionsBeyondTheLimitAreClosed) {
  BoundedHttpServer::Limits limits;
  limits.threads = 1;
  limits.waiting = 1;
  limits.request_time = limits.busy_request_time = absl::Seconds(5);
  Start(limits);
  HttpConnection served(port_), waits(port_);
  HttpConnection refused(port_);
  EXPECT_EQ(refused.Receive(), "");
  served.Send(kRequest);
  EXPECT_THAT(served.Receive(), HasSubstr("content"));
  waits.Send(kRequest);
  EXPECT_THAT(waits.Receive(), HasSubstr("content"));
}

TEST_F(BoundedHttpServerTest, AClientThatDoesNotReadItsAnswerIsDropped) {
  BoundedHttpServer::Limits limits;
  limits.threads = 1;
  limits.answer_time = absl::Milliseconds(200);
  Start(limits);
  HttpConnection stalled(port_);
  stalled.Send("GET /large HTTP/1.1\r\n\r\n");
  HttpConnection client(port_);
  client.Send(kRequest);
  EXPECT_THAT(client.Receive(), HasSubstr("content"));
}

TEST_F(BoundedHttpServerTest, OnlyGetAndHeadAreServed) {
  Start({});
  HttpConnection client(port_);
  client.Send("POST /page HTTP/1.1\r\nContent-Length: 99999999999\r\nContent-Encoding: br\r\n\r\n");
  EXPECT_THAT(client.Receive(), StartsWith("HTTP/1.1 405"));
}

TEST_F(BoundedHttpServerTest, StopDoesNotWaitForSilentClients) {
  BoundedHttpServer::Limits limits;
  limits.request_time = absl::Hours(1);
  Start(limits);
  HttpConnection silent(port_);
  HttpConnection client(port_);
  client.Send(kRequest);
  client.Receive();  // the silent one is being served, too
  const absl::Time begin = Clock::Real()->Now();
  Stop();
  EXPECT_LT(Clock::Real()->Now() - begin, absl::Minutes(1));
}

}  // namespace
}  // namespace sluice
