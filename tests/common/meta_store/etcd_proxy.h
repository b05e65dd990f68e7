// An etcd endpoint in this process that passes calls on to another one, and loses requests and
// answers as a test says.
//
// Thread safety: safe from any thread. The hooks run on gRPC's threads.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "proto/etcd.grpc.pb.h"

namespace sluice {

class EtcdProxy : public etcdserverpb::KV::Service {
  // Passes the calls about leases on.
  class Leases : public etcdserverpb::Lease::Service {
   public:
    explicit Leases(const std::shared_ptr<grpc::Channel>& target)
        : stub_(etcdserverpb::Lease::NewStub(target)) {}
    grpc::Status LeaseGrant(grpc::ServerContext*, const etcdserverpb::LeaseGrantRequest* request,
                            etcdserverpb::LeaseGrantResponse* response) override {
      grpc::ClientContext context;
      return stub_->LeaseGrant(&context, *request, response);
    }
    grpc::Status LeaseRevoke(grpc::ServerContext*, const etcdserverpb::LeaseRevokeRequest* request,
                             etcdserverpb::LeaseRevokeResponse* response) override {
      grpc::ClientContext context;
      return stub_->LeaseRevoke(&context, *request, response);
    }
    grpc::Status LeaseKeepAlive(grpc::ServerContext*,
                                const etcdserverpb::LeaseKeepAliveRequest* request,
                                etcdserverpb::LeaseKeepAliveResponse* response) override {
      grpc::ClientContext context;
      return stub_->LeaseKeepAlive(&context, *request, response);
    }

   private:
    const std::unique_ptr<etcdserverpb::Lease::Stub> stub_;
  };

 public:
  enum Fate {
    kPass,
    kLoseRequest,  // etcd does not get it
    kLoseAnswer,   // etcd carries it out
    kHoldRequest,  // etcd gets it when DeliverHeld is called
    kAnswerFull,   // etcd carries it out and reaches its quota with it
  };

  // `target` is host:port of the endpoint behind the proxy.
  explicit EtcdProxy(const std::string& target)
      : channel_(grpc::CreateChannel(target, grpc::InsecureChannelCredentials())),
        stub_(etcdserverpb::KV::NewStub(channel_)),
        leases_(channel_) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.SetMaxReceiveMessageSize(-1);
    builder.RegisterService(this);
    builder.RegisterService(&leases_);
    server_ = builder.BuildAndStart();
  }
  ~EtcdProxy() override { server_->Shutdown(); }

  std::string endpoint() const { return absl::StrCat("127.0.0.1:", port_); }

  // Decides on each transaction. `attempt` counts the transactions since this call, from 0.
  void OnTxn(std::function<Fate(int attempt)> fate) {
    MutexLock lock(&mutex_);
    on_txn_ = std::move(fate);
    attempts_ = 0;
  }
  // Decides on each read: anything but OK is the answer.
  void OnRange(std::function<grpc::Status(const etcdserverpb::RangeRequest&)> hook) {
    MutexLock lock(&mutex_);
    on_range_ = std::move(hook);
  }
  int attempts() const {
    MutexLock lock(&mutex_);
    return attempts_;
  }
  // Passes the held transactions on, in their order, and returns how many etcd has applied.
  int DeliverHeld() {
    std::vector<etcdserverpb::TxnRequest> held;
    {
      MutexLock lock(&mutex_);
      held.swap(held_);
    }
    int applied = 0;
    for (const etcdserverpb::TxnRequest& request : held) {
      etcdserverpb::TxnResponse response;
      if (Forward(&etcdserverpb::KV::Stub::Txn, request, &response).ok() && response.succeeded())
        ++applied;
    }
    return applied;
  }

  grpc::Status Range(grpc::ServerContext*, const etcdserverpb::RangeRequest* request,
                     etcdserverpb::RangeResponse* response) override {
    std::function<grpc::Status(const etcdserverpb::RangeRequest&)> hook;
    {
      MutexLock lock(&mutex_);
      hook = on_range_;
    }
    const grpc::Status status = hook ? hook(*request) : grpc::Status::OK;
    return status.ok() ? Forward(&etcdserverpb::KV::Stub::Range, *request, response) : status;
  }
  grpc::Status Txn(grpc::ServerContext*, const etcdserverpb::TxnRequest* request,
                   etcdserverpb::TxnResponse* response) override {
    std::function<Fate(int)> fate;
    int attempt;
    {
      MutexLock lock(&mutex_);
      fate = on_txn_;
      attempt = attempts_++;
    }
    const grpc::Status lost(grpc::StatusCode::UNAVAILABLE, "lost by the proxy");
    switch (fate ? fate(attempt) : kPass) {
      case kPass:
        return Forward(&etcdserverpb::KV::Stub::Txn, *request, response);
      case kLoseRequest:
        return lost;
      case kLoseAnswer:
        Forward(&etcdserverpb::KV::Stub::Txn, *request, response);
        return lost;
      case kAnswerFull:
        Forward(&etcdserverpb::KV::Stub::Txn, *request, response);
        return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                            "etcdserver: mvcc: database space exceeded");
      case kHoldRequest:
        MutexLock lock(&mutex_);
        held_.push_back(*request);
        return lost;
    }
    return lost;
  }

 private:
  template <class Method, class Request, class Response>
  grpc::Status Forward(Method method, const Request& request, Response* response) {
    grpc::ClientContext context;
    return (stub_.get()->*method)(&context, request, response);
  }

  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<etcdserverpb::KV::Stub> stub_;
  Leases leases_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  mutable Mutex mutex_;
  std::function<Fate(int)> on_txn_ ABSL_GUARDED_BY(mutex_);
  std::function<grpc::Status(const etcdserverpb::RangeRequest&)> on_range_ ABSL_GUARDED_BY(mutex_);
  int attempts_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<etcdserverpb::TxnRequest> held_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
