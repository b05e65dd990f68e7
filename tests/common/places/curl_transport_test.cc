#include "common/places/curl_transport.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>

#include "gmock/gmock.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

// Listens on a free port, which it returns, and gives the listening socket.
uint16_t ListenOnLoopback(int* fd) {
  *fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(::bind(*fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(::listen(*fd, 9), 0);
  ::getsockname(*fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

// Answers one connection with a text, and gives what was asked.
class OneAnswer {
 public:
  explicit OneAnswer(std::string answer) {
    const uint16_t port = ListenOnLoopback(&fd_);
    url = "http://127.0.0.1:" + std::to_string(port) + "/a%20b?x=1";
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

// Answers many requests, of one connection after another, and keeps connections open.
class KeepingServer {
 public:
  KeepingServer() {
    const uint16_t port = ListenOnLoopback(&fd_);
    url = "http://127.0.0.1:" + std::to_string(port) + "/";
    thread_ = std::thread([this] {
      for (int peer; (peer = ::accept(fd_, nullptr, nullptr)) >= 0; ::close(peer)) {
        ++connections;
        std::string asked;
        char bytes[4096];
        for (ssize_t n; (n = ::read(peer, bytes, sizeof(bytes))) > 0;) {
          asked.append(bytes, static_cast<size_t>(n));
          if (asked.find("\r\n\r\n") == std::string::npos) continue;
          asked.clear();
          const std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na";
          EXPECT_EQ(::write(peer, answer.data(), answer.size()),
                    static_cast<ssize_t>(answer.size()));
        }
      }
    });
  }
  // REQUIRES: the other ends of its connections are closed.
  ~KeepingServer() {
    ::shutdown(fd_, SHUT_RDWR);
    thread_.join();
    ::close(fd_);
  }

  std::string url;
  std::atomic<int> connections{0};

 private:
  int fd_ = -1;
  std::thread thread_;
};

// The servers are on this machine, and a proxy does not lead to them.
class CurlTransportTest : public ::testing::Test {
 protected:
  CurlTransportTest() {
    for (const char* name : {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"})
      ::unsetenv(name);
  }
};

TEST_F(CurlTransportTest, SignsWhatItSends) {
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

TEST_F(CurlTransportTest, AWriteSignsOnlyHeadersThatItSends) {
  OneAnswer server("HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 0\r\n\r\n");
  CurlTransport transport("");
  HttpRequest request;
  request.method = "PUT";
  request.url = server.url;
  request.headers = {"Content-Type: application/octet-stream", "If-None-Match: *"};
  request.body = "abc";
  request.signature = RequestSignature{"theid", "thesecret", "", "r", "s3"};
  const auto answer = transport.Send(request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  server.Wait();
  EXPECT_THAT(server.asked, HasSubstr("PUT /a%20b?x=1 HTTP/1.1\r\n"));
  // Stores compute the signature from these: one of a header that is not there is refused.
  EXPECT_THAT(server.asked, HasSubstr("SignedHeaders=content-type;host;if-none-match;"
                                      "x-amz-content-sha256;x-amz-date,"));
}

TEST_F(CurlTransportTest, ADeletionIsOne) {
  OneAnswer server("HTTP/1.1 204 No Content\r\n\r\n");
  CurlTransport transport("");
  HttpRequest request;
  request.method = "DELETE";
  request.url = server.url;
  EXPECT_EQ(transport.Send(request)->status, 204);
  server.Wait();
  EXPECT_THAT(server.asked, HasSubstr("DELETE /a%20b?x=1 HTTP/1.1\r\n"));
}

TEST_F(CurlTransportTest, ATruncatedBodyMayBeAskedForAgain) {
  OneAnswer server("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
  CurlTransport transport("");
  HttpRequest request;
  request.url = server.url;
  EXPECT_EQ(transport.Send(request).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(CurlTransportTest, AnAnswerThatComesTooSlowlyMayBeAskedForAgain) {
  int fd = -1;
  const uint16_t port = ListenOnLoopback(&fd);  // nobody answers
  CurlTransport transport("");
  HttpRequest request;
  request.url = "http://127.0.0.1:" + std::to_string(port) + "/a";
  request.quiet_time = absl::Seconds(1);
  const absl::Status status = transport.Send(request).status();
  ::close(fd);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  for (const char* part : {"127.0.0.1:", "fewer than 1000 bytes a second for 1s", "HTTPS_PROXY"})
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
}

TEST_F(CurlTransportTest, ALongerBodyThanAskedForIsNotTaken) {
  OneAnswer server("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789");
  CurlTransport transport("");
  HttpRequest request;
  request.url = server.url;
  request.most_bytes = 4;
  EXPECT_EQ(transport.Send(request).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(CurlTransportTest, NoRedirectIsFollowed) {
  OneAnswer server(
      "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n");
  CurlTransport transport("");
  HttpRequest request;
  request.url = server.url;
  const auto answer = transport.Send(request);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->status, 302);
}

TEST_F(CurlTransportTest, LinkLocalAddressesAreRefusedButForCredentials) {
  CurlTransport transport("");
  HttpRequest request;
  for (const char* url :
       {"http://169.254.169.254/", "http://[::ffff:169.254.169.254]/", "http://[fd00:ec2::254]/"}) {
    request.url = url;
    const absl::Status status = transport.Send(request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << url << status;
  }
}

TEST_F(CurlTransportTest, ConnectionsToMetadataServicesServeNoOtherRequest) {
  KeepingServer server;
  CurlTransport transport("");
  HttpRequest request;
  request.url = server.url;
  const auto connections_after = [&](bool to_metadata_service) {
    request.to_metadata_service = to_metadata_service;
    EXPECT_TRUE(transport.Send(request).ok());
    return server.connections.load();
  };
  EXPECT_EQ(connections_after(true), 1);
  EXPECT_EQ(connections_after(false), 2) << "data must not be read over the open connection";
  EXPECT_EQ(connections_after(false), 2) << "data requests keep theirs";
}

TEST_F(CurlTransportTest, LinkLocalAddressesAreRefusedBeforeAProxyIsAsked) {
  KeepingServer proxy;
  ::setenv("http_proxy", proxy.url.c_str(), 1);
  {
    CurlTransport transport("");
    HttpRequest request;
    for (const char* url :
         {"http://169.254.169.254/", "http://169.254.169.254.:80/x", "http://2852039166/",
          "http://0xa9fea9fe/", "http://169.254.43518/", "http://[::ffff:a9fe:a9fe]/",
          "http://[fe80::1%25eth0]/", "http://[fd00:ec2::254]:80/", "http://100.100.100.200?x"}) {
      request.url = url;
      EXPECT_EQ(transport.Send(request).status().code(), absl::StatusCode::kPermissionDenied)
          << url;
    }
    EXPECT_EQ(proxy.connections, 0);
    request.url = "http://10.0.0.1/";
    EXPECT_TRUE(transport.Send(request).ok()) << "through the proxy";
  }
  ::unsetenv("http_proxy");
}

TEST_F(CurlTransportTest, AServerThatGivesNoPartsOfFilesIsNamed) {
  OneAnswer server("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789");
  CurlTransport transport("");
  HttpRequest request;
  request.url = server.url;
  request.most_bytes = 4;
  request.range_bytes = 4;
  const absl::Status status = transport.Send(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("parts of files (Range)"));
}

TEST_F(CurlTransportTest, NothingIsSentAfterTheEnd) {
  CurlTransport transport("");
  transport.Stop();
  HttpRequest request;
  request.url = "http://127.0.0.1:1/";
  EXPECT_EQ(transport.Send(request).status().code(), absl::StatusCode::kCancelled);
}

TEST_F(CurlTransportTest, AddressesOfTheMachineItself) {
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
