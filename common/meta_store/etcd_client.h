// Calls to an etcd cluster: each with a deadline, to one endpoint after another until one answers.
//
// A client stays with the endpoint that answered last. It makes one channel for each endpoint,
// without a proxy: with TLS if it has credentials, else in plain text.
//
// Thread safety: safe from any thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/security/grpc_credentials.h"
#include "proto/etcd.pb.h"

namespace sluice {

class EtcdClient {
 public:
  struct Options {
    Clock* clock = nullptr;              // required; outlives the client
    std::vector<std::string> endpoints;  // host:port, one or more
    // Endpoints must show a certificate for their host, as it is written here.
    ServiceCredentials credentials;
    // How long one endpoint may take to answer.
    absl::Duration call_timeout = absl::Seconds(2);
    // How long a call tries all endpoints, again and again. Every endpoint is tried once in any
    // case.
    absl::Duration patience = absl::Seconds(10);
  };
  explicit EtcdClient(Options options);
  ~EtcdClient();

  // `patience` is a bound on the patience in the options.
  //
  // Errors: UNAVAILABLE when no endpoint answered; the message holds the last reason of each.
  // Other codes are etcd's verdict on the request, as it gave it. RESOURCE_EXHAUSTED: the quota of
  // etcd's database is full.
  absl::StatusOr<etcdserverpb::RangeResponse> Range(
      const etcdserverpb::RangeRequest& request,
      absl::Duration patience = absl::InfiniteDuration());

  // The same for a transaction. Sends it again when an answer was lost, so etcd may carry it out
  // several times, and even after this call has returned: its comparisons must prevent that.
  // *repeated is set when an attempt before the answered one may have been carried out.
  absl::StatusOr<etcdserverpb::TxnResponse> Txn(const etcdserverpb::TxnRequest& request,
                                                bool* repeated,
                                                absl::Duration patience = absl::InfiniteDuration());

  // The same for leases. NOT_FOUND: there is no such lease, in a transaction too. A lease whose
  // answer is lost ends by itself.
  absl::StatusOr<etcdserverpb::LeaseGrantResponse> LeaseGrant(
      const etcdserverpb::LeaseGrantRequest& request);
  absl::StatusOr<etcdserverpb::LeaseKeepAliveResponse> LeaseKeepAlive(
      const etcdserverpb::LeaseKeepAliveRequest& request);
  absl::Status LeaseRevoke(const etcdserverpb::LeaseRevokeRequest& request);

  // Drops old values up to this revision. OUT_OF_RANGE: they were dropped before. Asks each
  // endpoint once.
  absl::Status Compact(int64_t revision);

 private:
  struct Endpoint;
  // `stub`: the endpoint's stub for the service of `method`.
  template <class Response, class Stub, class Method, class Request>
  absl::StatusOr<Response> Call(Stub stub, Method method, const Request& request,
                                absl::Duration patience, bool* repeated);
  void Pause(absl::Duration pause);

  const Options options_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  // The index to begin with. Relaxed: any value will do.
  std::atomic<size_t> preferred_{0};
};

}  // namespace sluice
