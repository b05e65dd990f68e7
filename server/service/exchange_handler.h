// Decodes the messages of one worker's stream, assembles them into requests, and refuses invalid
// ones.
//
// Thread safety: a handler belongs to one thread. The transport calls OnMessage and OnClosed one at
// a time (transport.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/transport/transport.h"
#include "server/service/peer_refusals.h"
#include "server/tables/job_tables.h"

namespace sluice {

// Counts the traffic of the process's data plane. Relaxed: only sums are read.
struct DataPlaneCounters {
  std::atomic<uint64_t> streams{0};
  std::atomic<uint64_t> messages_in{0};
  std::atomic<uint64_t> bytes_in{0};
  // Shared, because answers may be sent after the handler of their stream is gone.
  const std::shared_ptr<std::atomic<uint64_t>> bytes_out =
      std::make_shared<std::atomic<uint64_t>>(0);
  std::atomic<uint64_t> refused{0};
  std::atomic<uint64_t> streams_cut{0};  // their clients did not read
};

// Bounds the open streams of each rank of a job: a new one closes the oldest.
//
// A worker has one stream to each pserver, and for a moment two, when it connects again before the
// pserver has noticed the end of the earlier one. So a worker is never locked out by its own
// streams, and whoever has the pass of one rank cannot take the streams of all.
//
// Thread safety: safe from any thread.
class RankStreams {
 public:
  static constexpr size_t kMaxPerRank = 4;

  struct Rank {
    std::string job_id;
    uint64_t instance = 0;
    uint32_t rank = 0;

    bool operator<(const Rank& other) const {
      return std::tie(job_id, instance, rank) < std::tie(other.job_id, other.instance, other.rank);
    }
  };

  // The rank has opened a stream. Returns the stream that the caller must close, without a lock;
  // null when there is room. `number`: of the stream; later streams have greater ones.
  std::shared_ptr<Stream> Open(const Rank& rank, uint64_t number, std::shared_ptr<Stream> stream);
  // The stream has ended. Streams that are not open are ignored.
  void Ended(const Rank& rank, uint64_t number);

 private:
  Mutex mutex_;
  std::map<Rank, std::map<uint64_t, std::shared_ptr<Stream>>> open_ ABSL_GUARDED_BY(mutex_);
};

class ExchangeHandler : public StreamHandler {
 public:
  // Returns null when the job is not open here.
  using FindJob = std::function<std::shared_ptr<JobTables>(const std::string& job_id)>;

  // `counters`, `rank_streams` and everything that the functions use must outlive the handler.
  // `on_refused` is told of everything that is refused to the peer, and of the stream that is
  // closed because its rank has opened too many; it may be null. `rank_streams` may be null: a rank
  // may have any number of streams.
  ExchangeHandler(std::shared_ptr<Stream> stream, FindJob find_job, DataPlaneCounters* counters,
                  OnRefused on_refused = nullptr, RankStreams* rank_streams = nullptr);
  ~ExchangeHandler() override;

  void OnMessage(Message message) override;
  // Nothing of the message is held after the call: keys of pulls that wait, gradients that wait for
  // a step, and changes for a follower are copies.
  void OnLent(const LentMessage& message) override;
  void OnClosed() override;

 private:
  using Decode = absl::FunctionRef<absl::StatusOr<DecodedFrame>()>;

  // A message of so many bytes, which `decode` decodes.
  void Take(size_t bytes, Decode decode);
  void TakeFrame(size_t bytes, Decode decode);
  // A non-OK status closes the stream: the peer breaks the protocol, or its job is not open here.
  absl::Status HandleFrame(DecodedFrame frame);
  absl::Status HandleHello(const FrameHeader& header);
  void CountStream(const RankStreams::Rank& rank);
  void Tell(const absl::Status& refusal);
  void RefuseAndClose(const absl::Status& status, uint64_t request_id);

  const std::shared_ptr<Stream> stream_;
  const FindJob find_job_;
  DataPlaneCounters* const counters_;
  const OnRefused on_refused_;                // may be null
  RankStreams* const rank_streams_;           // may be null
  std::optional<RankStreams::Rank> counted_;  // in rank_streams_
  bool closed_ = false;
  std::weak_ptr<JobTables> job_;
  std::string job_id_;  // of the hello; empty before it
  uint64_t instance_ = 0;
  Caller caller_;
  PushPart scratch_;
  std::unique_ptr<ReplyWriter> reply_;  // of the request being read
  bool in_request_ = false;             // messages of request_id_ are still to come
  uint64_t request_id_ = 0;
};

}  // namespace sluice
