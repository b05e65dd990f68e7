// Files of web servers, which are only read.
//
// Reads name the version: If-Match where the server gives an ETag, If-Unmodified-Since where it
// only gives a time. A redirect is followed at most 5 times, from https only to https, and
// only to URLs that RedirectIsAllowed.
//
// Thread safety: safe from any thread.
#pragma once

#include <string>

#include "common/places/http_transport.h"
#include "common/places/remote_files.h"

namespace sluice {

class WebFiles : public RemoteFiles {
 public:
  static constexpr int kMostRedirects = 5;
  explicit WebFiles(HttpTransport* transport) : transport_(transport) {}  // outlives this

  absl::StatusOr<FileIdentity> Identify(const std::string& path) override;
  absl::StatusOr<std::string> ReadRange(const std::string& path, const FileIdentity& identity,
                                        uint64_t offset, size_t n) override;
  // A URL has no wildcards: `?` begins its query.
  absl::StatusOr<FileMatches> Match(
      const std::string& pattern, size_t most_names,
      const std::function<void(const std::string&, const FileIdentity&)>& found) override;

 private:
  // Follows redirects.
  absl::StatusOr<HttpResponse> Send(HttpRequest request);

  HttpTransport* const transport_;
};

}  // namespace sluice
