#include "tests/server/test_worker.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace sluice {
namespace {

void SetSgd(OptimizerConfig* optimizer) {
  optimizer->mutable_sgd();
  optimizer->set_learning_rate(0.5f);
}

template <typename T>
void Append(std::string* to, const T* from, size_t n) {
  to->append(reinterpret_cast<const char*>(from), n * sizeof(T));
}

}  // namespace

JobSpec MakeSpec(uint32_t workers, bool a_sync, int k_steps, uint32_t num_shards) {
  JobSpec spec;
  spec.set_job_id("job-1");
  spec.set_worker_num(workers);
  StrategyConfig* strategy = spec.mutable_config()->mutable_strategy();
  strategy->set_a_sync(a_sync);
  strategy->mutable_a_sync_configs()->set_k_steps(k_steps);
  TableConfig* dense = spec.add_tables();
  dense->set_name("w");
  dense->set_kind(TableConfig::DENSE);
  dense->add_shape(4);
  dense->mutable_initializer()->set_constant(kInitialDense);
  SetSgd(dense->mutable_optimizer());
  TableConfig* sparse = spec.add_tables();
  sparse->set_name("e");
  sparse->set_kind(TableConfig::SPARSE);
  sparse->set_num_shards(num_shards);
  for (int c = 0; c < 2; ++c) {
    ColumnGroup* group = sparse->add_columns();
    group->set_name(c == 0 ? "a" : "b");
    group->set_dim(c + 1);
    group->mutable_initializer()->set_constant(kInitialSparse);
    SetSgd(group->mutable_optimizer());
  }
  Route* route = spec.mutable_route();
  route->set_generation(1);
  route->add_pservers(kSelf);
  route->add_tables()->add_owner(0);
  TableRoute* of_sparse = route->add_tables();
  for (uint32_t s = 0; s < num_shards; ++s) of_sparse->add_owner(0);
  return spec;
}

TableLayouts LayoutsOf(const JobSpec& spec) {
  return CreateTableLayouts(spec.tables(), spec.config().train().seed()).value();
}

JobResources TestResources(Clock* clock) {
  JobResources resources;
  resources.clock = clock;
  resources.env = Env::Real();
  resources.available_memory = [] { return UINT64_MAX; };
  return resources;
}

void FakeStream::Send(Message message) {
  const size_t bytes = MessageSize(message);
  DecodedReply reply = DecodeReply(std::move(message)).value();
  MutexLock lock(&mutex_);
  Answer& answer = answers[reply.header.request_id()];
  ++answer.messages;
  answer.largest_message = std::max(answer.largest_message, bytes);
  answer.done = reply.header.last();
  answer.code = reply.header.code();
  answer.message = reply.header.message();
  answer.generation = reply.header.generation();
  answer.others = reply.header.others();
  answer.checkpoint = reply.header.checkpoint();
  answer.errors.assign(reply.header.errors().begin(), reply.header.errors().end());
  const Parts& parts = reply.header.parts();
  for (int i = 0; i < parts.table_size(); ++i) {
    const bool dense = parts.table(i) == 0;
    std::vector<float>& to = dense ? answer.dense : answer.sparse;
    const size_t n = parts.rows(i) * (dense ? 1 : 3);
    to.resize(to.size() + n);
    reply.payload.Copy(to.data() + to.size() - n, n * sizeof(float));
    if (!dense) answer.sparse_parts.emplace_back(parts.shard(i), parts.rows(i));
  }
  if (answer.done) done_.NotifyAll();
}

bool FakeStream::Has(uint64_t id) {
  MutexLock lock(&mutex_);
  return answers[id].done;
}

const Answer& FakeStream::Wait(uint64_t id) {
  MutexLock lock(&mutex_);
  Answer& answer = answers[id];
  while (!answer.done) done_.Wait(&mutex_);
  return answer;
}

TestWorker::TestWorker(const JobSpec& spec, std::shared_ptr<JobTables> job, uint32_t rank,
                       uint64_t incarnation)
    : layouts_(LayoutsOf(spec)), stream_(std::make_shared<FakeStream>()) {
  handler_ = std::make_unique<ExchangeHandler>(
      stream_, [job](const std::string& job_id) { return job_id == "job-1" ? job : nullptr; },
      &counters_);
  FrameHeader header;
  header.set_request_id(next_id_++);
  header.set_last(true);
  header.set_generation(spec.route().generation());
  Hello* hello = header.mutable_hello();
  hello->set_protocol(kDataProtocol);
  hello->set_job_id("job-1");
  hello->set_rank(rank);
  hello->set_incarnation(incarnation);
  hello->set_instance(spec.instance());
  Send(header, "");
}

std::map<uint32_t, std::vector<uint64_t>> TestWorker::ByShard(
    const std::vector<uint64_t>& keys) const {
  std::map<uint32_t, std::vector<uint64_t>> by_shard;
  for (uint64_t key : keys) by_shard[layouts_[1]->ShardOf(key)].push_back(key);
  return by_shard;
}

TestWorker::Body TestWorker::PushBody(const PushArgs& args) const {
  Body body;
  body.parts.add_table(0);
  body.parts.add_shard(0);
  body.parts.add_rows(args.dense.size());
  Append(&body.arrays.emplace_back(), args.dense.data(), args.dense.size());
  std::vector<uint64_t> keys;
  for (const auto& [key, values] : args.rows) keys.push_back(key);
  auto by_shard = ByShard(keys);
  for (uint32_t s = 0; s < layouts_[1]->num_shards(); ++s) {
    body.parts.add_table(1);
    body.parts.add_shard(s);
    body.parts.add_rows(by_shard[s].size());
    std::string& array = body.arrays.emplace_back();
    Append(&array, by_shard[s].data(), by_shard[s].size());
    for (uint64_t key : by_shard[s]) Append(&array, args.rows.at(key).data(), 3);
  }
  return body;
}

Message TestWorker::EncodePush(const PushArgs& args) {
  Body body = PushBody(args);
  FrameHeader header;
  header.set_request_id(next_id_++);
  header.set_generation(args.generation);
  header.set_last(true);
  sluice::Push* push = header.mutable_push();
  push->set_sequence(args.sequence);
  push->set_weight(args.weight);
  push->set_delta(args.delta);
  push->set_pulled_others(args.pulled_others);
  push->set_task_id(args.task_id);
  push->set_task_end(args.task_end);
  *push->mutable_parts() = body.parts;
  if (args.commit != 0) header.mutable_commit()->set_sequence(args.commit);
  if (args.commit != 0) header.mutable_commit()->set_checkpoint(args.checkpoint);
  if (args.pull_dense) {
    Parts* parts = header.mutable_pull()->mutable_parts();
    parts->add_table(0);
    parts->add_shard(0);
    parts->add_rows(0);
  }
  std::string payload;
  for (const std::string& array : body.arrays) payload += array;
  return EncodeFrame(header, {Slice::FromString(payload)});
}

uint64_t TestWorker::Push(const PushArgs& args) {
  if (!args.in_chunks) {
    Deliver(EncodePush(args));
    return next_id_ - 1;
  }
  const Body body = PushBody(args);
  const uint64_t id = next_id_++;
  for (size_t i = 0; i < body.arrays.size(); ++i) {
    FrameHeader header;
    header.set_request_id(id);
    header.set_generation(args.generation);
    header.set_last(i + 1 == body.arrays.size());
    sluice::Push* push = header.mutable_push();
    push->set_sequence(args.sequence);
    push->set_weight(args.weight);
    push->set_delta(args.delta);
    push->mutable_parts()->add_table(body.parts.table(i));
    push->mutable_parts()->add_shard(body.parts.shard(i));
    push->mutable_parts()->add_rows(body.parts.rows(i));
    Send(header, body.arrays[i]);
  }
  return id;
}

uint64_t TestWorker::Commit(uint64_t sequence, bool pull_dense, uint64_t checkpoint,
                            uint64_t examples) {
  FrameHeader header;
  header.set_request_id(next_id_++);
  header.set_generation(generation_);
  header.set_last(true);
  header.mutable_commit()->set_sequence(sequence);
  header.mutable_commit()->set_checkpoint(checkpoint);
  header.mutable_commit()->mutable_totals()->set_examples(examples);
  sluice::Pull* pull = header.mutable_pull();
  pull->set_applied_sequence(sequence);
  if (pull_dense) {
    pull->mutable_parts()->add_table(0);
    pull->mutable_parts()->add_shard(0);
    pull->mutable_parts()->add_rows(0);
  }
  Send(header, "");
  return header.request_id();
}

uint64_t TestWorker::PullDense(uint64_t applied_sequence, bool evaluation, uint64_t for_push) {
  FrameHeader header;
  header.set_request_id(next_id_++);
  header.set_generation(generation_);
  header.set_last(true);
  sluice::Pull* pull = header.mutable_pull();
  pull->set_applied_sequence(applied_sequence);
  pull->set_evaluation(evaluation);
  pull->set_for_push(for_push);
  pull->mutable_parts()->add_table(0);
  pull->mutable_parts()->add_shard(0);
  pull->mutable_parts()->add_rows(0);
  Send(header, "");
  return header.request_id();
}

uint64_t TestWorker::EndEpoch(uint32_t epoch) {
  FrameHeader header;
  header.set_request_id(next_id_++);
  header.set_generation(generation_);
  header.set_last(true);
  header.mutable_end_epoch()->set_epoch(epoch);
  Send(header, "");
  return header.request_id();
}

std::vector<float> TestWorker::Dense() { return Get(PullDense(0, true)).dense; }

Rows TestWorker::Sparse(const std::vector<uint64_t>& keys) {
  FrameHeader header;
  header.set_request_id(next_id_++);
  header.set_generation(generation_);
  header.set_last(true);
  sluice::Pull* pull = header.mutable_pull();
  pull->set_evaluation(true);
  std::string payload;
  std::vector<uint64_t> order;
  for (const auto& [shard, of_shard] : ByShard(keys)) {
    pull->mutable_parts()->add_table(1);
    pull->mutable_parts()->add_shard(shard);
    pull->mutable_parts()->add_rows(of_shard.size());
    Append(&payload, of_shard.data(), of_shard.size());
    order.insert(order.end(), of_shard.begin(), of_shard.end());
  }
  Send(header, payload);
  const Answer& answer = Get(header.request_id());
  Rows rows;
  for (size_t i = 0; i < order.size() && (i + 1) * 3 <= answer.sparse.size(); ++i) {
    rows[order[i]].assign(&answer.sparse[i * 3], &answer.sparse[i * 3] + 3);
  }
  return rows;
}

void TestWorker::Send(const FrameHeader& header, const std::string& payload) {
  Message body;
  if (!payload.empty()) body.push_back(Slice::FromString(payload));
  Deliver(EncodeFrame(header, body));
}

void TestWorker::Deliver(Message message) {
  if (!lends_) return handler_->OnMessage(std::move(message));
  std::string bytes;
  for (const Slice& slice : message)
    bytes.append(reinterpret_cast<const char*>(slice.data()), slice.size());
  const size_t cut = bytes.size() / 2;
  const auto owner = std::make_shared<char>();
  handler_->OnLent(LentMessage(
      {Slice(bytes.data(), cut, owner), Slice(bytes.data() + cut, bytes.size() - cut, owner)}));
  if (owner.use_count() != 1) std::abort();  // somebody holds what was lent
  std::fill(bytes.begin(), bytes.end(), '\xFF');
}

}  // namespace sluice
