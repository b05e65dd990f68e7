// An HttpTransport over libcurl, which keeps connections open between requests.
//
// Thread safety: safe from any thread. Each request has a handle of its own.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "common/places/http_transport.h"

namespace sluice {

class CurlTransport : public HttpTransport {
 public:
  // `ca_bundle`: a file of certificates to trust (AWS_CA_BUNDLE); "" for those of the system.
  explicit CurlTransport(std::string ca_bundle);
  ~CurlTransport() override;
  absl::StatusOr<HttpResponse> Send(const HttpRequest& request) override;
  // Ends the requests that are under way, and waits for that. Later ones fail.
  void Stop();

 private:
  class Handle;
  const std::string ca_bundle_;
  std::atomic<bool> stopped_{false};
  Mutex mutex_;
  CondVar ended_;
  int under_way_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<Handle>> idle_ ABSL_GUARDED_BY(mutex_);
};

// True for addresses at which machines are told their credentials: link-local ones, and others
// that clouds use so. `address` is a sockaddr.
bool IsOwnMachineAddress(const void* address);

}  // namespace sluice
