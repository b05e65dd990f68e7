// Reads copies from a follower that the test plays: the script says what it does on each stream.
#include "server/copies/copy_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "tests/common/transport/in_process_transport.h"
#include "tests/server/replicated_job.h"

namespace sluice {
namespace {

using absl::StatusCode;

// How the follower behaves on one stream.
struct Turn {
  StatusCode refusal = StatusCode::kOk;  // not OK: its answer to the hello
  bool silent = false;                   // it never answers the hello
  bool images = true;                    // false: it says `complete` without any
  bool foreign = false;                  // it begins with the image of a table that the job lacks
  bool drops_first = false;              // it says `drop` before any image
  bool one_image = false;                // it sends the block's image in the place of every other
  enum Drop { kConfirms, kBreaks, kVoids } drop = kConfirms;  // its answer to `drop`
};

class CopyReaderTest : public testing::Test {
 protected:
  CopyReaderTest() : spec_(Replicated(1)) {
    spec_.set_instance(9);
    lost_ = FirstView(LayoutsOf(spec_), UpdatePolicy(), spec_.route(), kSelf);
    view_ = FirstView(LayoutsOf(spec_), UpdatePolicy(), spec_.route(), kSelf);
    EXPECT_EQ(PushToBlock(Block(*lost_), {0, 1, 1, 1}, 6).status, PART_OK);
    transport_.Bind(kFollower, [this](std::shared_ptr<Stream> stream, const PeerIdentity&) {
      return std::make_unique<Follower>(this, std::move(stream));
    });
  }
  ~CopyReaderTest() override { transport_.Unbind(kFollower); }

  static Shard* Block(const JobView& view) { return view.FindShard(0, 0); }

  // The follower takes its turns in this order.
  void Script(std::vector<Turn> turns) {
    MutexLock lock(&mutex_);
    turns_ = std::move(turns);
    hellos_.clear();
  }
  absl::Status Read() {
    CopyReader::Options options;
    options.transport = &transport_;
    options.follower = kFollower;
    options.job_id = spec_.job_id();
    options.instance = spec_.instance();
    options.generation = 4;
    options.progress = &progress_;
    return CopyReader(std::move(options), *view_).Read();
  }
  std::vector<ReplicaHello> hellos() {
    MutexLock lock(&mutex_);
    return hellos_;
  }
  uint64_t confirmed() {
    MutexLock lock(&mutex_);
    return confirmed_;
  }
  int drops() {
    MutexLock lock(&mutex_);
    return drops_;
  }

  JobSpec spec_;
  std::shared_ptr<const JobView> lost_, view_;  // shards of the lost pserver, and the new ones
  LoadProgress progress_;
  InProcessTransport transport_;

 private:
  struct Follower : StreamHandler {
    Follower(CopyReaderTest* test, std::shared_ptr<Stream> to)
        : test(test), stream(std::move(to)) {}
    void OnMessage(Message message) override {
      const auto decoded = DecodeReplica(std::move(message));
      ASSERT_TRUE(decoded.ok()) << decoded.status();
      const ReplicaHeader& header = decoded->header;
      if (header.has_hello()) {
        turn = test->NextTurn(header.hello());
        return AnswerHello();
      }
      test->Confirmed(header);
      if (header.drop()) AnswerDrop();
    }
    void OnClosed() override {}
    void AnswerHello() {
      ReplicaHeader answer;
      if (turn.silent) return;
      if (turn.foreign) {
        answer.mutable_seed()->set_table(7);
        return stream->Send(EncodeReplica(answer, {}));
      }
      if (turn.drops_first) {
        answer.set_drop(true);
        return stream->Send(EncodeReplica(answer, {}));
      }
      if (turn.refusal == StatusCode::kOk) {
        if (turn.images) SendImages();
        answer.set_complete(true);
      }
      answer.set_code(static_cast<int32_t>(turn.refusal));
      stream->Send(EncodeReplica(answer, {}));
    }
    void SendImages() {
      test->lost_->ForEachShard([this](Shard* shard) {
        Shard* const sent = turn.one_image ? Block(*test->lost_) : shard;
        for (const Message& message : ImageOf(sent)) stream->Send(message);
      });
    }
    void AnswerDrop() {
      ReplicaHeader answer;
      answer.set_drop(true);
      if (turn.drop == Turn::kConfirms) stream->Send(EncodeReplica(answer, {}));
      if (turn.drop == Turn::kBreaks) stream->Close();
      if (turn.drop == Turn::kVoids) {
        EXPECT_TRUE(test->progress_.CopiesAreVoid()) << "it has all copies";
      }
    }
    CopyReaderTest* const test;
    const std::shared_ptr<Stream> stream;
    Turn turn;
  };

  Turn NextTurn(const ReplicaHello& hello) {
    MutexLock lock(&mutex_);
    hellos_.push_back(hello);
    return hellos_.size() > turns_.size() ? Turn() : turns_[hellos_.size() - 1];
  }
  void Confirmed(const ReplicaHeader& header) {
    MutexLock lock(&mutex_);
    confirmed_ = std::max<uint64_t>(confirmed_, header.seed_bytes());
    drops_ += header.drop();
  }

  Mutex mutex_;
  std::vector<Turn> turns_ ABSL_GUARDED_BY(mutex_);
  std::vector<ReplicaHello> hellos_ ABSL_GUARDED_BY(mutex_);  // one for each stream
  uint64_t confirmed_ ABSL_GUARDED_BY(mutex_) = 0;            // bytes of images
  int drops_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST_F(CopyReaderTest, CopiesThatAreDroppedTooEarlyAreReadAgain) {
  Turn early;
  early.drops_first = true;
  Script({early, Turn()});
  const absl::Status status = Read();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(ValuesOf(Block(*view_)), std::vector<float>(4, -2.0f));
  EXPECT_EQ(hellos().size(), 2u);
}

TEST_F(CopyReaderTest, AnImageThatComesTwiceDoesNotStandForAnother) {
  Turn one;
  one.one_image = true;
  Script({one});
  EXPECT_EQ(Read().code(), StatusCode::kInvalidArgument);
}

TEST_F(CopyReaderTest, FillsTheShardsAndHasTheCopiesDropped) {
  const absl::Status status = Read();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(ValuesOf(Block(*view_)), std::vector<float>(4, -2.0f));
  EXPECT_EQ(Block(*view_)->LastPushed(0), 1u);
  ASSERT_EQ(hellos().size(), 1u);
  const ReplicaHello hello = hellos()[0];
  EXPECT_EQ(hello.protocol(), kDataProtocol);
  EXPECT_EQ(hello.job_id(), "job-1");
  EXPECT_EQ(hello.instance(), 9u);
  EXPECT_EQ(hello.generation(), 4u);
  EXPECT_TRUE(hello.read());
  EXPECT_EQ(drops(), 1);
  EXPECT_GT(progress_.read(), 0u);
  EXPECT_EQ(progress_.planned(), progress_.read());
  EXPECT_EQ(confirmed(), progress_.read());
}

TEST_F(CopyReaderTest, TriesAgainUntilTheFollowerSendsAllCopies) {
  Turn closed, route, incomplete;
  closed.refusal = StatusCode::kNotFound;
  route.refusal = StatusCode::kFailedPrecondition;
  incomplete.images = false;
  Script({closed, route, incomplete});
  const absl::Status status = Read();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(hellos().size(), 4u);
  EXPECT_EQ(drops(), 1) << "incomplete copies are not given back";
  EXPECT_EQ(ValuesOf(Block(*view_)), ValuesOf(Block(*lost_)));
}

TEST_F(CopyReaderTest, FinalErrorsAreNotRetried) {
  Turn misfit, full, foreign;
  misfit.refusal = StatusCode::kInvalidArgument;
  full.refusal = StatusCode::kResourceExhausted;
  foreign.foreign = true;
  for (const auto& [turn, code] : {std::make_pair(misfit, StatusCode::kInvalidArgument),
                                   std::make_pair(full, StatusCode::kResourceExhausted),
                                   std::make_pair(foreign, StatusCode::kInvalidArgument)}) {
    Script({turn});
    EXPECT_EQ(Read().code(), code);
    EXPECT_EQ(hellos().size(), 1u);
  }
  EXPECT_EQ(drops(), 0);
}

TEST_F(CopyReaderTest, CopiesThatAreGoneAfterTheDropWereDropped) {
  Turn breaks, gone;
  breaks.drop = Turn::kBreaks;
  gone.refusal = StatusCode::kNotFound;
  Script({breaks, gone});
  const absl::Status status = Read();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(hellos().size(), 2u);
  EXPECT_EQ(ValuesOf(Block(*view_)), ValuesOf(Block(*lost_)));
}

TEST_F(CopyReaderTest, VoidCopiesNeedNotBeDropped) {
  Turn voids;
  voids.drop = Turn::kVoids;
  Script({voids});
  const absl::Status status = Read();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(hellos().size(), 1u);
}

TEST_F(CopyReaderTest, CancelEndsTheReadWhateverTheFollowerDoes) {
  Turn silent, closed;
  silent.silent = true;
  closed.refusal = StatusCode::kNotFound;
  progress_.Cancel();
  for (const Turn& turn : {silent, closed}) {
    Script({turn, turn});
    EXPECT_TRUE(absl::IsCancelled(Read()));
  }
}

TEST_F(CopyReaderTest, NeedsATransport) {
  CopyReader::Options options;
  options.follower = kFollower;
  options.progress = &progress_;
  EXPECT_TRUE(absl::IsFailedPrecondition(CopyReader(std::move(options), *view_).Read()));
}

}  // namespace
}  // namespace sluice
