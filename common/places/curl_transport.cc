#include "common/places/curl_transport.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/sha256.h"

namespace sluice {
namespace {

constexpr size_t kMostIdle = 64;  // handles, each with its connections
constexpr size_t kMostHeaderBytes = 256 << 10;
constexpr long kSlowestBytesPerSecond = 1000;

// What the callbacks of one request fill.
struct Answer {
  HttpResponse response;
  size_t most_bytes = 0, header_bytes = 0;
  bool too_long = false;
  bool own_machine_refused = false;
};

size_t TakeBody(char* bytes, size_t, size_t n, void* user) {
  auto* const answer = static_cast<Answer*>(user);
  if (answer->response.body.size() + n > answer->most_bytes) {
    answer->too_long = true;
    return 0;
  }
  answer->response.body.append(bytes, n);
  return n;
}

size_t TakeHeader(char* bytes, size_t, size_t n, void* user) {
  auto* const answer = static_cast<Answer*>(user);
  answer->header_bytes += n;
  if (answer->header_bytes > kMostHeaderBytes) {
    answer->too_long = true;
    return 0;
  }
  const absl::string_view line(bytes, n);
  // An answer may follow interim ones (100 Continue, or a proxy's), whose headers do not count.
  if (absl::StartsWith(line, "HTTP/")) answer->response.headers.clear();
  const size_t colon = line.find(':');
  if (colon == absl::string_view::npos) return n;
  answer->response.headers[absl::AsciiStrToLower(line.substr(0, colon))] =
      std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  return n;
}

// Decides by the address itself: a name may lead to any address.
curl_socket_t OpenOutside(void* user, curlsocktype, curl_sockaddr* address) {
  if (IsOwnMachineAddress(&address->addr)) {
    static_cast<Answer*>(user)->own_machine_refused = true;
    return CURL_SOCKET_BAD;
  }
  return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

// True when the URL names a link-local address itself, in any of the forms that libcurl reads as a
// number. A proxy would connect to it, where this process cannot see it.
bool NamesOwnMachine(const std::string& url) {
  CURLU* const parts = curl_url();
  char* text = nullptr;
  std::string host;
  if (parts != nullptr && curl_url_set(parts, CURLUPART_URL, url.c_str(), 0) == CURLUE_OK &&
      curl_url_get(parts, CURLUPART_HOST, &text, CURLU_URLDECODE) == CURLUE_OK) {
    host = text;
  }
  curl_free(text);
  curl_url_cleanup(parts);
  while (absl::EndsWith(host, ".")) host.pop_back();
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    // Without the zone, as of fe80::1%25eth0.
    const std::string address = host.substr(1, std::min(host.find('%'), host.size() - 1) - 1);
    return ::inet_pton(AF_INET6, address.c_str(), &six.sin6_addr) == 1 && IsOwnMachineAddress(&six);
  }
  sockaddr_in four{};
  four.sin_family = AF_INET;
  return ::inet_aton(host.c_str(), &four.sin_addr) != 0 && IsOwnMachineAddress(&four);
}

// Not 0 ends the request.
int CheckStopped(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<const std::atomic<bool>*>(user)->load(std::memory_order_relaxed) ? 1 : 0;
}

std::string HostOf(const std::string& url) {
  const size_t begin = url.find("://");
  if (begin == std::string::npos) return "";
  const size_t end = url.find_first_of("/?#", begin + 3);
  return url.substr(begin + 3, end == std::string::npos ? end : end - begin - 3);
}

// The errors that another try may not meet.
bool MayPass(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:  // also when the name server does not answer
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_BAD_CONTENT_ENCODING:
    case CURLE_AGAIN:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool IsOwnMachineAddress(const void* address) {
  const auto* const any = static_cast<const sockaddr*>(address);
  const auto of_ipv4 = [](uint32_t ip) {
    return (ip >> 16) == 0xA9FE  // 169.254.0.0/16
           || ip == 0x646464C8;  // 100.100.100.200
  };
  if (any->sa_family == AF_INET) {
    sockaddr_in four;
    std::memcpy(&four, address, sizeof(four));
    return of_ipv4(ntohl(four.sin_addr.s_addr));
  }
  if (any->sa_family != AF_INET6) return false;
  sockaddr_in6 six;
  std::memcpy(&six, address, sizeof(six));
  const unsigned char* const b = six.sin6_addr.s6_addr;
  if (IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr)) return true;
  constexpr unsigned char kOfEc2[16] = {0xfd, 0x00, 0x0e, 0xc2, 0, 0, 0, 0,
                                        0,    0,    0,    0,    0, 0, 2, 0x54};  // fd00:ec2::254
  if (std::memcmp(b, kOfEc2, sizeof(kOfEc2)) == 0) return true;
  // ::ffff:a.b.c.d and 64:ff9b::a.b.c.d lead to the IPv4 address.
  constexpr unsigned char kNat64[12] = {0, 0x64, 0xff, 0x9b};
  if (!IN6_IS_ADDR_V4MAPPED(&six.sin6_addr) && std::memcmp(b, kNat64, sizeof(kNat64)) != 0)
    return false;
  return of_ipv4(uint32_t{b[12]} << 24 | uint32_t{b[13]} << 16 | uint32_t{b[14]} << 8 | b[15]);
}

// A curl handle, used by one request at a time.
class CurlTransport::Handle {
 public:
  Handle() : curl_(curl_easy_init()) {}
  ~Handle() {
    if (curl_ != nullptr) curl_easy_cleanup(curl_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  absl::StatusOr<HttpResponse> Send(const HttpRequest& request, const std::string& ca_bundle,
                                    const std::atomic<bool>* stopped) {
    if (curl_ == nullptr) return absl::ResourceExhaustedError("libcurl gives no handle");
    Answer answer;
    answer.most_bytes = request.most_bytes;
    if (!request.to_metadata_service && NamesOwnMachine(request.url)) {
      answer.own_machine_refused = true;
      return ErrorOf(CURLE_COULDNT_CONNECT, answer, request);
    }
    curl_slist* headers = nullptr;
    const auto add = [&headers](const std::string& line) {
      headers = curl_slist_append(headers, line.c_str());
    };
    curl_easy_reset(curl_);  // keeps the connections
    Set(CURLOPT_URL, request.url.c_str());
    Set(CURLOPT_PATH_AS_IS, 1L);  // "." and ".." are parts of keys like others
    Set(CURLOPT_NOSIGNAL, 1L);
    Set(CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1});
    Set(CURLOPT_FOLLOWLOCATION, 0L);
    Set(CURLOPT_NETRC, long{CURL_NETRC_IGNORED});
    Set(CURLOPT_PROTOCOLS_STR, "http,https");
    Set(CURLOPT_USERAGENT, "sluice");
    Set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request.connect_time / absl::Milliseconds(1)));
    Set(CURLOPT_LOW_SPEED_LIMIT, kSlowestBytesPerSecond);
    Set(CURLOPT_LOW_SPEED_TIME,
        std::max(1L, static_cast<long>(request.quiet_time / absl::Seconds(1))));
    Set(CURLOPT_WRITEFUNCTION, &TakeBody);
    Set(CURLOPT_WRITEDATA, &answer);
    Set(CURLOPT_HEADERFUNCTION, &TakeHeader);
    Set(CURLOPT_HEADERDATA, &answer);
    Set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    Set(CURLOPT_NOPROGRESS, 0L);
    Set(CURLOPT_XFERINFOFUNCTION, &CheckStopped);
    Set(CURLOPT_XFERINFODATA, stopped);
    if (!ca_bundle.empty()) Set(CURLOPT_CAINFO, ca_bundle.c_str());
    if (request.to_metadata_service) {
      Set(CURLOPT_NOPROXY, "*");
      // A request for data must not find the connection: it would be sent without a look at the
      // address.
      Set(CURLOPT_FRESH_CONNECT, 1L);
      Set(CURLOPT_FORBID_REUSE, 1L);
    } else {
      Set(CURLOPT_OPENSOCKETFUNCTION, &OpenOutside);
      Set(CURLOPT_OPENSOCKETDATA, &answer);
    }
    if (request.method == "HEAD") {
      Set(CURLOPT_NOBODY, 1L);
    } else if (request.method == "POST" || request.method == "PUT") {
      Set(CURLOPT_POST, 1L);
      Set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
      Set(CURLOPT_POSTFIELDS, request.body.c_str());
      if (request.method != "POST") Set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
      // This version of libcurl would sign the header that is left out.
      if (!request.signature) add("Expect:");
      Set(CURLOPT_EXPECT_100_TIMEOUT_MS, 200L);
    } else if (request.method == "DELETE") {
      Set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
    }
    for (const std::string& line : request.headers) add(line);
    if (request.signature) {
      const RequestSignature& by = *request.signature;
      Set(CURLOPT_AWS_SIGV4, absl::StrCat("aws:amz:", by.region, ":", by.service).c_str());
      Set(CURLOPT_USERNAME, by.access_key.c_str());
      Set(CURLOPT_PASSWORD, by.secret_key.c_str());
      // Stores demand it, and this version of libcurl signs it but does not make it.
      add(absl::StrCat("X-Amz-Content-Sha256: ", Sha256Hex(request.body)));
      if (!by.session_token.empty()) add(absl::StrCat("X-Amz-Security-Token: ", by.session_token));
    }
    Set(CURLOPT_HTTPHEADER, headers);
    const CURLcode code = curl_easy_perform(curl_);
    long status = 0;
    curl_easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &status);
    curl_slist_free_all(headers);
    curl_easy_reset(curl_);  // drops the credentials and the pointers to this request
    answer.response.status = static_cast<int>(status);
    if (code == CURLE_OK) return std::move(answer.response);
    return ErrorOf(code, answer, request);
  }

 private:
  template <typename Value>
  void Set(CURLoption option, Value value) {
    curl_easy_setopt(curl_, option, value);
  }

  static absl::Status ErrorOf(CURLcode code, const Answer& answer, const HttpRequest& request) {
    const std::string host = HostOf(request.url);
    if (answer.own_machine_refused) {
      return absl::PermissionDeniedError(absl::StrCat(
          host,
          " has a link-local address, where a machine is told its credentials; data is not "
          "read from there"));
    }
    if (answer.too_long && request.range_bytes > 0 && answer.response.status == 200) {
      return absl::FailedPreconditionError(
          absl::StrCat(host,
                       " does not give parts of files (Range); copy the file, or use a server that "
                       "does"));
    }
    if (answer.too_long) {
      return absl::FailedPreconditionError(
          absl::StrCat(host, " sent more than the ", request.most_bytes, " bytes asked for"));
    }
    if (code == CURLE_ABORTED_BY_CALLBACK) return absl::CancelledError("the process ends");
    const std::string message = absl::StrCat(host, ": ", curl_easy_strerror(code));
    if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE) {
      return absl::FailedPreconditionError(
          absl::StrCat(message,
                       "; AWS_CA_BUNDLE names the file of certificates to trust, if it is not the "
                       "system's"));
    }
    if (code == CURLE_OPERATION_TIMEDOUT) {
      return absl::UnavailableError(absl::StrCat(
          message, " (no connection in ", absl::FormatDuration(request.connect_time),
          ", or fewer than ", kSlowestBytesPerSecond, " bytes a second for ",
          absl::FormatDuration(request.quiet_time), "); check the network to it, and HTTPS_PROXY"));
    }
    return absl::Status(
        MayPass(code) ? absl::StatusCode::kUnavailable : absl::StatusCode::kFailedPrecondition,
        message);
  }

  CURL* const curl_;
};

CurlTransport::CurlTransport(std::string ca_bundle) : ca_bundle_(std::move(ca_bundle)) {
  curl_global_init(CURL_GLOBAL_DEFAULT);  // counts its calls; thread-safe since 7.84
}

CurlTransport::~CurlTransport() = default;

absl::StatusOr<HttpResponse> CurlTransport::Send(const HttpRequest& request) {
  std::unique_ptr<Handle> handle;
  {
    MutexLock lock(&mutex_);
    if (stopped_.load(std::memory_order_relaxed)) return absl::CancelledError("the process ends");
    ++under_way_;
    if (!idle_.empty()) {
      handle = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (handle == nullptr) handle = std::make_unique<Handle>();
  absl::StatusOr<HttpResponse> response = handle->Send(request, ca_bundle_, &stopped_);
  MutexLock lock(&mutex_);
  if (idle_.size() < kMostIdle) idle_.push_back(std::move(handle));
  if (--under_way_ == 0) ended_.NotifyAll();
  return response;
}

void CurlTransport::Stop() {
  MutexLock lock(&mutex_);
  // Relaxed: the lock orders it, but for requests under way, which may end a little later.
  stopped_.store(true, std::memory_order_relaxed);
  while (under_way_ > 0) ended_.Wait(&mutex_);
}

}  // namespace sluice
