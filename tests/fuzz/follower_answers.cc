// Answers a pserver with any messages of its follower while its shards change: right ones with
// changed fields, raw bytes, and broken streams. Routes name the follower, and drop it again.
//
// Checks: once the copies are complete, a change is acknowledged only after the follower has
// confirmed it, or a route has dropped the follower; every answer that waits is sent at last.
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/wire/frame.h"
#include "server/copies/replicator.h"
#include "tests/common/base/fake_clock.h"
#include "tests/fuzz/fuzz.h"
#include "tests/server/replicated_job.h"

namespace sluice {
namespace {

constexpr int kMostEvents = 40;
// The primary's own thread needs some time for what an event brings about.
constexpr absl::Duration kLongestWait = absl::Milliseconds(5);

// The follower's end of the newest stream. The fuzzer's thread delivers its answers.
class FollowerTransport : public Transport {
 public:
  std::unique_ptr<Stream> Connect(const PserverAddress&, StreamCallbacks callbacks) override {
    MutexLock lock(&mutex_);
    callbacks_ = std::move(callbacks);
    open_ = true;
    closed_ = complete_ = false;
    position_ = seed_bytes_ = 0;
    return std::make_unique<PrimaryEnd>(this);
  }
  absl::StatusOr<std::string> Call(const PserverAddress&, const std::string&, const std::string&,
                                   absl::Duration) override {
    return absl::UnimplementedError("no calls");
  }

  bool open() {
    MutexLock lock(&mutex_);
    return open_ && !closed_;
  }
  bool complete() {
    MutexLock lock(&mutex_);
    return complete_;
  }
  // The answer of a follower that has taken everything so far.
  ReplicaHeader TrueAnswer() {
    MutexLock lock(&mutex_);
    ReplicaHeader answer;
    answer.set_confirmed(position_);
    answer.set_seed_bytes(seed_bytes_);
    return answer;
  }
  void Deliver(Message message) {
    MutexLock lock(&delivery_);
    if (open()) callbacks_.on_message(std::move(message));
  }
  void Break() {
    MutexLock lock(&delivery_);
    if (!open()) return;
    {
      MutexLock state(&mutex_);
      closed_ = true;
    }
    callbacks_.on_closed(absl::UnavailableError("broken"));
  }

 private:
  class PrimaryEnd : public Stream {
   public:
    explicit PrimaryEnd(FollowerTransport* to) : to_(to) {}
    ~PrimaryEnd() override {
      to_->Break();
      MutexLock lock(&to_->mutex_);
      to_->open_ = false;
    }
    void Send(Message message) override {
      const auto sent = DecodeReplica(std::move(message));
      FUZZ_CHECK(sent.ok());
      MutexLock lock(&to_->mutex_);
      to_->seed_bytes_ += sent->header.has_piece() ? sent->payload.remaining() : 0;
      if (sent->header.position() > 0) to_->position_ = sent->header.position();
      to_->complete_ |= sent->header.complete();
    }
    void Close() override {}

   private:
    FollowerTransport* const to_;
  };

  // Held while a callback runs, so that a stream ends after it. Taken before mutex_.
  Mutex delivery_;
  Mutex mutex_;
  // Changes only while no stream is open.
  StreamCallbacks callbacks_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false, closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool complete_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t position_ ABSL_GUARDED_BY(mutex_) = 0, seed_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

class ReplicatedPserver {
 public:
  explicit ReplicatedPserver(FuzzedDataProvider* input) : input_(input), spec_(Replicated(1)) {
    UpdatePolicy policy;
    policy.replicated = true;
    const TableLayouts layouts = LayoutsOf(spec_);
    shards_.push_back(MakeDenseShard(layouts[0], 0, policy));
    shards_.push_back(MakeSparseShard(layouts[1], 0, policy));
    Replicator::Options options;
    options.job_id = "job";
    options.transport = &transport_;
    options.clock = &clock_;
    options.writer = &Writer();
    options.turn = &turn_;
    options.available_memory = [] { return UINT64_MAX; };
    options.await_checkpoint = [] {};
    options.may_seed = [] { return true; };
    options.patience = absl::InfiniteDuration();
    options.max_behind_bytes = 2000;
    replicator_ = std::make_unique<Replicator>(std::move(options), shards_);
    replicator_->TakeSpec(spec_, 0);
  }
  ~ReplicatedPserver() {
    replicator_->Close();
    for (const Push& push : pushes_) FUZZ_CHECK(push.answers->Has(1));
  }

  void Run() {
    Await([this] { return transport_.open(); });
    for (int i = 0; i < kMostEvents && input_->remaining_bytes() > 0; ++i) {
      switch (input_->ConsumeIntegralInRange(0, 9)) {
        case 0:
        case 1:
        case 2:
          Change(input_->ConsumeIntegralInRange<uint32_t>(0, 7));
          break;
        case 3:
          Answer(EncodeReplica(Changed(transport_.TrueAnswer()), {}));
          break;
        case 4:
          Answer({Slice::FromString(input_->ConsumeRandomLengthString(60))});
          break;
        case 5:
          transport_.Break();
          break;
        case 6:
          TakeRoute(/*has_follower=*/false);
          break;
        case 7:
          TakeRoute(/*has_follower=*/true);
          Await([this] { return transport_.open(); });
          break;
        default:
          // As often as it takes: images are sent when what came before has been taken.
          Await([this] {
            const bool complete = transport_.complete();
            Answer(EncodeReplica(transport_.TrueAnswer(), {}));
            return complete;
          });
      }
      Check();
    }
  }

 private:
  struct Push {
    std::shared_ptr<FakeStream> answers;
    uint64_t position = 0;   // of the change; 0: the stream to the follower was over
    bool held = false;       // the copies were complete when the change was made
    bool may_leave = false;  // confirmed since then, or the follower was dropped
  };

  // Its budgets are of the process, as a pserver's.
  static CutWriter& Writer() {
    static CutWriter* const writer = new CutWriter;
    return *writer;
  }

  template <class Condition>
  void Await(Condition condition) {
    const absl::Time end = Clock::Real()->Now() + kLongestWait;
    while (!condition() && Clock::Real()->Now() < end) {
      clock_.Advance(absl::Milliseconds(10));  // what waits between two streams
      replicator_->SeedSoon();
      std::this_thread::yield();
    }
  }
  Replication Report() {
    HostedJob report;
    replicator_->FillReport(&report);
    return report.replication();
  }
  void Change(uint32_t rows) {
    Push push;
    push.held = Report().complete();
    const size_t of = rows == 0 ? 0 : 1;
    PushPart part;
    part.rows = of == 0 ? 4 : rows;
    for (uint64_t key = 0; of == 1 && key < rows; ++key) part.keys.push_back(key);
    part.values.assign(of == 0 ? 4 : rows * 3, 1.0f);
    part.wire = {Slice::FromString(std::string(part.keys.size() * 8 + part.values.size() * 4, 0))};
    FUZZ_CHECK(shards_[of]->Apply({0, 1, ++sequences_[of], 1, {}}, &part).status == PART_OK);
    const Replicator::Mark changes = replicator_->ChangesNow();
    push.position = changes.position;
    push.answers = std::make_shared<FakeStream>();
    auto reply = std::make_unique<ReplyWriter>(push.answers, 1);
    reply->set_acknowledges(changes);
    replicator_->Pump();
    replicator_->Acknowledge(1, std::move(reply), {1});
    pushes_.push_back(std::move(push));
  }
  ReplicaHeader Changed(ReplicaHeader answer) {
    ReplicaHeader change;
    if (input_->ConsumeBool()) {
      answer.set_confirmed(input_->ConsumeIntegral<uint64_t>());
    } else if (change.ParseFromString(input_->ConsumeRandomLengthString(40))) {
      answer.MergeFrom(change);
    }
    return answer;
  }
  void Answer(Message message) {
    const auto answer = DecodeReplica(message);
    if (answer.ok() && answer->header.code() == 0) {
      const uint64_t confirmed = answer->header.confirmed();
      for (Push& push : pushes_) push.may_leave |= push.position > 0 && push.position <= confirmed;
    }
    transport_.Deliver(std::move(message));
  }
  void TakeRoute(bool has_follower) {
    if (!has_follower) {
      for (Push& push : pushes_) push.may_leave = true;
    }
    spec_.mutable_route()->set_generation(spec_.route().generation() + 1);
    spec_.set_follower(0, has_follower ? 1 : 0);
    replicator_->TakeSpec(spec_, 0);
  }
  void Check() {
    for (const Push& push : pushes_)
      FUZZ_CHECK(!push.held || push.may_leave || !push.answers->Has(1));
    const Replication report = Report();
    FUZZ_CHECK(report.seeded_bytes() <= report.seed_bytes());
  }

  FuzzedDataProvider* const input_;
  JobSpec spec_;
  FakeClock clock_;
  FollowerTransport transport_;
  SeedTurn turn_;
  std::vector<std::shared_ptr<Shard>> shards_;
  std::unique_ptr<Replicator> replicator_;
  std::vector<Push> pushes_;
  uint64_t sequences_[2] = {};  // the last of each shard
};

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider input(data, size);
  sluice::ReplicatedPserver(&input).Run();
  return 0;
}
