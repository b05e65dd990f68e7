#include "server/requests/request_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "common/config/job_validation.h"
#include "common/daemon/control_plane.h"
#include "tests/server/test_worker.h"

namespace sluice {
namespace {

constexpr uint64_t kMaxMessage = 1 << 20;

// Table 0 is dense with 4 elements, table 1 sparse with 4 shards and rows of 3 floats.
class RequestCheckTest : public testing::Test {
 protected:
  static absl::Status StatusOf(Mode mode, const FrameHeader& header, size_t payload_bytes,
                               uint64_t max_message = kMaxMessage) {
    return RequestCheck("job-1", LayoutsOf(MakeSpec(1, true, 0)), mode, max_message)
        .Check(header, payload_bytes);
  }
  static absl::StatusCode Check(Mode mode, const FrameHeader& header, size_t payload_bytes,
                                uint64_t max_message = kMaxMessage) {
    return StatusOf(mode, header, payload_bytes, max_message).code();
  }
  static FrameHeader Header() {
    FrameHeader header;
    header.set_request_id(1);
    header.set_last(true);
    return header;
  }
  static void AddPart(uint32_t table, uint32_t shard, uint32_t rows, Parts* parts) {
    parts->add_table(table);
    parts->add_shard(shard);
    parts->add_rows(rows);
  }
  // The whole dense table and two rows: 16 and 2 x (8 + 12) bytes.
  static constexpr size_t kPushBytes = 56;
  static FrameHeader PushHeader(bool delta = false) {
    FrameHeader header = Header();
    header.mutable_push()->set_sequence(1);
    header.mutable_push()->set_weight(1);
    header.mutable_push()->set_delta(delta);
    AddPart(0, 0, 4, header.mutable_push()->mutable_parts());
    AddPart(1, 3, 2, header.mutable_push()->mutable_parts());
    return header;
  }
};

TEST_F(RequestCheckTest, AStateOfTheNetworkIsBounded) {
  for (const size_t bytes : {kMaxNetStateBytes, kMaxNetStateBytes + 1}) {
    FrameHeader commit = Header(), push = PushHeader();
    commit.mutable_commit()->mutable_totals()->set_net_state(std::string(bytes, 's'));
    push.mutable_push()->mutable_totals()->set_net_state(std::string(bytes, 's'));
    const auto expected =
        bytes <= kMaxNetStateBytes ? absl::StatusCode::kOk : absl::StatusCode::kInvalidArgument;
    EXPECT_EQ(Check(Mode::kSync, commit, 0), expected);
    EXPECT_EQ(Check(Mode::kAsync, push, kPushBytes), expected);
  }
}

TEST_F(RequestCheckTest, AnEpochThatNoJobHasIsRefused) {
  FrameHeader last = Header(), beyond = Header();
  last.mutable_end_epoch()->set_epoch(kMaxEpochs - 1);
  beyond.mutable_end_epoch()->set_epoch(UINT32_MAX);
  EXPECT_EQ(Check(Mode::kAsync, last, 0), absl::StatusCode::kOk);
  EXPECT_EQ(Check(Mode::kAsync, beyond, 0), absl::StatusCode::kInvalidArgument);
}

TEST_F(RequestCheckTest, AcceptsMessagesThatFitTheTables) {
  EXPECT_EQ(Check(Mode::kAsync, PushHeader(), kPushBytes), absl::StatusCode::kOk);
  FrameHeader fused = PushHeader();
  AddPart(0, 0, 0, fused.mutable_pull()->mutable_parts());
  AddPart(1, 0, 5, fused.mutable_pull()->mutable_parts());
  EXPECT_EQ(Check(Mode::kAsync, fused, kPushBytes + 5 * 8), absl::StatusCode::kOk);
  EXPECT_EQ(Check(Mode::kSync, Header(), 0), absl::StatusCode::kOk);
}

TEST_F(RequestCheckTest, RefusesMalformedMessages) {
  const std::vector<std::function<void(FrameHeader*)>> changes = {
      [](FrameHeader* h) { h->mutable_hello(); },
      [](FrameHeader* h) { h->mutable_push()->set_sequence(0); },
      [](FrameHeader* h) { h->mutable_push()->set_weight(-1); },
      [](FrameHeader* h) { h->mutable_push()->set_weight(std::nan("")); },
      [](FrameHeader* h) { h->mutable_push()->set_weight(1e300); },
      [](FrameHeader* h) { h->mutable_push()->mutable_parts()->add_rows(1); },
      [](FrameHeader* h) { h->mutable_push()->mutable_parts()->set_table(0, 2); },
      [](FrameHeader* h) { h->mutable_push()->mutable_parts()->set_shard(1, 4); },
      [](FrameHeader* h) { h->mutable_push()->mutable_parts()->set_rows(1, 3); },
      [](FrameHeader* h) { AddPart(1, 3, 0, h->mutable_push()->mutable_parts()); },
      [](FrameHeader* h) {
        h->set_last(false);
        h->mutable_pull();
      },
      [](FrameHeader* h) {
        h->set_last(false);
        h->mutable_end_epoch();
      },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    FrameHeader header = PushHeader();
    changes[i](&header);
    EXPECT_EQ(Check(Mode::kAsync, header, kPushBytes), absl::StatusCode::kInvalidArgument) << i;
  }
  EXPECT_EQ(Check(Mode::kAsync, PushHeader(), kPushBytes - 1), absl::StatusCode::kInvalidArgument);
}

TEST_F(RequestCheckTest, RefusalOfAWeightNamesBothLimits) {
  FrameHeader header = PushHeader();
  for (const double weight : {-1.0, 1e201}) {
    header.mutable_push()->set_weight(weight);
    const absl::Status status = StatusOf(Mode::kAsync, header, kPushBytes);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << weight;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("between 0 and 1e+200"));
  }
  for (const double weight : {0.0, 1e200}) {
    header.mutable_push()->set_weight(weight);
    EXPECT_EQ(Check(Mode::kAsync, header, kPushBytes), absl::StatusCode::kOk) << weight;
  }
}

TEST_F(RequestCheckTest, RefusesPartsFarLargerThanTheirPayload) {
  FrameHeader header = Header();
  header.mutable_push()->set_sequence(1);
  header.mutable_push()->set_weight(1);
  for (uint32_t s = 0; s < 4; ++s) {
    AddPart(1, s, UINT32_MAX, header.mutable_push()->mutable_parts());
    AddPart(1, s, UINT32_MAX, header.mutable_pull()->mutable_parts());
  }
  EXPECT_EQ(Check(Mode::kAsync, header, 0), absl::StatusCode::kInvalidArgument);
}

TEST_F(RequestCheckTest, RefusesMessagesForAnotherMode) {
  FrameHeader commit = Header(), step_pull = Header(), more = PushHeader();
  commit.mutable_commit()->set_sequence(1);
  step_pull.mutable_pull()->set_applied_sequence(1);
  more.mutable_push()->set_more(true);
  const struct {
    FrameHeader header;
    size_t bytes;
    bool sync, async, geo;
  } cases[] = {
      {PushHeader(), kPushBytes, true, true, false},
      {PushHeader(true), kPushBytes, false, false, true},
      {more, kPushBytes, false, true, false},
      {commit, 0, true, false, false},
      {step_pull, 0, true, false, false},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.header.ShortDebugString());
    EXPECT_EQ(Check(Mode::kSync, c.header, c.bytes) == absl::StatusCode::kOk, c.sync);
    EXPECT_EQ(Check(Mode::kAsync, c.header, c.bytes) == absl::StatusCode::kOk, c.async);
    EXPECT_EQ(Check(Mode::kGeo, c.header, c.bytes) == absl::StatusCode::kOk, c.geo);
  }
}

TEST_F(RequestCheckTest, RefusesAPullWhoseAnswerWouldBeTooLong) {
  FrameHeader pull = Header();
  AddPart(1, 0, 1000, pull.mutable_pull()->mutable_parts());  // 12,000 bytes of values
  EXPECT_EQ(Check(Mode::kAsync, pull, 8000, 20000), absl::StatusCode::kOk);
  EXPECT_EQ(Check(Mode::kAsync, pull, 8000, 12000), absl::StatusCode::kInvalidArgument);
  // All parts of a pull have a limit as well.
  FrameHeader all = Header();
  const uint32_t rows = RequestCheck::kMaxPullBytes / 12 / 3;
  for (uint32_t s = 0; s < 3; ++s) AddPart(1, s, rows, all.mutable_pull()->mutable_parts());
  EXPECT_EQ(Check(Mode::kAsync, all, size_t{3} * rows * 8, UINT64_MAX), absl::StatusCode::kOk);
  AddPart(1, 3, 3, all.mutable_pull()->mutable_parts());
  EXPECT_EQ(Check(Mode::kAsync, all, (size_t{3} * rows + 3) * 8, UINT64_MAX),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice
