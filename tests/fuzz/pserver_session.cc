// Plays sessions of several workers with one pserver: lives, frames in chunks, repeated and skipped
// sequences, commits, pulls, ends of epochs, routes, saves and closed jobs, in all modes. The bytes
// decide the operations.
//
// Checks: statuses and values are exactly those of a plain model (session_model.h), so every part
// is applied at most once; every complete request gets exactly one answer, or waits until the job
// is closed.
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <utility>

#include "server/service/exchange_handler.h"
#include "server/tables/job_tables.h"
#include "tests/common/base/fake_clock.h"
#include "tests/common/saved_model/memory_env.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/session_model.h"
#include "tests/server/test_worker.h"

namespace sluice {
namespace {

constexpr int kMostOperations = 120;
constexpr size_t kMostStreams = 8;
constexpr uint32_t kSparseShards = 4, kKeys = 8;
constexpr size_t kDenseElements = 4, kDim = 3;

// A part of a push or a pull. The dense block has the key 0.
struct Part {
  uint32_t table = 0, shard = 0;
  std::vector<uint64_t> keys;
};

// A request that was sent completely, and what its answer must be.
struct Sent {
  int code = 0;
  std::map<std::pair<uint32_t, uint32_t>, PartStatus> errors;
  std::vector<Part> values;  // in the order of the answer
  // Answer.
  bool answered = false;
};

class Session;

class CheckedStream : public Stream {
 public:
  explicit CheckedStream(Session* session) : session_(session) {}
  void Send(Message message) override;
  void Close() override { closed = true; }

  bool closed = false;
  std::map<uint64_t, Sent> requests;
  size_t next_part = 0;  // of the answer that is under way

 private:
  Session* const session_;
};

struct Worker {
  std::shared_ptr<CheckedStream> stream;
  std::unique_ptr<ExchangeHandler> handler;
  uint32_t rank = 0;
  uint64_t incarnation = 0;
  uint64_t next_id = 1;
};

class Session {
 public:
  explicit Session(FuzzedDataProvider* input) : input_(input) {
    mode_ = input->PickValueInArray({PlainShard::kSync, PlainShard::kAsync, PlainShard::kGeo});
    workers_ = input->PickValueInArray({1u, 2u, 4u});
    if (mode_ == PlainShard::kAsync) wait_ = input->PickValueInArray({1u, 1u, 2u});
    spec_ = MakeSpec(workers_, mode_ != PlainShard::kSync, mode_ == PlainShard::kGeo ? 5 : 0,
                     kSparseShards);
    ASyncConfigs* const configs =
        spec_.mutable_config()->mutable_strategy()->mutable_a_sync_configs();
    configs->set_gradients_to_wait(wait_);
    if (mode_ == PlainShard::kAsync && input->ConsumeBool())
      configs->set_max_staleness(input->ConsumeIntegralInRange(0, 2));
    for (TableConfig& table : *spec_.mutable_tables()) SetRule(&table);
    layouts_ = LayoutsOf(spec_);
    for (uint64_t key = 1; key <= kKeys; ++key) keys_[layouts_[1]->ShardOf(key)].push_back(key);
    Open();
  }
  ~Session() { CloseJob(); }

  void Run() {
    for (int i = 0; i < kMostOperations && input_->remaining_bytes() > 0; ++i) {
      Operate();
      CheckTotals();
    }
  }

  // The values that the pserver must have now.
  std::vector<float> Expected(const Part& part) const {
    std::vector<float> values;
    const PlainShard& shard = ShardOf(part);
    for (const uint64_t key : part.keys) {
      const std::vector<float> row = shard.Get(key, part.table == 0 ? kDenseElements : kDim);
      values.insert(values.end(), row.begin(), row.end());
    }
    return values;
  }
  // False once frames may have been flushed at a moment that the model does not know.
  bool values_known() const { return values_known_; }

 private:
  static void SetRule(TableConfig* table) {
    const auto set = [](OptimizerConfig* optimizer, Initializer* initializer) {
      optimizer->set_learning_rate(1);
      initializer->set_constant(0);
    };
    if (table->has_optimizer()) set(table->mutable_optimizer(), table->mutable_initializer());
    for (ColumnGroup& group : *table->mutable_columns())
      set(group.mutable_optimizer(), group.mutable_initializer());
  }

  void Open() {
    spec_.set_instance(spec_.instance() + 1);
    spec_.mutable_route()->set_generation(1);
    spec_.clear_incarnations();
    static CutWriter* const writer = new CutWriter;
    JobResources resources = TestResources(&clock_);
    resources.env = &env_;
    resources.cut_writer = writer;
    auto job = JobTables::Open(spec_, kSelf, resources);
    FUZZ_CHECK(job.ok());
    job_ = *std::move(job);
    shards_.assign(1 + kSparseShards, PlainShard(mode_, workers_, wait_));
    incarnations_.assign(workers_, 0);
    committed_.assign(workers_, 0);
    frames_.assign(workers_, 0);
    closed_ = counted_ = 0;
    values_known_ = true;
  }
  // Closes the job, which answers all requests that wait.
  void CloseJob() {
    closing_ = true;
    job_->Close();
    for (Worker& worker : streams_) {
      for (const auto& [id, sent] : worker.stream->requests)
        FUZZ_CHECK(sent.answered || worker.stream->closed);
    }
    job_.reset();
    streams_.clear();
    closing_ = false;
  }

  void Operate() {
    switch (input_->ConsumeIntegralInRange(0, 15)) {
      case 0:
      case 1:
        return Connect();
      case 2:
        return Disconnect();
      case 3:
        return UpdateRoute();
      case 4:
        return EndEpoch();
      case 5:
        return Advance();
      case 6:
        if (input_->ConsumeIntegralInRange(0, 7) == 0) return Reopen();
        return Garble();
      case 7:
        if (input_->ConsumeIntegralInRange(0, 15) == 0) return Save();
        return Pull();
      case 8:
      case 9:
        return Pull();
      case 10:
      case 11:
        return mode_ == PlainShard::kSync ? Commit() : Push();
      default:
        return Push();
    }
  }

  void Advance() { clock_.Advance(absl::Milliseconds(input_->ConsumeIntegralInRange(0, 5000))); }
  void Save() { FUZZ_CHECK(job_->SaveShards("/model", "000000000000005a").ok()); }
  void Reopen() {
    CloseJob();
    Open();
  }

  void Connect() {
    if (streams_.size() == kMostStreams) Disconnect();
    Worker worker;
    worker.rank = input_->ConsumeIntegralInRange<uint32_t>(0, workers_);
    const uint64_t known = worker.rank < workers_ ? incarnations_[worker.rank] : 0;
    worker.incarnation = known + input_->ConsumeIntegralInRange(0, 1);
    if (known > 0 && input_->ConsumeIntegralInRange(0, 7) == 0) worker.incarnation = known - 1;
    worker.stream = std::make_shared<CheckedStream>(this);
    worker.handler = std::make_unique<ExchangeHandler>(
        worker.stream, [this](const std::string& id) { return id == "job-1" ? job_ : nullptr; },
        &counters_);
    FrameHeader header;
    Hello* const hello = header.mutable_hello();
    hello->set_protocol(kDataProtocol);
    hello->set_job_id("job-1");
    hello->set_rank(worker.rank);
    hello->set_incarnation(worker.incarnation);
    hello->set_instance(spec_.instance());
    Sent sent;
    if (worker.rank >= workers_) sent.code = static_cast<int>(absl::StatusCode::kInvalidArgument);
    if (worker.incarnation < known) sent.code = static_cast<int>(absl::StatusCode::kAborted);
    if (sent.code == 0) Fence(worker.rank, worker.incarnation);
    const int refused = sent.code;
    Send(&worker, header, "", std::move(sent));
    FUZZ_CHECK(worker.stream->closed == (refused != 0));
    if (refused == 0) streams_.push_back(std::move(worker));
  }
  void Disconnect() {
    if (streams_.empty()) return;
    const size_t i = input_->ConsumeIntegralInRange<size_t>(0, streams_.size() - 1);
    streams_[i].handler->OnClosed();
    streams_.erase(streams_.begin() + static_cast<ptrdiff_t>(i));
  }
  void Fence(uint32_t rank, uint64_t incarnation) {
    if (incarnation <= incarnations_[rank]) return;
    incarnations_[rank] = incarnation;
    for (PlainShard& shard : shards_) shard.Fence(rank);
    if (mode_ != PlainShard::kSync) frames_[rank] = 0;
  }
  void UpdateRoute() {
    spec_.mutable_route()->set_generation(spec_.route().generation() + 1);
    spec_.clear_incarnations();
    if (input_->ConsumeBool()) {
      for (uint32_t rank = 0; rank < workers_; ++rank) {
        const uint64_t least = incarnations_[rank] + input_->ConsumeIntegralInRange(0, 1);
        spec_.add_incarnations(least);
        Fence(rank, least);
      }
    }
    fencing_ = true;
    FUZZ_CHECK(job_->UpdateRoute(spec_).ok());
    fencing_ = false;
  }

  Worker* AnyWorker() {
    if (streams_.empty()) return nullptr;
    return &streams_[input_->ConsumeIntegralInRange<size_t>(0, streams_.size() - 1)];
  }
  // A header of the worker's next request, and how a message of it must be refused as a whole.
  FrameHeader NewHeader(Worker* worker, Sent* sent) {
    FrameHeader header;
    const bool stale = input_->ConsumeIntegralInRange(0, 15) == 0;
    header.set_generation(spec_.route().generation() - (stale ? 1 : 0));
    if (stale) sent->code = static_cast<int>(absl::StatusCode::kFailedPrecondition);
    if (worker->incarnation < incarnations_[worker->rank])
      sent->code = static_cast<int>(absl::StatusCode::kAborted);
    return header;
  }
  void Send(Worker* worker, FrameHeader header, const std::string& payload, Sent sent) {
    header.set_request_id(worker->next_id++);
    header.set_last(true);
    const uint64_t id = header.request_id();
    Sent& request = worker->stream->requests[id];
    sent.answered = request.answered;  // an earlier message was refused
    request = std::move(sent);
    worker->handler->OnMessage(EncodeFrame(header, {Slice::FromString(payload)}));
  }

  static void AddPart(const Part& part, uint32_t rows, Parts* parts) {
    parts->add_table(part.table);
    parts->add_shard(part.shard);
    parts->add_rows(rows);
  }
  static void AddKeys(const Part& part, std::string* payload) {
    if (part.table == 1)
      payload->append(reinterpret_cast<const char*>(part.keys.data()), part.keys.size() * 8);
  }
  PlainShard& ShardOf(const Part& part) { return shards_[part.table == 0 ? 0 : 1 + part.shard]; }
  const PlainShard& ShardOf(const Part& part) const {
    return shards_[part.table == 0 ? 0 : 1 + part.shard];
  }

  // Each shard once, and some of its keys.
  std::vector<Part> SomeParts(bool all) {
    std::vector<Part> parts;
    const uint32_t mask = all ? 0x1F : input_->ConsumeIntegral<uint8_t>();
    if (mask & 1) parts.push_back({0, 0, {0}});
    for (uint32_t s = 0; s < kSparseShards; ++s) {
      if (!(mask >> (1 + s) & 1)) continue;
      Part part{1, s, {}};
      const uint32_t wanted = input_->ConsumeIntegral<uint8_t>();
      for (size_t i = 0; i < keys_[s].size(); ++i) {
        if (wanted >> i & 1) part.keys.push_back(keys_[s][i]);
      }
      parts.push_back(std::move(part));
    }
    return parts;
  }

  PlainShard::Values GradientOf(const Part& part) {
    PlainShard::Values values;
    if (part.table == 0 && input_->ConsumeIntegralInRange(0, 3) == 0) return values;  // no rows
    for (const uint64_t key : part.keys) {
      std::vector<float>& row = values[key];
      for (size_t i = 0; i < (part.table == 0 ? kDenseElements : kDim); ++i)
        row.push_back(4.0f * static_cast<float>(input_->ConsumeIntegralInRange(-16, 16)));
    }
    return values;
  }
  static std::string Encode(const Part& part, const PlainShard::Values& gradient) {
    std::string bytes;
    AddKeys(part, &bytes);
    for (const auto& [key, row] : gradient)
      bytes.append(reinterpret_cast<const char*>(row.data()), row.size() * sizeof(float));
    return bytes;
  }

  void Push() {
    Worker* const worker = AnyWorker();
    if (worker == nullptr) return;
    Sent sent;
    FrameHeader header = NewHeader(worker, &sent);
    const std::vector<Part> parts = SomeParts(input_->ConsumeIntegralInRange(0, 3) != 0);
    const bool in_chunks = input_->ConsumeBool(),
               poisoned = input_->ConsumeIntegralInRange(0, 63) == 0;
    sluice::Push* const push = header.mutable_push();
    push->set_sequence(shards_[0].last(worker->rank) +
                       input_->PickValueInArray({1, 1, 1, 1, 0, 2}));
    push->set_weight(1);
    push->set_delta(mode_ == PlainShard::kGeo);
    push->set_pulled_others(input_->ConsumeIntegralInRange(0, 9));
    if (push->sequence() == 0 && sent.code == 0)
      sent.code = static_cast<int>(absl::StatusCode::kInvalidArgument);
    const size_t complete = in_chunks && input_->ConsumeIntegralInRange(0, 7) == 0
                                ? input_->ConsumeIntegralInRange<size_t>(0, parts.size())
                                : parts.size();
    std::string payload;
    for (size_t i = 0; i < complete; ++i) {
      PlainShard::Values gradient = GradientOf(parts[i]);
      const bool poison = poisoned && !gradient.empty();
      if (poison) gradient.begin()->second[0] = std::numeric_limits<float>::quiet_NaN();
      AddPart(parts[i],
              static_cast<uint32_t>(parts[i].table == 0 ? gradient.size() * kDenseElements
                                                        : gradient.size()),
              push->mutable_parts());
      payload += Encode(parts[i], gradient);
      if (sent.code == 0) Apply(*worker, push->sequence(), parts[i], gradient, poison, &sent);
      if (in_chunks && i + 1 < parts.size()) SendChunk(worker, sent.code, &header, &payload);
    }
    if (complete < parts.size()) {  // the stream breaks in the middle of the request
      worker->handler->OnClosed();
      worker->stream->closed = true;
      streams_.erase(streams_.begin() + (worker - &streams_[0]));
      return;
    }
    if (sent.code == 0 && sent.errors.empty() && push->sequence() == frames_[worker->rank] + 1) {
      ++frames_[worker->rank];
      ++counted_;
    }
    Send(worker, header, payload, std::move(sent));
  }
  void Apply(const Worker& worker, uint64_t sequence, const Part& part,
             const PlainShard::Values& gradient, bool poison, Sent* sent) {
    PartStatus status = PART_NOT_FINITE;
    if (!poison) status = ShardOf(part).Apply(worker.rank, sequence, gradient);
    if (status != PART_OK) {
      sent->errors[{part.table, part.shard}] = status;
    } else if (mode_ == PlainShard::kGeo) {
      sent->values.push_back(part);
    }
  }
  // A message that is not the last one of its request, which is refused with `code` or continues.
  static void SendChunk(Worker* worker, int code, FrameHeader* header, std::string* payload) {
    header->set_request_id(worker->next_id);
    header->set_last(false);
    worker->stream->requests[worker->next_id].code = code;
    worker->handler->OnMessage(EncodeFrame(*header, {Slice::FromString(*payload)}));
    header->mutable_push()->clear_parts();
    payload->clear();
  }

  void AddPull(FrameHeader* header, std::string* payload, Sent* sent) {
    const std::vector<Part> parts = SomeParts(/*all=*/false);
    for (const Part& part : parts) {
      AddPart(part, part.table == 0 ? 0 : static_cast<uint32_t>(part.keys.size()),
              header->mutable_pull()->mutable_parts());
      AddKeys(part, payload);
      sent->values.push_back(part);
    }
    header->mutable_pull();
  }
  void Pull() {
    Worker* const worker = AnyWorker();
    if (worker == nullptr) return;
    Sent sent;
    FrameHeader header = NewHeader(worker, &sent);
    std::string payload;
    AddPull(&header, &payload, &sent);
    header.mutable_pull()->set_evaluation(input_->ConsumeBool());
    if (mode_ == PlainShard::kSync) {
      header.mutable_pull()->set_applied_sequence(closed_ + input_->ConsumeIntegralInRange(0, 2));
      if (sent.code == 0 && header.pull().applied_sequence() > closed_ + 1)
        sent.code = static_cast<int>(absl::StatusCode::kInvalidArgument);
    } else {
      header.mutable_pull()->set_for_push(input_->ConsumeIntegralInRange(0, 5));
    }
    Send(worker, header, payload, std::move(sent));
  }
  void Commit() {
    Worker* const worker = AnyWorker();
    if (worker == nullptr) return;
    Sent sent;
    FrameHeader header = NewHeader(worker, &sent);
    const uint64_t step = closed_ + input_->PickValueInArray({1, 1, 1, 0, 2});
    header.mutable_commit()->set_sequence(step);
    std::string payload;
    if (input_->ConsumeBool()) {
      AddPull(&header, &payload, &sent);
      header.mutable_pull()->set_applied_sequence(step);
    }
    if (sent.code == 0 && !CanCommit(worker->rank, step))
      sent.code = static_cast<int>(absl::StatusCode::kInvalidArgument);
    if (sent.code == 0) CommitStep(worker->rank, step);
    Send(worker, header, payload, std::move(sent));
  }
  bool CanCommit(uint32_t rank, uint64_t step) const {
    for (const PlainShard& shard : shards_) {
      if (shard.last(rank) < step) return false;
    }
    return step <= closed_ + 1;
  }
  void CommitStep(uint32_t rank, uint64_t step) {
    committed_[rank] = std::max(committed_[rank], step);
    for (const uint64_t committed : committed_) {
      if (committed <= closed_) return;
    }
    for (PlainShard& shard : shards_) shard.CloseStep();
    ++closed_;
  }
  void EndEpoch() {
    Worker* const worker = AnyWorker();
    if (worker == nullptr) return;
    Sent sent;
    FrameHeader header = NewHeader(worker, &sent);
    header.mutable_end_epoch()->set_epoch(input_->ConsumeIntegralInRange(0, 2));
    if (wait_ > 1) values_known_ = false;
    Send(worker, header, "", std::move(sent));
  }
  // Bytes that are no frame end the stream and change nothing.
  void Garble() {
    Worker* const worker = AnyWorker();
    if (worker == nullptr) return;
    worker->stream->requests.clear();
    garbled_ = true;
    // The first byte keeps it from being a frame, whose changes the model would not know.
    worker->handler->OnMessage({Slice::FromString("\x16" + input_->ConsumeRandomLengthString(40))});
    FUZZ_CHECK(worker->stream->closed);
    garbled_ = false;
    worker->handler->OnClosed();
    streams_.erase(streams_.begin() + (worker - &streams_[0]));
  }

  void CheckTotals() {
    const HostedJob report = job_->Report();
    FUZZ_CHECK(report.frames_applied() == counted_);
    FUZZ_CHECK(report.generation() == spec_.route().generation());
    FUZZ_CHECK(job_->parked_for_test() <= 64 * workers_);
  }

  friend class CheckedStream;

  FuzzedDataProvider* const input_;
  PlainShard::Mode mode_;
  uint32_t workers_ = 1, wait_ = 1;
  JobSpec spec_;
  TableLayouts layouts_;
  std::map<uint32_t, std::vector<uint64_t>> keys_;  // by shard
  FakeClock clock_;
  MemoryEnv env_;
  DataPlaneCounters counters_;
  std::shared_ptr<JobTables> job_;
  std::vector<Worker> streams_;
  // The model.
  std::vector<PlainShard> shards_;  // the dense block, then those of the sparse table
  std::vector<uint64_t> incarnations_, committed_;  // by rank
  std::vector<uint64_t> frames_;                    // by rank: whole frames
  uint64_t closed_ = 0, counted_ = 0;
  bool values_known_ = true;
  // Under these, answers may be refusals that the model does not foresee.
  bool closing_ = false, fencing_ = false, garbled_ = false;
};

void CheckedStream::Send(Message message) {
  absl::StatusOr<DecodedReply> reply = DecodeReply(std::move(message));
  FUZZ_CHECK(reply.ok());
  if (session_->garbled_) return;
  const ReplyHeader& header = reply->header;
  const auto at = requests.find(header.request_id());
  FUZZ_CHECK(at != requests.end() && !at->second.answered);
  Sent& sent = at->second;
  const Parts& parts = header.parts();
  for (int i = 0; i < parts.table_size(); ++i, ++next_part) {
    FUZZ_CHECK(next_part < sent.values.size());
    const Part& part = sent.values[next_part];
    const std::vector<float> expected = session_->Expected(part);
    std::vector<float> values(expected.size());
    FUZZ_CHECK(part.table == parts.table(i) && part.shard == parts.shard(i));
    FUZZ_CHECK(parts.rows(i) == (part.table == 0 ? kDenseElements : part.keys.size()));
    FUZZ_CHECK(reply->payload.remaining() >= values.size() * sizeof(float));
    reply->payload.Copy(values.data(), values.size() * sizeof(float));
    FUZZ_CHECK(!session_->values_known() || values == expected);
  }
  if (!header.last()) return;
  sent.answered = true;
  const bool whole = next_part == sent.values.size();
  next_part = 0;
  if (header.code() != 0) {
    FUZZ_CHECK(header.code() == sent.code || session_->closing_ || session_->fencing_ ||
               header.code() == static_cast<int>(absl::StatusCode::kResourceExhausted));
    return;
  }
  FUZZ_CHECK(sent.code == 0 && whole);
  FUZZ_CHECK(header.errors_size() == static_cast<int>(sent.errors.size()));
  for (const PartError& error : header.errors())
    FUZZ_CHECK(sent.errors.at({error.table(), error.shard()}) == error.status());
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider input(data, size);
  sluice::Session(&input).Run();
  return 0;
}
