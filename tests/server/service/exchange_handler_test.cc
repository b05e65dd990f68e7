#include "server/service/exchange_handler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <memory>
#include <new>
#include <random>

#include "common/security/refusal_reason.h"
#include "tests/common/base/fake_clock.h"
#include "tests/server/replicated_job.h"
#include "tests/server/test_worker.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ExchangeHandlerTest : public testing::Test {
 protected:
  ExchangeHandlerTest()
      : spec_(MakeSpec(2, true, 0)),
        job_(JobTables::Open(spec_, kSelf, TestResources(&clock_)).value()) {}

  // Sends the messages in order on a new stream.
  std::shared_ptr<FakeStream> Speak(const std::vector<Message>& messages) {
    auto stream = std::make_shared<FakeStream>();
    ExchangeHandler handler(
        stream, [this](const std::string& id) { return id == "job-1" ? job_ : nullptr; },
        &counters_, [this](const StreamRefusal& refusal) { refused_.push_back(refusal.why); });
    for (const Message& message : messages) handler.OnMessage(message);
    return stream;
  }
  static Message HelloOf(const std::string& job, uint32_t rank, uint32_t protocol = kDataProtocol) {
    FrameHeader header;
    header.set_request_id(7);
    header.set_last(true);
    header.mutable_hello()->set_protocol(protocol);
    header.mutable_hello()->set_job_id(job);
    header.mutable_hello()->set_rank(rank);
    header.mutable_hello()->set_incarnation(1);
    return EncodeFrame(header, {});
  }

  FakeClock clock_;
  JobSpec spec_;
  std::shared_ptr<JobTables> job_;
  DataPlaneCounters counters_;
  std::vector<absl::Status> refused_;
};

TEST_F(ExchangeHandlerTest, StreamMustStartWithAMatchingHello) {
  EXPECT_EQ(Speak({HelloOf("job-1", 1)})->answers[7].code, 0);
  const struct {
    Message message;
    int code;
    const char* says;
  } cases[] = {
      {HelloOf("job-2", 0), 5, "job job-2 is not open on this pserver"},
      {HelloOf("job-1", 2), 3, "no active rank 2"},
      {HelloOf("job-1", 0, 9), 3, "data protocol 9"},
      {HelloOf(std::string(1 << 19, 'j'), 0), 3, "at most 256"},
  };
  for (const auto& c : cases) {
    auto stream = Speak({c.message});
    EXPECT_EQ(stream->answers[7].code, c.code);
    EXPECT_THAT(stream->answers[7].message, HasSubstr(c.says));
    EXPECT_TRUE(stream->closed);
  }
  FrameHeader pull;
  pull.set_request_id(3);
  pull.set_last(true);
  pull.mutable_pull();
  auto stream = Speak({EncodeFrame(pull, {}), HelloOf("job-1", 0)});
  EXPECT_EQ(stream->answers[3].code, static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(stream->answers.count(7), 0u);  // closed: later messages are not read
}

TEST_F(ExchangeHandlerTest, CountsTheBytesOfMessagesAndAnswers) {
  const Message hello = HelloOf("job-1", 1);
  const size_t bytes = MessageSize(hello);
  EXPECT_EQ(Speak({hello})->answers[7].code, 0);
  EXPECT_EQ(counters_.bytes_in, bytes);
  EXPECT_EQ(counters_.messages_in, 1u);
  const uint64_t sent = *counters_.bytes_out;
  EXPECT_GT(sent, 0u);
  Speak({HelloOf("job-1", 1)});
  EXPECT_EQ(*counters_.bytes_out, 2 * sent);
}

TEST_F(ExchangeHandlerTest, AHelloWithoutThePassOfItsRankChangesNothing) {
  const JobPasses passes(JobPassKey(std::string(32, 'k'), spec_.instance()));
  spec_.set_pass_key(JobPassKey(std::string(32, 'k'), spec_.instance()));
  job_ = JobTables::Open(spec_, kSelf, TestResources(&clock_)).value();
  const auto hello = [&](uint32_t rank, uint64_t incarnation, const std::string& pass) {
    FrameHeader header;
    header.set_request_id(7);
    header.set_last(true);
    header.mutable_hello()->set_protocol(kDataProtocol);
    header.mutable_hello()->set_job_id("job-1");
    header.mutable_hello()->set_rank(rank);
    header.mutable_hello()->set_incarnation(incarnation);
    header.mutable_hello()->set_pass(pass);
    return Speak({EncodeFrame(header, {})})->answers[7].code;
  };
  constexpr int kDenied = static_cast<int>(absl::StatusCode::kPermissionDenied);
  const std::string first = passes.OfWorker(0, 1);
  EXPECT_EQ(hello(0, 1, ""), kDenied);
  EXPECT_EQ(hello(1, 1, first), kDenied) << "the pass of another rank";
  EXPECT_EQ(refused_.size(), 2u);
  // A later incarnation would fence the present one.
  EXPECT_EQ(hello(0, 2, first), kDenied) << "the pass of another incarnation";
  EXPECT_EQ(hello(0, 1, first), 0) << "it is not fenced";
  EXPECT_EQ(hello(0, 2, passes.OfWorker(0, 2)), 0);
  EXPECT_EQ(hello(0, 1, first), static_cast<int>(absl::StatusCode::kAborted)) << "a replayed hello";
  EXPECT_EQ(refused_.size(), 4u);
}

TEST_F(ExchangeHandlerTest, ARankWithTooManyStreamsLosesItsOldestAndItsNewestWorks) {
  RankStreams rank_streams;
  std::vector<std::shared_ptr<FakeStream>> streams;
  std::vector<std::unique_ptr<ExchangeHandler>> handlers;
  const auto open = [&](uint32_t rank) {
    streams.push_back(std::make_shared<FakeStream>());
    handlers.push_back(std::make_unique<ExchangeHandler>(
        streams.back(), [this](const std::string&) { return job_; }, &counters_,
        [this](const StreamRefusal& refusal) { refused_.push_back(refusal.why); }, &rank_streams));
    handlers.back()->OnMessage(HelloOf("job-1", rank));
    EXPECT_EQ(streams.back()->answers[7].code, 0);
  };
  open(1);
  for (size_t i = 0; i < RankStreams::kMaxPerRank; ++i) open(0);
  for (const auto& stream : streams) EXPECT_FALSE(stream->closed);
  EXPECT_TRUE(refused_.empty());
  open(0);
  EXPECT_FALSE(streams[0]->closed) << "another rank";
  EXPECT_TRUE(streams[1]->closed);
  for (size_t i = 2; i < streams.size(); ++i) EXPECT_FALSE(streams[i]->closed) << i;
  ASSERT_EQ(refused_.size(), 1u);
  EXPECT_EQ(refused_[0].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused_[0]), RefusalReason::kRoom);
  handlers[1].reset();
  handlers[2].reset();
  open(0);
  EXPECT_EQ(refused_.size(), 1u) << "a stream has ended";
}

TEST_F(ExchangeHandlerTest, RefusesAHelloForAnotherInstanceOfTheJob) {
  JobSpec other = spec_;
  other.set_instance(spec_.instance() + 1);
  TestWorker worker(other, job_, 0);
  EXPECT_EQ(worker.hello().code, 5);
  EXPECT_EQ(TestWorker(spec_, job_, 0).hello().code, 0);
}

TEST_F(ExchangeHandlerTest, FencedIncarnationIsToldToStop) {
  TestWorker young(spec_, job_, 0, 3);
  TestWorker old(spec_, job_, 0, 2);
  EXPECT_EQ(young.hello().code, 0);
  EXPECT_EQ(old.hello().code, 10);
  EXPECT_THAT(old.hello().message, HasSubstr("fenced by incarnation 3"));
}

using Values = std::pair<std::vector<float>, Rows>;

// Three steps of two workers, whose messages are lent or not, and what the tables hold then.
Values Train(const JobSpec& spec, bool lent, Clock* clock) {
  const std::shared_ptr<JobTables> job = JobTables::Open(spec, kSelf, TestResources(clock)).value();
  TestWorker first(spec, job, 0), second(spec, job, 1);
  const StrategyConfig& strategy = spec.config().strategy();
  for (uint64_t step = 1; step <= 3; ++step) {
    for (TestWorker* worker : {&first, &second}) {
      if (lent) worker->LendMessages();
      const float x = static_cast<float>(step);
      const uint64_t id = worker->Push({.sequence = step,
                                        .weight = 2,
                                        .dense = {x, 2, 3, -4},
                                        .rows = {{5, {1, 0, -x}}, {6, {x, x, 2}}, {7, {0, 0, x}}},
                                        .delta = strategy.a_sync_configs().k_steps() > 0,
                                        .in_chunks = step == 2});
      EXPECT_EQ(worker->Get(id).code, 0) << worker->Get(id).message;
      EXPECT_EQ(worker->Get(id).errors.size(), 0u);
      if (!strategy.a_sync()) worker->Commit(step);
    }
  }
  return {first.Dense(), second.Sparse({5, 6, 7, 8})};
}

TEST_F(ExchangeHandlerTest, LentMessagesHaveTheEffectOfOthers) {
  const Values initial = {{1, 1, 1, 1}, {}};
  for (const JobSpec& spec : {MakeSpec(2, true, 0), MakeSpec(2, false, 0), MakeSpec(2, true, 5),
                              Replicated(2), Replicated(2, 5)}) {
    const Values values = Train(spec, true, &clock_);
    EXPECT_NE(values.first, initial.first);
    EXPECT_EQ(values.second.size(), 4u);
    EXPECT_EQ(values, Train(spec, false, &clock_));
  }
}

TEST_F(ExchangeHandlerTest, LentValuesThatAreNotFiniteChangeNothing) {
  TestWorker worker(spec_, job_, 0);
  worker.LendMessages();
  const uint64_t id = worker.Push({.dense = {1, NAN, 1, 1}, .rows = {{5, {1, 1, 1}}}});
  ASSERT_EQ(worker.Get(id).errors.size(), 1u);
  EXPECT_EQ(worker.Get(id).errors[0].status(), PART_NOT_FINITE);
  EXPECT_THAT(worker.Dense(), ElementsAre(1, 1, 1, 1));
}

TEST_F(ExchangeHandlerTest, ARefusedPartKeepsNoMemoryOfItsMessage) {
  TestWorker worker(spec_, job_, 0);
  // The dense part alone: another part would take its place.
  FrameHeader header = DecodeFrame(worker.EncodePush({.dense = {1, 1, 1, 1}})).value().header;
  Parts* const parts = header.mutable_push()->mutable_parts();
  parts->clear_table();
  parts->clear_shard();
  parts->clear_rows();
  parts->add_table(0);
  parts->add_shard(0);
  parts->add_rows(4);
  const auto values = std::make_shared<std::vector<float>>(std::vector<float>{1, NAN, 1, 1});
  worker.handler()->OnMessage(
      EncodeFrame(header, {Slice(values->data(), 4 * sizeof(float), values)}));
  ASSERT_EQ(worker.Get(header.request_id()).errors.size(), 1u);
  EXPECT_EQ(worker.Get(header.request_id()).errors[0].status(), PART_NOT_FINITE);
  EXPECT_EQ(values.use_count(), 1) << "the stream may be silent from now on";
}

TEST_F(ExchangeHandlerTest, UndecodableBytesCloseTheStream) {
  auto stream = Speak({{Slice::FromString("\x16\x03\x01 hello")}});
  EXPECT_EQ(stream->answers[0].code, 3);
  EXPECT_TRUE(stream->closed);
}

TEST_F(ExchangeHandlerTest, RefusesAPayloadThatDoesNotFitItsParts) {
  TestWorker worker(spec_, job_, 0);
  Message message = worker.EncodePush({.dense = {1, 1, 1, 1}});
  DecodedFrame frame = DecodeFrame(message).value();
  frame.header.mutable_push()->mutable_parts()->set_rows(2, 1);
  worker.handler()->OnMessage(
      EncodeFrame(frame.header, {Slice::FromString(std::string(16, '\0'))}));
  const Answer& answer = worker.Get(frame.header.request_id());
  EXPECT_EQ(answer.code, 3);
  EXPECT_THAT(answer.message, testing::AllOf(HasSubstr("16 bytes"), HasSubstr("36")));
  EXPECT_THAT(worker.Dense(), ElementsAre(1, 1, 1, 1));
}

// Keys 1 .. n, with gradients of 1.
Rows RowsOf(uint64_t n) {
  Rows rows;
  for (uint64_t key = 1; key <= n; ++key) rows[key] = {1, 1, 1};
  return rows;
}

// A job whose feature has 100 values, in batches of 8 examples: its ranks may buffer 4 MiB and a
// little, which is 209,000 keys in sync and 131,000 in sums.
JobSpec SpecOfFewKeys(bool a_sync) {
  JobSpec spec = MakeSpec(2, a_sync, 0);
  spec.mutable_config()->mutable_train()->set_batch_size(8);
  spec.mutable_config()->add_features()->mutable_categorical()->set_hash_buckets(100);
  return spec;
}

TEST_F(ExchangeHandlerTest, ARankCannotBufferFarMoreThanItsStepNeeds) {
  spec_ = SpecOfFewKeys(/*a_sync=*/false);
  job_ = JobTables::Open(spec_, kSelf, TestResources(&clock_)).value();
  TestWorker honest(spec_, job_, 1), other(spec_, job_, 0);
  for (uint64_t step = 1; step <= 2; ++step) {
    refused_.clear();
    TestWorker::PushArgs args{step, 1, {1, 1, 1, 1}, RowsOf(250'000)};
    const uint64_t before = counters_.refused.load();
    const auto stream = Speak({HelloOf("job-1", 0), other.EncodePush(args)});
    ASSERT_EQ(stream->answers.size(), 2u);
    stream->answers.erase(7);  // of the hello
    const Answer& refused = stream->answers.begin()->second;
    EXPECT_EQ(refused.code, static_cast<int>(absl::StatusCode::kResourceExhausted));
    for (const char* part : {"rank 0", "'e'", "4.0 MiB", "batch_size"})
      EXPECT_THAT(refused.message, HasSubstr(part));
    EXPECT_FALSE(stream->closed);
    EXPECT_EQ(counters_.refused.load(), before + 1);
    ASSERT_EQ(refused_.size(), 1u) << "recorded in the audit log";
    EXPECT_EQ(ReasonOf(refused_[0]), RefusalReason::kRoom);
    // The rank has not pushed everything, so it cannot commit.
    EXPECT_EQ(other.Get(other.Commit(step)).code,
              static_cast<int>(absl::StatusCode::kInvalidArgument));
    EXPECT_EQ(job_->Report().error(), "");
    // The other rank has a budget of its own. The first one continues with what fits.
    EXPECT_EQ(honest.Get(honest.Push({step, 1, {1, 1, 1, 1}, RowsOf(8)})).code, 0);
    args.rows = RowsOf(8);
    EXPECT_EQ(other.Get(other.Push(args)).code, 0);
    other.Commit(step);
    const uint64_t commit = honest.Commit(step);
    EXPECT_TRUE(honest.Get(commit).done) << "the step is closed, and its room is free again";
    EXPECT_EQ(honest.Get(commit).code, 0);
  }
  // What those steps took is there again.
  EXPECT_EQ(other.Get(other.Push({3, 1, {1, 1, 1, 1}, RowsOf(200'000)})).code, 0);
}

TEST_F(ExchangeHandlerTest, RanksWhoseKeysHaveNoKnownNumberMayBufferMuch) {
  spec_ = MakeSpec(1, false, 0);
  job_ = JobTables::Open(spec_, kSelf, TestResources(&clock_)).value();
  TestWorker worker(spec_, job_, 0);
  EXPECT_EQ(worker.Get(worker.Push({1, 1, {1, 1, 1, 1}, RowsOf(250'000)})).code, 0);
  EXPECT_EQ(worker.Get(worker.Commit(1)).code, 0);
}

TEST_F(ExchangeHandlerTest, FramesThatWaitForOthersAreBoundedByRank) {
  spec_ = SpecOfFewKeys(/*a_sync=*/true);
  spec_.mutable_config()->mutable_strategy()->mutable_a_sync_configs()->set_gradients_to_wait(3);
  job_ = JobTables::Open(spec_, kSelf, TestResources(&clock_)).value();
  TestWorker greedy(spec_, job_, 0), honest(spec_, job_, 1);
  const auto push = [](TestWorker* worker, uint64_t sequence, uint64_t keys) {
    return worker->Get(worker->Push({sequence, 1, {1, 1, 1, 1}, RowsOf(keys)})).code;
  };
  const int no_room = static_cast<int>(absl::StatusCode::kResourceExhausted);
  for (const uint64_t round : {0, 1}) {
    EXPECT_EQ(push(&greedy, 2 * round + 1, 100'000), 0);
    EXPECT_EQ(push(&greedy, 2 * round + 2, 100'000), no_room);
    EXPECT_EQ(push(&honest, round + 1, 8), 0);
    EXPECT_EQ(push(&greedy, 2 * round + 2, 8), 0) << "the third frame, after which none waits";
  }
  EXPECT_EQ(job_->Report().error(), "");
}

TEST_F(ExchangeHandlerTest, LargeAnswersComeInChunksCutAtParts) {
  JobSpec spec = MakeSpec(1, true, 0);
  // 3 blocks of 1 MiB and a small one.
  spec.mutable_tables(0)->set_shape(0, 13 * (1 << 18) + 100);
  for (int b = 0; b < 13; ++b) spec.mutable_route()->mutable_tables(0)->add_owner(0);
  job_ = JobTables::Open(spec, kSelf, TestResources(&clock_)).value();
  TestWorker worker(spec, job_, 0);
  FrameHeader header;
  header.set_request_id(50);
  header.set_generation(1);
  header.set_last(true);
  Parts* parts = header.mutable_pull()->mutable_parts();
  for (int b = 0; b < 14; ++b) {
    parts->add_table(0);
    parts->add_shard(b);
    parts->add_rows(0);
  }
  worker.handler()->OnMessage(EncodeFrame(header, {}));
  const Answer& answer = worker.Get(50);
  EXPECT_TRUE(answer.done);
  EXPECT_EQ(answer.dense.size(), size_t{13 * (1 << 18) + 100});
  EXPECT_EQ(answer.messages, 14u);
  EXPECT_LE(answer.largest_message, kChunkBytes + 4096);
  for (float v : answer.dense) ASSERT_EQ(v, 1.0f);
}

TEST_F(ExchangeHandlerTest, RefusesAMessageWhenMemoryRunsOut) {
  auto stream = std::make_shared<FakeStream>();
  ExchangeHandler handler(
      stream, [](const std::string&) -> std::shared_ptr<JobTables> { throw std::bad_alloc(); },
      &counters_);
  handler.OnMessage(HelloOf("job-1", 1));
  ASSERT_EQ(stream->answers.size(), 1u);
  EXPECT_EQ(stream->answers.begin()->second.code, 8);
  EXPECT_TRUE(stream->closed);
}

TEST_F(ExchangeHandlerTest, RandomBytesChangeNothing) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed);
    std::string bytes(random() % 200, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (seed % 2 == 0 && bytes.size() > 5) bytes.replace(0, 5, "\x0dSLU1");
    Speak({HelloOf("job-1", 0), {Slice::FromString(bytes)}});
  }
  EXPECT_EQ(job_->Report().frames_applied(), 0u);
  EXPECT_EQ(job_->Report().rows(), 0u);
}

// A valid frame with some bytes changed is applied or refused. A refused frame changes nothing.
TEST_F(ExchangeHandlerTest, MutatedFramesNeverCrashAndNeverHalfApply) {
  int refused = 0, applied = 0;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    job_ = JobTables::Open(spec_, kSelf, TestResources(&clock_)).value();
    TestWorker worker(spec_, job_, 0);
    Message message = worker.EncodePush({.dense = {1, 2, 3, 4},
                                         .rows = {{5, {1, 1, 1}}, {6, {2, 2, 2}}, {77, {3, 3, 3}}},
                                         .pull_dense = true});
    std::string bytes;
    for (const Slice& s : message) bytes.append(reinterpret_cast<const char*>(s.data()), s.size());
    for (int n = 1 + random() % 3; n > 0; --n) {
      const size_t at =
          random() % (seed % 3 == 0 ? bytes.size() : std::min<size_t>(bytes.size(), 90));
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes[at] ^= 1 << random() % 8;
          break;
        case 2:
          bytes.erase(at, 1 + random() % 4);
          break;
        default:
          bytes.insert(at, 1, static_cast<char>(random()));
      }
      if (bytes.empty()) bytes = "x";
    }
    worker.handler()->OnMessage({Slice::FromString(bytes)});
    // There is no answer if the changed bytes say that more messages follow.
    bool whole_refusal = false;
    for (const auto& [id, answer] : worker.stream()->answers) whole_refusal |= answer.code != 0;
    TestWorker observer(spec_, job_, 1);
    const bool changed =
        job_->Report().rows() != 0 || observer.Dense() != std::vector<float>{1, 1, 1, 1};
    if (whole_refusal) {
      EXPECT_FALSE(changed);
    }
    ++(whole_refusal ? refused : applied);
  }
  EXPECT_GT(refused, 300);
  EXPECT_GT(applied, 300);
}

TEST(RankStreamsTest, AStreamTooManyClosesTheOldestOfItsRankAlone) {
  RankStreams streams;
  const RankStreams::Rank rank{"job-1", 7, 0}, other{"job-1", 7, 1};
  std::deque<std::shared_ptr<Stream>> opened;  // its elements stay where they are
  const auto open = [&](const RankStreams::Rank& of) {
    opened.push_back(std::make_shared<FakeStream>());
    return streams.Open(of, opened.size(), opened.back());
  };
  for (size_t i = 0; i < RankStreams::kMaxPerRank; ++i) {
    EXPECT_EQ(open(rank), nullptr);
    EXPECT_EQ(open(other), nullptr);
  }
  EXPECT_EQ(open(rank), opened[0]);
  EXPECT_EQ(open(rank), opened[2]);
  EXPECT_EQ(open({"job-1", 8, 0}), nullptr) << "another instance of the job";
}

TEST(RankStreamsTest, StreamsThatHaveEndedLeaveRoom) {
  RankStreams streams;
  const RankStreams::Rank rank{"job-1", 7, 0};
  for (uint64_t number = 1; number < 100; ++number) {
    EXPECT_EQ(streams.Open(rank, number, std::make_shared<FakeStream>()), nullptr);
    if (number >= RankStreams::kMaxPerRank)
      streams.Ended(rank, number - RankStreams::kMaxPerRank + 1);
  }
  streams.Ended(rank, 1000);
}

}  // namespace
}  // namespace sluice
