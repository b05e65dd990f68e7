// An HttpTransport that a test answers for.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/places/http_transport.h"

namespace sluice {

inline HttpResponse Answer(int status, std::string body = "",
                           std::map<std::string, std::string> headers = {}) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(body);
  response.headers = std::move(headers);
  return response;
}

class FakeTransport : public HttpTransport {
 public:
  // Called without a lock: it may be called by several threads at a time.
  std::function<absl::StatusOr<HttpResponse>(const HttpRequest&)> answer;

  absl::StatusOr<HttpResponse> Send(const HttpRequest& request) override {
    {
      MutexLock lock(&mutex_);
      requests_.push_back(request);
    }
    return answer(request);
  }
  std::vector<HttpRequest> requests() {
    MutexLock lock(&mutex_);
    return requests_;
  }

 private:
  Mutex mutex_;
  std::vector<HttpRequest> requests_ ABSL_GUARDED_BY(mutex_);
};

// The value of a header of a request; "" when it has none.
inline std::string HeaderOf(const HttpRequest& request, const std::string& name) {
  for (const std::string& line : request.headers)
    if (line.rfind(name + ": ", 0) == 0) return line.substr(name.size() + 2);
  return "";
}

// The header of an answer with the bytes [offset, offset + n) of a file of `size` bytes.
inline std::pair<const std::string, std::string> PartOf(size_t offset, size_t n, size_t size) {
  return {"content-range", "bytes " + std::to_string(offset) + "-" +
                               std::to_string(offset + n - 1) + "/" + std::to_string(size)};
}

// A server of one file: its HEAD, and ranges of it while If-Match holds.
struct ServedFile {
  std::string bytes, tag = "\"1\"";
  absl::StatusOr<HttpResponse> operator()(const HttpRequest& request) const {
    if (request.method == "HEAD")
      return Answer(200, "", {{"etag", tag}, {"content-length", std::to_string(bytes.size())}});
    const std::string wanted = HeaderOf(request, "If-Match");
    if (!wanted.empty() && wanted != tag) return Answer(412);
    const std::string range = HeaderOf(request, "Range");  // "bytes=A-B"
    const size_t dash = range.find('-');
    const size_t begin = std::stoull(range.substr(6, dash - 6));
    const size_t end = std::stoull(range.substr(dash + 1)) + 1;
    return Answer(206, bytes.substr(begin, end - begin),
                  {{"etag", tag}, PartOf(begin, end - begin, bytes.size())});
  }
};

}  // namespace sluice
