// Answers a worker's client with any replies: right ones with changed fields, wrong values, and raw
// bytes, on both of its streams.
//
// Checks: values are written only where a pull asked for them (the sanitizer), and every call of
// the worker ends once it is cancelled.
#include <memory>
#include <thread>
#include <vector>

#include "client/key_set.h"
#include "client/parameter_client.h"
#include "tests/client/scripted_transport.h"
#include "tests/common/base/fake_clock.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

constexpr int kMostReplies = 20;
constexpr uint32_t kElements = 6, kDim = 2;

// Table 0: sparse with 2 shards. Table 1: dense. Pserver "b" has the second shard and the block.
TableLayouts Tables() {
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  TableConfig* const rows = tables.Add();
  rows->set_name("rows");
  rows->set_kind(TableConfig::SPARSE);
  rows->set_num_shards(2);
  ColumnGroup* const column = rows->add_columns();
  column->set_name("w");
  column->set_dim(kDim);
  column->mutable_optimizer()->mutable_sgd();
  column->mutable_optimizer()->set_learning_rate(1);
  TableConfig* const weights = tables.Add();
  weights->set_name("weights");
  weights->set_kind(TableConfig::DENSE);
  weights->add_shape(kElements);
  weights->mutable_optimizer()->mutable_sgd();
  weights->mutable_optimizer()->set_learning_rate(1);
  return CreateTableLayouts(tables, 1).value();
}

Route RouteOf(uint64_t generation) {
  Route route;
  route.set_generation(generation);
  route.add_pservers("a");
  route.add_pservers("b");
  TableRoute* const rows = route.add_tables();
  rows->add_owner(0);
  rows->add_owner(1);
  route.add_tables()->add_owner(1);
  return route;
}

// What a pull fills, in memory of exactly its size.
struct Values {
  explicit Values(const TableLayout& table) {
    std::vector<uint64_t> wanted;
    for (uint64_t key = 1; key <= 5; ++key) wanted.push_back(key);
    std::vector<uint32_t> index(wanted.size());
    KeyDeduplicator().Run(table, wanted.data(), wanted.size(), keys.get(), index.data());
    rows.resize(keys->keys.size() * kDim);
    dense.resize(kElements);
  }
  PullRequest Pull() {
    PullRequest pull;
    pull.sparse.push_back({0, keys, rows.data()});
    pull.dense.push_back({1, dense.data()});
    return pull;
  }
  PushRequest Push() const {
    PushRequest push;
    push.sparse.push_back({0, keys, rows.data()});
    push.dense.push_back({1, dense.data()});
    push.weight = 1;
    return push;
  }
  std::shared_ptr<KeySet> keys = std::make_shared<KeySet>();
  std::vector<float> rows, dense;
};

class Worker {
 public:
  explicit Worker(FuzzedDataProvider* input) : input_(input), tables_(Tables()) {
    ParameterClientOptions options;
    options.job_id = "job-1";
    options.tables = tables_;
    options.route = RouteOf(1);
    options.transport = &transport_;
    options.clock = &clock_;
    options.get_route = [this]() -> absl::StatusOr<Route> { return RouteOf(++generation_); };
    client_ = ParameterClient::Create(std::move(options)).value();
    AwaitStreams(2);
    for (size_t s = 0; s < 2; ++s) transport_.Reply(s, 0);
  }
  ~Worker() {
    client_->Cancel();
    for (const PullTicket ticket : tickets_) client_->WaitPull(ticket).IgnoreError();
    client_.reset();
  }

  void Run() {
    for (int i = 0; i < kMostReplies && input_->remaining_bytes() > 0; ++i) {
      const int kind = input_->ConsumeIntegralInRange(0, 7);
      if (kind == 0) {
        values_.push_back(std::make_unique<Values>(*tables_[0]));
        tickets_.push_back(client_->StartPull(values_.back()->Pull()));
      } else if (kind == 1) {
        values_.push_back(std::make_unique<Values>(*tables_[0]));
        client_->StartPush(values_.back()->Push()).IgnoreError();
      } else {
        Deliver(kind == 2);
      }
      client_->WaitingFor();
    }
  }

 private:
  void AwaitStreams(size_t n) {
    while (transport_.streams() < n) std::this_thread::yield();
  }
  void Deliver(bool raw) {
    const std::vector<ScriptedTransport::Sent> sent = transport_.sent();
    const size_t n = input_->ConsumeIntegralInRange<size_t>(0, sent.size() - 1);
    const std::string bytes = input_->ConsumeRandomLengthString(200);
    const StreamCallbacks to = transport_.stream(sent[n].stream);
    if (raw) return to.on_message({Slice::FromString(bytes)});
    ReplyHeader header;
    header.set_request_id(sent[n].header.request_id());
    header.set_last(true);
    header.set_generation(1);
    size_t values = 0;
    if (input_->ConsumeBool()) *header.mutable_parts() = sent[n].header.pull().parts();
    ReplyHeader change;
    if (change.ParseFromString(bytes)) header.MergeFrom(change);
    for (int i = 0; i < header.parts().rows_size() && i < header.parts().table_size(); ++i) {
      const bool dense = header.parts().table(i) == 1;
      if (dense && header.parts().rows(i) == 0) header.mutable_parts()->set_rows(i, kElements);
      values += (header.parts().rows(i) % 100) * (dense ? 1 : kDim);
    }
    std::string payload(values * sizeof(float), '\1');
    payload += input_->ConsumeRandomLengthString(8);
    to.on_message(EncodeReply(header, {Slice::FromString(payload)}));
  }

  FuzzedDataProvider* const input_;
  const TableLayouts tables_;
  FakeClock clock_;
  ScriptedTransport transport_;
  std::atomic<uint64_t> generation_{1};
  std::vector<std::unique_ptr<Values>> values_;  // outlive the client
  std::vector<PullTicket> tickets_;
  std::unique_ptr<ParameterClient> client_;
};

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider input(data, size);
  sluice::Worker(&input).Run();
  return 0;
}
