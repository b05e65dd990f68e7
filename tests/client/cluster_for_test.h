// A job with two tables on real pserver cores, behind any transport, and its clients.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/key_set.h"
#include "client/parameter_client.h"
#include "common/base/mutex.h"
#include "server/service/pserver.h"
#include "tests/client/gate.h"
#include "tests/client/test_network.h"

namespace sluice {

inline constexpr uint32_t kEmb = 0, kDense = 1;  // tables
inline constexpr uint32_t kDim = 4;
inline constexpr uint64_t kElements = 300;
inline constexpr uint64_t kInstance = 77;  // of the job

enum class TestMode { kSync, kAsync, kGeo };

// SGD with rate 1 on zeros: with gradients of whole numbers every sum is exact.
inline JobSpec MakeJob(TestMode mode, uint32_t pservers, uint32_t workers) {
  JobSpec job;
  job.set_job_id("job-1");
  job.set_instance(kInstance);
  job.set_worker_num(workers);
  StrategyConfig* strategy = job.mutable_config()->mutable_strategy();
  strategy->set_a_sync(mode != TestMode::kSync);
  strategy->mutable_a_sync_configs()->set_k_steps(mode == TestMode::kGeo ? 5 : 0);
  strategy->mutable_a_sync_configs()->set_gradients_to_wait(1);
  job.mutable_config()->set_worker_num(workers);
  job.mutable_config()->mutable_train()->set_seed(3);
  TableConfig* emb = job.add_tables();
  emb->set_name("emb");
  emb->set_kind(TableConfig::SPARSE);
  emb->set_num_shards(16);
  ColumnGroup* column = emb->add_columns();
  column->set_name("w");
  column->set_dim(kDim);
  column->mutable_initializer()->set_constant(0);
  column->mutable_optimizer()->mutable_sgd();
  column->mutable_optimizer()->set_learning_rate(1);
  TableConfig* dense = job.add_tables();
  dense->set_name("dense");
  dense->set_kind(TableConfig::DENSE);
  dense->add_shape(kElements);
  dense->mutable_initializer()->set_constant(0);
  dense->mutable_optimizer()->mutable_sgd();
  dense->mutable_optimizer()->set_learning_rate(1);
  if (mode == TestMode::kGeo) {
    emb->set_update_at(TableConfig::WORKER);
    dense->set_update_at(TableConfig::WORKER);
  }
  Route* route = job.mutable_route();
  route->set_generation(1);
  for (uint32_t p = 0; p < pservers; ++p) route->add_pservers("pserver-" + std::to_string(p));
  TableRoute* owners = route->add_tables();
  for (uint32_t s = 0; s < 16; ++s) owners->add_owner(s % pservers);
  route->add_tables()->add_owner(pservers - 1);
  return job;
}

// Options of a client of the job with this `rank`; the caller may change them.
inline ParameterClient::Options ClientOptions(const JobSpec& job, Transport* transport,
                                              uint32_t rank = 0) {
  ParameterClient::Options options;
  options.job_id = job.job_id();
  options.instance = job.instance();
  options.rank = rank;
  options.tables = *CreateTableLayouts(job.tables(), job.config().train().seed());
  options.route = job.route();
  options.pipeline_depth = job.config().train().pipeline_depth();
  options.transport = transport;
  options.clock = Clock::Real();
  return options;
}

// Client is safe from any thread; the rest belongs to one.
class TestCluster {
 public:
  explicit TestCluster(JobSpec job, std::unique_ptr<TestNetwork> network = nullptr)
      : job_(std::move(job)),
        network_(std::move(network)),
        route_(job_.route()),
        published_(route_) {
    if (network_ == nullptr) network_ = std::make_unique<InProcessNetwork>();
    for (int i = 0; i < job_.route().pservers_size(); ++i) {
      pservers_.push_back(std::make_unique<Pserver>(Resources()));
      gates_.push_back(std::make_unique<Gate>());
      Reconcile(i);
      for (const HostedJob& hosted : pservers_.back()->Report()) EXPECT_EQ(hosted.error(), "");
      Bind(i);
    }
  }

  TestNetwork* network() { return network_.get(); }
  Transport* transport() { return network_->transport(); }
  Pserver* pserver(int i) { return pservers_[i].get(); }
  // Shut, it keeps pserver i from reading.
  Gate* gate(int i) { return gates_[i].get(); }
  const JobSpec& job() const { return job_; }

  // The streams to pserver i end, and it listens anew with the tables that it had.
  // REQUIRES: its gate is open.
  void RestartServer(int i) {
    network_->Unbind(AddressOf(i));
    Bind(i);
  }
  // A later route, with the same owners. The pservers hear of it one after another; clients can
  // fetch it before that, or after.
  void RenewRoute(bool publish_first) {
    route_.set_generation(route_.generation() + 1);
    if (publish_first) Publish();
    for (int i = 0; i < route_.pservers_size(); ++i) Reconcile(i);
    Publish();
  }

  std::unique_ptr<ParameterClient> Client(uint32_t rank, Transport* transport = nullptr,
                                          uint64_t incarnation = 1) {
    ParameterClient::Options options =
        ClientOptions(job_, transport == nullptr ? this->transport() : transport, rank);
    options.incarnation = incarnation;
    options.route = published();
    options.get_route = [this] { return published(); };
    options.limits.timeout = absl::Seconds(20);
    auto client = ParameterClient::Create(std::move(options));
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

 private:
  static JobResources Resources() {
    JobResources resources;
    resources.clock = Clock::Real();
    resources.env = Env::Real();
    resources.available_memory = [] { return UINT64_MAX; };
    return resources;
  }
  const std::string& AddressOf(int i) const { return job_.route().pservers(i); }
  void Reconcile(int i) {
    google::protobuf::RepeatedPtrField<JobSpec> desired;
    *desired.Add() = job_;
    *desired[0].mutable_route() = route_;
    pservers_[i]->Reconcile(AddressOf(i), desired);
    pservers_[i]->WaitUntilOpenForTest();
  }
  void Bind(int i) {
    network_->Bind(AddressOf(i),
                   gates_[i]->Guard([pserver = pservers_[i].get()](std::shared_ptr<Stream> stream,
                                                                   const PeerIdentity&) {
                     return pserver->NewHandler(std::move(stream));
                   }));
  }
  void Publish() {
    MutexLock lock(&mutex_);
    published_ = route_;
  }
  Route published() {
    MutexLock lock(&mutex_);
    return published_;
  }

  const JobSpec job_;
  std::vector<std::unique_ptr<Pserver>> pservers_;
  std::vector<std::unique_ptr<Gate>> gates_;
  std::unique_ptr<TestNetwork> network_;  // destroyed first: its handlers use the pservers
  Route route_;                           // the newest
  Mutex mutex_;
  Route published_ ABSL_GUARDED_BY(mutex_);  // what clients fetch
};

// Keys and values of both tables in a step or a pull.
struct TestValues {
  std::shared_ptr<const KeySet> keys;
  std::vector<float> rows;  // [keys][kDim]
  std::vector<float> dense = std::vector<float>(kElements);

  explicit TestValues(const ParameterClient& client, const std::vector<uint64_t>& wanted) {
    auto set = std::make_shared<KeySet>();
    std::vector<uint32_t> index(wanted.size());
    KeyDeduplicator().Run(*client.tables()[kEmb], wanted.data(), wanted.size(), set.get(),
                          index.data());
    rows.resize(set->keys.size() * kDim);
    keys = std::move(set);
  }
  PullRequest Pull() {
    PullRequest request;
    request.sparse.push_back({kEmb, keys, rows.data()});
    request.dense.push_back({kDense, dense.data()});
    return request;
  }
  static PushRequest Push(std::shared_ptr<const TestValues> values, double weight) {
    PushRequest request;
    request.sparse.push_back({kEmb, values->keys, values->rows.data()});
    request.dense.push_back({kDense, values->dense.data()});
    request.owner = values;
    request.weight = weight;
    return request;
  }
  float Row(uint64_t key, uint32_t column) const {
    const auto it = std::find(keys->keys.begin(), keys->keys.end(), key);
    return it == keys->keys.end() ? -1 : rows[(it - keys->keys.begin()) * kDim + column];
  }
};

}  // namespace sluice
