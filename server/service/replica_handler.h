// The follower's end of a stream of proto/replica.proto: applies a primary's messages and confirms
// them, or sends copies to a successor.
//
// Thread safety: one thread. The transport calls OnMessage and OnClosed one at a time.
//
// Memory: at most kSeedAheadBytes of images wait to be sent to a successor.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/transport/transport.h"
#include "server/copies/seed_stream.h"
#include "server/service/peer_refusals.h"
#include "server/tables/job_copies.h"

namespace sluice {

class JobTables;

class ReplicaHandler : public StreamHandler {
 public:
  // Returns null when the job is not open here.
  using FindJob = std::function<std::shared_ptr<JobTables>(const std::string& job_id)>;
  // Everything that the functions use must outlive the handler. `on_refused` is told of the refusal
  // that ends the stream; it may be null.
  ReplicaHandler(std::shared_ptr<Stream> stream, FindJob find_job, OnRefused on_refused = nullptr)
      : stream_(std::move(stream)),
        find_job_(std::move(find_job)),
        on_refused_(std::move(on_refused)) {}
  ~ReplicaHandler() override { OnClosed(); }

  void OnMessage(Message message) override;
  void OnClosed() override;

 private:
  absl::Status Take(Message message);
  absl::Status TakeHello(const ReplicaHello& hello);
  absl::Status TakeChanges(DecodedReplica message, JobCopies* copies);
  // A successor has confirmed what it has, or gives the copies back.
  absl::Status TakeConfirmation(const ReplicaHeader& header, JobCopies* copies);
  absl::Status SendMore();
  void Tell(const absl::Status& refusal);
  void Send(const ReplicaHeader& header) { stream_->Send(EncodeReplica(header, {})); }

  const std::shared_ptr<Stream> stream_;
  const FindJob find_job_;
  const OnRefused on_refused_;  // may be null
  bool closed_ = false;
  // As the hello says; empty before it.
  std::string job_id_;
  uint64_t instance_ = 0;
  uint32_t pserver_ = 0;
  // Weak: a stream does not keep the tables of a dropped job.
  std::weak_ptr<JobTables> job_;
  bool reads_ = false;       // of a successor
  uint64_t generation_ = 0;  // of its route
  JobCopies::Held held_;
  // For a successor: shards that are still to be sent, and the image under way.
  std::vector<std::shared_ptr<Shard>> shards_;
  size_t next_ = 0;
  std::unique_ptr<SeedSender> sender_;
  uint64_t sent_bytes_ = 0, taken_bytes_ = 0;
  bool all_sent_ = false;
};

}  // namespace sluice
