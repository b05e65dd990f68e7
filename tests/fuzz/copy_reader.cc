// Answers a pserver that reads the copies of its shards as any follower might: with the true images
// of shards, with changed ones, and with any other messages.
//
// Checks: reading ends, and it ends well only when the follower has said that it has dropped its
// copies.
#include "server/copies/copy_reader.h"

#include <memory>
#include <utility>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/replica_messages.h"
#include "tests/server/replicated_job.h"

namespace sluice {
namespace {

constexpr int kMostAnswers = 20;

UpdatePolicy PolicyOf(const JobSpec& spec) {
  UpdatePolicy policy;
  policy.worker_num = 2;
  policy.mode = ModeOf(spec.config().strategy());
  return policy;
}

// Answers each message of the reader with some of its own. The reading counts as cancelled from the
// beginning, so that it neither tries again nor waits for long.
class ScriptedFollower : public Transport {
 public:
  ScriptedFollower(FuzzedDataProvider* input, std::vector<Message> image, LoadProgress* progress)
      : input_(input), image_(std::move(image)), progress_(progress) {
    progress_->Cancel();
  }

  std::unique_ptr<Stream> Connect(const PserverAddress&, StreamCallbacks callbacks) override {
    callbacks_ = std::move(callbacks);
    return std::make_unique<End>(this);
  }
  absl::StatusOr<std::string> Call(const PserverAddress&, const std::string&, const std::string&,
                                   absl::Duration) override {
    return absl::UnimplementedError("no calls");
  }
  bool said_drop() const { return said_drop_; }

 private:
  struct End : Stream {
    explicit End(ScriptedFollower* follower) : follower(follower) {}
    void Send(Message message) override { follower->Answer(std::move(message)); }
    void Close() override {}
    ScriptedFollower* const follower;
  };

  void Answer(Message message) {
    const auto asked = DecodeReplica(std::move(message));
    FUZZ_CHECK(asked.ok());
    const uint64_t before = progress_->read();
    completed_ = false;
    for (int i = input_->ConsumeIntegralInRange(0, 8); i > 0; --i) Tell(Next());
    // Otherwise the reader says more, which is answered, or it is done.
    const bool goes_on = progress_->read() != before || completed_ || said_drop_;
    if (!goes_on || ++answers_ >= kMostAnswers)
      callbacks_.on_closed(absl::UnavailableError("the script ends"));
  }
  void Tell(Message message) {
    const auto decoded = DecodeReplica(message);
    said_drop_ |= decoded.ok() && decoded->header.drop();
    completed_ |= decoded.ok() && decoded->header.complete();
    callbacks_.on_message(std::move(message));
  }
  Message Next() {
    const int kind = input_->ConsumeIntegralInRange(0, 9);
    if (kind < 6 && next_ < image_.size())
      return kind == 0 ? ChangedReplica(input_, image_[next_++]) : image_[next_++];
    ReplicaHeader header;
    if (kind < 8) {
      kind == 7 ? header.set_drop(true) : header.set_complete(true);
      return EncodeReplica(header, {});
    }
    const std::string bytes = input_->ConsumeRandomLengthString(300);
    if (kind == 8 || !header.ParseFromString(bytes)) return {Slice::FromString(bytes)};
    return EncodeReplica(header, {Slice::FromString(input_->ConsumeRandomLengthString(200))});
  }

  FuzzedDataProvider* const input_;
  const std::vector<Message> image_;  // of all shards
  LoadProgress* const progress_;
  StreamCallbacks callbacks_;
  size_t next_ = 0;  // of image_
  int answers_ = 0;
  bool said_drop_ = false;
  bool completed_ = false;  // in the present answer
};

std::vector<Message> ImagesOf(const JobSpec& spec) {
  const auto primary = FirstView(LayoutsOf(spec), PolicyOf(spec), spec.route(), kSelf);
  PushToBlock(primary->FindShard(0, 0), {0, 1, 1, 1, {}}, 1.0f);
  std::vector<Message> images;
  primary->ForEachShard([&](Shard* shard) {
    for (Message& message : ImageOf(shard)) images.push_back(std::move(message));
  });
  return images;
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  FuzzedDataProvider input(data, size);
  JobSpec spec = Replicated(2, input.ConsumeBool() ? 5 : 0);
  spec.set_instance(9);
  LoadProgress progress;
  ScriptedFollower follower(&input, ImagesOf(spec), &progress);
  const auto view = FirstView(LayoutsOf(spec), PolicyOf(spec), spec.route(), kSelf);
  CopyReader::Options options;
  options.transport = &follower;
  options.follower.address = kFollower;
  options.job_id = spec.job_id();
  options.instance = spec.instance();
  options.generation = spec.route().generation();
  options.progress = &progress;
  const absl::Status read = CopyReader(options, *view).Read();
  FUZZ_CHECK(!read.ok() || follower.said_drop());
  return 0;
}
