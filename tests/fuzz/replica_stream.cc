// Sends a follower any messages on a primary's stream, among them the true images of shards with
// changed fields, and reads the copies as a successor.
//
// Checks: every message is confirmed or ends the stream with an error.
#include <memory>

#include "server/service/replica_handler.h"
#include "server/tables/job_tables.h"
#include "tests/common/base/fake_clock.h"
#include "tests/common/saved_model/memory_env.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/replica_messages.h"
#include "tests/server/replicated_job.h"

namespace sluice {
namespace {

constexpr int kMostMessages = 40;

class DecodingStream : public Stream {
 public:
  void Send(Message message) override {
    const auto sent = DecodeReplica(std::move(message));
    FUZZ_CHECK(sent.ok() && !closed);
    code = sent->header.code();
    ++messages;
  }
  void Close() override { closed = true; }
  int code = 0, messages = 0;
  bool closed = false;
};

struct Peer {
  std::shared_ptr<DecodingStream> stream = std::make_shared<DecodingStream>();
  std::unique_ptr<ReplicaHandler> handler;
};

class Follower {
 public:
  explicit Follower(FuzzedDataProvider* input) : input_(input) {
    const int k_steps = input->ConsumeBool() ? 5 : 0;
    spec_ = Replicated(2, k_steps, input->ConsumeIntegralInRange(0, 2));
    spec_.set_instance(9);
    spec_.set_follower(1, 1);
    static CutWriter* const writer = new CutWriter;
    JobResources resources = TestResources(&clock_);
    resources.env = &env_;
    resources.cut_writer = writer;
    auto job = JobTables::Open(spec_, kFollower, resources);
    FUZZ_CHECK(job.ok());
    job_ = *std::move(job);
    UpdatePolicy policy;
    policy.worker_num = 2;
    policy.mode = ModeOf(spec_.config().strategy());
    policy.gradients_to_wait =
        std::max(1u, spec_.config().strategy().a_sync_configs().gradients_to_wait());
    primary_ = FirstView(LayoutsOf(spec_), policy, spec_.route(), kSelf);
    PushPart part;
    part.rows = 4;
    part.values.assign(4, 1.0f);
    primary_->FindShard(0, 0)->Apply({0, 1, 1, 1, {}}, &part);
    primary_->ForEachShard([this](Shard* shard) {
      for (Message& message : ImageOf(shard)) image_.push_back(std::move(message));
    });
  }
  ~Follower() { job_->Close(); }

  void Run() {
    for (int i = 0; i < kMostMessages && input_->remaining_bytes() > 0; ++i) {
      if (peer_.handler == nullptr || peer_.stream->closed) {
        Begin();
      } else {
        Say(Next());
      }
      job_->Report();
    }
  }

 private:
  void Begin() {
    peer_.handler.reset();
    peer_ = Peer();
    peer_.handler = std::make_unique<ReplicaHandler>(
        peer_.stream, [this](const std::string& id) { return id == "job-1" ? job_ : nullptr; });
    next_ = 0;
    ReplicaHeader header;
    *header.mutable_hello() = HelloOf(spec_, /*read=*/input_->ConsumeIntegralInRange(0, 7) == 0);
    if (header.hello().read()) {
      spec_.mutable_route()->set_generation(spec_.route().generation() + 1);
      FUZZ_CHECK(job_->UpdateRoute(spec_).ok());
      header.mutable_hello()->set_generation(spec_.route().generation());
    }
    Say(EncodeReplica(header, {}));
  }
  void Say(Message message) {
    const int before = peer_.stream->messages;
    peer_.handler->OnMessage(std::move(message));
    FUZZ_CHECK(!peer_.stream->closed || peer_.stream->code != 0);
    FUZZ_CHECK(!peer_.stream->closed || peer_.stream->messages == before + 1);
  }
  Message Next() {
    const int kind = input_->ConsumeIntegralInRange(0, 7);
    if (kind < 4 && next_ < image_.size())
      return kind == 0 ? ChangedReplica(input_, image_[next_++]) : image_[next_++];
    ReplicaHeader header;
    if (kind == 4) {
      header.set_complete(true);
      header.set_position(input_->ConsumeIntegralInRange(0, 3));
      return EncodeReplica(header, {});
    }
    const std::string bytes = input_->ConsumeRandomLengthString(300);
    if (kind == 5 || !header.ParseFromString(bytes)) return {Slice::FromString(bytes)};
    header.clear_hello();
    return EncodeReplica(header, {Slice::FromString(input_->ConsumeRandomLengthString(200))});
  }

  FuzzedDataProvider* const input_;
  JobSpec spec_;
  FakeClock clock_;
  MemoryEnv env_;
  std::shared_ptr<JobTables> job_;
  std::shared_ptr<const JobView> primary_;
  std::vector<Message> image_;  // of all shards
  Peer peer_;
  size_t next_ = 0;  // of image_, on the present stream
};

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider input(data, size);
  sluice::Follower(&input).Run();
  return 0;
}
