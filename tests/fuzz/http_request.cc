// Sends the bytes as one connection's request to an admin server, over loopback.
//
// Checks: the server answers with a status line or closes the connection, and serves the next
// request.
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "absl/strings/match.h"
#include "common/admin/admin_server.h"
#include "google/protobuf/struct.pb.h"
#include "tests/common/transport/connect_to_loopback.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

constexpr size_t kMostAnswer = 1 << 20;

AdminServer* Server() {
  static AdminServer* const server = [] {
    AdminServer::Options options;
    // The kernel does not say who has opened a connection that is half closed when it is accepted.
    options.any_local_user = true;
    options.status_text = [] { return std::string("status"); };
    options.status = [] {
      auto message = std::make_unique<google::protobuf::Struct>();
      (*message->mutable_fields())["jobs"].set_number_value(1);
      return message;
    };
    auto started = AdminServer::Start(std::move(options));
    FUZZ_CHECK(started.ok());
    return started->release();
  }();
  return server;
}

std::string Answer(const char* request, size_t size) {
  const std::string& address = Server()->address();
  const int port = std::stoi(address.substr(address.rfind(':') + 1));
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  FUZZ_CHECK(fd >= 0);
  const timeval patience = {20, 0};  // far above the server's own limits
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  // Closed with a reset, so that thousands of inputs a second use up fewer ports.
  const linger none = {1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
  FUZZ_CHECK(ConnectToLoopback(fd, static_cast<uint16_t>(port)));
  for (size_t sent = 0; sent < size;) {
    const ssize_t n = send(fd, request + sent, size - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;  // by the timer of libFuzzer
    if (n <= 0) break;                      // the server has refused it
    sent += static_cast<size_t>(n);
  }
  shutdown(fd, SHUT_WR);
  std::string answer;
  char buffer[4096];
  while (answer.size() < kMostAnswer) {
    const ssize_t n = recv(fd, buffer, sizeof(buffer), 0);
    if (n < 0 && errno == EINTR) continue;
    FUZZ_CHECK(n >= 0 || errno == ECONNRESET);  // not silent
    if (n <= 0) break;
    answer.append(buffer, static_cast<size_t>(n));
  }
  close(fd);
  return answer;
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;  // NOLINT
  const std::string answer = Answer(reinterpret_cast<const char*>(data), size);
  FUZZ_CHECK(answer.empty() || absl::StartsWith(answer, "HTTP/1.1 "));
  static int inputs = 0;
  if (++inputs % 64 == 1) {
    constexpr char kAlive[] = "GET /livez HTTP/1.1\r\n\r\n";
    FUZZ_CHECK(absl::StartsWith(Answer(kAlive, sizeof(kAlive) - 1), "HTTP/1.1 200"));
  }
  return 0;
}
