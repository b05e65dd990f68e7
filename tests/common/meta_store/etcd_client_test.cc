#include "common/meta_store/etcd_client.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/transport/grpc_convert.h"
#include "proto/etcd.grpc.pb.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

// An endpoint whose answers a test gives.
class Endpoint : public etcdserverpb::KV::Service {
 public:
  explicit Endpoint(std::function<grpc::Status(int call)> answer) : answer_(std::move(answer)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~Endpoint() override { Stop(); }
  void Stop() { server_->Shutdown(GrpcDeadline(absl::ZeroDuration())); }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  int calls() const {
    MutexLock lock(&mutex_);
    return calls_;
  }
  bool asked_for_a_leader() const {
    MutexLock lock(&mutex_);
    return asked_for_a_leader_;
  }

  grpc::Status Range(grpc::ServerContext* context, const etcdserverpb::RangeRequest*,
                     etcdserverpb::RangeResponse* response) override {
    response->mutable_header()->set_revision(port_);
    return Answer(context);
  }
  grpc::Status Txn(grpc::ServerContext* context, const etcdserverpb::TxnRequest*,
                   etcdserverpb::TxnResponse* response) override {
    response->mutable_header()->set_revision(port_);
    return Answer(context);
  }

 private:
  grpc::Status Answer(grpc::ServerContext* context) {
    int call;
    {
      MutexLock lock(&mutex_);
      call = calls_++;
      const auto leader = context->client_metadata().find("hasleader");
      asked_for_a_leader_ = leader != context->client_metadata().end() && leader->second == "true";
    }
    return answer_(call);
  }

  const std::function<grpc::Status(int call)> answer_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  mutable Mutex mutex_;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  bool asked_for_a_leader_ ABSL_GUARDED_BY(mutex_) = false;
};

grpc::Status Ok(int) { return grpc::Status::OK; }
std::function<grpc::Status(int)> Always(grpc::StatusCode code, const std::string& message) {
  return [=](int) { return grpc::Status(code, message); };
}

EtcdClient::Options Options(std::vector<std::string> endpoints) {
  EtcdClient::Options options;
  options.clock = Clock::Real();
  options.endpoints = std::move(endpoints);
  // Far more than a busy machine needs: calls are counted.
  options.call_timeout = absl::Seconds(20);
  options.patience = absl::Seconds(60);
  return options;
}

TEST(EtcdClientTest, TriesTheNextEndpointAndStaysWithIt) {
  Endpoint without_leader(Always(grpc::StatusCode::UNAVAILABLE, "etcdserver: no leader"));
  Endpoint good(Ok);
  EtcdClient client(Options({"127.0.0.1:1", without_leader.address(), good.address()}));
  for (int i = 0; i < 3; ++i) {
    const auto response = client.Range({});
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_EQ(absl::StrCat("127.0.0.1:", response->header().revision()), good.address());
  }
  EXPECT_EQ(without_leader.calls(), 1);
  EXPECT_TRUE(without_leader.asked_for_a_leader());
}

TEST(EtcdClientTest, LeavesAnEndpointThatHangs) {
  Mutex mutex;
  CondVar over_changed;
  bool over = false;
  Endpoint hanging([&](int) {
    MutexLock lock(&mutex);
    while (!over) over_changed.Wait(&mutex);
    return grpc::Status::OK;
  });
  Endpoint good(Ok);
  EtcdClient::Options options = Options({hanging.address(), good.address()});
  options.call_timeout = absl::Milliseconds(300);
  EtcdClient client(options);
  bool repeated = false;
  const auto response = client.Txn({}, &repeated);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(absl::StrCat("127.0.0.1:", response->header().revision()), good.address());
  EXPECT_TRUE(repeated);
  MutexLock lock(&mutex);
  over = true;
  over_changed.NotifyAll();
}

TEST(EtcdClientTest, TriesAgainWhateverSaysNothingAboutTheRequest) {
  const grpc::Status passing[] = {
      {grpc::StatusCode::UNAVAILABLE, "etcdserver: leader changed"},
      {grpc::StatusCode::UNKNOWN, "raft: stopped"},
      {grpc::StatusCode::CANCELLED, "context canceled"},
      {grpc::StatusCode::INTERNAL, "stream terminated"},
      {grpc::StatusCode::FAILED_PRECONDITION, "etcdserver: not leader"},
      {grpc::StatusCode::RESOURCE_EXHAUSTED, "etcdserver: too many requests"},
  };
  for (const grpc::Status& status : passing) {
    Endpoint endpoint([&](int call) { return call < 2 ? status : grpc::Status::OK; });
    EtcdClient client(Options({endpoint.address()}));
    bool repeated = false;
    EXPECT_TRUE(client.Txn({}, &repeated).ok()) << status.error_message();
    EXPECT_EQ(endpoint.calls(), 3);
    EXPECT_TRUE(repeated);
  }
}

TEST(EtcdClientTest, ReturnsVerdictsAtOnce) {
  const grpc::Status verdicts[] = {
      {grpc::StatusCode::INVALID_ARGUMENT, "etcdserver: duplicate key given in txn request"},
      {grpc::StatusCode::PERMISSION_DENIED, "etcdserver: permission denied"},
      {grpc::StatusCode::UNAUTHENTICATED, "etcdserver: invalid auth token"},
      {grpc::StatusCode::UNIMPLEMENTED, ""},
      {grpc::StatusCode::OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted"},
      {grpc::StatusCode::RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded"},
  };
  for (const grpc::Status& verdict : verdicts) {
    Endpoint endpoint([&](int) { return verdict; }), other(Ok);
    EtcdClient client(Options({endpoint.address(), other.address()}));
    bool repeated = false;
    const absl::Status status = client.Txn({}, &repeated).status();
    EXPECT_EQ(static_cast<int>(status.code()), static_cast<int>(verdict.error_code()));
    EXPECT_THAT(std::string(status.message()), HasSubstr(endpoint.address()));
    EXPECT_EQ(endpoint.calls(), 1);
    EXPECT_EQ(other.calls(), 0);
    EXPECT_FALSE(repeated);
  }
}

TEST(EtcdClientTest, GivesUpNamingEveryEndpoint) {
  Endpoint stopping(Always(grpc::StatusCode::UNAVAILABLE, "etcdserver: server stopped"));
  EtcdClient::Options options = Options({"127.0.0.1:1", stopping.address()});
  options.patience = absl::Seconds(3);  // time for more than one round on a busy machine
  EtcdClient client(options);
  const absl::Time begin = Clock::Real()->Now();
  const absl::Status status = client.Range({}).status();
  EXPECT_GE(Clock::Real()->Now() - begin, options.patience);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("127.0.0.1:1"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(stopping.address()));
  EXPECT_GT(stopping.calls(), 1);
}

TEST(EtcdClientTest, TriesEachEndpointOnceWithoutPatience) {
  Endpoint bad(Always(grpc::StatusCode::UNAVAILABLE, "no")), good(Ok);
  EtcdClient::Options options = Options({bad.address(), good.address()});
  options.patience = absl::ZeroDuration();
  EXPECT_TRUE(EtcdClient(options).Range({}).ok());
  options.endpoints = {bad.address()};
  EXPECT_TRUE(absl::IsUnavailable(EtcdClient(options).Range({}).status()));
  EXPECT_EQ(bad.calls(), 2);
}

}  // namespace
}  // namespace sluice
