#include "server/service/exchange_handler.h"

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/security/refusal_reason.h"

namespace sluice {
namespace {
std::atomic<uint64_t> next_stream{1};

// A stream whose messages are counted.
class CountedStream : public Stream {
 public:
  CountedStream(std::shared_ptr<Stream> stream, std::shared_ptr<std::atomic<uint64_t>> bytes)
      : stream_(std::move(stream)), bytes_(std::move(bytes)) {}
  void Send(Message message) override {
    bytes_->fetch_add(MessageSize(message), std::memory_order_relaxed);
    stream_->Send(std::move(message));
  }
  void Close() override { stream_->Close(); }

 private:
  const std::shared_ptr<Stream> stream_;
  const std::shared_ptr<std::atomic<uint64_t>> bytes_;
};

}  // namespace

ExchangeHandler::ExchangeHandler(std::shared_ptr<Stream> stream, FindJob find_job,
                                 DataPlaneCounters* counters, OnRefused on_refused,
                                 RankStreams* rank_streams)
    : stream_(std::make_shared<CountedStream>(std::move(stream), counters->bytes_out)),
      find_job_(std::move(find_job)),
      counters_(counters),
      on_refused_(std::move(on_refused)),
      rank_streams_(rank_streams) {
  // Relaxed: only uniqueness matters.
  caller_.stream = next_stream.fetch_add(1, std::memory_order_relaxed);
  counters_->streams.fetch_add(1, std::memory_order_relaxed);
}

ExchangeHandler::~ExchangeHandler() {
  OnClosed();
  counters_->streams.fetch_sub(1, std::memory_order_relaxed);
}

void ExchangeHandler::OnClosed() {
  closed_ = true;
  if (counted_.has_value()) rank_streams_->Ended(*counted_, caller_.stream);
  counted_.reset();
  if (std::shared_ptr<JobTables> job = job_.lock()) job->requests()->ForgetStream(caller_.stream);
  job_.reset();
}

void ExchangeHandler::OnMessage(Message message) {
  const size_t bytes = MessageSize(message);
  Take(bytes, [&] { return DecodeFrame(std::move(message)); });
}

void ExchangeHandler::OnLent(const LentMessage& message) {
  Take(message.size(), [&] { return DecodeLentFrame(message); });
}

void ExchangeHandler::Take(size_t bytes, Decode decode) {
  try {
    TakeFrame(bytes, decode);
  } catch (const std::bad_alloc&) {
    // The worker opens a new stream and resends its unanswered requests.
    RefuseAndClose(absl::ResourceExhaustedError(
                       "no memory for a message at this pserver; use more pservers or a machine "
                       "with more memory"),
                   request_id_);
  }
}

void ExchangeHandler::TakeFrame(size_t bytes, Decode decode) {
  // Messages of a stream that was refused may still be on their way.
  if (closed_) return;
  counters_->messages_in.fetch_add(1, std::memory_order_relaxed);
  counters_->bytes_in.fetch_add(bytes, std::memory_order_relaxed);
  absl::StatusOr<DecodedFrame> frame = decode();
  if (!frame.ok()) {
    RefuseAndClose(frame.status(), 0);
    return;
  }
  const uint64_t request_id = frame->header.request_id();
  const absl::Status status = HandleFrame(*std::move(frame));
  scratch_.Shrink();
  if (!status.ok()) RefuseAndClose(status, request_id);
}

absl::Status ExchangeHandler::HandleFrame(DecodedFrame frame) {
  const FrameHeader& header = frame.header;
  if (job_id_.empty()) return HandleHello(header);
  const bool last = header.last();
  if (!in_request_) {
    request_id_ = header.request_id();
    reply_ = std::make_unique<ReplyWriter>(stream_, request_id_);
  } else if (header.request_id() != request_id_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "request ", header.request_id(), " begins before request ", request_id_, " is complete"));
  }
  in_request_ = !last;
  // The request was refused at an earlier message, so its remaining messages are skipped.
  if (reply_ == nullptr) return absl::OkStatus();
  // Held for one message only: open streams must not keep the tables of a job that was dropped.
  std::shared_ptr<JobTables> job = job_.lock();
  absl::Status malformed;
  const absl::Status status =
      job != nullptr
          ? job->requests()->Handle(caller_, std::move(frame), &scratch_, &reply_, &malformed)
          : absl::NotFoundError(absl::StrCat("job ", job_id_, " is not open on this pserver"));
  if (!malformed.ok()) Tell(malformed);
  if (status.ok()) return status;
  counters_->refused.fetch_add(1, std::memory_order_relaxed);
  Tell(status);
  if (reply_ != nullptr) reply_->Refuse(status, job != nullptr ? job->generation() : 0);
  reply_ = nullptr;
  return absl::OkStatus();
}

absl::Status ExchangeHandler::HandleHello(const FrameHeader& header) {
  if (!header.has_hello()) {
    return absl::InvalidArgumentError("the first request of a stream must be a hello");
  }
  const sluice::Hello& hello = header.hello();
  if (hello.protocol() != kDataProtocol) {
    return absl::InvalidArgumentError(
        absl::StrCat("data protocol ", hello.protocol(), "; this pserver speaks ", kDataProtocol,
                     "; use the same version of sluice on all hosts"));
  }
  SLUICE_RETURN_IF_ERROR(CheckJobIdOfHello(hello.job_id()));
  // Before the checks below, so that the audit log can say who was refused.
  job_id_ = hello.job_id();
  instance_ = hello.instance();
  caller_.rank = hello.rank();
  caller_.incarnation = hello.incarnation();
  std::shared_ptr<JobTables> job = find_job_(hello.job_id());
  if (job == nullptr || job->instance() != hello.instance()) {
    return Because(RefusalReason::kJob,
                   absl::NotFoundError(absl::StrCat("this instance of job ", hello.job_id(),
                                                    " is not open on this pserver")));
  }
  SLUICE_RETURN_IF_ERROR(job->requests()->Hello(caller_, header.generation(), hello));
  job_ = job;
  // After the hello is accepted: only a caller with the rank's pass may push out its streams.
  CountStream({hello.job_id(), hello.instance(), hello.rank()});
  ReplyWriter(stream_, header.request_id()).Finish(job->generation(), 0);
  return absl::OkStatus();
}

void ExchangeHandler::CountStream(const RankStreams::Rank& rank) {
  if (rank_streams_ == nullptr) return;
  counted_ = rank;
  const std::shared_ptr<Stream> oldest = rank_streams_->Open(rank, caller_.stream, stream_);
  if (oldest == nullptr) return;
  oldest->Close();
  Tell(absl::ResourceExhaustedError(absl::StrCat(
      "the rank has more than ", RankStreams::kMaxPerRank, " streams; its oldest one is closed")));
}

void ExchangeHandler::Tell(const absl::Status& refusal) {
  if (on_refused_ == nullptr) return;
  // On a stream it always means that the peer asks for more than it may have, or than there is.
  const bool room = absl::IsResourceExhausted(refusal);
  on_refused_({room ? Because(RefusalReason::kRoom, refusal) : refusal, job_id_, instance_, "rank",
               caller_.rank});
}

void ExchangeHandler::RefuseAndClose(const absl::Status& status, uint64_t request_id) {
  counters_->refused.fetch_add(1, std::memory_order_relaxed);
  Tell(status);
  // OnClosed before Close: the job forgets the stream, so that no parked pull is answered on it.
  ReplyWriter(stream_, request_id).Refuse(status, 0);
  OnClosed();
  stream_->Close();
}

std::shared_ptr<Stream> RankStreams::Open(const Rank& rank, uint64_t number,
                                          std::shared_ptr<Stream> stream) {
  MutexLock lock(&mutex_);
  auto& streams = open_[rank];
  streams[number] = std::move(stream);
  if (streams.size() <= kMaxPerRank) return nullptr;
  // Numbers rise, so the first one is the oldest. It is closed by the caller: Close may call back,
  // and must not do so under this lock.
  std::shared_ptr<Stream> oldest = std::move(streams.begin()->second);
  streams.erase(streams.begin());
  return oldest;
}

void RankStreams::Ended(const Rank& rank, uint64_t number) {
  MutexLock lock(&mutex_);
  const auto it = open_.find(rank);
  if (it == open_.end()) return;
  it->second.erase(number);
  if (it->second.empty()) open_.erase(it);
}

}  // namespace sluice
