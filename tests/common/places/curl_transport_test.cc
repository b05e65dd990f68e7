#include "common/places/curl_transport.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "gmock/gmock.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

// Answers one connection with a text, and gives what was asked.
class OneAnswer {
 public:
  explicit OneAnswer(std::string answer) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(fd_, 1), 0);
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/a%20b?x=1";
    thread_ = std::thread([this, answer = std::move(answer)] {
      const int peer = ::accept(fd_, nullptr, nullptr);
      char bytes[4096];
      while (asked.find("\r\n\r\n") == std::string::npos) {
        const ssize_t n = ::read(peer, bytes, sizeof(bytes));
        if (n <= 0) break;
        asked.append(bytes, static_cast<size_t>(n));
      }
      EXPECT_EQ(::write(peer, answer.data(), answer.size()), static_cast<ssize_t>(answer.size()));
      ::close(peer);
    });
  }
  ~OneAnswer() {
    Wait();
    ::close(fd_);
  }
  void Wait() {
    if (thread_.joinable()) thread_.join();
  }

  std::string url, asked;

 private:
  int fd_ = -1;
  std::thread thread_;
};

TEST(CurlTransportTest, SignsWhatItSends) {
  OneAnswer server("HTTP/1.1 206 Partial Content\r\nETag: \"1\"\r\nContent-Length: 3\r\n\r\nabc");
  CurlTransport transport("");
  HttpRequest request;
  request.url = server.url;
  request.headers = {"Range: bytes=0-2", "If-Match: \"1\""};
  request.signature = RequestSignature{"theid", "thesecret", "thetoken", "r", "s3"};
  const auto answer = transport.Send(request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->status, 206);
  EXPECT_EQ(answer->body, "abc");
  EXPECT_EQ(answer->Header("etag"), "\"1\"");
  server.Wait();
  EXPECT_THAT(server.asked, HasSubstr("GET /a%20b?x=1 HTTP/1.1\r\n"));
  EXPECT_THAT(server.asked, HasSubstr("Credential=theid/"));
  EXPECT_THAT(server.asked, HasSubstr("/r/s3/aws4_request"));
  EXPECT_THAT(server.asked, HasSubstr("if-match;range;x-amz-content-sha256;x-amz-date;"
                                      "x-amz-security-token"));
  EXPECT_EQ(server.asked.find("thesecret"), std::string::npos);
}

TEST(CurlTransportTest, ATruncatedBodyMayBeAskedForAgain) {
  OneAnswer server("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
  CurlTransport transport("");
  HttpRequest request;
  request.url = server.url;
  EXPECT_EQ(transport.Send(request).status().code(), absl::StatusCode::kUnavailable);
}

TEST(CurlTransportTest, ALongerBodyThanAskedForIsNotTaken) {
  OneAnswer server("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789");
  CurlTransport transport("");
  HttpRequest request;
  request.url = server.url;
  request.most_bytes = 4;
  EXPECT_EQ(transport.Send(request).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(CurlTransportTest, NoRedirectIsFollowed) {
  OneAnswer server(
      "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n");
  CurlTransport transport("");
  HttpRequest request;
  request.url = server.url;
  const auto answer = transport.Send(request);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->status, 302);
}

TEST(CurlTransportTest, LinkLocalAddressesAreRefusedButForCredentials) {
  CurlTransport transport("");
  HttpRequest request;
  for (const char* url :
       {"http://169.254.169.254/", "http://[::ffff:169.254.169.254]/", "http://[fd00:ec2::254]/"}) {
    request.url = url;
    const absl::Status status = transport.Send(request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << url << status;
  }
}

TEST(CurlTransportTest, NothingIsSentAfterTheEnd) {
  CurlTransport transport("");
  transport.Stop();
  HttpRequest request;
  request.url = "http://127.0.0.1:1/";
  EXPECT_EQ(transport.Send(request).status().code(), absl::StatusCode::kCancelled);
}

TEST(CurlTransportTest, AddressesOfTheMachineItself) {
  const auto is = [](const char* text) {
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    if (::inet_pton(AF_INET6, text, &six.sin6_addr) == 1) return IsOwnMachineAddress(&six);
    sockaddr_in four{};
    four.sin_family = AF_INET;
    EXPECT_EQ(::inet_pton(AF_INET, text, &four.sin_addr), 1) << text;
    return IsOwnMachineAddress(&four);
  };
  for (const char* own : {"169.254.169.254", "169.254.0.1", "100.100.100.200", "fe80::1",
                          "fd00:ec2::254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"})
    EXPECT_TRUE(is(own)) << own;
  for (const char* other :
       {"127.0.0.1", "169.253.0.1", "10.0.0.1", "::1", "2001:db8::1", "::ffff:10.0.0.1"})
    EXPECT_FALSE(is(other)) << other;
}

}  // namespace
}  // namespace sluice
