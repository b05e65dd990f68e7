#include "common/meta_store/etcd_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/printable.h"
#include "common/transport/grpc_convert.h"
#include "common/transport/retry.h"
#include "proto/etcd.grpc.pb.h"

namespace sluice {
namespace {

// A page of a scan has 64 entries of at most 1 MiB.
constexpr int kMaxReceivedBytes = 96 << 20;

// etcd writes nothing more until an operator has done all three.
constexpr char kFreeSpace[] =
    "; free its space: etcdctl compact REVISION, etcdctl defrag, etcdctl alarm disarm";

std::shared_ptr<grpc::Channel> OpenChannel(const std::string& address,
                                           const ServiceCredentials& credentials) {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(kMaxReceivedBytes);
  args.SetInt(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);  // gRPC would inflate without bound
  // Data that the peer does not acknowledge for 5 s ends the connection. etcd allows no pings
  // between calls.
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
  // Despite its name, this bounds one attempt to connect.
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, credentials.ForClient(), args);
}

// True when etcd has refused the request and would refuse it again. All other errors say nothing
// about the request: a member without a leader, one that stops, a lost connection or answer.
bool IsVerdict(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kOutOfRange:  // a revision that is compacted, or in the future
    case absl::StatusCode::kNotFound:    // a lease
      return true;
    case absl::StatusCode::kResourceExhausted:
      // "etcdserver: mvcc: database space exceeded". "too many requests" passes.
      return absl::StrContains(status.message(), "space exceeded");
    default:
      return false;
  }
}

}  // namespace

struct EtcdClient::Endpoint {
  Endpoint(const std::string& address_, const ServiceCredentials& credentials)
      : address(address_),
        channel(OpenChannel(address_, credentials)),
        kv(etcdserverpb::KV::NewStub(channel)),
        lease(etcdserverpb::Lease::NewStub(channel)) {}
  const std::string address;
  const std::shared_ptr<grpc::Channel> channel;
  const std::unique_ptr<etcdserverpb::KV::Stub> kv;
  const std::unique_ptr<etcdserverpb::Lease::Stub> lease;
};

EtcdClient::EtcdClient(Options options) : options_(std::move(options)) {
  for (const std::string& address : options_.endpoints)
    endpoints_.push_back(std::make_unique<Endpoint>(address, options_.credentials));
}

EtcdClient::~EtcdClient() = default;

// A channel that has failed to connect tries again by itself, and until then fails each call at
// once. gRPC moves such a try forward only while a thread waits in gRPC: with sleeps instead, it
// would time out again and again.
void EtcdClient::Pause(absl::Duration pause) {
  grpc::CompletionQueue queue;
  for (const auto& endpoint : endpoints_) {
    endpoint->channel->NotifyOnStateChange(endpoint->channel->GetState(/*try_to_connect=*/true),
                                           GrpcDeadline(pause), &queue, nullptr);
  }
  // Each has one event: at the change, or when the pause is over.
  void* tag;
  bool ok;
  for (size_t i = 0; i < endpoints_.size(); ++i) queue.Next(&tag, &ok);
}

template <class Response, class Stub, class Method, class Request>
absl::StatusOr<Response> EtcdClient::Call(Stub stub, Method method, const Request& request,
                                          absl::Duration patience, bool* repeated) {
  patience = std::min(patience, options_.patience);
  const absl::Time end = options_.clock->Now() + patience;
  const size_t n = endpoints_.size();
  const size_t first = preferred_.load(std::memory_order_relaxed);
  std::vector<std::string> reasons(n);
  Backoff backoff;
  for (size_t attempt = 0;; ++attempt) {
    const size_t i = (first + attempt) % n;
    Endpoint& endpoint = *endpoints_[i];
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(options_.call_timeout));
    // A member that sees no leader answers so at once, rather than when its own timeout is over.
    context.AddMetadata("hasleader", "true");
    Response response;
    const absl::Status status =
        FromGrpcStatus(((endpoint.*stub).get()->*method)(&context, request, &response));
    if (status.ok() || IsVerdict(status)) {
      preferred_.store(i, std::memory_order_relaxed);
      if (status.ok()) return response;
      return absl::Status(status.code(),
                          absl::StrCat("etcd at ", endpoint.address,
                                       " refused: ", PrintableLine(status.message()),
                                       absl::IsResourceExhausted(status) ? kFreeSpace : ""));
    }
    if (repeated != nullptr) *repeated = true;
    reasons[i] = absl::StrCat(endpoint.address, ": ", PrintableLine(status.message()));
    if ((attempt + 1) % n != 0) continue;
    // All endpoints have been tried once more.
    const absl::Duration left = end - options_.clock->Now();
    if (left <= absl::ZeroDuration()) break;
    Pause(std::min(backoff.Next(), left));
  }
  return absl::UnavailableError(
      absl::StrCat("etcd did not answer within ", absl::FormatDuration(patience), " (",
                   absl::StrJoin(reasons, "; "), "). Start it, or correct the addresses"));
}

using etcdserverpb::KV;
using etcdserverpb::Lease;

absl::StatusOr<etcdserverpb::RangeResponse> EtcdClient::Range(
    const etcdserverpb::RangeRequest& request, absl::Duration patience) {
  return Call<etcdserverpb::RangeResponse>(&Endpoint::kv, &KV::Stub::Range, request, patience,
                                           nullptr);
}

absl::StatusOr<etcdserverpb::TxnResponse> EtcdClient::Txn(const etcdserverpb::TxnRequest& request,
                                                          bool* repeated, absl::Duration patience) {
  return Call<etcdserverpb::TxnResponse>(&Endpoint::kv, &KV::Stub::Txn, request, patience,
                                         repeated);
}

absl::StatusOr<etcdserverpb::LeaseGrantResponse> EtcdClient::LeaseGrant(
    const etcdserverpb::LeaseGrantRequest& request) {
  return Call<etcdserverpb::LeaseGrantResponse>(&Endpoint::lease, &Lease::Stub::LeaseGrant, request,
                                                options_.patience, nullptr);
}

absl::StatusOr<etcdserverpb::LeaseKeepAliveResponse> EtcdClient::LeaseKeepAlive(
    const etcdserverpb::LeaseKeepAliveRequest& request) {
  return Call<etcdserverpb::LeaseKeepAliveResponse>(&Endpoint::lease, &Lease::Stub::LeaseKeepAlive,
                                                    request, options_.patience, nullptr);
}

absl::Status EtcdClient::LeaseRevoke(const etcdserverpb::LeaseRevokeRequest& request) {
  return Call<etcdserverpb::LeaseRevokeResponse>(&Endpoint::lease, &Lease::Stub::LeaseRevoke,
                                                 request, options_.patience, nullptr)
      .status();
}

absl::Status EtcdClient::Compact(int64_t revision) {
  etcdserverpb::CompactionRequest request;
  request.set_revision(revision);
  return Call<etcdserverpb::CompactionResponse>(&Endpoint::kv, &KV::Stub::Compact, request,
                                                absl::ZeroDuration(), nullptr)
      .status();
}

}  // namespace sluice
