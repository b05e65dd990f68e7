// A job with two tables on real pserver cores in memory, and its clients.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/key_set.h"
#include "client/parameter_client.h"
#include "server/pserver.h"
#include "tests/common/transport/in_process_transport.h"

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

class TestCluster {
 public:
  explicit TestCluster(JobSpec job) : job_(std::move(job)) {
    for (const std::string& address : job_.route().pservers()) {
      pservers_.push_back(std::make_unique<Pserver>(Resources()));
      Pserver* const pserver = pservers_.back().get();
      google::protobuf::RepeatedPtrField<JobSpec> desired;
      *desired.Add() = job_;
      pserver->Reconcile(address, desired);
      pserver->WaitUntilOpenForTest();
      for (const HostedJob& hosted : pserver->Report()) EXPECT_EQ(hosted.error(), "");
      transport_.Bind(address, [pserver](std::shared_ptr<Stream> stream, const PeerIdentity&) {
        return pserver->NewHandler(std::move(stream));
      });
    }
  }

  InProcessTransport* transport() { return &transport_; }
  Pserver* pserver(int i) { return pservers_[i].get(); }
  const JobSpec& job() const { return job_; }

  std::unique_ptr<ParameterClient> Client(uint32_t rank, Transport* transport = nullptr) {
    ParameterClient::Options options =
        ClientOptions(job_, transport == nullptr ? &transport_ : transport, rank);
    options.get_route = [this] { return job_.route(); };
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

  const JobSpec job_;
  std::vector<std::unique_ptr<Pserver>> pservers_;
  InProcessTransport transport_;  // destroyed first: its handlers use the pservers
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
