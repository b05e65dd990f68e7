#include "server/requests/request_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <thread>

#include "server/shards/change_log.h"
#include "tests/server/test_worker.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

// Applies parts of requests to one view, without a job around it.
class RequestPartsTest : public testing::Test {
 protected:
  explicit RequestPartsTest(Mode mode = Mode::kAsync)
      : layouts_(LayoutsOf(MakeSpec(1, true, 0))), route_(MakeSpec(1, true, 0).route()) {
    policy_.mode = mode;
    MakeView();
  }
  void MakeView() { view_ = FirstView(layouts_, policy_, route_, kSelf); }

  struct Request {
    Parts parts;
    std::string payload;
    void Add(uint32_t table, uint32_t shard, uint32_t rows) {
      parts.add_table(table);
      parts.add_shard(shard);
      parts.add_rows(rows);
    }
    template <typename T>
    void Append(const std::vector<T>& values) {
      payload.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    }
    PayloadReader Reader() const { return PayloadReader({Slice::FromString(payload)}); }
  };
  // A push of `dense` for the dense block and of `row` for key 5.
  Request PushOf(const std::vector<float>& dense, const std::vector<float>& row) {
    Request request;
    request.Add(0, 0, static_cast<uint32_t>(dense.size()));
    request.Append(dense);
    request.Add(1, layouts_[1]->ShardOf(5), 1);
    request.Append(std::vector<uint64_t>{5});
    request.Append(row);
    return request;
  }
  Request PullOfAll() {
    Request request;
    request.Add(0, 0, 0);
    request.Add(1, layouts_[1]->ShardOf(5), 1);
    request.Append(std::vector<uint64_t>{5});
    return request;
  }

  absl::Status Apply(const Request& request, uint64_t sequence, bool delta = false) {
    Push push;
    push.set_sequence(sequence);
    push.set_weight(1);
    push.set_delta(delta);
    *push.mutable_parts() = request.parts;
    PayloadReader payload = request.Reader();
    PushPart scratch;
    ReplyWriter reply(stream_, ++id_);
    PushFaults faults;
    const absl::Status applied =
        ApplyPushParts(*view_, layouts_, 0, 1, push, &payload, &scratch, &reply, &faults);
    EXPECT_TRUE(!applied.ok() || payload.remaining() == 0)
        << "the payload is consumed up to the end of the parts";
    reply.Finish(1, 0);
    return applied.ok() ? faults.not_finite : applied;
  }
  size_t Read(const Request& request) {
    ReplyWriter reply(stream_, ++id_);
    const size_t bytes = ReadPullParts(*view_, layouts_, request.parts, request.Reader(), &reply);
    reply.Finish(1, 0);
    return bytes;
  }
  const Answer& answer() { return stream_->answers[id_]; }

  const TableLayouts layouts_;
  UpdatePolicy policy_;
  Route route_;
  std::shared_ptr<const JobView> view_;
  const std::shared_ptr<FakeStream> stream_ = std::make_shared<FakeStream>();
  uint64_t id_ = 0;
};

TEST_F(RequestPartsTest, PushIsAppliedOnceAndPullsReadIt) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(Apply(PushOf({1, 2, 3, 4}, {1, 0, -1}), 1).ok());
    EXPECT_THAT(answer().errors, IsEmpty());
  }
  EXPECT_EQ(Read(PullOfAll()), 7 * sizeof(float));
  EXPECT_THAT(answer().dense, ElementsAre(0.5f, 0.0f, -0.5f, -1.0f));
  EXPECT_THAT(answer().sparse, ElementsAre(-0.25f, 0.25f, 0.75f));
}

TEST_F(RequestPartsTest, PartsOfShardsElsewhereGetAnErrorAndTheOthersAreApplied) {
  route_.add_pservers("127.0.0.1:7001");
  const uint32_t away = layouts_[1]->ShardOf(5);
  route_.mutable_tables(1)->set_owner(away, 1);
  MakeView();
  EXPECT_TRUE(Apply(PushOf({1, 2, 3, 4}, {1, 0, -1}), 1).ok());
  ASSERT_THAT(answer().errors, SizeIs(1));
  EXPECT_EQ(answer().errors[0].status(), PART_WRONG_SHARD);
  EXPECT_EQ(answer().errors[0].shard(), away);
  EXPECT_EQ(Read(PullOfAll()), 4 * sizeof(float));
  ASSERT_THAT(answer().errors, SizeIs(1));
  EXPECT_THAT(answer().dense, ElementsAre(0.5f, 0.0f, -0.5f, -1.0f));
  EXPECT_THAT(answer().sparse, IsEmpty());
}

TEST_F(RequestPartsTest, PartWithANonFiniteValueChangesNothing) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Apply(PushOf({1, 2, nan, 4}, {1, 0, -1}), 1).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_THAT(answer().errors, SizeIs(1));
  EXPECT_EQ(answer().errors[0].status(), PART_NOT_FINITE);
  Read(PullOfAll());
  EXPECT_THAT(answer().dense, ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(answer().sparse, ElementsAre(-0.25f, 0.25f, 0.75f));
}

TEST_F(RequestPartsTest, FrameOutOfOrderIsAnsweredWithTheLastSequence) {
  EXPECT_TRUE(Apply(PushOf({1, 2, 3, 4}, {1, 0, -1}), 1).ok());
  EXPECT_TRUE(Apply(PushOf({1, 2, 3, 4}, {1, 0, -1}), 3).ok());
  ASSERT_THAT(answer().errors, SizeIs(2));
  EXPECT_EQ(answer().errors[0].status(), PART_OUT_OF_ORDER);
  EXPECT_EQ(answer().errors[0].last_sequence(), 1u);
}

// The peer changes a value of its push all the time.
TEST_F(RequestPartsTest, TheFollowerGetsTheBytesThatWereApplied) {
  policy_.replicated = true;
  MakeView();
  Shard* const block = view_->FindShard(0, 0);
  const auto log = std::make_shared<ChangeLog>(1 << 20);
  ShardSeed seed;
  HeldSum held;
  block->BeginSeed(log, nullptr, &seed, &held);
  log->Release(0, 0);
  std::vector<float> ring = {1, 2, 3, 4};
  std::atomic<bool> stop{false};
  std::thread peer([&] {
    volatile float* const value = &ring[2];
    while (!stop) *value = 3, *value = 5;
  });
  Push push;
  push.set_weight(1);
  push.mutable_parts()->add_table(0);
  push.mutable_parts()->add_shard(0);
  push.mutable_parts()->add_rows(4);
  float last = kInitialDense;
  PushPart scratch;
  for (uint64_t sequence = 1; sequence <= 50000 && !HasFailure(); ++sequence) {
    push.set_sequence(sequence);
    PayloadReader payload(LentMessage({Slice(ring.data(), 4 * sizeof(float), nullptr)}));
    ReplyWriter reply(stream_, ++id_);
    PushFaults faults;
    EXPECT_TRUE(
        ApplyPushParts(*view_, layouts_, 0, 1, push, &payload, &scratch, &reply, &faults).ok());
    EXPECT_TRUE(faults.malformed.ok() && faults.not_finite.ok());
    Message change;
    EXPECT_TRUE(log->Next(&change));
    log->Confirm(log->end());
    absl::StatusOr<DecodedReplica> decoded = DecodeReplica(std::move(change));
    float followed[4] = {}, applied[4];
    if (decoded.ok() && decoded->payload.remaining() == sizeof(followed))
      decoded->payload.Copy(followed, sizeof(followed));
    block->Read(nullptr, 0, reinterpret_cast<uint8_t*>(applied));
    EXPECT_EQ(applied[2], last - 0.5f * followed[2]) << "push " << sequence;
    last = applied[2];
  }
  stop = true;
  peer.join();
}

class GeoRequestPartsTest : public RequestPartsTest {
 protected:
  GeoRequestPartsTest() : RequestPartsTest(Mode::kGeo) {}
};

TEST_F(GeoRequestPartsTest, DeltaIsAnsweredWithTheResultingValues) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(Apply(PushOf({1, 2, 3, 4}, {1, 0, -1}), 1, true).ok());
    EXPECT_THAT(answer().dense, ElementsAre(2, 3, 4, 5));
    EXPECT_THAT(answer().sparse, ElementsAre(1.25f, 0.25f, -0.75f));
  }
}

}  // namespace
}  // namespace sluice
