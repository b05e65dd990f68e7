// One stream of a worker at a pserver: decodes its messages, puts requests together, refuses what
// is wrong.
//
// Thread safety: OnMessage and OnClosed come one at a time (transport.h).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "common/transport/transport.h"
#include "server/job_tables.h"

namespace sluice {

// What went over the data plane of this process. Relaxed: only sums are read.
struct DataPlaneCounters {
  std::atomic<uint64_t> streams{0};
  std::atomic<uint64_t> messages_in{0};
  std::atomic<uint64_t> bytes_in{0};
  std::atomic<uint64_t> refused{0};
};

class ExchangeHandler : public StreamHandler {
 public:
  // Null when the job is not open here.
  using FindJob = std::function<std::shared_ptr<JobTables>(const std::string& job_id)>;

  // `counters` and what `find_job` uses outlive the handler.
  ExchangeHandler(std::shared_ptr<Stream> stream, FindJob find_job, DataPlaneCounters* counters);
  ~ExchangeHandler() override;

  void OnMessage(Message message) override;
  void OnClosed() override;

 private:
  void TakeMessage(Message message);
  // A non-OK status closes the stream: the peer does not speak the protocol, or not to this job.
  absl::Status HandleFrame(DecodedFrame frame);
  absl::Status HandleHello(const FrameHeader& header);
  void RefuseAndClose(const absl::Status& status, uint64_t request_id);

  const std::shared_ptr<Stream> stream_;
  const FindJob find_job_;
  DataPlaneCounters* const counters_;
  bool closed_ = false;
  std::weak_ptr<JobTables> job_;
  std::string job_id_;
  Caller caller_;
  PushPart scratch_;
  std::unique_ptr<ReplyWriter> reply_;  // of the request being read
  bool in_request_ = false;             // messages of request_id_ are still to come
  uint64_t request_id_ = 0;
};

}  // namespace sluice
