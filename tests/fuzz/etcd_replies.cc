// Uses a state store in an etcd that answers as the input says: with any messages, with numbers and
// pages that are nearly right, and with errors.
//
// Checks: every call ends, with values that keep the promises of MetaStore and Leadership, or with
// an error of one printable line.
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/printable.h"
#include "common/meta_store/etcd_meta_store.h"
#include "proto/etcd.grpc.pb.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

using etcdserverpb::RangeRequest;
using etcdserverpb::RangeResponse;
using etcdserverpb::TxnRequest;
using etcdserverpb::TxnResponse;

constexpr int kMostCalls = 8;
constexpr int kMostAnswers = 64;  // of an input; later ones are empty, or say that it is done
constexpr size_t kMostBytes = 512;

// Answers from the input of the call that waits. No two calls are made at once.
class AnsweringEtcd : public etcdserverpb::KV::Service {
 public:
  AnsweringEtcd() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    FUZZ_CHECK(server_ != nullptr);
  }
  std::string endpoint() const { return absl::StrCat("127.0.0.1:", port_); }
  void AnswerFrom(FuzzedDataProvider* input) {
    input_ = input;
    answers_ = 0;
  }

  grpc::Status Range(grpc::ServerContext*, const RangeRequest* request,
                     RangeResponse* response) override {
    if (++answers_ > kMostAnswers) return grpc::Status::OK;
    switch (input_->ConsumeIntegralInRange(0, 5)) {
      case 0:
        return Error();
      case 1:
        Any(response);
        break;
      case 2:
        Number(request->key(), response);
        break;
      default:
        Page(request->key(), response);
    }
    return grpc::Status::OK;
  }

  grpc::Status Txn(grpc::ServerContext*, const TxnRequest* request,
                   TxnResponse* response) override {
    response->set_succeeded(true);
    if (++answers_ > kMostAnswers) return grpc::Status::OK;
    const int kind = input_->ConsumeIntegralInRange(0, 7);
    if (kind == 0) return Error();
    if (kind == 1) Any(response);
    if (kind > 4) return grpc::Status::OK;
    // The values that the store has instead, one for each read of the request.
    response->set_succeeded(false);
    for (const auto& read : request->failure())
      Number(read.request_range().key(), response->add_responses()->mutable_response_range());
    if (kind == 2 && response->responses_size() > 0) response->mutable_responses()->RemoveLast();
    return grpc::Status::OK;
  }

 private:
  template <class Response>
  void Any(Response* response) {
    if (!response->ParseFromString(input_->ConsumeRandomLengthString(kMostBytes)))
      response->Clear();
  }
  grpc::Status Error() {
    const auto code = input_->ConsumeIntegralInRange(1, 16);
    return {static_cast<grpc::StatusCode>(code),
            input_->ConsumeBool() ? "space exceeded" : input_->ConsumeRandomLengthString(20)};
  }
  void Number(const std::string& key, RangeResponse* response) {
    const char* const numbers[] = {"1", "2", "3", "0", "-1", "17", "18446744073709551615", "x\n"};
    auto* const kv = response->add_kvs();
    kv->set_key(key);
    kv->set_value(input_->PickValueInArray(numbers));
    kv->set_mod_revision(input_->ConsumeIntegralInRange(0, 3));
  }
  void Page(const std::string& key, RangeResponse* response) {
    response->mutable_header()->set_revision(input_->ConsumeIntegralInRange(-1, 2));
    response->set_more(input_->ConsumeBool());
    const int entries = input_->ConsumeIntegralInRange(0, 3);
    for (int i = 0; i < entries; ++i) {
      const bool repeated = input_->ConsumeBool();
      auto* const kv = response->add_kvs();
      kv->set_key(repeated ? "p/@data/job/a" : key + input_->ConsumeRandomLengthString(8));
      kv->set_value("v");
    }
  }

  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  FuzzedDataProvider* input_ = nullptr;
  int answers_ = 0;
};

void Check(const absl::Status& status) { FUZZ_CHECK(IsPrintableLine(status.message())); }

class Calls {
 public:
  Calls(const AnsweringEtcd& etcd, FuzzedDataProvider* input)
      : input_(input), store_(Options(etcd)) {}

  void Call() {
    switch (input_->ConsumeIntegralInRange(0, 5)) {
      case 0:
        return Acquired(store_.AcquireTerm());
      case 1:
        return Acquired(store_.AcquireFreeTerm());
      case 2:
        return Check(store_.EndCluster(term_));
      case 3:
        return Check(store_.Find().status());
      case 4:
        return Check(store_.Commit(term_, {{"a", "1"}, {"b", std::nullopt}}));
      default:
        return Scan();
    }
  }

 private:
  static EtcdMetaStore::Options Options(const AnsweringEtcd& etcd) {
    EtcdMetaStore::Options options;
    options.client.clock = Clock::Real();
    options.client.endpoints = {etcd.endpoint()};
    options.client.patience = absl::ZeroDuration();
    options.prefix = "p";
    return options;
  }
  void Acquired(const absl::StatusOr<uint64_t>& term) {
    Check(term.status());
    if (!term.ok()) return;
    FUZZ_CHECK(*term > 0);
    term_ = *term;
  }
  void Scan() {
    const auto entries = store_.Scan("job/");
    Check(entries.status());
    if (!entries.ok()) return;
    std::string last;
    for (const MetaStore::Entry& entry : *entries) {
      FUZZ_CHECK(absl::StartsWith(entry.key, "job/") && entry.key > last);
      last = entry.key;
    }
  }

  FuzzedDataProvider* const input_;
  EtcdMetaStore store_;
  uint64_t term_ = 1;
};

}  // namespace
}  // namespace sluice

// Threads of gRPC end calls, and themselves, beside the fuzzer. What they hold at the moment of a
// search for leaks is none.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }  // NOLINT

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const etcd = new sluice::AnsweringEtcd();
  FuzzedDataProvider input(data, size);
  etcd->AnswerFrom(&input);
  sluice::Calls calls(*etcd, &input);
  for (int i = 0; i < sluice::kMostCalls && input.remaining_bytes() > 0; ++i) calls.Call();
  return 0;
}
